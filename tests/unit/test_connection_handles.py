# SPDX-License-Identifier: Apache-2.0
"""A connection's handles of queues: one for each, kept as long as something needs it, forgotten with its queue."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of, session_of
from scenario_support.observing import put_each, text

from shmbroker._core import queue as core_queue
from shmbroker._core.connection import CoreConnection
from shmbroker._core.queue import CoreQueue
from shmbroker._session import queues as queues_module
from shmbroker.exceptions import NotFound, PreconditionFailed, ResourceLocked
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker
    from shmbroker._core.facts import QueueFacts

LOOK = queues_module._FIRST_LOOK  # noqa: SLF001


def is_there(one: object) -> Callable[[], bool]:
    """Return a function that tells whether an object is kept by somebody else than its caller."""
    known = weakref.ref(one)

    def look() -> bool:
        gc.collect()
        return known() is not None

    return look


def names(connection: shmbroker.Connection) -> list[str]:
    """The queues of which a connection has handles."""
    return [queue.name for queue in session_of(connection).handed_out()]


def test_a_connection_has_one_handle_of_a_queue(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """It is handed out again, until the queue is deleted; one of the same name, in the same place, has another."""
    queue = connection.queue("q")
    assert connection.queue("q") is queue
    queue.put(b"A")
    assert connection.queue("q", passive=True) is queue
    for _ in range(3):
        other.queue("q").delete()
        again = connection.queue("q")
        assert again is not queue
        assert again.put_many([b"B"]) == len(again) == 1
        with pytest.raises(NotFound):
            queue.put(b"C")
        queue = again
    assert names(connection) == ["q"]


def test_the_handle_of_a_deleted_queue_is_given_back_when_its_name_is_opened(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """Its place in the broker is free at once, also while the application has the object."""
    queue, left = connection.queue("q"), []
    leave = core_of(queue).leave
    core_of(queue).leave = lambda: left.append(leave()) or left[-1]  # type: ignore[method-assign,func-returns-value]
    other.queue("q").delete()
    other.queue("q")
    assert connection.queue("q") is not queue
    assert left == [True]


def test_a_handle_that_is_closed_is_given_back(connection: shmbroker.Connection) -> None:
    """Nothing of it stays, and the next one is new."""
    queue = connection.queue("q")
    kept = is_there(core_of(queue))
    queue.close()
    assert names(connection) == []
    del queue
    assert not kept()
    connection.queue("q").put(b"A")


def test_a_handle_goes_on_with_what_a_closed_one_holds(connection: shmbroker.Connection) -> None:
    """A message that was taken through a closed handle is settled through it; the next handle shares its core."""
    queue = connection.queue("q")
    put_each(queue, "AB")
    message, core = queue.get(), core_of(queue)
    queue.close()
    again = connection.queue("q")
    assert core_of(again) is core
    message.ack()
    assert text(again.get(auto_ack=True)) == "B"
    again.close()
    assert core_of(connection.queue("q")) is not core


def test_what_is_held_of_a_deleted_queue_is_not_gone_on_with(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """A handle is of the queue that has the name now."""
    queue = connection.queue("q")
    queue.put(b"A")
    held = queue.get()
    queue.close()
    other.queue("q").delete()
    other.queue("q").put(b"B")
    assert bytes(held) == b"A"
    assert text(connection.queue("q").get(auto_ack=True)) == "B"


def test_no_thread_is_given_a_handle_that_is_being_closed(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the close, or after it."""
    queue, given = connection.queue("q"), []
    queue_closed = session_of(connection).queues.closed

    def ask() -> None:
        given.append(session_of(connection).lock.acquire(blocking=False))

    def closed(handle: shmbroker.Queue, core: CoreQueue) -> None:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        queue_closed(handle, core)

    monkeypatch.setattr(session_of(connection).queues, "closed", closed)
    queue.close()
    assert given == [False]


