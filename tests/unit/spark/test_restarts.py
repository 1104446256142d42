# SPDX-License-Identifier: Apache-2.0
"""Reader and writer of a stream over the loss of a broker with a store, call by call, as Spark makes the calls."""

from __future__ import annotations

import contextlib
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.lasting import Lasting

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

import shmbroker
from shmbroker.spark import attachment, sink
from shmbroker.spark.options import stream_options, stream_write_options, write_options
from shmbroker.spark.sink import BatchWriter, StreamWriter
from shmbroker.spark.stream import LeaseReader
from shmbroker.staging import stages
from tests.unit.spark.conftest import disconnect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Checkpoint = dict[str, Any]


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """A broker with a store, and a durable queue with six messages."""
    with contextlib.closing(Lasting(broker_name, tmp_path)) as made:
        made.connection.queue("q", durable=True).put_many([b"%d" % number for number in range(6)])
        yield made
        disconnect(broker_name)


def reader(lasting: Lasting, **options: str) -> LeaseReader:
    """As a driver makes it, with a group of two rows a batch."""
    given = {"queue": "q", "broker": lasting.name, "group": "g", "columns": "sequence,value", "maxRowsPerTrigger": "2"}
    return LeaseReader(stream_options(given | options))


def read(found: LeaseReader, start: Checkpoint, end: Checkpoint) -> list[tuple[int, bytes]]:
    """The rows of a micro-batch, as workers read them."""
    sent = pickle.loads(pickle.dumps(found.partitions(start, end)))  # noqa: S301
    batches = [batch for part in sent for batch in found.read(part)]
    return [(row["sequence"], bytes(row["value"])) for batch in batches for row in batch.to_pylist()]


def test_a_batch_is_read_again(lasting: Lasting) -> None:
    """By its offsets, which another driver has from the checkpoint: the same rows; then the next ones."""
    first = reader(lasting)
    start = first.initialOffset()
    end = first.latestOffset(start)
    rows = read(first, start, end)
    assert rows == [(0, b"0"), (1, b"1")]
    for _ in range(2):
        lasting.restart()
        assert read(reader(lasting), start, end) == rows
    again = reader(lasting)
    following = again.latestOffset(end)
    assert read(again, end, following) == [(2, b"2"), (3, b"3")]
    lasting.restart()
    assert [(one.acked, one.leases) for one in shmbroker.groups(lasting.connection)] == [(1, 1)]


def test_a_lease_that_was_not_noted(lasting: Lasting) -> None:
    """The driver was lost before it wrote the offset: it asks for the next offset again, and gets the same rows."""
    first = reader(lasting)
    start = first.initialOffset()
    end = first.latestOffset(start)
    rows = read(first, start, end)
    lasting.restart()
    again = reader(lasting)
    assert again.latestOffset(start) == end
    assert read(again, start, end) == rows


def test_a_query_without_a_group(lasting: Lasting) -> None:
    """The first batch, which is empty, has brought the name into the checkpoint."""
    options = stream_options({"queue": "q", "broker": lasting.name, "columns": "sequence,value"})
    first = LeaseReader(options)
    noted = first.latestOffset(first.initialOffset())
    lasting.restart()
    again = LeaseReader(options)
    assert len(read(again, noted, again.latestOffset(noted))) == 6


def test_a_queue_that_may_be_larger_than_the_memory(lasting: Lasting) -> None:
    """A batch gets a part of the free memory, though the memory can grow and the query has named no limit."""
    deep = lasting.connection.queue("deep", durable=True)
    deep.put_many([b" " * 10_000] * 3000)
    found = LeaseReader(stream_options({"queue": "deep", "broker": lasting.name, "group": "g"}))
    end = found.latestOffset(found.initialOffset())
    (group,) = shmbroker.groups(lasting.connection)
    assert end["lease"] == 1
    assert 0 < group.bytes < 20_000_000
    assert len(deep) + group.messages == 3000


