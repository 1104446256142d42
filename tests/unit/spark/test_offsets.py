# SPDX-License-Identifier: Apache-2.0
"""What a stream makes of offsets and of its group, as Spark would call it; without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import shmbroker
from shmbroker.spark.options import stream_options
from shmbroker.spark.stream import LeaseReader

if TYPE_CHECKING:
    from collections.abc import Iterator


def reader(broker: str, **options: str) -> LeaseReader:
    """A reader of queue "q" for group "g", two messages at a time."""
    given = {"queue": "q", "broker": broker, "group": "g", "maxRowsPerTrigger": "2"}
    return LeaseReader(stream_options(given | options))


def read(stream: LeaseReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """The bodies of a micro-batch."""
    parts = stream.partitions(start, end)
    return [value for part in parts for batch in stream.read(part) for value in batch.column("value").to_pylist()]  # type: ignore[arg-type]


@pytest.fixture
def anew(broker_name: str) -> Iterator[tuple[shmbroker.Connection, dict[str, Any], dict[str, Any]]]:
    """A broker, and two offsets of another one of its name: the start and the end of a batch that was noted there."""
    with shmbroker.Broker(broker_name, memory="32M") as old, old.connect() as connection:
        connection.queue("q").put_many([b"A", b"B", b"C"])
        stream = reader(broker_name)
        first = stream.initialOffset()
        start = stream.latestOffset(first)
        end = stream.latestOffset(start)
        assert read(stream, start, end) == [b"C"]
        old.stop(purge=True)
    with shmbroker.Broker(broker_name, memory="32M") as new, new.connect() as connection:
        connection.queue("q").put_many([b"D", b"E", b"F"])
        yield connection, start, end


def test_offsets_of_another_broker(anew: tuple[shmbroker.Connection, dict[str, Any], dict[str, Any]]) -> None:
    """A batch that is to be read again, and the next one, are errors that name both brokers; nothing is leased."""
    connection, start, end = anew
    here = reader(connection.broker_name).initialOffset()["broker"]
    assert here != end["broker"]
    for call in (
        lambda: reader(connection.broker_name).partitions(start, end),
        lambda: reader(connection.broker_name).latestOffset(end),
    ):
        with pytest.raises(shmbroker.LeaseNotFound) as lost:
            call()
        assert f"the checkpoint is of broker {end['broker']}, this one is {here}" in str(lost.value)
    assert len(connection.queue("q")) == 3


def test_data_loss_is_passed_over(
    anew: tuple[shmbroker.Connection, dict[str, Any], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """If that was asked for: the batch is empty, with a warning, and the query goes on with what is there."""
    connection, start, end = anew
    stream = reader(connection.broker_name, failOnDataLoss="false")
    assert read(stream, start, end) == []
    assert f"data loss: 404 NOT_FOUND - the checkpoint is of broker {end['broker']}" in caplog.text
    found = []
    after = stream.latestOffset(end)
    while after != end:
        found += read(stream, end, after)
        end, after = after, stream.latestOffset(after)
    assert found == [b"D", b"E", b"F"]
    assert [(one.messages, one.acked) for one in shmbroker.groups(connection)] == [(0, 2)]


def test_available_now_takes_what_a_killed_driver_had_begun_to_lease(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the queue is empty; what comes later is left to the next run."""
    queue.put_many([b"A", b"B", b"C"])
    before = reader(connection.broker_name)
    start = before.initialOffset()
    with monkeypatch.context() as killed:
        killed.setattr(shmbroker.Group, "_change", lambda *_: pytest.fail("before the lease was written down"))
        with pytest.raises(pytest.fail.Exception):
            before.latestOffset(start)
    queue.get(auto_ack=True)
    stream = reader(connection.broker_name)
    stream.prepareForTriggerAvailableNow()
    queue.put(b"D")
    end = stream.latestOffset(start)
    assert read(stream, start, end) == [b"A", b"B"]
    assert stream.latestOffset(end) == end


