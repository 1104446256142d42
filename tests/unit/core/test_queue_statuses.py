# SPDX-License-Identifier: Apache-2.0
"""What a queue does with the statuses of the core: it grows, waits, tries again, or says what is the matter."""

from __future__ import annotations

import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.scripted import Scripted, put_into, status

from shmbroker import exceptions
from shmbroker._core import attachment, native
from shmbroker._core import queue as core_queue
from shmbroker._core.connection import CoreConnection
from shmbroker._core.managing import move_oldest
from shmbroker._core.native import FOR_EVER, ffi, slow
from shmbroker._core.queue import NO_OPTIONS, CoreQueue, PutOptions
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

PAST = 0
UNKNOWN = 99
DONE_WITH = (native.GROW, native.NO_MEMORY, native.FULL, native.TOO_LARGE)


class Watched:
    """Notes how often the connection of a queue grew its broker, let go of what was deleted, and started its thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[object] = []
        self.looks = True
        grow = attachment.Attachment.grow

        def grown(attached: attachment.Attachment) -> None:
            self.seen.append("grow")
            grow(attached)

        monkeypatch.setattr(attachment.Attachment, "grow", grown)
        monkeypatch.setattr(CoreConnection, "let_go", self._let_go)
        monkeypatch.setattr(CoreConnection, "start_io", lambda _: self.seen.append("start_io"))

    def _let_go(self, *_: object, at_once: bool = False) -> bool:
        self.seen.append("let_go at once" if at_once else "let_go")
        return self.looks


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """What the connection does."""
    return Watched(monkeypatch)


def scripted(monkeypatch: pytest.MonkeyPatch, name: str, *answers: Callable[..., object]) -> Scripted:
    """Have a call of the core give these answers first."""
    made = Scripted(slow, name, *answers)
    monkeypatch.setattr(core_queue, "slow", made)
    return made


@pytest.fixture
def core(queue: shmbroker.Queue) -> CoreQueue:
    """The core's part of a queue named q, in a broker that has memory for messages."""
    queue.put(b"x")
    queue.purge()
    return core_of(queue)


# ---- locks, declaring and opening ----


def test_a_lock_that_is_held_is_told() -> None:
    """With the process that holds it, where that is known; another status is an error of the same object."""
    core_queue.raise_topology_error(native.OK, 0, "it")
    with pytest.raises(exceptions.Timeout, match=r"it: the topology lock is held by process 17$"):
        core_queue.raise_topology_error(native.TIMEOUT, 17, "it")
    with pytest.raises(exceptions.Timeout, match=r"it: the topology lock is held$"):
        core_queue.raise_topology_error(native.TIMEOUT, 0, "it")
    with pytest.raises(exceptions.CorruptSegment, match="it: shared memory contradicts itself"):
        core_queue.raise_topology_error(slow.SB_CORRUPT, 17, "it")


def test_declaring_grows_the_broker(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    """As often as the core asks for it; then the queue is there."""
    scripted(monkeypatch, "sb_queue_declare", status(native.GROW), status(native.GROW))
    assert core_queue.declare(core_of(connection), "q", QueueSettings(), FOR_EVER)
    assert watched.seen == ["grow", "grow"]
    assert core_of(connection).queue_slot("q")


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (native.NO_MEMORY, exceptions.OutOfMemory, "has no room: "),
        (slow.SB_LIMIT, exceptions.NotAllowed, "queue 'q' refused: the limit of broker .*, 49152 queues, is reached"),
        (native.TIMEOUT, exceptions.Timeout, "queue 'q': the topology lock is held by process 17"),
        (slow.SB_CORRUPT, exceptions.CorruptSegment, "queue 'q': shared memory contradicts itself"),
    ],
)
def test_a_queue_that_cannot_be_declared(
    connection: shmbroker.Connection,
    monkeypatch: pytest.MonkeyPatch,
    *,
    number: int,
    error: type[Exception],
    text: str,
) -> None:
    """The error says why, and of which queue; none is made. If the broker has no memory, the call is made twice."""
    scripted(monkeypatch, "sb_queue_declare", *[put_into(6, 17, number)] * (1 + (number == native.NO_MEMORY)))
    with pytest.raises(error, match=text):
        core_queue.declare(core_of(connection), "q", QueueSettings(), FOR_EVER)
    assert core_of(connection).queue_slot("q") == 0


