# SPDX-License-Identifier: Apache-2.0
"""Commits that are long, that need memory, that wait, and that fail."""

from __future__ import annotations

import operator
import queue as standard_queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced, answering
from scenario_support.inside import core_of

from shmbroker._core import native
from shmbroker._core import transaction as module
from shmbroker._core.queue import PutOptions
from shmbroker._core.transaction import ACK, LONG, Outcome, Publication, Settlement, commit, commit_waiting
from shmbroker.exceptions import CorruptSegment, MessageSettled, OutOfMemory

if TYPE_CHECKING:
    import shmbroker

CORE = operator.attrgetter("_core")
DONE = Outcome(native.OK, None, None)
NO_ROOM = r"has no room: \d+ of \d+ bytes are used"
CELL = 256
UNTIL, MEMORY_UNTIL = 4711, 1234
A_MOMENT = 200_000_000


def settlement_of(message: shmbroker.Message, queue: shmbroker.Queue) -> Settlement:
    """The acknowledgement of a message that was taken from a queue."""
    return Settlement(CORE(queue), int.from_bytes(message._record[:8], "little"), ACK)  # noqa: SLF001


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Noted, Noted]:
    """Note the commits of the module that drops the GIL, and of the one that keeps it."""
    slow, fast = Noted(native.slow.sb_transaction_commit), Noted(native.fast.sb_transaction_commit)
    monkeypatch.setattr(native, "slow", Replaced(native.slow, sb_transaction_commit=slow))
    monkeypatch.setattr(native, "fast", Replaced(native.fast, sb_transaction_commit=fast))
    return slow, fast


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("settled", [0, 2])
@pytest.mark.parametrize("more", [0, 1])
def test_a_long_commit_drops_the_gil(  # noqa: PLR0917 (fixtures and numbers)
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    modules: tuple[Noted, Noted],
    targets: int,
    settled: int,
    more: int,
) -> None:
    """Its length is that of its bodies, and so much for each cell that it writes: of targets and of settlements."""
    queue.put_many([b"A"] * settled)
    ends = [settlement_of(message, queue) for message in [queue.get(timeout=0) for _ in range(settled)]]
    cores = [CORE(connection.queue(f"q{number}")) for number in range(targets)]
    first = Publication(b"", [CORE(connection.queue("other"))])
    size = LONG - CELL * (settled + targets + 1) + more
    body = bytes(size)
    assert commit(core_of(connection), [first, Publication(body, cores)], ends) == DONE
    slow, fast = modules
    assert (bool(slow.calls), bool(fast.calls)) == (bool(more), not more)
    for number in range(targets):
        assert bytes(connection.queue(f"q{number}").get(timeout=0, auto_ack=True)) == body
    assert queue.statistics().acked == settled


def test_the_length_of_a_body_is_in_bytes(connection: shmbroker.Connection, modules: tuple[Noted, Noted]) -> None:
    """Not in the items of its buffer."""
    items = memoryview(bytes(LONG + 8)).cast("Q")
    assert commit(core_of(connection), [Publication(items, [CORE(connection.queue("q"))])]) == DONE
    slow, fast = modules
    assert (bool(slow.calls), bool(fast.calls)) == (True, False)
    assert len(connection.queue("q").get(timeout=0).body) == LONG + 8


def test_publications_of_one_commit_may_differ(connection: shmbroker.Connection) -> None:
    """Each has its own targets and options, or shares those of the one before it."""
    one, two = connection.queue("one"), connection.queue("two")
    both, only = [CORE(one), CORE(two)], [CORE(two)]
    high, low = PutOptions(0, 0, 7, b"high", b""), PutOptions(0, 0, 0, b"low", b"")
    given = [
        Publication(b"1", both, high),
        Publication(b"2", both, low),
        Publication(b"3", only, low),
        Publication(b"4", only),
        Publication(b"5", both, high),
    ]
    assert commit(core_of(connection), given) == DONE
    seen = [[(bytes(m), m.key, m.priority) for m in queue.browse()] for queue in (one, two)]
    assert seen == [
        [(b"1", "high", 7), (b"2", "low", 0), (b"5", "high", 7)],
        [(b"1", "high", 7), (b"2", "low", 0), (b"3", "low", 0), (b"4", None, 0), (b"5", "high", 7)],
    ]