def test_a_handle_that_is_closed_while_its_connection_closes(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a callback, for whose end the connection waits: nothing is left to give back."""
    connection = broker.connect()
    queue, seen = connection.queue("q"), []

    def close_in_between() -> None:
        queue.close()
        seen.append(core_of(connection).closed)

    monkeypatch.setattr(session_of(connection).callbacks, "close", close_in_between)
    connection.close()
    assert seen == [True]


def test_a_handle_that_is_closed_in_a_forked_child(connection: shmbroker.Connection) -> None:
    """As by an ExitStack of the parent: it is not an error there, and the parent's handle stays."""
    queue = connection.queue("q")
    close = queue.close
    child = os.fork()
    if child == 0:
        status = 1
        try:
            close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0) == (child, 0)
    queue.put(b"A")
    assert connection.queue("q") is queue


def test_a_closed_connection_keeps_no_handle(broker: shmbroker.Broker) -> None:
    """Neither one of the application, nor one of the channels, nor one with messages."""
    connection = broker.connect()
    queue, held = connection.queue("one"), connection.queue("two")
    held.put(b"A")
    message = held.get()
    route = session_of(connection).queues.routed("three")
    assert route is None
    connection.queue("three")
    kept = [is_there(one) for one in (queue, core_of(held), session_of(connection).queues.routed("three"))]
    held.close()
    del message, held, queue
    assert [one() for one in kept] == [True] * 3
    connection.close()
    assert names(connection) == []
    assert [one() for one in kept] == [False] * 3


# ---- handles for channels ----