def test_two_queries_of_one_group(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The later one has the group, and what the earlier one had leased; the earlier one is told so."""
    queue.put_many([b"A", b"B", b"C", b"D", b"E"])
    earlier, later = reader(connection.broker_name), reader(connection.broker_name)
    start = earlier.initialOffset()
    first = earlier.latestOffset(start)
    assert later.latestOffset(start) == first
    assert read(later, start, first) == [b"A", b"B"]
    with pytest.raises(shmbroker.GroupInUse, match="group 'g'"):
        earlier.latestOffset(first)
    with pytest.raises(shmbroker.GroupInUse, match="group 'g'"):
        earlier.commit(first)
    second = later.latestOffset(first)
    assert read(later, first, second) == [b"C", b"D"]


@pytest.mark.parametrize(("limit", "sizes"), [("1", [1, 1, 1]), ("2", [1, 1, 1]), ("3", [2, 1]), ("4", [2, 1])])
def test_a_limit_of_bytes(
    connection: shmbroker.Connection, queue: shmbroker.Queue, limit: str, sizes: list[int]
) -> None:
    """The message that reaches it is the last one of the micro-batch."""
    queue.put_many([b"AA", b"BB", b"CC"])
    stream = LeaseReader(
        stream_options({"queue": "q", "broker": connection.broker_name, "group": "g", "maxBytesPerTrigger": limit})
    )
    start, found = stream.initialOffset(), []
    while (end := stream.latestOffset(start)) != start:
        found.append(len(read(stream, start, end)))
        start = end
    assert found == sizes


def test_what_was_not_finished_is_not_acknowledged(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Of several leases those are, up to the one that Spark has finished: the others come, whatever is asked when."""
    queue.put_many([b"A", b"B", b"C", b"D", b"E", b"F"])
    first, second, third = (reader(connection.broker_name).latestOffset() for _ in range(3))  # acknowledges nothing
    stream = reader(connection.broker_name)
    assert stream.latestOffset(first) == second
    assert [one.acked for one in shmbroker.groups(connection)] == [first["lease"]]
    assert read(stream, first, second) == [b"C", b"D"]
    stream.commit(first)
    assert read(stream, first, third) == [b"C", b"D", b"E", b"F"]
    stream.commit(second)
    assert [one.acked for one in shmbroker.groups(connection)] == [second["lease"]]
    assert stream.latestOffset(second) == third
    assert read(stream, second, third) == [b"E", b"F"]


def test_spark_that_does_not_say_where_it_was(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """As 4.0 and 4.1: it is at the first lease, and then at the last one; asking again acknowledges that."""
    queue.put_many([b"A", b"B", b"C"])
    stream = reader(connection.broker_name)
    first = stream.latestOffset()
    assert read(stream, stream.initialOffset(), first) == [b"A", b"B"]
    second = stream.latestOffset()
    stream.commit(first)
    assert read(stream, first, second) == [b"C"]
    assert stream.latestOffset() == second
    assert [(one.messages, one.acked) for one in shmbroker.groups(connection)] == [(0, 2)]


@pytest.mark.parametrize("noted", [0, 1], ids=["killed before the offset was noted", "killed after it"])
def test_such_a_spark_is_started_again(connection: shmbroker.Connection, queue: shmbroker.Queue, noted: int) -> None:
    """It goes on where its checkpoint ends, whether that has the last lease or not: nothing is lost or twice."""
    queue.put_many([b"A", b"B", b"C", b"D", b"E"])
    before = reader(connection.broker_name)
    start = before.initialOffset()
    ends = [start, before.latestOffset()]
    found = read(before, *ends) if noted else []
    after = reader(connection.broker_name)
    found += read(after, ends[noted], end := after.latestOffset())
    while (last := after.latestOffset()) != end:
        found += read(after, end, last)
        end = last
    assert found == [b"A", b"B", b"C", b"D", b"E"]
    assert [one.messages for one in shmbroker.groups(connection)] == [0]


def test_such_a_spark_at_another_broker(anew: tuple[shmbroker.Connection, dict[str, Any], dict[str, Any]]) -> None:
    """It finds out when it is told both ends of a batch."""
    connection, _, end = anew
    stream = reader(connection.broker_name)
    last = stream.latestOffset()
    with pytest.raises(shmbroker.LeaseNotFound, match=f"the checkpoint is of broker {end['broker']}, this one is"):
        stream.partitions(end, last)
    stream = reader(connection.broker_name, failOnDataLoss="false")
    assert read(stream, end, stream.latestOffset()) == [b"D", b"E", b"F"]


def test_such_a_spark_needs_a_group(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A name that we made up would be forgotten."""
    stream = LeaseReader(stream_options({"queue": queue.name, "broker": connection.broker_name}))
    with pytest.raises(ValueError, match=r"option group is missing: before 4\.2, Spark does not tell a source where"):
        stream.latestOffset()