def test_settlements_of_several_queues(connection: shmbroker.Connection) -> None:
    """Each message is acknowledged in the queue that it was taken from."""
    queues = [connection.queue(name) for name in ("one", "two", "three")]
    taken = []
    for queue in (queues[0], queues[0], queues[1], queues[2], queues[1]):
        queue.put(b"A")
        taken.append(settlement_of(queue.get(timeout=0), queue))
    assert commit(core_of(connection), [], taken) == DONE
    assert [queue.statistics().acked for queue in queues] == [2, 2, 1]


@pytest.mark.parametrize("kind", ["slow", "fast"])
def test_the_memory_of_a_body_is_kept(kind: str) -> None:
    """It cannot get another size while the core reads it, whichever module does."""
    body = bytearray(10)
    arrays = module._Arrays(native.ffi if kind == "slow" else native.fast_ffi, [Publication(body, [])], [])  # noqa: SLF001
    with pytest.raises(BufferError):
        body.append(0)
    del arrays
    body.append(0)


def test_a_commit_that_needs_another_segment(
    connection: shmbroker.Connection, queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker grows each time that the core asks for it; the message is there once."""
    before = core_of(connection).attachment.facts().segments
    fast = answering(native.fast.sb_transaction_commit, native.GROW, native.GROW)
    monkeypatch.setattr(native, "fast", Replaced(native.fast, sb_transaction_commit=fast))
    assert commit(core_of(connection), [Publication(b"A", [CORE(queue)])]) == DONE
    assert core_of(connection).attachment.facts().segments == before + 2
    assert [bytes(message) for message in queue.browse()] == [b"A"]


# ---- waiting ----


class Outcomes:
    """Commits whose outcomes are given, and waits that are noted."""

    def __init__(self, *outcomes: Outcome) -> None:
        """Give these, one each time."""
        self.outcomes = list(outcomes)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Outcome:  # noqa: ANN401
        """Return the next one."""
        self.calls.append(arguments)
        return self.outcomes.pop(0)


@pytest.fixture
def targets(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Open two queues, which note what they were told of failures, and go on."""
    opened = [CORE(connection.queue(name)) for name in ("one", "two")]
    for one in opened:
        monkeypatch.setattr(one, "put_failed", Noted(lambda *_: None))
    return opened


@pytest.mark.parametrize(
    ("status", "memory_until", "until"),
    [
        (native.FULL, None, UNTIL),
        (native.FULL, MEMORY_UNTIL, UNTIL),
        (native.NO_MEMORY, None, UNTIL),
        (native.NO_MEMORY, MEMORY_UNTIL, MEMORY_UNTIL),
        (native.TOO_LARGE, MEMORY_UNTIL, UNTIL),
    ],
)
@pytest.mark.parametrize(("target", "blamed"), [(None, 0), (0, 0), (1, 1)])
def test_the_queue_to_blame_waits_for_room_or_memory(  # noqa: PLR0917 (fixtures and cases)
    connection: shmbroker.Connection,
    targets: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    memory_until: int | None,
    until: int,
    target: int | None,
    blamed: int,
) -> None:
    """It is told the status, the size of the body, and until when; then all is committed again, with the same.

    A full queue is also told how many messages it must have room for at the same time; the size is that of all of them.
    """
    publications = [Publication(b"", [targets[0]]), Publication(b"body", targets)]
    outcomes = Outcomes(Outcome(status, 1, target), DONE)
    monkeypatch.setattr(module, "commit", outcomes)
    statuses = list[int]()
    commit_waiting(core_of(connection), publications, (), UNTIL, memory_until, statuses)
    assert outcomes.calls == [(core_of(connection), publications, (), statuses)] * 2
    at_once = 2 if status == native.FULL and blamed == 0 else 1
    assert targets[blamed].put_failed.calls == [(status, 4, until, at_once)]
    assert targets[1 - blamed].put_failed.calls == []


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (native.NO_MEMORY, OutOfMemory, NO_ROOM),
        (native.SETTLED, MessageSettled, "PRECONDITION_FAILED"),
        (native.slow.SB_CORRUPT, CorruptSegment, "the connection: shared memory contradicts itself"),
    ],
)
def test_no_publication_is_to_blame(  # noqa: PLR0917 (fixtures and cases)
    connection: shmbroker.Connection,
    targets: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error: type[Exception],
    text: str,
) -> None:
    """The error is that of the status; if the broker has no memory, it lets go of what was deleted before that."""
    looks = 1 + (status == native.NO_MEMORY)
    monkeypatch.setattr(module, "commit", Outcomes(*[Outcome(status, None, None)] * looks))
    with pytest.raises(error, match=text):
        commit_waiting(core_of(connection), [Publication(b"A", targets)], (), UNTIL, MEMORY_UNTIL)
    assert [one.put_failed.calls for one in targets] == [[], []]


