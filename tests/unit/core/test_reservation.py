# SPDX-License-Identifier: Apache-2.0
"""A slot that is written in place: what the core is told, in which order, and who is counted until when."""

from __future__ import annotations

import gc
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of, core_of
from scenario_support.observing import listing
from scenario_support.scripted import Scripted, status

from shmbroker import exceptions
from shmbroker._core import attachment, native
from shmbroker._core import queue as core_queue
from shmbroker._core import reservation as core_reservation
from shmbroker._core.native import slow
from shmbroker._core.queue import NO_OPTIONS, PutOptions
from shmbroker._core.reservation import Reservation, Reserved

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

PAST = 0


@pytest.fixture
def queue(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a queue in a broker that has memory for messages."""
    queue = connection.queue("q")
    queue.put(b"x")
    queue.purge()
    return queue


def scripted(monkeypatch: pytest.MonkeyPatch, name: str, *answers: Callable[..., object]) -> Scripted:
    """Have a call of the core give these answers first."""
    made = Scripted(slow, name, *answers)
    monkeypatch.setattr(core_reservation, "slow", made)
    return made


class Freed:
    """Notes the slots that are freed after their last view: the addresses of the connection and of the reservation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = Scripted(native.fast, "sb_reservation_end_view")
        monkeypatch.setattr(core_reservation, "fast", self._calls)

    @property
    def calls(self) -> list[tuple[int, ...]]:
        """Those so far."""
        return [tuple(address(one) for one in call) for call in self._calls.calls]


def freed(reservation: Reservation) -> tuple[int, int]:
    """What is noted of the slot of a reservation."""
    return address(reservation._queue.connection.handle), address(reservation._pointer)  # noqa: SLF001


def address(pointer: Any) -> int:  # noqa: ANN401
    """Where a pointer of either module of cffi points to."""
    return int(native.ffi.cast("uintptr_t", pointer))


def test_a_reservation_is_a_call_until_its_end(queue: shmbroker.Queue) -> None:
    """Closing waits for it; ending it once more changes nothing."""
    connection = core_of(queue).connection
    one = Reservation(core_of(queue), 3, PAST)
    one.end()
    assert connection.calls == 0
    one.begin(NO_OPTIONS)[:] = b"abc"
    assert connection.calls == 1
    one.commit()
    assert connection.calls == 1
    for _ in range(2):
        one.end()
        assert connection.calls == 0
    assert listing(queue) == ["abc"]


def test_a_view_that_is_kept_is_a_call_until_it_goes(queue: shmbroker.Queue) -> None:
    """After the end of the reservation; whatever is collected first."""
    connection = core_of(queue).connection
    for first in ("the view", "the reservation"):
        one = Reservation(core_of(queue), 3, PAST)
        view = one.begin(NO_OPTIONS)
        kept = view[1:]
        one.commit()
        one.end()
        del view
        assert connection.calls == 1
        if first == "the view":
            del kept
            gc.collect()
            assert connection.calls == 0
            del one
        else:
            del one
            gc.collect()
            assert connection.calls == 1
            del kept
        gc.collect()
        assert connection.calls == 0
    assert len(queue) == 2


def test_a_view_that_goes_before_the_end_is_no_call(queue: shmbroker.Queue) -> None:
    """It may have been kept when the message was published: the copy is the message then."""
    connection = core_of(queue).connection
    one = Reservation(core_of(queue), 3, PAST)
    view = one.begin(NO_OPTIONS)
    view[:] = b"abc"
    kept = view[1:]
    one.commit()
    del view, kept
    gc.collect()
    assert connection.calls == 1
    one.end()
    assert connection.calls == 0
    assert listing(queue) == ["abc"]


def test_nothing_runs_when_the_memory_of_a_reservation_goes_with_it(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is an end less, in each put. It runs for a view that stays."""
    ran: list[object] = []
    ended = core_reservation._Written.unviewed  # noqa: SLF001
    monkeypatch.setattr(core_reservation._Written, "unviewed", lambda one: ran.append(one) or ended(one))  # noqa: SLF001
    with queue.reserve(3) as memory:
        memory[:] = b"ABC"
    with pytest.raises(ZeroDivisionError), queue.reserve(3):
        raise ZeroDivisionError
    assert ran == []
    with queue.reserve(3) as memory:
        view = memory[:]
        view[:] = b"DEF"
    del view
    assert len(ran) == 1
    assert listing(queue) == ["ABC", "DEF"]


def test_options_go_with_the_reservation(queue: shmbroker.Queue) -> None:
    """Those of the message."""
    one = Reservation(core_of(queue), 3, PAST)
    one.begin(PutOptions(0, 0, 7, b"key", b""))
    one.commit()
    one.end()
    message = queue.get()
    assert (bytes(message), message.key, message.priority) == (bytes(3), "key", 7)
    message.ack()


@pytest.mark.parametrize("name", ["sb_reservation_begin", "sb_reservation_copy", "sb_reservation_publish"])
def test_a_reservation_grows_the_broker(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whenever the core asks for it; then it tries again."""
    grown: list[None] = []
    monkeypatch.setattr(attachment.Attachment, "grow", lambda _: grown.append(None))
    calls = scripted(monkeypatch, name, status(native.GROW), status(native.GROW))
    with Reserved(core_of(queue), 3, PAST, NO_OPTIONS) as view:
        view[:] = b"abc"
        kept = view[:] if name == "sb_reservation_copy" else None
    del kept
    assert (len(grown), len(calls.calls)) == (2, 3)
    assert listing(queue) == ["abc"]


@pytest.mark.parametrize("name", ["sb_reservation_begin", "sb_reservation_copy", "sb_reservation_publish"])
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (native.DELETED, exceptions.NotFound),
        (native.FULL, standard_queue.Full),
        (native.NO_MEMORY, exceptions.OutOfMemory),
    ],
)
def test_a_reservation_that_fails(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: type[Exception]
) -> None:
    """Its place and its memory go back, and no call is left; the error says why."""
    connection = core_of(queue).connection
    monkeypatch.setattr(connection, "start_io", lambda: None)  # its thread would be counted as a call
    connection.let_go()  # just now: no second time
    scripted(monkeypatch, name, status(number))
    views: list[memoryview] = []
    with pytest.raises(error) as failed, Reserved(core_of(queue), 100_000, PAST, NO_OPTIONS) as view:
        views += [view[:]] if name == "sb_reservation_copy" else []
    assert type(failed.value) is error
    failed.value.__traceback__ = None
    views.clear()
    gc.collect()
    assert connection.calls == 0
    assert queue.statistics().message_count == 0
    assert connection_of(queue).doctor() == []