def test_opening_grows_the_broker_and_lets_go_of_what_was_deleted(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    """Then it tries again."""
    answers = [put_into(2, number, ffi.NULL) for number in (native.GROW, native.NO_MEMORY, native.GROW)]
    calls = scripted(monkeypatch, "sb_queue_open", *answers)
    assert CoreQueue(core.connection, "q", core.slot).length() == 0
    assert watched.seen == ["grow", "let_go at once", "grow"]
    assert [call[:2] for call in calls.calls] == [(core.connection.handle, core.slot)] * 4


@pytest.mark.parametrize(
    ("number", "error", "text", "seen"),
    [
        (native.NO_MEMORY, exceptions.OutOfMemory, "has no room: ", ["let_go at once"]),
        (native.DELETED, exceptions.NotFound, "no queue 'q' in vhost", []),
        (slow.SB_CORRUPT, exceptions.CorruptSegment, "queue 'q': shared memory contradicts itself", []),
    ],
)
def test_a_queue_that_cannot_be_opened(
    core: CoreQueue,
    monkeypatch: pytest.MonkeyPatch,
    watched: Watched,
    *,
    number: int,
    error: type[Exception],
    text: str,
    seen: list[object],
) -> None:
    """The error says why; if the broker has no memory, the call is made again after what was deleted is let go."""
    scripted(monkeypatch, "sb_queue_open", *[put_into(2, number, ffi.NULL)] * (1 + len(seen)))
    with pytest.raises(error, match=text):
        CoreQueue(core.connection, "q", core.slot)
    assert watched.seen == seen


# ---- putting ----


def test_a_put_that_went_needs_nothing(core: CoreQueue, watched: Watched) -> None:
    """Neither room nor an error."""
    core.put_failed(native.OK, 1, PAST)
    assert watched.seen == []


def test_a_put_grows_the_broker(core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    """And is tried again, with the same body and options, until it went."""
    calls = scripted(monkeypatch, "sb_queue_put_with", status(native.GROW), status(native.GROW))
    options = PutOptions(0, 0, 0, b"key", b"")
    core.put_with(b"body", 4, options, PAST)
    assert watched.seen == ["grow", "grow"]
    assert [(call[0], bytes(ffi.buffer(call[1], 4)), *call[2:]) for call in calls.calls] == [
        (core.handle, b"body", 4, options.pointer)
    ] * 3
    assert core.length() == 1


def test_a_put_waits_for_room(core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    """In the queue, or in memory, as the core says what is short; with the thread that notices a dead housekeeper."""
    until = time.monotonic_ns() + 10**15
    watched.looks = False
    calls = scripted(monkeypatch, "sb_queue_wait_for_room", *[status(native.OK)] * 2)
    core.put_failed(native.FULL, 5, until)
    assert watched.seen == ["start_io"]
    core.put_failed(native.NO_MEMORY, 6, until)
    assert watched.seen == ["start_io", "start_io", "let_go"]
    assert calls.calls == [(core.handle, False, 5, until), (core.handle, True, 6, until)]


def test_a_put_waits_for_another_put_of_its_id(core: CoreQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls of 50 ms, between which signal handlers run; then it is tried again."""
    calls = scripted(monkeypatch, "sb_queue_wait_for_id", status(native.TIMEOUT), status(native.OK))
    begun = time.monotonic_ns()
    core.put_failed(native.UNDECIDED, 5, PAST)
    assert [call[0] for call in calls.calls] == [core.handle] * 2
    assert all(call[1] - begun >= 50_000_000 for call in calls.calls)


def test_a_put_whose_id_another_process_keeps(core: CoreQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the process; it comes after 100 ms, even if there is no time to wait."""
    clock = iter(range(0, 10**12, 50_000_000))
    monkeypatch.setattr(core_queue.time, "monotonic_ns", lambda: next(clock))
    calls = scripted(monkeypatch, "sb_queue_wait_for_id", *[put_into(2, 4711, native.TIMEOUT)] * 3)
    with pytest.raises(exceptions.Timeout, match="'q': process 4711 is putting a message of the same id"):
        core.put_failed(native.UNDECIDED, 5, PAST)
    assert [call[1] for call in calls.calls] == [50_000_000, 100_000_000]


def test_the_longest_wait_for_another_put_of_its_id(core: CoreQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds, although the put has all the time it needs."""
    clock = iter(range(0, 10**12, 50_000_000))
    monkeypatch.setattr(core_queue.time, "monotonic_ns", lambda: next(clock))
    calls = scripted(monkeypatch, "sb_queue_wait_for_id", *[status(native.TIMEOUT)] * 201)
    with pytest.raises(exceptions.Timeout, match="process 0"):
        core.put_failed(native.UNDECIDED, 5, FOR_EVER)
    assert calls.calls[-1][1] == 10 * native.NANOSECONDS


def test_a_wait_for_an_id_that_fails(core: CoreQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other calls of a closed connection."""
    scripted(monkeypatch, "sb_queue_wait_for_id", status(native.CLOSED))
    with pytest.raises(exceptions.ConnectionClosed):
        core.put_failed(native.UNDECIDED, 5, PAST)


@pytest.mark.parametrize("until", [PAST, FOR_EVER])
def test_a_put_that_freed_memory_is_tried_again(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched, until: int
) -> None:
    """At once, even if there is no time to wait: the memory of deleted queues may be enough."""
    calls = scripted(monkeypatch, "sb_queue_wait_for_room")
    core.put_failed(native.NO_MEMORY, 6, until)
    assert (watched.seen, calls.calls) == (["start_io", "let_go"], [])


@pytest.mark.parametrize(("number", "seen"), [(native.GROW, ["grow"]), (native.INTERRUPTED, []), (native.OK, [])])
@pytest.mark.parametrize("short", [native.FULL, native.NO_MEMORY])
def test_a_wait_for_room_that_ends_without_an_error(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched, *, short: int, number: int, seen: list[object]
) -> None:
    """The put is to be tried again: there is room, or a segment more, or a signal was handled."""
    watched.looks = False
    scripted(monkeypatch, "sb_queue_wait_for_room", status(number))
    core.put_failed(short, 5, FOR_EVER)
    before: list[object] = ["start_io", *(["let_go"] if short == native.NO_MEMORY else [])]
    assert watched.seen == before + seen


@pytest.mark.parametrize(
    ("short", "number", "error", "text"),
    [
        (native.FULL, native.TIMEOUT, standard_queue.Full, "queue 'q' is full: 1 messages are ready"),
        (native.FULL, native.NO_MEMORY, exceptions.OutOfMemory, "has no room for a body of 5 bytes"),
        (native.FULL, native.DELETED, exceptions.NotFound, "no queue 'q' in vhost"),
        (native.NO_MEMORY, native.TIMEOUT, exceptions.OutOfMemory, "has no room for a body of 5 bytes"),
        (native.NO_MEMORY, native.NO_MEMORY, exceptions.OutOfMemory, "has no room for a body of 5 bytes"),
        (native.NO_MEMORY, native.STOPPING, exceptions.ConnectionClosedByBroker, "CONNECTION_FORCED"),
    ],
)
def test_a_wait_for_room_that_fails(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, *, short: int, number: int, error: type[Exception], text: str
) -> None:
    """What was short is what is told; a full queue is no lack of memory."""
    core.put_with(b"A", 1, NO_OPTIONS, PAST)
    core.connection.let_go()  # just now: no second time
    scripted(monkeypatch, "sb_queue_wait_for_room", status(number))
    with pytest.raises(error, match=text) as failed:
        core.put_failed(short, 5, FOR_EVER)
    assert type(failed.value) is error


@pytest.mark.parametrize(("short", "error"), [(native.FULL, standard_queue.Full), (3, exceptions.OutOfMemory)])
def test_a_put_without_time_does_not_wait(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, short: int, error: type[Exception]
) -> None:
    """The core is not asked for room when the time is over."""
    core.connection.let_go()  # just now: no second time
    calls = scripted(monkeypatch, "sb_queue_wait_for_room")
    with pytest.raises(error) as failed:
        core.put_failed(short, 5, time.monotonic_ns())
    assert type(failed.value) is error
    assert calls.calls == []


def test_a_full_queue_says_its_limits(connection: shmbroker.Connection) -> None:
    """And how many messages are ready."""
    core = core_of(connection.queue("q", max_length=1, max_bytes=9))
    core.put_with(b"A", 1, NO_OPTIONS, PAST)
    text = r"^queue 'q' is full: 1 messages are ready \(max_length=1, max_bytes=9\)$"
    with pytest.raises(standard_queue.Full, match=text):
        core.put_with(b"B", 1, NO_OPTIONS, PAST)


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (slow.SB_INVALID, ValueError, "key and properties of a message take more than 64 KiB"),
        (native.DELETED, exceptions.NotFound, "no queue 'q' in vhost"),
        (UNKNOWN, exceptions.BrokerError, rf"queue 'q': operation failed \(status {UNKNOWN}\)"),
    ],
)
def test_a_put_that_fails(core: CoreQueue, number: int, error: type[Exception], text: str) -> None:
    """The error says why, and at which queue."""
    with pytest.raises(error, match=text):
        core.put_failed(number, 5, FOR_EVER)


def test_a_body_that_is_too_large(connection: shmbroker.Connection, broker: shmbroker.Broker) -> None:
    """For the queue, for the broker, or for a broker that is full of its own; the text says for which."""
    limit = broker.statistics().memory_limit
    limited, free = core_of(connection.queue("limited", max_bytes=10)), core_of(connection.queue("free"))
    text = "queue 'limited': a body of {} bytes can never fit max_bytes=10$"
    for size in (11, limit):
        with pytest.raises(exceptions.NeverFits, match=text.format(size)) as full:
            limited.put_failed(native.TOO_LARGE, size, FOR_EVER)
        assert type(full.value) is exceptions.NeverFits
    for core, size in ((limited, limit + 1), (free, limit + 1)):
        text = f"{core.what}: a body of {size} bytes can never fit: at most {limit} bytes are allowed$"
        with pytest.raises(exceptions.NeverFitsMemory, match=text):
            core.put_failed(native.TOO_LARGE, size, FOR_EVER)
    for core, size in ((limited, 10), (free, 11), (free, limit)):
        text = f"a body of {size} bytes can never fit: the broker's own structures leave no piece of that size in its"
        with pytest.raises(exceptions.NeverFitsMemory, match=text):
            core.put_failed(native.TOO_LARGE, size, FOR_EVER)


# ---- getting, browsing ----


@pytest.mark.parametrize(
    ("number", "seen"),
    [(native.GROW, ["grow"]), (native.NO_MEMORY, ["let_go"]), (native.INTERRUPTED, []), (native.TICK, [])],
)
def test_a_get_that_is_to_be_tried_again(core: CoreQueue, watched: Watched, number: int, seen: list[object]) -> None:
    """After the broker grew or let go of what was deleted, a signal was handled, or it was time to look around."""
    core.get_failed(number)
    assert watched.seen == seen


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (native.TIMEOUT, standard_queue.Empty, "^$"),
        (native.EMPTY, standard_queue.Empty, "^$"),
        (native.NO_MEMORY, exceptions.OutOfMemory, "has no room: "),
        (native.DELETED, exceptions.NotFound, "no queue 'q' in vhost"),
        (native.OK, exceptions.BrokerError, r"queue 'q': operation failed \(status 0\)"),
    ],
)
def test_a_get_that_fails(core: CoreQueue, watched: Watched, number: int, error: type[Exception], text: str) -> None:
    """It found nothing in time, or says why."""
    watched.looks = False
    with pytest.raises(error, match=text):
        core.get_failed(number)


FAILING: dict[str, tuple[str, Callable[[CoreQueue], Any]]] = {
    "browse": ("sb_queue_browse", lambda core: core.browse(0)),
    "browse_place": ("sb_queue_browse_place", lambda core: core.browse_place(0)),
}


@pytest.mark.parametrize("way", FAILING)
def test_damage_is_told(core: CoreQueue, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """With the name of the queue."""
    name, use = FAILING[way]
    scripted(monkeypatch, name, status(-slow.SB_CORRUPT))
    with pytest.raises(exceptions.CorruptSegment, match="queue 'q': shared memory contradicts itself"):
        use(core)


# ---- purging, deleting, moving ----


def test_purging_grows_the_broker(core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    """Or lets go of what was deleted; then it goes on. What was removed before counts."""
    for _ in range(2):
        core.put_with(b"A", 1, NO_OPTIONS, PAST)
    scripted(monkeypatch, "sb_queue_purge", put_into(1, 4, native.GROW), status(native.NO_MEMORY))
    assert core.purge() == 4 + 2
    assert watched.seen == ["grow", "let_go at once"]
    assert core.length() == 0


@pytest.mark.parametrize(
    ("numbers", "error", "text"),
    [
        ((native.NO_MEMORY, native.NO_MEMORY), exceptions.OutOfMemory, "has no room: "),
        ((native.DELETED,), exceptions.NotFound, "no queue 'q' in vhost"),
        ((slow.SB_CORRUPT,), exceptions.CorruptSegment, "queue 'q': shared memory contradicts itself"),
    ],
)
def test_a_purge_that_fails(
    core: CoreQueue, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], error: type[Exception], text: str
) -> None:
    """It does not report that it removed what is ready: the error says why it did not."""
    core.put_with(b"A", 1, NO_OPTIONS, PAST)
    scripted(monkeypatch, "sb_queue_purge", *(status(number) for number in numbers))
    with pytest.raises(error, match=text):
        core.purge()
    assert core.length() == 1


def test_deleting_grows_the_broker(core: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    """Or lets go of what was deleted before, once; then it goes on, and says how many messages went."""
    core.put_with(b"A", 1, NO_OPTIONS, PAST)
    calls = scripted(
        monkeypatch, "sb_queue_delete", *(status(one) for one in (native.GROW, native.NO_MEMORY, native.GROW))
    )
    assert core.delete(if_unused=True, if_empty=False, until=FOR_EVER) == 1
    assert watched.seen == ["grow", "let_go at once", "grow"]
    assert [call[1:4] for call in calls.calls] == [(True, False, FOR_EVER)] * 4


@pytest.mark.parametrize(
    ("numbers", "error", "text", "seen"),
    [
        ((native.NO_MEMORY, native.NO_MEMORY), exceptions.OutOfMemory, "has no room: ", ["let_go at once"]),
        ((native.IN_USE,), exceptions.PreconditionFailed, "FAILED - queue 'q' in vhost '/' in use$", []),
        ((native.NOT_EMPTY,), exceptions.PreconditionFailed, "- queue 'q' in vhost '/' not empty$", []),
        ((native.TIMEOUT,), exceptions.Timeout, "queue 'q': the topology lock is held by process 17$", []),
        ((slow.SB_CORRUPT,), exceptions.CorruptSegment, "queue 'q': shared memory contradicts itself", []),
    ],
)  # fmt: skip
def test_a_queue_that_cannot_be_deleted(
    core: CoreQueue,
    monkeypatch: pytest.MonkeyPatch,
    watched: Watched,
    *,
    numbers: tuple[int, ...],
    error: type[Exception],
    text: str,
    seen: list[object],
) -> None:
    """The error says why; the queue is still there."""
    scripted(monkeypatch, "sb_queue_delete", *(put_into(4, 17, number) for number in numbers))
    with pytest.raises(error, match=text):
        core.delete(if_unused=False, if_empty=False, until=FOR_EVER)
    assert watched.seen == seen
    assert not core.is_deleted()


def test_settings_that_cannot_be_changed(core: CoreQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names who holds the lock."""
    calls = scripted(monkeypatch, "sb_queue_configure", put_into(4, 17, native.TIMEOUT))
    with pytest.raises(exceptions.Timeout, match=r"queue 'q': the topology lock is held by process 17$"):
        core.configure(QueueSettings(), 0, trim=True, until=12)
    assert [(call[0], call[2], call[3]) for call in calls.calls] == [(core.handle, True, 12)]


@pytest.fixture
def target(connection: shmbroker.Connection) -> CoreQueue:
    """The core's part of another queue of the same connection."""
    return core_of(connection.queue("target", max_bytes=9))


def test_moving_grows_the_broker(
    core: CoreQueue, target: CoreQueue, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    """Or lets go of what was deleted. What was moved before counts: of the limits the rest is left."""
    for _ in range(5):
        core.put_with(b"A", 1, NO_OPTIONS, PAST)
    answers = [put_into(4, number, count) for number, count in ((native.GROW, 2), (native.NO_MEMORY, 0))]
    calls = scripted(monkeypatch, "sb_queue_move", *answers)
    assert move_oldest(core, target, 4, 100) == 4
    assert watched.seen == ["grow", "let_go"]
    assert [call[:3] for call in calls.calls] == [(core.handle, target.handle, left) for left in (4, 2, 2)]
    assert (core.length(), target.length()) == (3, 2)


@pytest.mark.parametrize(("limit", "left"), [(0, 5), (5, 0), (0, 0)])
def test_moving_nothing(
    core: CoreQueue, target: CoreQueue, monkeypatch: pytest.MonkeyPatch, limit: int, left: int
) -> None:
    """Limits that are reached from the beginning: the core is not asked."""
    calls = scripted(monkeypatch, "sb_queue_move")
    assert move_oldest(core, target, limit, left) == 0
    assert calls.calls == []


def test_moving_stops_where_the_other_queue_is_full(
    core: CoreQueue, target: CoreQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went is told."""
    calls = scripted(monkeypatch, "sb_queue_move", put_into(4, native.FULL, 3))
    assert move_oldest(core, target, 10, 100) == 3
    assert len(calls.calls) == 1


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (native.TOO_LARGE, exceptions.NeverFits, "queue 'target': a body of queue 'q' can never fit max_bytes=9$"),
        (native.NO_MEMORY, exceptions.OutOfMemory, "has no room: "),
        (native.DELETED, exceptions.NotFound, "no queue 'q' in vhost"),
    ],
)
def test_a_move_that_fails(
    core: CoreQueue,
    target: CoreQueue,
    monkeypatch: pytest.MonkeyPatch,
    watched: Watched,
    *,
    number: int,
    error: type[Exception],
    text: str,
) -> None:
    """The error says why, and of which queue."""
    watched.looks = False
    scripted(monkeypatch, "sb_queue_move", put_into(4, number, 0))
    with pytest.raises(error, match=text) as failed:
        move_oldest(core, target, 10, 100)
    assert type(failed.value) is error