def test_what_never_fits_together_is_not_waited_for(connection: shmbroker.Connection) -> None:
    """All that a commit puts into a queue counts, of its other publications, too; what goes elsewhere does not."""
    small, other = connection.queue("small", max_bytes=10), connection.queue("other", max_bytes=10)
    publications = [
        Publication(bytes(6), [CORE(small)]),
        Publication(bytes(9), [CORE(other)]),
        Publication(bytes(6), [CORE(small)]),
    ]
    with pytest.raises(standard_queue.Full, match="2 messages of 12 bytes in total can never fit at once"):
        commit_waiting(core_of(connection), publications, (), native.FOR_EVER)
    assert (len(small), len(other)) == (0, 0)


def test_a_full_queue_is_waited_for_until_time_is_up(connection: shmbroker.Connection) -> None:
    """The error says what is there; nothing happened."""
    small, other = connection.queue("small", max_length=1), connection.queue("other")
    small.put(b"A")
    with pytest.raises(standard_queue.Full, match="queue 'small' is full: 1 messages are ready"):
        commit_waiting(core_of(connection), [Publication(b"B", [CORE(other), CORE(small)])], (), 1)
    assert (len(small), len(other)) == (1, 0)


@pytest.mark.parametrize("limits", [{"max_length": 3}, {"max_bytes": 3}])
def test_a_commit_that_waits_does_not_try_beside_too_little_room(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """The queue has room for some of its messages, not for all: the commit sleeps instead of trying again and again."""
    small = connection.queue("small", **limits)
    small.put(b"A")
    attempts = Noted(commit)
    monkeypatch.setattr(module, "commit", attempts)
    publications = [Publication(body, [CORE(small)]) for body in (b"B", b"C", b"D")]
    with pytest.raises(standard_queue.Full, match="queue 'small' is full: 1 messages are ready"):
        commit_waiting(core_of(connection), publications, (), time.monotonic_ns() + A_MOMENT)
    assert len(attempts.calls) == 1
    assert len(small) == 1


@pytest.mark.parametrize("limits", [{"max_length": 3}, {"max_bytes": 3}])
def test_a_commit_waits_for_room_for_all_its_messages(connection: shmbroker.Connection, limits: dict[str, int]) -> None:
    """It happens when so many messages are taken that all of it fits, and not before."""
    small = connection.queue("small", **limits)
    small.put_many([b"A", b"B"])
    publications = [Publication(body, [CORE(small)]) for body in (b"C", b"D", b"E")]
    with ThreadPoolExecutor() as pool:
        done = pool.submit(commit_waiting, core_of(connection), publications, (), native.FOR_EVER)
        taken = [bytes(small.get(auto_ack=True)) for _ in range(5)]
        done.result()
    assert taken == [b"A", b"B", b"C", b"D", b"E"]
