# SPDX-License-Identifier: Apache-2.0
"""What the core's part of a connection says of queues, consumers and connections."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted

import shmbroker
from shmbroker import statistics
from shmbroker._core import native
from shmbroker._core.inspection import incarnation_of
from shmbroker.exceptions import CorruptSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.connection import CoreConnection

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"


@pytest.fixture
def connection(broker_name: str) -> Iterator[shmbroker.Connection]:
    """Connect to a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="64M").create()
    with shmbroker.connect(broker_name, create=False, client_name="one") as opened:
        yield opened


# ---- queues ----


def test_a_queue_is_found_by_its_name(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """Its slot is among all slots, and tells its name and what it is; no other name has one."""
    for name in ("one", "zwei-ü"):
        connection.queue(name)
        slot = core.queue_slot(name)
        assert slot in core.queue_slots()
        assert core.queue_name(slot) == name
        assert core.queue_incarnation(name) == incarnation_of(core.queue_facts(slot))
    assert len(core.queue_slots()) == 2
    incarnations = core.queue_incarnations()
    assert incarnations == {name: core.queue_incarnation(name) for name in ("one", "zwei-ü")}
    assert len(set(incarnations.values())) == 2
    assert core.queue_slot("none") == 0


def test_a_queue_of_the_same_name_is_another_one(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """What tells them apart changes, although the slot is the same; the slot is a part of it."""
    slots, seen = set(), set()
    for _ in range(3):
        queue = connection.queue("q")
        slot = core.queue_slot("q")
        slots.add(slot)
        seen.add(core.queue_incarnation("q"))
        assert core.queue_incarnation("q") & (1 << 28) - 1 == slot
        queue.delete()
        core.let_go(at_once=True)
    assert len(seen) == 3
    assert core.queue_incarnations() == {}


def test_a_name_without_a_queue(
    connection: shmbroker.Connection, core: CoreConnection, patched: pytest.MonkeyPatch
) -> None:
    """Nothing is said of slot 0, which is nobody's, whatever lies there."""
    connection.queue("q")
    facts = core.queue_facts(core.queue_slot("q"))
    patched.setattr(core, "queue_facts", lambda _: facts)
    assert (core.queue_incarnation("none"), core.queue_name(0)) == (0, None)


def test_a_queue_that_goes_meanwhile(
    connection: shmbroker.Connection, core: CoreConnection, other_calls: Callable[..., None]
) -> None:
    """It is as if it were not there."""
    connection.queue("q")
    slot = core.queue_slot("q")
    other_calls(sb_queue_describe=lambda *_: native.DELETED)
    assert core.queue_facts(slot) is None
    assert (core.queue_name(slot), core.queue_incarnation("q"), core.queue_incarnations()) == (None, 0, {})
    assert core.queue_statistics(slot) is None


def test_a_queue_that_is_damaged(
    connection: shmbroker.Connection, core: CoreConnection, other_calls: Callable[..., None]
) -> None:
    """The error is that of the status; no name is told where one is only to be told if there is one."""
    connection.queue("q")
    other_calls(sb_queue_describe=lambda *_: STATUS, sb_queue_find=lambda *_: STATUS)
    with pytest.raises(CorruptSegment, match=f"queue: {DAMAGED}"):
        core.queue_facts(1)
    with pytest.raises(CorruptSegment, match=f"queue 'q': {DAMAGED}"):
        core.queue_slot("q")
    assert core.queue_name(1) is None


def test_a_queue_is_declared_once_more(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The core is told which one."""
    touch = Noted(native.slow.sb_queue_touch)
    other_calls(sb_queue_touch=touch)
    core.touch(5)
    assert touch.calls == [(core.handle, 5)]


def test_queues_that_end_by_themselves_are_counted(
    broker_name: str, connection: shmbroker.Connection, core: CoreConnection
) -> None:
    """Those that are deleted are not."""
    before = core.queues_ended()
    connection.queue("deleted").delete()
    with shmbroker.connect(broker_name, create=False) as other:
        other.queue("mine", exclusive=True)
    assert core.queues_ended() == before + 1


def test_the_statistics_of_a_queue(core: CoreConnection, patched: pytest.MonkeyPatch) -> None:
    """Each number is the core's; a list that counts less than none is empty; messages are those in any state."""
    facts = native.ffi.new("sb_queue_facts *")
    facts.name, facts.name_length = b"name that goes on", 4
    counted = (
        "ready", "delivering", "scheduled", "bytes", "added", "acked", "expired", "killed", "replaced", "dropped",
        "dead_lettered", "moved", "redelivered", "duplicates", "stops", "rescues",
    )  # fmt: skip
    lists = {"consumers": 7, "interested": 0, "notified": -1, "not_interested": 2, "non_acquiring": -5}
    numbers = {name: 1000 + number for number, name in enumerate(counted)}
    for name, number in (numbers | lists).items():
        setattr(facts, name, number)
    patched.setattr(core, "_description", {3: facts}.get)
    expected = numbers | lists | {"notified": 0, "non_acquiring": 0}
    assert core.queue_statistics(3) == statistics.QueueStatistics(name="name", message_count=3003, **expected)
    assert core.queue_statistics(4) is None


@pytest.mark.parametrize("away", [True, False])
def test_the_memory_of_a_queue(core: CoreConnection, patched: pytest.MonkeyPatch, *, away: bool) -> None:
    """What the regions lack to the bytes of the queue is in the store only, unless they say that nothing is."""
    facts, regions = native.ffi.new("sb_queue_facts *"), native.ffi.new("sb_regions *")
    facts.bytes, facts.delivered, facts.misses = 1000, 50, 8
    names = ("direct", "head", "pending", "acquired", "scheduled")
    sizes = {name: number for number, name in enumerate(names, start=1)}
    for name, number in sizes.items():
        setattr(regions, name, number)
    regions.watermark, regions.has_watermark = 128, away
    patched.setattr(core, "_description", {3: facts}.get)
    patched.setattr(core, "_regions", {3: regions}.get)
    found = core.queue_statistics(3, in_full=True)
    assert found is not None
    expected = {"away": 985, "watermark": 128} if away else {"away": 0, "watermark": None}
    assert found.memory == statistics.QueueMemory(**sizes, hits=42, misses=8, **expected)
    assert found.memory.total == 15
    facts.delivered, facts.bytes = 7, 3  # beside traffic
    beside = core.queue_statistics(3, in_full=True)
    assert beside is not None
    assert beside.memory is not None
    assert (beside.memory.hits, beside.memory.away) == (0, 0)


# ---- consumers and connections ----


def consumer(**facts: int) -> dict[str, int]:
    """The core's description of a consumer."""
    return {
        "connection": 1,
        "channel": 2,
        "pid": 3,
        "priority": -4,
        "prefetch": 5,
        "unacked": 6,
        "delivered": 7,
        "reached": 11,
        "watermark": 64,
        "lag": 100,
        "waits_for": 2,
    } | facts


COUNTED, DIRECT = 1, 2
STATES = ["removed", "not_interested", "interested", "notified", "non_acquiring", "unknown"]


def test_a_consumer_without_progress(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """It tells since when, and whether the housekeeper has warned; what is not known is None."""
    now = time.monotonic_ns()
    unknown = 2**64 - 1
    given = [
        consumer(flags=COUNTED, still_ns=now - 5 * native.NANOSECONDS, told=1, waits_for=3),
        consumer(flags=COUNTED, told=1, waits_for=1, reached=unknown, watermark=unknown, lag=0),
    ]

    def consumers_of(_handle: object, _slot: int, facts: Any, _room: int) -> int:  # noqa: ANN401
        for number, one in enumerate(given):
            for name, value in one.items():
                setattr(facts[number], name, value)
        return len(given)

    other_calls(sb_queue_consumers=consumers_of)
    still, other = core.consumers(9, "q")
    assert (still.waits_for, still.stalled) == ("dispatch", True)
    assert 5 <= still.stalled_seconds <= 5 + (time.monotonic_ns() - now) / native.NANOSECONDS
    assert (other.waits_for, other.stalled, other.stalled_seconds) == ("producer", False, 0.0)
    assert (other.reached, other.watermark, other.scan_lag) == (None, None, None)


def test_consumers_and_calls_that_wait(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """A consumer is listed in any state; a call that takes for itself only while it waits; nothing else is."""
    given = [consumer(state=state, flags=flags) for flags in range(4) for state in range(6)]

    def consumers_of(_handle: object, slot: int, facts: Any, room: int) -> int:  # noqa: ANN401
        assert (slot, room) == (9, 256)
        for number, one in enumerate(given):
            for name, value in one.items():
                setattr(facts[number], name, value)
        return len(given)

    other_calls(sb_queue_consumers=consumers_of)
    expected = [
        (flags, state)
        for flags in range(4)
        for state in range(6)
        if flags & COUNTED or (flags & DIRECT and STATES[state] in {"interested", "notified"})
    ]
    assert core.consumers(9, "q") == [
        statistics.ConsumerInfo(
            queue="q", connection=1, channel=2, pid=3, state=STATES[state], priority=-4, prefetch=5, unacked=6,
            delivered=7, waiting=not flags & COUNTED, waits_for="load", reached=11, watermark=64, scan_lag=100,
        )
        for flags, state in expected
    ]  # fmt: skip


def test_more_consumers_than_there_is_room_for(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """There may be more when the room is used up: then there is room for four times as many."""
    rooms: list[int] = []

    def consumers_of(_handle: object, _slot: int, facts: Any, room: int) -> int:  # noqa: ANN401
        rooms.append(room)
        facts[0].flags = COUNTED
        return room if len(rooms) < 3 else room - 1

    other_calls(sb_queue_consumers=consumers_of)
    assert len(core.consumers(1, "q")) == 1
    assert rooms == [256, 1024, 4096]


def test_consumers_that_cannot_be_listed(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The error is that of the status, and names the queue."""
    other_calls(sb_queue_consumers=lambda *_: -STATUS)
    with pytest.raises(CorruptSegment, match=f"queue 'q': {DAMAGED}"):
        core.consumers(1, "q")


def test_a_connection_is_there_in_its_own_process(core: CoreConnection) -> None:
    """Of that number, and of that process."""
    assert core.is_there(core.id, os.getpid()) is True
    assert core.is_there(core.id, os.getpid() + 1) is False
    assert core.is_there(core.id + 1, os.getpid()) is False
    assert core.is_there(core.id + 1, 0) is False


def test_what_tells_a_queue_from_an_earlier_one() -> None:
    """Its slot, in 28 bits, and how often that was used."""
    facts: Any = SimpleNamespace(incarnation=5, slot=7)
    assert incarnation_of(facts) == 5 << 28 | 7
