# SPDX-License-Identifier: Apache-2.0
"""How the housekeeper deletes auto-created queues: which, when, and what keeps one; look by look."""

# ruff: noqa: SLF001 (its parts are what is tested)

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of

from shmbroker._core import native
from shmbroker._core.journal import topology_lock
from shmbroker._housekeeper import auto_delete
from shmbroker._housekeeper.housekeeper import Housekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker

Keeper = Any  # a Housekeeper, into which these tests look
SECOND = native.NANOSECONDS


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have the looks see a clock that stands still."""
    still = Clock()
    monkeypatch.setattr(auto_delete, "time", still)
    return still


@pytest.fixture
def keeper(broker: shmbroker.Broker, connection: shmbroker.Connection) -> Iterator[Any]:
    """Be the housekeeper, whose looks the test makes."""
    assert connection.is_open
    broker.stop()
    one: Any = Housekeeper(broker.name)
    assert one.begin()
    yield one
    one.close()
    broker.start()


@pytest.fixture
def look(keeper: Keeper, connection: shmbroker.Connection) -> Callable[[], list[str]]:
    """Return a function that looks at all queues once, and returns those that are left."""

    def once() -> list[str]:
        keeper._watch()
        keeper._auto_delete.run()
        return connection.queue_names()

    return once


@pytest.fixture(autouse=True)
def auto_create(connection: shmbroker.Connection) -> None:
    """Let each publish make its queue."""
    connection.settings.set("#", auto_create_queues=True)


def drained(connection: shmbroker.Connection, name: str = "q") -> None:
    """Make a queue by a publish, and take its message."""
    channel = connection.channel()
    channel.basic_publish("", name, b"x")
    assert channel.basic_get(name, auto_ack=True) is not None
    channel.close()


def test_a_used_queue_that_is_empty_is_deleted(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """Without a delay the first look deletes it."""
    drained(connection)
    assert look() == []


def test_declared_queues_stay(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A queue that a declaration made stays, whatever the settings of its address."""
    queue = connection.queue("q")
    connection.channel().queue_declare("r")
    queue.put(b"x")
    queue.get(auto_ack=True)
    connection.settings.set("#", auto_delete_queues_skip_usage_check=True)
    assert look() == ["q", "r"]


