# SPDX-License-Identifier: Apache-2.0
"""Writers as Spark calls them: tasks that stage, drivers that publish or drop, and what each of them says."""

from __future__ import annotations

import hashlib
import pickle
import queue as standard_queue
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import Row, types

import shmbroker
from shmbroker import columns
from shmbroker.spark import put_batch, register_schema, registered, sink
from shmbroker.spark.batches import Decoder
from shmbroker.spark.options import stream_write_options, write_options
from shmbroker.spark.sink import BatchWriter, Staged, StreamWriter, check_batches
from shmbroker.staging import Stage, stages

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = {"sql.streaming.queryId": "query-1", "streaming.sql.batchId": "7"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
LONG, TEXT = types.LongType(), types.StringType()


class Task:
    """Stands in for Spark's context of a task."""

    def __init__(self, partition: int = 0, attempt: int = 0, place: dict[str, str] | None = None) -> None:
        """Of a partition, in an attempt of it."""
        self.partitionId, self.taskAttemptId = (lambda: partition), (lambda: attempt)
        self.getLocalProperty = (place or {}).get


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes this process a task."""

    def become(*given: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(sink, "TaskContext", type("Context", (), {"get": staticmethod(lambda: Task(*given))}))

    yield become
    monkeypatch.undo()


def rows(*values: str) -> pa.RecordBatch:
    """Messages without anything else."""
    return pa.record_batch({"value": list(values)})


def bodies(queue: shmbroker.Queue) -> list[str]:
    """What is ready, and stays."""
    return [bytes(one).decode() for one in queue.browse()]


def batch_writer(queue: shmbroker.Queue, **options: str) -> BatchWriter:
    """A writer of a batch that has travelled, as to a task."""
    given = write_options({"queue": queue.name, "broker": connection_of(queue).broker_name, **options})
    made: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(given)))  # noqa: S301
    return made


def stream_writer(queue: shmbroker.Queue, **options: str) -> StreamWriter:
    """A writer of a stream."""
    given = stream_write_options({"queue": queue.name, "broker": connection_of(queue).broker_name, **options})
    made: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(given)))  # noqa: S301
    return made


def test_a_job_is_published_as_a_whole(queue: shmbroker.Queue, task: Any) -> None:  # noqa: ANN401
    """In the order of its partitions, by its commit; what other attempts staged is dropped; nothing is left."""
    writer = batch_writer(queue)
    task(0, 10)
    first = writer.write(iter([rows("A"), rows("B", "C")]))
    task(1, 11)
    writer.write(iter([rows("of a loser")]))
    task(1, 12)
    second = writer.write(iter([rows("D")]))
    staged = [(one.partition, one.attempt, one.count) for one in stages(connection_of(queue))]
    assert (bodies(queue), sorted(staged)) == ([], [(0, 10, 3), (1, 11, 1), (1, 12, 1)])
    assert second.receipt is not None
    assert (second.publication, second.receipt.count) == ("jobs.q", 1)
    writer.commit([second, None, first])
    assert bodies(queue) == ["A", "B", "C", "D"]
    assert stages(connection_of(queue)) == []


def test_a_job_that_fails_leaves_nothing(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was staged of it is dropped, within ten seconds; other jobs are not."""
    writer, other = batch_writer(queue), batch_writer(queue)
    writer.write(iter([rows("A")]))
    staged = other.write(iter([rows("B")]))
    waits = []
    drop = Stage.drop

    def dropped(self: Stage, batch: int | uuid.UUID, *, timeout: float | None = None) -> Any:  # noqa: ANN401
        waits.append(timeout)
        return drop(self, batch, timeout=timeout)

    monkeypatch.setattr(Stage, "drop", dropped)
    writer.abort([])
    assert waits == [10.0]
    assert [one.count for one in stages(connection_of(queue))] == [1]
    other.commit([staged])
    assert bodies(queue) == ["B"]
    assert stages(connection_of(queue)) == []


def test_what_is_no_task(queue: shmbroker.Queue) -> None:
    """Its rows are those of the first attempt at the first partition."""
    writer = batch_writer(queue)
    writer.write(iter([rows("A")]))
    assert [(one.partition, one.attempt) for one in stages(connection_of(queue))] == [(0, 0)]
    writer.abort([])


def test_a_write_of_nothing(queue: shmbroker.Queue) -> None:
    """Nothing is published, and no stage is left."""
    writer = batch_writer(queue)
    writer.commit([])
    writer.commit([writer.write(iter([]))])
    assert (bodies(queue), stages(connection_of(queue))) == ([], [])


def test_the_names_of_publications(connection: shmbroker.Connection) -> None:
    """Each is of a queue, and no longer than a name may be."""
    for name, wanted in (
        ("q", "jobs.q"),
        ("ä" * 47 + "x", "jobs." + "ä" * 47 + "x"),
        ("ä" * 48, "jobs." + "ä" * 32 + "." + hashlib.sha256(("ä" * 48).encode()).hexdigest()[:16]),
    ):
        queue = connection.queue(name)
        assert batch_writer(queue).write(iter([])).publication == wanted
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        numbered = batch_writer(queue, txnAppId="mine", txnVersion="3")
        assert numbered.write(iter([])).publication == f"txn.{digest}.mine"


def test_numbered_batches_are_published_once(queue: shmbroker.Queue) -> None:
    """A number that is not above the last one publishes nothing; other names, and other queues, have their own."""
    other = connection_of(queue).queue("other")
    for target, app, version, value in (
        (queue, "a", "5", "A"),
        (queue, "a", "5", "again"),
        (queue, "a", "4", "before"),
        (queue, "a", "6", "B"),
        (queue, "b", "0", "C"),
        (other, "a", "5", "D"),
    ):
        writer = batch_writer(target, txnAppId=app, txnVersion=version)
        writer.commit([writer.write(iter([rows(value)]))])
    assert (bodies(queue), bodies(other)) == (["A", "B", "C"], ["D"])


def test_a_numbered_batch_is_of_its_queue(connection: shmbroker.Connection) -> None:
    """The number goes with the queue: one of that name that is made later begins anew."""
    for value in ("A", "B"):
        queue = connection.queue("q")
        writer = batch_writer(queue, txnAppId="a", txnVersion="5")
        writer.commit([writer.write(iter([rows(value)]))])
        assert bodies(queue) == [value]
        queue.delete()


def test_what_is_put_as_it_comes(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the commit; commit and abort do nothing, and there is no broker to be planned for."""
    BatchWriter(write_options({"queue": "q", "broker": "there is none", "delivery": "at-least-once"}))
    for name in ("publish", "drop"):
        monkeypatch.setattr(Stage, name, lambda *_, **__: pytest.fail("nothing was staged"))
    writer = batch_writer(queue, delivery="at-least-once")
    done = writer.write(iter([rows("A", "B"), rows("C")]))
    assert done == Staged("jobs.q", None)
    assert bodies(queue) == ["A", "B", "C"]
    writer.commit([done])
    writer.abort([done])
    assert (bodies(queue), stages(connection_of(queue))) == (["A", "B", "C"], [])


def test_what_is_put_waits_for_room(connection: shmbroker.Connection) -> None:
    """For as long as was said: then what had room is there, in order, and the task fails."""
    queue = connection.queue("q", max_length=3)
    writer = batch_writer(queue, delivery="at-least-once", timeout="0.01")
    with pytest.raises(standard_queue.Full):
        writer.write(iter([rows("A", "B"), rows("C", "D", "E")]))
    assert bodies(queue) == ["A", "B", "C"]


def test_rows_are_put_where_there_is_room(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that had room for some says so, and goes on with the next one."""
    put, calls = columns.put, []

    def two(*given: Any, row: int) -> int:  # noqa: ANN401
        calls.append((*given[2:], row))
        return put(given[0], given[1], min(2, given[2]), given[3], row=row)

    monkeypatch.setattr(sink, "put", two)
    batch_writer(queue, delivery="at-least-once", timeout="5").write(iter([rows(*"ABCDE")]))
    assert bodies(queue) == [*"ABCDE"]
    assert calls == [(5, 5.0, 0), (3, 5.0, 2), (1, 5.0, 4)]


def test_a_task_waits_for_memory(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute, or as long as was said; what is published whole is planned for one broker."""
    register_schema(batches := connection_of(queue).queue("batches"), SCHEMA)
    waits = []
    monkeypatch.setattr(shmbroker.staging.Writer, "put_columns", lambda _self, *_given, timeout: waits.append(timeout))
    monkeypatch.setattr(registered.Writer, "encoded", lambda *_: Waits())

    class Waits:
        def put(self, _to: object, timeout: float | None = None) -> None:
            waits.append(timeout)

    words = pa.record_batch([[1], ["a"]], schema=SCHEMA)
    for options in ({}, {"timeout": "2.5"}):
        batch_writer(queue, **options).write(iter([rows("A")]))
        batch_writer(batches, payload="arrow", **options).write(iter([words]))
    batch_writer(batches, payload="arrow", timeout="2.5", delivery="at-least-once").write(iter([words]))
    assert waits == [60, 60, 2.5, 2.5, 2.5]


def test_publishing_waits(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job as long as it takes, since nobody could go on with it; a numbered batch for as long as was said."""
    seen = []

    def publish(self: Stage, batch: Any, receipts: Any, target: str, timeout: Any) -> None:  # noqa: ANN401, ARG001
        seen.append((batch, [one.count for one in receipts], target, timeout))

    monkeypatch.setattr(Stage, "publish", publish)
    made = []
    init = Stage.__init__

    def noted(self: Stage, *given: Any, **options: Any) -> None:  # noqa: ANN401
        made.append((given[1], options))
        init(self, *given, **options)

    for options in ({}, {"txnAppId": "a", "txnVersion": "5"}):
        writer = batch_writer(queue, timeout="2.5", **options)
        staged = writer.write(iter([rows("A", "B")]))
        with monkeypatch.context() as patched:
            patched.setattr(Stage, "__init__", noted)
            writer.commit([staged, None])
    stream = stream_writer(queue, timeout="2.5")
    with monkeypatch.context() as patched:
        patched.setattr(Stage, "__init__", noted)
        stream.commit([staged], 8)
    (job, *rest), *others = seen
    assert isinstance(job, uuid.UUID)
    assert rest == [[2], "q", None]
    assert others == [(5, [2], "q", 2.5), (8, [2], "q", 2.5)]
    limits = {"at_once": 1000, "bytes_at_once": 1 << 20}
    assert [options for _, options in made] == [
        limits | {"per_target": numbered, "durable": False} for numbered in (False, True, False)
    ]
    monkeypatch.undo()
    for one in stages(connection_of(queue)):
        Stage(connection_of(queue), one.publication).drop(5)
    writer.abort([])


def test_a_stream_writes_each_batch_once(queue: shmbroker.Queue, task: Any) -> None:  # noqa: ANN401
    """It is known by the query and the batch's number, of which Spark tells each task; rows are batches as well."""
    writer = stream_writer(queue)
    for number, value in (("7", "A"), ("7", "again"), ("8", "B")):
        task(0, 1, PLACE | {"streaming.sql.batchId": number})
        staged = writer.write(iter([rows(value), Row(value=value.lower())]))
        assert staged.publication == "query.query-1"
        writer.commit([staged], int(number))
    assert bodies(queue) == ["A", "a", "B", "b"]


def test_a_stream_drops_what_failed(
    queue: shmbroker.Queue,
    task: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the tasks that have said what they staged, within ten seconds; the batch can come again."""
    writer = stream_writer(queue)
    task(0, 1, PLACE)
    staged = writer.write(iter([rows("A")]))
    drop, waits = Stage.drop, []

    def dropped(self: Stage, batch: int | uuid.UUID, *, timeout: float | None = None) -> Any:  # noqa: ANN401
        waits.append((batch, timeout))
        return drop(self, batch, timeout=timeout)

    monkeypatch.setattr(Stage, "drop", dropped)
    writer.abort([staged, None], 7)
    assert waits == [(7, 10.0)]
    assert stages(connection_of(queue)) == []
    again = writer.write(iter([rows("B")]))
    writer.commit([again], 7)
    assert bodies(queue) == ["B"]


def test_a_stream_that_stages_nothing_has_nothing_to_drop(
    queue: shmbroker.Queue,
    task: Any,  # noqa: ANN401
) -> None:
    """Rows that were put immediately stay when a task fails for good, and no queue of a publication is made."""
    writer = stream_writer(queue, delivery="at-least-once")
    task(0, 1, PLACE)
    put = writer.write(iter([rows("A")]))
    before = connection_of(queue).queue_names(all=True)
    writer.abort([put, None], 7)
    assert connection_of(queue).queue_names(all=True) == before
    assert bodies(queue) == ["A"]


@pytest.mark.parametrize("place", [{}, {"sql.streaming.queryId": "x"}, {"streaming.sql.batchId": "1"}, None])
def test_a_task_of_no_query(queue: shmbroker.Queue, task: Any, place: dict[str, str] | None) -> None:  # noqa: ANN401
    """Spark has not said which batch it is of: that is an error."""
    if place is not None:
        task(0, 0, place)
    with pytest.raises(
        shmbroker.BrokerError, match="Spark does not say which query and batch a task belongs to"
    ) as odd:
        stream_writer(queue).write(iter([rows("A")]))
    assert odd.value.code == 541


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_batches_are_messages(queue: shmbroker.Queue, delivery: str) -> None:
    """Of a queue that has a schema: each record batch is one."""
    register_schema(queue, SCHEMA)
    writer = batch_writer(queue, payload="arrow", delivery=delivery)
    words = pa.record_batch([[1, 2], ["a", None]], schema=SCHEMA)
    writer.commit([writer.write(iter([words, words.slice(1)]))])
    assert [Decoder().batches(bytes(one)) for one in queue.browse()] == [[words], [words.slice(1)]]


def test_a_queue_that_is_not_there(connection: shmbroker.Connection) -> None:
    """It is not made; a task says so."""
    writer = BatchWriter(write_options({"queue": "missing", "broker": connection.broker_name}))
    with pytest.raises(shmbroker.NotFound):
        writer.write(iter([rows("A")]))
    assert "missing" not in connection.queue_names()


def struct(*fields: tuple[str, types.DataType] | tuple[str, types.DataType, bool]) -> types.StructType:
    """A schema of Spark's."""
    return types.StructType([types.StructField(*one) for one in fields])


DEEP = pa.schema([("id", pa.int64()), ("deep", pa.list_(pa.field("item", pa.int64(), nullable=False)))])
BAD = [
    (SCHEMA, struct(("id", LONG)), "there is no column 'word', which the batches of queue 'q' have"),
    (
        SCHEMA,
        struct(("id", LONG), ("more", TEXT)),
        "column 'more' is not in the batches of queue 'q', or is in another place there",
    ),
    (
        SCHEMA,
        struct(("word", TEXT), ("id", LONG)),
        "column 'word' is not in the batches of queue 'q', or is in another place there",
    ),
    (SCHEMA, struct(("id", LONG), ("word", TEXT), ("x", TEXT)), "column 'x' is not in the batches of queue 'q', or"),
    (SCHEMA, struct(("id", TEXT), ("word", TEXT)), "column 'id' is string, not bigint, which it is in the batches of"),
    (
        DEEP,
        struct(("id", LONG), ("deep", types.ArrayType(LONG, True))),  # noqa: FBT003
        "column 'deep' may have nulls inside, and the schema of queue 'q'",
    ),
]


@pytest.mark.parametrize(("has", "schema", "text"), BAD, ids=[text[:30] for *_, text in BAD])
def test_a_table_of_other_batches(queue: shmbroker.Queue, has: pa.Schema, schema: types.StructType, text: str) -> None:
    """The error names the first column that differs, and the queue."""
    register_schema(queue, has)
    options = write_options({"queue": "q", "broker": connection_of(queue).broker_name, "payload": "arrow"})
    with pytest.raises(shmbroker.SchemaMismatch) as refused:
        check_batches(schema, options)
    assert refused.value.text.startswith(f"PRECONDITION_FAILED - {text}")


def test_a_table_of_those_batches(queue: shmbroker.Queue) -> None:
    """Whether a column may be null is asked of its values, when they are written."""
    register_schema(queue, DEEP)
    options = write_options({"queue": "q", "broker": connection_of(queue).broker_name, "payload": "arrow"})
    check_batches(struct(("id", LONG, False), ("deep", types.ArrayType(LONG, False))), options)  # noqa: FBT003
    put_batch(queue, pa.record_batch([[1], [[1]]], schema=DEEP))
    with pytest.raises(shmbroker.SchemaMismatch, match="it has no Arrow schema"):
        check_batches(struct(("id", LONG)), write_options({**_other(queue), "payload": "arrow"}))


def _other(queue: shmbroker.Queue) -> dict[str, str]:
    """A queue without a schema."""
    return {"queue": connection_of(queue).queue("plain").name, "broker": connection_of(queue).broker_name}
