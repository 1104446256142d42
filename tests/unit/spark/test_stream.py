# SPDX-License-Identifier: Apache-2.0
"""A streaming read, call by call: offsets, limits, parts, what is acknowledged, and what is told of its progress."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from scenario_support.inside import connection_of

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import shmbroker
from shmbroker.spark import stream as module
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.options import stream_options
from shmbroker.spark.stream import NOT_NOTED, LeaseReader, Offset, Part


def reader(queue: shmbroker.Queue, **options: str | None) -> LeaseReader:
    """Of a queue, for group "g" unless another one, or none, is said."""
    given = {
        "queue": queue.name,
        "broker": connection_of(queue).broker_name,
        "group": "g",
        "columns": "value",
    } | options
    return LeaseReader(stream_options({name: value for name, value in given.items() if value is not None}))


def parts(found: LeaseReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Lease and bounds of each part."""
    return [(one.lease, one.start, one.stop) for one in found.partitions(start, end) if isinstance(one, Part)]


def read(found: LeaseReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """The bodies of a micro-batch, as workers read them."""
    sent = pickle.loads(pickle.dumps(found.partitions(start, end)))  # noqa: S301
    return [value for part in sent for batch in found.read(part) for value in batch.column("value").to_pylist()]


def acked(queue: shmbroker.Queue) -> list[tuple[str, int]]:
    """Groups, and what they have acknowledged."""
    return [(one.name, one.acked) for one in shmbroker.groups(connection_of(queue))]


def test_offsets() -> None:
    """They are written as they are read; what is none says so."""
    offset = Offset("b@1", "g", 5, 2)
    assert offset.written() == {"broker": "b@1", "group": "g", "lease": 5, "losses": 2}
    assert Offset.read(offset.written()) == offset
    assert Offset.read({"broker": 1, "group": 2, "lease": "3", "losses": "0"}) == Offset("1", "2", 3, 0)
    odd: Any
    for odd in ({}, {"broker": "b", "group": "g", "lease": "x", "losses": 0}, [], {"broker": "b"}):
        with pytest.raises(
            ValueError, match="broker, group, lease and losses are needed; another source may have"
        ) as bad:
            Offset.read(odd)
        assert str(bad.value).startswith(f"offset {odd!r}: ")


def test_a_query_without_a_group(queue: shmbroker.Queue) -> None:
    """Gets one of its own; its first batch is empty, and brings the name into the checkpoint."""
    queue.put_many([b"A", b"B"])
    planner = reader(queue, group=None)
    start = planner.initialOffset()
    assert planner.initialOffset() == start
    assert (start["lease"], start["losses"], start["broker"]) == (
        NOT_NOTED,
        0,
        BrokerIdentity.of(connection_of(queue)).identity(queue),
    )
    assert start["group"].startswith("spark-")
    assert len(start["group"]) == len("spark-") + 32
    noted = planner.latestOffset(start)
    planner.commit(noted)
    assert planner.reportLatestOffset() is None
    assert noted == start | {"lease": 0}
    assert len(queue) == 2
    assert parts(planner, start, noted) == [(0, 0, 0)]
    assert read(planner, start, noted) == []
    end = planner.latestOffset(noted)
    assert end == start | {"lease": 1}
    assert read(planner, noted, end) == [b"A", b"B"]
    assert acked(queue) == [(start["group"], 0)]
    assert planner.latestOffset(end) == end
    assert acked(queue) == [(start["group"], 1)]
    assert reader(queue, group=None).initialOffset()["group"] != start["group"]


def test_a_named_group_goes_on(queue: shmbroker.Queue) -> None:
    """After the last lease that it has acknowledged."""
    queue.put_many([b"A", b"B", b"C"])
    first = reader(queue, maxRowsPerTrigger="2")
    start = first.initialOffset()
    assert (start["group"], start["lease"]) == ("g", 0)
    end = first.latestOffset(start)
    assert first.latestOffset(end)["lease"] == 2
    again = reader(queue)
    begins = again.initialOffset()
    assert begins == end
    assert read(again, begins, again.latestOffset(begins)) == [b"C"]


def test_spark_may_leave_out_the_start(queue: shmbroker.Queue) -> None:
    """Then it is the last offset that was given, or the first one."""
    queue.put_many([b"A", b"B", b"C"])
    planner = reader(queue, maxRowsPerTrigger="2")
    planner.initialOffset()
    first = planner.latestOffset()
    second = planner.latestOffset()
    assert (first["lease"], second["lease"], acked(queue)) == (1, 2, [("g", 1)])
    assert planner.latestOffset() == second


def test_a_start_that_was_acknowledged_already(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is acknowledged once."""
    ack, calls = shmbroker.Group.ack, []

    def noted(self: shmbroker.Group, lease: int) -> Any:  # noqa: ANN401
        calls.append(lease)
        return ack(self, lease)

    monkeypatch.setattr(shmbroker.Group, "ack", noted)
    queue.put_many([b"A", b"B"])
    planner = reader(queue, maxRowsPerTrigger="1")
    start = planner.initialOffset()
    end = planner.latestOffset(start)
    planner.commit(end)
    assert acked(queue) == [("g", 1)]
    last = planner.latestOffset(end)
    assert read(planner, end, last) == [b"B"]
    planner.commit(end)
    assert (calls, acked(queue)) == ([1], [("g", 1)])


def test_commits_of_others(queue: shmbroker.Queue) -> None:
    """Before anything was planned, of another broker, or from before a loss: they say nothing of this group."""
    queue.put_many([b"A", b"B"])
    planner = reader(queue)
    planner.commit({"broker": "b", "group": "g", "lease": 1, "losses": 0})
    end = planner.latestOffset(planner.initialOffset())
    for other in ({"broker": "another"}, {"losses": 1}):
        planner.commit(end | other)
        assert acked(queue) == [("g", 0)]
    planner.commit(end)
    assert acked(queue) == [("g", 1)]
    planner.stop()


def test_parts_of_a_lease(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least as many as were asked for, with the same number of messages as far as that goes, and none too large."""
    queue.put_many([b"%d" % n for n in range(10)])
    for options, limit, wanted in (
        ({}, 100, [(1, 0, 10)]),
        ({"minPartitions": "4"}, 100, [(1, 0, 2), (1, 2, 5), (1, 5, 7), (1, 7, 10)]),
        ({"minPartitions": "40"}, 100, [(1, at, at + 1) for at in range(10)]),
        ({}, 4, [(1, 0, 3), (1, 3, 6), (1, 6, 10)]),
        ({}, 5, [(1, 0, 5), (1, 5, 10)]),
        ({"minPartitions": "3"}, 5, [(1, 0, 3), (1, 3, 6), (1, 6, 10)]),
    ):
        monkeypatch.setattr(module, "ROWS_OF_A_PART", limit)
        planner = reader(queue, **options)
        start = planner.initialOffset()
        end = planner.latestOffset(start)
        assert parts(planner, start, end) == wanted
        assert read(planner, start, end) == [b"%d" % n for n in range(10)]


def test_parts_of_several_leases(queue: shmbroker.Queue) -> None:
    """Of a query that is restarted: all leases between both offsets."""
    queue.put_many([b"%d" % n for n in range(5)])
    planner = reader(queue, maxRowsPerTrigger="2", minPartitions="2")
    first = planner.latestOffset(planner.initialOffset() | {"lease": 0})
    second, third = reader(queue, maxRowsPerTrigger="2").latestOffset(), reader(queue).latestOffset()
    again = reader(queue, minPartitions="2")
    assert parts(again, first, third) == [(2, 0, 1), (2, 1, 2), (3, 0, 1)]
    assert parts(again, first, second) == [(2, 0, 1), (2, 1, 2)]
    assert parts(again, first | {"lease": NOT_NOTED}, first) == [(1, 0, 1), (1, 1, 2)]
    assert parts(again, first | {"broker": "another"}, first) == [(1, 0, 1), (1, 1, 2)]
    assert parts(again, first | {"losses": 1}, second) == [(1, 0, 1), (1, 1, 2), (2, 0, 1), (2, 1, 2)]
    assert parts(again, third, third) == [(3, 0, 0)]
    (part,) = again.partitions(third, third)
    assert part.value == ("g", 3, 0, 0)


def test_an_empty_part_needs_no_broker(queue: shmbroker.Queue) -> None:
    """Wherever it is read."""
    nowhere = BrokerIdentity("there is none", "nowhere", "never", 0.0)
    assert list(reader(queue).read(Part(nowhere, "g", 1, 4, 4))) == []


@pytest.mark.parametrize(
    ("rows", "size", "wanted"), [(None, None, (5, 700)), ("3", "100", (3, 100)), ("9", "900", (5, 700))]
)
def test_leases_where_memory_is_scarce(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, rows: str | None, size: str | None, wanted: tuple[int, int]
) -> None:
    """They are no larger than there is memory for, and than was asked for."""
    planner = reader(queue, maxRowsPerTrigger=rows, maxBytesPerTrigger=size)
    group = planner._attached("g")  # noqa: SLF001
    seen = []
    monkeypatch.setattr(
        group, "lease", lambda after, max_messages, max_bytes: seen.append((after, max_messages, max_bytes))
    )
    monkeypatch.setattr(module, "BYTES_A_MESSAGE", 130)
    monkeypatch.setattr(module, "scarce_bytes", lambda _connection, **_: 700)
    planner._leased(group, 4)  # noqa: SLF001
    monkeypatch.setattr(module, "scarce_bytes", lambda _connection, **_: 100)
    planner._leased(group, 4)  # noqa: SLF001
    monkeypatch.setattr(module, "scarce_bytes", lambda _connection, **_: None)
    planner._leased(group, 4)  # noqa: SLF001
    given = (None if rows is None else int(rows), None if size is None else int(size))
    assert seen == [(4, *wanted), (4, 1, 100), (4, *given)]


def test_available_now(queue: shmbroker.Queue) -> None:
    """Takes what is ready when it begins, and no more; in batches no larger than was asked for."""
    queue.put_many([b"%d" % n for n in range(5)])
    planner = reader(queue, maxRowsPerTrigger="2")
    start = planner.initialOffset()
    planner.prepareForTriggerAvailableNow()
    queue.put_many([b"later"] * 3)
    found = []
    while (end := planner.latestOffset(start)) != start:
        found.append(read(planner, start, end))
        start = end
    assert found == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
    assert (len(queue), acked(queue)) == (3, [("g", 3)])


def test_available_now_without_a_limit(queue: shmbroker.Queue) -> None:
    """Takes it in one batch; an empty queue gives none; leases that are there come first, and count for nothing."""
    queue.put_many([b"A", b"B", b"C"])
    before = reader(queue, maxRowsPerTrigger="1")
    start = before.initialOffset()
    first = before.latestOffset(start)
    planner = reader(queue)
    planner.prepareForTriggerAvailableNow()
    queue.put(b"D")
    assert planner.latestOffset(start) == first
    end = planner.latestOffset(first)
    assert read(planner, first, end) == [b"B", b"C"]
    assert planner.latestOffset(end) == end
    queue.purge()
    empty = reader(queue)
    empty.prepareForTriggerAvailableNow()
    queue.put(b"E")
    assert empty.latestOffset(end) == end
    assert len(queue) == 1


def test_progress(queue: shmbroker.Queue) -> None:
    """Where the stream is, what is ready, and how many leases are under way; nothing before it has begun."""
    queue.put_many([b"A", b"B", b"C"])
    planner = reader(queue, maxRowsPerTrigger="1")
    assert planner.reportLatestOffset() is None
    start = planner.initialOffset()
    assert planner.reportLatestOffset() is None
    end = planner.latestOffset(start)
    assert planner.reportLatestOffset() == end | {"ready": 2, "leased": 1}
    planner.commit(end)
    assert planner.reportLatestOffset() == end | {"ready": 2, "leased": 0}


def test_nothing_to_tell(queue: shmbroker.Queue) -> None:
    """While nothing was leased; and a queue that is not there is not made."""
    planner = reader(queue)
    start = planner.initialOffset()
    assert planner.latestOffset(start) == start
    assert planner.reportLatestOffset() is None
    queue.put(b"A")
    assert planner.latestOffset(start) == start | {"lease": 1}
    queue.delete()
    for call in (planner.reportLatestOffset, reader(queue).prepareForTriggerAvailableNow):
        with pytest.raises(shmbroker.NotFound):
            call()
    assert "q" not in connection_of(queue).queue_names()


def test_a_loss_where_there_is_nothing(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """The stream stays where it was until there is something to go on with."""
    queue.put(b"A")
    planner = reader(queue)
    end = planner.latestOffset(planner.initialOffset())
    assert planner.latestOffset(end) == end
    far = end | {"lease": 9}
    going_on = reader(queue, failOnDataLoss="false")
    assert going_on.latestOffset(far) == far
    assert going_on.reportLatestOffset() is None
    queue.put(b"B")
    assert going_on.latestOffset(far) == end | {"lease": 2, "losses": 1}
    assert caplog.text.count("data loss") == 2


def test_a_group_that_was_released(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """Its leases are gone: an error, or a warning and the place where the group is; each loss is counted."""
    caplog.set_level(logging.WARNING, "shmbroker")
    queue.put_many([b"A", b"B", b"C"])
    planner = reader(queue, maxRowsPerTrigger="1")
    end = planner.latestOffset(planner.initialOffset())
    far = end | {"lease": 9}
    text = "NOT_FOUND - group 'g' was released: it has 1 leases, not 9"
    with pytest.raises(shmbroker.LeaseNotFound, match=text):
        reader(queue).latestOffset(far)
    going_on = reader(queue, maxRowsPerTrigger="1", failOnDataLoss="false")
    after = going_on.latestOffset(far)
    assert f"data loss: 404 {text}" in caplog.text
    assert after == end | {"losses": 1}
    assert read(going_on, far, after) == [b"A"]
    last = going_on.latestOffset(after)
    assert last == after | {"lease": 2}
    assert read(going_on, after, last) == [b"B"]


def test_leases_that_are_gone(queue: shmbroker.Queue, caplog: pytest.LogCaptureFixture) -> None:
    """A part of them is passed over with a warning, if that was asked for; what is there is read."""
    queue.put_many([b"A", b"B"])
    planner = reader(queue, maxRowsPerTrigger="1")
    start = planner.initialOffset()
    first = planner.latestOffset(start)
    second = planner.latestOffset(first)
    with pytest.raises(shmbroker.NotFound):
        reader(queue).partitions(start, second)
    going_on = reader(queue, failOnDataLoss="false")
    assert read(going_on, start, second) == [b"B"]
    assert caplog.text.count("data loss") == 1


def test_a_group_of_another_name(queue: shmbroker.Queue) -> None:
    """A checkpoint's group counts: it is attached, and looked at, whatever the options say."""
    queue.put_many([b"A", b"B", b"C"])
    mine = reader(queue, group="mine", maxRowsPerTrigger="2")
    start = mine.initialOffset()
    end = mine.latestOffset(start)
    other = reader(queue)
    other.latestOffset(other.initialOffset())
    assert read(other, start, end) == [b"A", b"B"]
    assert other.latestOffset(end) == end
    assert acked(queue) == [("g", 0), ("mine", 1)]


def test_a_query_that_does_not_say_where_it_begins(queue: shmbroker.Queue) -> None:
    """Begins with its first offset, also if that has a group which we named."""
    queue.put(b"A")
    planner = reader(queue, group=None)
    start = planner.initialOffset()
    assert planner.latestOffset() == start | {"lease": 0}
    assert planner.latestOffset() == start | {"lease": 1}


def test_available_now_takes_leases_that_are_there(queue: shmbroker.Queue) -> None:
    """Also if the queue was empty when it began."""
    queue.put(b"A")
    before = reader(queue)
    start = before.initialOffset()
    first = before.latestOffset(start)
    planner = reader(queue)
    planner.prepareForTriggerAvailableNow()
    queue.put(b"B")
    assert planner.latestOffset(start) == first
    assert planner.latestOffset(first) == first
    assert len(queue) == 1


def test_a_spark_that_never_says_where_it_was(queue: shmbroker.Queue) -> None:
    """Is told with the bounds of a batch that its checkpoint is of another broker."""
    queue.put(b"A")
    planner = reader(queue)
    end = planner.latestOffset()
    with pytest.raises(shmbroker.LeaseNotFound, match="the checkpoint is of broker another, this one is"):
        planner.partitions(end | {"broker": "another"}, end)