def test_channels_have_a_handle_that_stays(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Whether the application closes its own one or not; until the queue is deleted."""
    assert session_of(connection).queues.routed("q") is None
    assert session_of(connection).queues.routed("") is None
    other.queue("q").put(b"A")
    core = session_of(connection).queues.routed("q")
    assert core is not None
    assert core_of(connection.queue("q")) is core
    connection.queue("q").close()
    assert session_of(connection).queues.routed("q") is core
    assert core.length() == 1
    other.queue("q").delete()
    assert session_of(connection).queues.routed("q") is None
    other.queue("q")
    again = session_of(connection).queues.routed("q")
    assert again is not None
    assert again is not core
    assert again.length() == 0


def test_channels_forget_the_handle_of_a_deleted_queue(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """As soon as one of them asks for it."""
    other.queue("q")
    kept = is_there(session_of(connection).queues.routed("q"))
    other.queue("q").delete()
    assert session_of(connection).queues.routed("q") is None
    assert names(connection) == []
    assert not kept()


# ---- changes by other clients ----


@pytest.fixture
def deleted_first(monkeypatch: pytest.MonkeyPatch, other: shmbroker.Connection) -> list[str]:
    """Have a queue deleted between the look for its name and its opening, once; return the names it had."""
    gone: list[str] = []

    class DeletedFirst(CoreQueue):
        def __init__(self, connection: CoreConnection, name: str, slot: int) -> None:
            if not gone:
                gone.append(name)
                other.queue(name).delete()
            super().__init__(connection, name, slot)

    monkeypatch.setattr(core_queue, "CoreQueue", DeletedFirst)
    return gone


def test_a_queue_that_is_deleted_while_it_is_declared(
    connection: shmbroker.Connection, deleted_first: list[str]
) -> None:
    """It is declared again."""
    connection.queue("q").put(b"A")
    assert deleted_first == ["q"]
    assert connection.queue_names() == ["q"]


@pytest.mark.parametrize("given", [{"max_length": 5}, {"exclusive": True}])
def test_a_queue_that_ends_before_it_is_compared(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """It is declared again; a declaration that only opens does not find it."""
    admin, facts = session_of(connection).administration, CoreQueue.facts

    def after_the_end(core: CoreQueue) -> QueueFacts:
        monkeypatch.setattr(CoreQueue, "facts", facts)
        admin.queue_delete("q", if_unused=False, if_empty=False)
        return core.facts()

    before = connection.queue("q", **given)
    monkeypatch.setattr(CoreQueue, "facts", after_the_end)
    queue = connection.queue("q", **given)
    assert queue is not before
    assert queue.put_many([b"A"]) == len(queue) == 1
    assert all(getattr(queue.settings, setting) == value for setting, value in given.items())
    monkeypatch.setattr(CoreQueue, "facts", after_the_end)
    with pytest.raises(NotFound, match="no queue 'q'"):
        connection.queue("q", passive=True, **given)


def test_a_queue_that_is_deleted_while_it_is_opened(connection: shmbroker.Connection, deleted_first: list[str]) -> None:
    """It is not found, as if it had been deleted before."""
    core_queue.declare(core_of(connection), "q", QueueSettings(), session_of(connection).operation_deadline())
    with pytest.raises(NotFound, match="no queue 'q'"):
        connection.queue("q", passive=True)
    assert deleted_first == ["q"]


def test_a_queue_that_is_deleted_while_a_channel_opens_it(
    connection: shmbroker.Connection, deleted_first: list[str]
) -> None:
    """For a channel there is none, as if it had been deleted before."""
    core_queue.declare(core_of(connection), "q", QueueSettings(), session_of(connection).operation_deadline())
    assert session_of(connection).queues.routed("q") is None
    assert deleted_first == ["q"]


@pytest.fixture
def replaced_first(
    monkeypatch: pytest.MonkeyPatch, broker: shmbroker.Broker, other: shmbroker.Connection
) -> Iterator[list[CoreQueue]]:
    """Have another queue take the place of a queue between the look for its name and its opening, once.

    Yield the queue that took the place. No housekeeper runs: while it looks at a deleted queue, the place stays taken.
    """
    broker.stop()
    fresh: list[CoreQueue] = []
    queue_slot = CoreConnection.queue_slot

    def then_replaced(core: CoreConnection, name: str) -> int:
        slot = queue_slot(core, name)
        if slot and not fresh:
            monkeypatch.setattr(CoreConnection, "queue_slot", queue_slot)
            other.queue(name).delete()
            core.let_go(at_once=True)
            fresh.append(core_of(other.queue("fresh")))
            assert fresh[0].slot == slot
        return slot

    monkeypatch.setattr(CoreConnection, "queue_slot", then_replaced)
    yield fresh
    broker.start()


def declared(connection: shmbroker.Connection, name: str) -> None:
    """Declare a queue of which no connection has a handle."""
    core_queue.declare(core_of(connection), name, QueueSettings(), session_of(connection).operation_deadline())


def test_a_queue_whose_place_another_one_takes_is_declared_again(
    connection: shmbroker.Connection, replaced_first: list[CoreQueue]
) -> None:
    """A handle is of the queue of its name: its messages, and its deletion, do not concern the other queue."""
    declared(connection, "q")
    queue = connection.queue("q")
    queue.put(b"A")
    (fresh,) = replaced_first
    assert (core_of(queue).facts().name, len(queue), fresh.length()) == ("q", 1, 0)
    queue.delete()
    assert connection.queue_names() == ["fresh"]


def test_a_queue_whose_place_another_one_takes_is_not_found(
    connection: shmbroker.Connection, replaced_first: list[CoreQueue]
) -> None:
    """As if it had been deleted before."""
    declared(connection, "q")
    with pytest.raises(NotFound, match="no queue 'q'"):
        connection.queue("q", passive=True)
    assert replaced_first[0].length() == 0


def test_a_channel_does_not_take_another_queue_for_the_one_it_opens(
    connection: shmbroker.Connection, replaced_first: list[CoreQueue]
) -> None:
    """For a channel there is none, as if it had been deleted before."""
    declared(connection, "q")
    assert session_of(connection).queues.routed("q") is None
    connection.channel().basic_publish("", "q", b"A")
    assert replaced_first[0].length() == 0


def test_handles_of_deleted_queues_are_looked_for_now_and_then(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """When there are 64 handles, and then twice as many as were left: each look goes over all of them."""
    before = connection.queue("living"), connection.queue("held")
    before[1].put(b"A")
    message = before[1].get()
    before[1].close()
    kept = core_of(connection.queue("held"))
    connection.queue("held").close()
    routed = core_of(connection.queue("routed"))
    assert session_of(connection).queues.routed("routed") is routed
    declare_and_delete(connection, other, "early", LOOK - 3)
    assert len(names(connection)) == LOOK - 1  # and one that is held
    declare_and_delete(connection, other, "looks", 1)
    assert names(connection) == ["living", "routed", "looks0"]
    message.ack()
    assert (core_of(connection.queue("held")), session_of(connection).queues.routed("routed")) == (kept, routed)
    assert connection.queue("living") is before[0]


def test_where_many_handles_are_in_use_they_are_looked_at_less_often(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """When there are twice as many as the last look left, those that only keep messages counted."""
    living = [f"living{number}" for number in range(LOOK)]
    messages: list[shmbroker.Message] = []
    for name in living:
        queue = connection.queue(name)
        queue.put(b"A")
        if len(messages) < LOOK // 2:
            messages.append(queue.get())
            queue.close()
    connection.queue("more")
    declare_and_delete(connection, other, "gone", LOOK - 1)
    assert len(names(connection)) == LOOK // 2 + LOOK
    connection.queue("last")
    assert names(connection) == [*living[LOOK // 2 :], "more", "last"]


def declare_and_delete(connection: shmbroker.Connection, other: shmbroker.Connection, name: str, count: int) -> None:
    """Have handles of queues that somebody else deletes."""
    for number in range(count):
        connection.queue(f"{name}{number}")
        other.queue(f"{name}{number}").delete()


# ---- what opening one tells the broker ----


def test_a_declaration_is_a_use_of_the_queue(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a queue that expires begins anew with each, also where the handle is open already."""
    touched: list[int] = []
    monkeypatch.setattr(core_of(connection), "touch", touched.append)
    queue = connection.queue("q", expires=3600)
    assert connection.queue("q") is queue
    assert touched == [core_of(queue).slot] * 2


def test_a_queue_of_another_connection_alone_is_not_opened(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """One that is exclusive serves its connection only; one that is not serves all."""
    mine = connection.queue("mine", exclusive=True)
    assert connection.queue("mine") is mine
    for passive in (True, False):
        with pytest.raises(ResourceLocked, match="'mine'"):
            other.queue("mine", passive=passive)
    connection.queue("ours")
    other.queue("ours").put(b"A")


def test_an_exclusive_queue_ends_with_its_connection_though_its_handle_was_closed(broker: shmbroker.Broker) -> None:
    """At once, not by a housekeeper later: whoever has the name next has a queue that stays."""
    with broker.connect() as connection, broker.connect() as other:
        connection.queue("mine", exclusive=True).put(b"A")
        core = core_of(connection.queue("mine"))
        connection.queue("mine").close()
        assert core_of(connection.queue("mine")) is core
        connection.queue("mine").close()
        connection.close()
        assert other.queue_names() == []
        assert len(other.queue("mine", exclusive=True)) == 0


def test_who_opens_an_exclusive_queue_whose_owner_is_gone_has_another_one(broker: shmbroker.Broker) -> None:
    """Its owner went between declaring and opening it: nothing is put into a queue that is about to end."""
    with broker.connect() as owner, broker.connect() as other:
        core_queue.declare(
            core_of(owner), "mine", QueueSettings(exclusive=True), session_of(owner).operation_deadline()
        )
        incarnation = core_of(other).queue_incarnation("mine")
        owner.close()
        queue = other.queue("mine", exclusive=True)
        assert core_of(queue).incarnation != incarnation
        queue.put(b"A")


def test_settings_are_compared_where_they_are_given(connection: shmbroker.Connection) -> None:
    """A handle that is open already is no reason not to."""
    queue = connection.queue("q", max_length=5)
    assert connection.queue("q", max_length=5, overflow="block") is queue
    for passive in (True, False):
        with pytest.raises(PreconditionFailed, match=r"'x-max-length' for queue 'q'.* received '6' but current is '5'"):
            connection.queue("q", passive=passive, overflow="block", max_length=6)