def test_a_ready_or_scheduled_message_keeps_it(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A queue with a message in any state is needed."""
    channel = connection.channel()
    channel.basic_publish("", "q", b"x")
    drained(connection, "r")
    connection.queue("r").put(b"x", delay=3600)
    assert look() == ["q", "r"]


def test_a_held_message_keeps_it(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A message that is delivered and not acknowledged may return, so the queue stays until it is settled."""
    channel = connection.channel()
    channel.basic_publish("", "q", b"x")
    message = channel.basic_get("q")
    assert message is not None
    assert look() == ["q"]
    channel.basic_nack(message.delivery_tag)
    assert look() == ["q"]
    taken = channel.basic_get("q", auto_ack=True)
    assert taken is not None
    assert look() == []


def test_a_held_message_that_comes_after_the_look_keeps_it(
    connection: shmbroker.Connection, look: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion itself is conditional: a message that is put and taken after the last look is not lost."""
    drained(connection)
    queue, rests = connection.queue("q"), auto_delete._rests
    looks = []

    def late(facts: Any) -> bool:  # noqa: ANN401
        looks.append(rests(facts))
        if len(looks) == 2:
            queue.put(b"y")
            late.held = queue.get()  # type: ignore[attr-defined]
        return looks[-1]

    monkeypatch.setattr(auto_delete, "_rests", late)
    assert look() == ["q"]
    assert looks == [True, True]
    late.held.nack()  # type: ignore[attr-defined]
    assert bytes(queue.get(auto_ack=True)) == b"y"
    assert look() == []


def test_a_consumer_or_a_waiting_call_keeps_it(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A queue with a consumer is needed, even if it is empty."""
    with connection.consumer(["q"]):
        assert look() == ["q"]
    assert look() == []


def test_a_consumer_alone_is_a_use(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A queue that never had a message was used if it had a consumer."""
    connection.consumer(["q"]).close()
    assert look() == []


def test_an_unused_queue_stays(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """A queue that only was looked at for messages stays, until the settings say that its use does not matter."""
    channel = connection.channel()
    assert channel.basic_get("q") is None
    assert look() == ["q"]
    connection.settings.set("q", auto_delete_queues_skip_usage_check=True)
    assert look() == []


def test_a_binding_keeps_it(connection: shmbroker.Connection, look: Callable[[], list[str]]) -> None:
    """Messages may come by an exchange, so the queue stays until its last binding goes."""
    drained(connection)
    channel = connection.channel()
    channel.queue_bind("q", "amq.topic", "k")
    assert look() == ["q"]
    channel.queue_unbind("q", "amq.topic", "k")
    assert look() == []


@pytest.mark.parametrize("settings", [{"auto_delete_queues": False}, {"auto_delete_queues_delay": None}])
def test_the_settings_of_its_address_keep_it(
    connection: shmbroker.Connection, look: Callable[[], list[str]], settings: dict[str, Any]
) -> None:
    """The settings are those of now: a change counts for the next look."""
    connection.settings.set("q", **settings)
    drained(connection)
    assert look() == ["q"]
    connection.settings.remove("q")
    assert look() == []


def test_with_a_delay_it_is_deleted_when_it_has_rested(
    connection: shmbroker.Connection, look: Callable[[], list[str]], clock: Clock
) -> None:
    """Not a nanosecond before the delay after the first look that found it at rest."""
    connection.settings.set("#", auto_delete_queues_delay=1.5)
    drained(connection)
    clock.now += 100 * SECOND
    assert look() == ["q"]
    clock.now += 15 * SECOND // 10 - 1
    assert look() == ["q"]
    clock.now += 1
    assert look() == []


def in_and_out(connection: shmbroker.Connection) -> None:
    """Use the queue by a consumer."""
    connection.consumer(["q"]).close()


def move_through(connection: shmbroker.Connection) -> None:
    """Use the queue by a message that is moved to it."""
    connection.queue("other").put(b"x")
    connection.queue("other").move("q")
    connection.queue("q").get(auto_ack=True)


@pytest.mark.parametrize("use", [drained, in_and_out, move_through])
def test_each_use_begins_the_delay_anew(
    connection: shmbroker.Connection,
    look: Callable[[], list[str]],
    clock: Clock,
    use: Callable[[shmbroker.Connection], None],
) -> None:
    """A use that began and ended between two looks counts, although both found the queue at rest."""
    connection.settings.set("#", auto_delete_queues_delay=2)
    drained(connection)
    in_and_out(connection)  # so that a later consumer is not the first one
    look()
    clock.now += SECOND
    use(connection)
    clock.now += SECOND
    assert "q" in look()
    clock.now += 2 * SECOND - 1
    assert "q" in look()
    clock.now += 1
    assert "q" not in look()


def test_while_another_process_changes_the_topology_it_stays(
    connection: shmbroker.Connection,
    keeper: Keeper,
    look: Callable[[], list[str]],
) -> None:
    """The housekeeper does not wait for the lock: a later look deletes the queue."""
    drained(connection)
    keeper._watch()
    with topology_lock(core_of(connection), 1 << 62, "test"):
        in_another_thread(keeper._auto_delete.run)
    assert connection.queue_names() == ["q"]
    assert look() == []


def in_another_thread(call: Callable[[], None]) -> None:
    """Call in another thread, since the lock is that of a thread."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_many_queues_are_looked_at_in_parts(
    connection: shmbroker.Connection, look: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One turn looks at a bounded number of queues; all have their turn."""
    monkeypatch.setattr(auto_delete, "LOOKS", 2)
    for number in range(5):
        drained(connection, f"q{number}")
    counts = [len(look()) for _ in range(4)]
    assert counts[0] == 3
    assert counts[-1] == 0


def test_what_is_remembered_ends_with_the_queue(
    connection: shmbroker.Connection,
    keeper: Keeper,
    look: Callable[[], list[str]],
    clock: Clock,
) -> None:
    """The rest of a queue that was deleted is forgotten."""
    connection.settings.set("#", auto_delete_queues_delay=5)
    drained(connection)
    look()
    assert len(keeper._auto_delete._rests) == 1
    connection.queue("q").delete()
    clock.now += SECOND
    assert look() == []
    assert keeper._auto_delete._rests == {}


def test_a_new_housekeeper_finishes_a_change_of_settings(
    connection: shmbroker.Connection,
    keeper: Keeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queues get the live settings although the process that changed them was killed before it applied them."""
    queue = connection.queue("declared")
    keeper._watch()
    with monkeypatch.context() as killed:
        killed.setattr("shmbroker._topology.addresses.apply", lambda *_: None)
        connection.settings.set("#", default_max_length=5)
    assert queue.settings.max_length == -1
    keeper._watch()
    assert queue.settings.max_length == 5