@pytest.mark.parametrize(
    ("name", "waits"),
    [("sb_reservation_begin", True), ("sb_reservation_copy", False), ("sb_reservation_publish", True)],
)
def test_a_reservation_waits_for_room_until_its_time(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, name: str, *, waits: bool
) -> None:
    """But not for that of its copy: what that would wait for may be what the reservation has itself."""
    waited: list[tuple[int, int, int]] = []
    monkeypatch.setattr(core_queue.CoreQueue, "put_failed", lambda _, *given: waited.append(given))
    scripted(monkeypatch, name, status(native.FULL))
    one = Reservation(core_of(queue), 3, 123)
    view = one.begin(NO_OPTIONS)
    kept = view[:] if name == "sb_reservation_copy" else None
    one.commit()
    one.end()
    assert waited == [(native.FULL, 3, 123 if waits else 0)]
    del kept


def abandoned(calls: Scripted) -> list[tuple[Any, bool]]:
    """The reservations that were given back, and whether their slots were viewed."""
    return [(call[1], call[2]) for call in calls.calls]


def test_what_is_published_is_not_given_back(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a reservation that was published in place nothing is left to give back."""
    calls = scripted(monkeypatch, "sb_reservation_abandon")
    one = Reservation(core_of(queue), 3, PAST)
    one.begin(NO_OPTIONS)
    one.commit()
    one.end()
    assert calls.calls == []


@pytest.mark.parametrize("viewed", [False, True])
def test_what_is_not_published_is_given_back(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, *, viewed: bool
) -> None:
    """Its place in the queue; and its slot, unless a view can write into it: that goes with the view."""
    ended, calls = Freed(monkeypatch), scripted(monkeypatch, "sb_reservation_abandon")
    one = Reservation(core_of(queue), 3, PAST)
    view = one.begin(NO_OPTIONS)
    kept = view[:] if viewed else None
    del view
    one.end()
    one.end()
    assert abandoned(calls) == [(one._pointer, viewed)]  # noqa: SLF001
    assert ended.calls == []
    del kept
    gc.collect()
    assert ended.calls == ([freed(one)] if viewed else [])


def test_a_copy_that_is_not_published_is_given_back(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has the place in the queue by then; the viewed slot is given back with the view."""
    deleted = Scripted(slow, "sb_reservation_publish", status(native.DELETED))
    ended, calls = Freed(monkeypatch), Scripted(deleted, "sb_reservation_abandon")
    monkeypatch.setattr(core_reservation, "slow", calls)
    one = Reservation(core_of(queue), 3, PAST)
    view = one.begin(NO_OPTIONS)
    kept = view[:]
    del view
    with pytest.raises(exceptions.NotFound):
        one.commit()
    one.end()
    assert abandoned(calls) == [(one._copy, False)]  # noqa: SLF001
    assert ended.calls == []
    del kept
    gc.collect()
    assert ended.calls == [freed(one)]
    assert core_of(queue).connection.calls == 0


def test_the_slot_of_a_view_that_goes_before_the_end(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy was published, and nobody writes into the slot any more: the end gives it back."""
    calls = scripted(monkeypatch, "sb_reservation_abandon")
    one = Reservation(core_of(queue), 3, PAST)
    view = one.begin(NO_OPTIONS)
    kept = view[:]
    one.commit()
    del view, kept
    gc.collect()
    assert abandoned(calls) == []
    one.end()
    assert abandoned(calls) == [(one._pointer, False)]  # noqa: SLF001
    assert (listing(queue), connection_of(queue).doctor()) == (["\0\0\0"], [])


def test_the_slot_of_a_view_that_goes_during_the_end(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may let go of it when the end has just found it: the slot is given back all the same, once."""
    ended = Freed(monkeypatch)
    one = Reservation(core_of(queue), 3, PAST)
    view = one.begin(NO_OPTIONS)
    kept = [view[:]]
    del view
    abandon = Reservation._abandon  # noqa: SLF001

    def let_go(reservation: Reservation, pointer: object, *, viewed: bool) -> None:
        abandon(reservation, pointer, viewed=viewed)
        kept.clear()
        gc.collect()

    monkeypatch.setattr(Reservation, "_abandon", let_go)
    one.end()
    assert ended.calls == [freed(one)]
    assert core_of(queue).connection.calls == 0


def test_a_reservation_that_is_dropped_ends(queue: shmbroker.Queue) -> None:
    """Where a signal's handler raised before there was anybody to end it."""
    one = Reservation(core_of(queue), 3, PAST)
    one.begin(NO_OPTIONS)
    del one
    gc.collect()
    assert core_of(queue).connection.calls == 0
    assert len(queue) == 0


def test_a_reservation_outlives_the_queue_that_the_collector_took(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot is given back to the connection, unless it is viewed: then it goes with the view, once."""
    for viewed in (False, True):
        ended, at_once = Freed(monkeypatch), scripted(monkeypatch, "sb_reservation_end_view")
        one = Reservation(core_of(queue), 3, PAST)
        view = one.begin(NO_OPTIONS)
        kept = view[:] if viewed else None
        del view
        handle, core_of(queue).handle = core_of(queue).handle, None
        one.end()
        core_of(queue).handle = handle
        assert at_once.calls == ([] if viewed else [(core_of(queue).connection.handle, one._pointer)])  # noqa: SLF001
        slow.sb_reservation_abandon(handle, one._pointer, True)  # noqa: FBT003, SLF001 - its place, which a housekeeper counts anew
        del kept
        gc.collect()
        assert ended.calls == ([freed(one)] if viewed else [])
        assert core_of(queue).connection.calls == 0