def test_the_offsets_of_another_store(lasting: Lasting, tmp_path: Path, broker_name: str) -> None:
    """A broker of the same name whose folder is another one does not have the leases."""
    first = reader(lasting)
    start = first.initialOffset()
    end = first.latestOffset(start)
    disconnect(lasting.name)
    lasting.stop()
    (tmp_path / "other").mkdir()
    with contextlib.closing(Lasting(broker_name, tmp_path / "other")) as other:
        other.connection.queue("q", durable=True)
        with pytest.raises(shmbroker.LeaseNotFound, match=r"the checkpoint is of broker store .*, this one is store "):
            reader(other).partitions(start, end)
        disconnect(broker_name)
    lasting.begin()
    assert len(read(reader(lasting), start, end)) == 2


def test_the_offsets_of_a_queue_that_is_not_durable(lasting: Lasting) -> None:
    """It ended with the memory."""
    lasting.connection.queue("brief").put(b"x")
    first = reader(lasting, queue="brief")
    start = first.initialOffset()
    end = first.latestOffset(start)
    lasting.restart()
    lasting.connection.queue("brief")
    with pytest.raises(shmbroker.LeaseNotFound, match="the checkpoint is of broker"):
        reader(lasting, queue="brief").latestOffset(end)


def test_a_worker_connects_again(lasting: Lasting) -> None:
    """To the memory that has the name now; what was planned for the earlier one is refused."""
    before = attachment.connection_to(lasting.name)
    planned = reader(lasting)
    start = planned.initialOffset()
    parts = planned.partitions(start, planned.latestOffset(start))
    lasting.restart()
    after = attachment.connection_to(lasting.name)
    assert after is not before
    assert not before.is_open
    assert len(after.queue("q", passive=True)) == 4
    with pytest.raises(shmbroker.BrokerNotFound, match="for which Spark planned is gone"):
        list(planned.read(parts[0]))


def test_a_batch_is_written_again(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A committed batch is not published again; one that was only staged is."""
    lasting.connection.queue("out", durable=True)

    class Task:
        """Stands in for Spark's context of a task."""

        def __init__(self, batch: int) -> None:
            self.partitionId, self.taskAttemptId = (lambda: 0), (lambda: 0)
            self.getLocalProperty = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(batch)}.get

    def write(batch: int, *, commit: bool) -> None:
        writer = StreamWriter(stream_write_options({"queue": "out", "broker": lasting.name}))
        monkeypatch.setattr(sink, "TaskContext", type("Context", (), {"get": staticmethod(lambda: Task(batch))}))
        staged = writer.write(iter([pa.record_batch({"value": [f"{batch}-{row}" for row in range(2)]})]))
        if commit:
            writer.commit([staged], batch)

    write(0, commit=True)
    write(1, commit=False)
    lasting.restart()
    assert [one.batch for one in stages(lasting.connection)] == [1]
    for batch in (0, 1, 1, 2):
        write(batch, commit=True)
    lasting.restart()
    published = [bytes(message).decode() for message in lasting.queue("out").browse()]
    assert published == [f"{batch}-{row}" for batch in range(3) for row in range(2)]
    assert stages(lasting.connection) == []


def test_rows_that_are_put_immediately(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends has them on the disk, with `delivery` = `at-least-once` as well."""
    lasting.connection.queue("out", durable=True)
    monkeypatch.setattr(sink, "TaskContext", type("Context", (), {"get": staticmethod(lambda: None)}))
    options = {"queue": "out", "broker": lasting.name, "delivery": "at-least-once", "timeout": "0.3"}
    writer = BatchWriter(write_options(options))
    with lasting.keeper_stopped(), pytest.raises(shmbroker.exceptions.Timeout, match="has not synced"):
        writer.write(iter([pa.record_batch({"value": ["a"]})]))
    assert len(lasting.queue("out")) == 1
