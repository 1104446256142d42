# SPDX-License-Identifier: Apache-2.0
"""The storekeeper: what a turn brings into the store, and what a restart makes of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker import exceptions
from shmbroker._core import native, storing, syncing
from shmbroker._storekeeper import following
from shmbroker._storekeeper.storekeeper import Storekeeper
from shmbroker.storage import batch
from shmbroker.storage.log import Log

if TYPE_CHECKING:
    from tests.unit.storage.conftest import Stored

LEAF = 64


def put_numbers(queue: shmbroker.Queue, count: int, first: int = 0) -> None:
    """Puts so many bodies, which are numbers."""
    queue.put_many([b"%d" % number for number in range(first, first + count)], timeout=0)


def numbers_of(queue: shmbroker.Queue) -> list[int]:
    """The bodies that are ready, as numbers."""
    return [int(bytes(message)) for message in queue.browse()]


def acked(queue: shmbroker.Queue, count: int) -> None:
    """Gets and acknowledges the next messages."""
    for _ in range(count):
        queue.get(timeout=10).ack()


def entries(stored: Stored, name: bytes) -> int:
    """How many entries a database of the store has."""
    stored.keeper.settle()
    with stored.database.read() as transaction:
        return int(transaction.stat(stored.database.names[name])["entries"])


# ---- messages ----


@pytest.mark.parametrize("count", [0, 1, LEAF, 3 * LEAF + 5, LEAF * LEAF + 1])
def test_messages_survive_a_restart(stored: Stored, count: int) -> None:
    """Those that a turn has seen are there afterwards, in their order and with their sequence numbers."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, count)
    assert stored.keeper.turn() == count
    assert stored.keeper.turn() == 0
    stored.restart()
    assert stored.restored == 1
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == [*range(count)]
    assert [message.sequence for message in queue.browse()] == [*range(count)]
    assert len(queue) == count


@pytest.mark.parametrize("gone", [1, 5, LEAF, LEAF + 7, 3 * LEAF])
def test_what_was_acknowledged_does_not_come_back(stored: Stored, gone: int) -> None:
    """Whether the acknowledgement comes before the message was stored, or after it."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2 * LEAF)
    stored.keeper.turn()
    put_numbers(queue, 2 * LEAF, first=2 * LEAF)
    acked(queue, gone)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == [*range(gone, 4 * LEAF)]
    acked(queue, 1)
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("q", passive=True)) == [*range(gone + 1, 4 * LEAF)]


def test_gaps_anywhere_survive(stored: Stored) -> None:
    """Messages that consumers hold or have acknowledged in any order leave gaps."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 5 * LEAF)
    held = queue.get_many(5 * LEAF, timeout=10)
    left = []
    for number, message in enumerate(held):
        if number % 7 == 3 or 130 <= number < 135:
            left.append(number)
            message.nack()
        else:
            message.ack()
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == left
    assert [message.sequence for message in queue.browse()] == left


def test_an_acknowledged_message_is_never_written(stored: Stored) -> None:
    """If it ended before a turn saw it, both writes are saved."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 3 * LEAF)
    acked(queue, 3 * LEAF)
    assert stored.keeper.turn() == 0
    assert entries(stored, b"heads") == 0


def test_an_empty_queue_leaves_nothing_but_its_record(stored: Stored) -> None:
    """Rows, ends and states go with the messages."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 10 * LEAF)
    stored.keeper.turn()
    for message in queue.get_many(LEAF + 3, timeout=10):
        message.nack()
    stored.keeper.turn()
    assert entries(stored, b"heads") == 10
    assert entries(stored, b"returned") == LEAF + 3
    acked(queue, 10 * LEAF)
    stored.keeper.turn()
    assert [entries(stored, name) for name in (b"heads", b"bodies", b"ended", b"returned")] == [0] * 4
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    put_numbers(queue, 1)
    assert queue.get(timeout=10).sequence == 10 * LEAF


def test_everything_of_a_message_survives(stored: Stored) -> None:
    """Body, properties, headers, priority, key and timestamp."""
    channel = stored.connection.channel()
    channel.exchange_declare("x", "topic")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "x", "a.#")
    properties = shmbroker.BasicProperties(
        content_type="text/plain", headers={"n": 5, "deep": {"list": [1, "two"]}}, correlation_id="c", priority=3,
        delivery_mode=2, timestamp=77,
    )  # fmt: skip
    body = bytes(range(256)) * 300
    channel.basic_publish("x", "a.b", body, properties)
    before = channel.basic_get("q")
    assert before is not None
    channel.basic_nack(before.delivery_tag)
    stored.keeper.turn()
    stored.restart()
    after = stored.connection.channel().basic_get("q")
    assert after is not None
    assert bytes(after.body) == body
    for name in ("properties", "headers", "priority", "exchange", "routing_key", "sequence"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.redelivered
    assert after.delivery_count == before.delivery_count + 1


@pytest.mark.parametrize("size", [0, 1, 4096, 70_000, 3_000_000])
def test_bodies_of_any_size_survive(stored: Stored, size: int) -> None:
    """Larger than the buffers of a row, and between others."""
    queue = stored.connection.queue("q", durable=True)
    bodies = [b"small", b"b" * size, b"last"]
    for body in bodies:
        queue.put(body, timeout=0)
    stored.keeper.turn()
    stored.restart()
    assert [bytes(message) for message in stored.connection.queue("q", passive=True).browse()] == bodies


def test_priorities_survive(stored: Stored) -> None:
    """Each lane has its rows; the order of delivery is as before."""
    queue = stored.connection.queue("q", durable=True, max_priority=9)
    for number in range(300):
        queue.put(b"%d" % number, priority=number % 4, timeout=0)
    order = numbers_of(queue)
    acked(queue, 30)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == order[30:]
    queue.put(b"1000", priority=9, timeout=0)
    assert numbers_of(queue)[0] == 1000


def test_the_newest_value_survives(stored: Stored) -> None:
    """A later value replaces one that was restored (T39)."""
    queue = stored.connection.queue("q", durable=True, last_value_key="k")
    for number in range(5):
        queue.put(b"%d" % number, headers={"k": "one" if number % 2 else "two"}, timeout=0)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == [3, 4]
    queue.put(b"5", headers={"k": "one"}, timeout=0)
    assert numbers_of(queue) == [4, 5]


def test_a_moved_message_is_in_one_queue(stored: Stored) -> None:
    """Of a move between stored queues, one turn writes both sides."""
    source, target = (stored.connection.queue(name, durable=True) for name in ("source", "target"))
    put_numbers(source, 3 * LEAF)
    stored.keeper.turn()
    source.move("target", limit=LEAF + 5)
    stored.keeper.turn()
    stored.restart()
    source, target = (stored.connection.queue(name, passive=True) for name in ("source", "target"))
    assert numbers_of(target) == [*range(LEAF + 5)]
    assert numbers_of(source) == [*range(LEAF + 5, 3 * LEAF)]


def test_a_commit_survives(stored: Stored) -> None:
    """Messages of a transaction, and its acknowledgements."""
    channel = stored.connection.channel()
    for name in ("one", "two"):
        channel.queue_declare(name, durable=True)
    channel.basic_publish("", "one", b"0")
    stored.keeper.turn()
    channel.tx_select()
    message = channel.basic_get("one")
    assert message is not None
    channel.basic_publish("", "one", b"1")
    channel.basic_publish("", "two", b"2")
    stored.keeper.turn()
    channel.basic_ack(message.delivery_tag)
    channel.tx_commit(timeout=0)
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("one", passive=True)) == [1]
    assert numbers_of(stored.connection.queue("two", passive=True)) == [2]


# ---- times ----


def test_a_delay_goes_on(stored: Stored) -> None:
    """A message that is due later is not ready after the restart, and has the rest of its delay."""
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", delay=1000, timeout=0)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert queue.statistics().scheduled == 1
    listed = next(iter(queue.browse(state="scheduled")))
    assert 900 < listed.due_at - time.time() <= 1001


def test_a_life_goes_on(stored: Stored) -> None:
    """A message expires when it would have expired without the restart."""
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", ttl=1000, timeout=0)
    queue.put(b"2", ttl=0.05, timeout=0)
    stored.keeper.turn()
    time.sleep(0.06)  # the life of the second message
    stored.restart()
    messages = list(stored.connection.queue("q", passive=True).browse())
    assert [bytes(message) for message in messages] == [b"1"]
    assert messages[0].expires_at is not None
    assert 900 < messages[0].expires_at - time.time() <= 1001


def test_the_times_of_a_returned_message_go_on(stored: Stored) -> None:
    """Its state was written later than its row; each restart leaves its life and its delay as they are."""
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", ttl=1000, timeout=0)
    delayed = stored.connection.queue("delayed", durable=True, redelivery_delay=500)
    delayed.put(b"2", timeout=0)
    stored.keeper.turn()
    begun = time.time()
    time.sleep(1.1)  # between the row and the state
    queue.get(timeout=10).nack()
    delayed.get(timeout=10).nack()
    stored.keeper.turn()
    for _ in range(4):
        stored.restart()
        message = next(iter(stored.connection.queue("q", passive=True).browse()))
        assert message.expires_at is not None
        assert abs(message.expires_at - begun - 1000) < 0.5
        waiting = next(iter(stored.connection.queue("delayed", passive=True).browse(state="scheduled")))
        assert abs(waiting.due_at - begun - 501.1) < 0.7
        stored.keeper.turn()


# ---- queues ----


def test_settings_survive(stored: Stored) -> None:
    """Those that were given, and those that are a default."""
    wanted: dict[str, Any] = {"max_length": 7, "ring_size": 5, "dead_letter_exchange": "x", "message_ttl": 2.5}
    stored.connection.queue("q", durable=True, **wanted)
    stored.keeper.turn()
    stored.restart()
    found = stored.connection.queue("q", passive=True).settings
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.durable
    assert stored.connection.queue("q", durable=True, **wanted)


def test_changed_settings_survive(stored: Stored) -> None:
    """A partial update changes only what it names (T69)."""
    queue = stored.connection.queue("q", durable=True, max_length=7, ring_size=5)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    queue.configure(max_length=9)
    queue.pause()
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert (queue.settings.max_length, queue.settings.ring_size) == (9, 5)
    queue.put(b"1", timeout=0)
    assert bytes(queue.get(timeout=10)) == b"1"  # the pause ended with the memory


def test_a_pause_that_persists_ends_with_a_resume(stored: Stored) -> None:
    """The store has it, whatever else changes, until the queue is resumed; a later pause is another one."""
    stored.connection.queue("q", durable=True)
    for paused in (True, True, False):
        queue = stored.connection.queue("q", passive=True)
        if paused:
            queue.pause(persist=True)
            queue.configure(max_length=9)
            queue.pause()
        else:
            queue.resume()
            queue.pause()
        stored.keeper.turn()
        stored.restart()
        assert stored.connection.queue("q", passive=True).paused is paused
        assert stored.connection.queue("q", passive=True).settings.max_length == 9


def test_other_queues_are_not_stored(stored: Stored) -> None:
    """Those that are not durable, or exclusive, end with the memory."""
    put_numbers(stored.connection.queue("transient"), 3)
    put_numbers(stored.connection.queue("mine", durable=True, exclusive=True), 3)
    assert stored.keeper.turn() == 0
    stored.restart()
    assert stored.restored == 0
    with pytest.raises(exceptions.NotFound):
        stored.connection.queue("transient", passive=True)


def test_a_deleted_queue_does_not_come_back(stored: Stored) -> None:
    """Nor do the messages of an earlier queue of the same name."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 100)
    stored.keeper.turn()
    queue.delete()
    put_numbers(stored.connection.queue("q", durable=True), 2, first=500)
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("q", passive=True)) == [500, 501]
    stored.connection.queue("q", passive=True).delete()
    stored.keeper.turn()
    stored.restart()
    assert stored.restored == 0
    assert entries(stored, b"heads") == 0


# ---- turns ----


def test_a_turn_tells_those_that_wait(stored: Stored) -> None:
    """A wait is for a turn that begins after it was asked for."""
    core = stored.connection._session.core  # noqa: SLF001 - a wait of the core
    queue = stored.connection.queue("q", durable=True)
    queue.put(b"1", timeout=0)
    turn = syncing.ask(core)
    with pytest.raises(exceptions.Timeout):
        syncing.wait(core, turn, native.deadline(0))
    stored.keeper.turn()
    syncing.wait(core, turn, native.deadline(60))


class Killed(BaseException):
    """Raised where a storekeeper is killed."""


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (following.Following, "write_ends"),
        (following.Following, "write_messages"),
        (following.Following, "write_changed"),
        (batch.Batch, "put_row"),
        (following.Following, "synced"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_next_storekeeper_goes_on(stored: Stored, monkeypatch: pytest.MonkeyPatch, owner: type, step: str) -> None:
    """Wherever in a turn its predecessor ended: nothing is lost, and nothing comes back."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 3 * LEAF)
    stored.keeper.turn()
    acked(queue, LEAF + 3)
    queue.get(timeout=10).nack()
    put_numbers(queue, LEAF + 1, first=3 * LEAF)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(Killed):
            stored.keeper.turn()
    acked(queue, 2)
    stored.take_over()
    stored.keeper.turn()
    assert stored.keeper.turn() == 0
    stored.restart()
    queue = stored.connection.queue("q", passive=True)
    assert numbers_of(queue) == [*range(LEAF + 5, 4 * LEAF + 1)]
    assert entries(stored, b"heads") == 4


def test_a_turn_that_fails_is_made_up_for(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store cannot be written, a later turn of the same storekeeper has all changes."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 100)
    stored.keeper.turn()
    acked(queue, 70)
    put_numbers(queue, 10, first=100)

    def full(*_: object) -> None:
        raise exceptions.StoreError(text="no room")

    with monkeypatch.context() as patched:
        patched.setattr(following.Following, "write_rest", full)
        with pytest.raises(exceptions.StoreError, match="no room"):
            stored.keeper.turn()
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("q", passive=True)) == [*range(70, 110)]


def test_one_storekeeper_at_a_time(stored: Stored) -> None:
    """Another one does not begin, and begins when the first one has ended."""
    with stored.another_keeper() as other:
        assert not other.begin()
    stored.take_over()


def test_a_turn_leaves_quiet_queues_alone(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks into those that have something to store, however many there are."""
    queues = [stored.connection.queue(f"q{number}", durable=True) for number in range(20)]
    for queue in queues:
        put_numbers(queue, 1)
    stored.keeper.turn()
    put_numbers(queues[3], 1)
    acked(queues[5], 1)
    begun: list[str] = []
    begin = following.Following.begin

    def note(one: following.Following, *, everything: bool) -> None:
        begun.append(one.queue.name)
        begin(one, everything=everything)

    monkeypatch.setattr(following.Following, "begin", note)
    monkeypatch.setattr(Storekeeper, "_follow", lambda _: begun.append("all"))
    assert stored.keeper.turn() == 1
    assert sorted(begun) == ["q3", "q5"]


def test_a_queue_that_is_made_during_a_turn(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that moves there while the turn looks at its old queue is in the new one on the disk."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2)
    stored.keeper.turn()
    begin = following.Following.begin
    acked(queue, 1)  # so that the turn looks at the queue

    def move_meanwhile(one: following.Following, *, everything: bool) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(following.Following, "begin", begin)
            queue.move(stored.connection.queue("new", durable=True))
        monkeypatch.setattr(following.Following, "begin", begin)
        begin(one, everything=everything)

    monkeypatch.setattr(following.Following, "begin", move_meanwhile)
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("q", passive=True)) == []
    assert numbers_of(stored.connection.queue("new", passive=True)) == [1]


def test_a_deletion_that_fails_is_made_up_for(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that was deleted while the store could not be written does not come back."""
    queue = stored.connection.queue("q", durable=True)
    put_numbers(queue, 2)
    stored.keeper.turn()
    queue.delete()

    def full(*_: object) -> None:
        raise exceptions.StoreError(text="no room")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", full)
        with pytest.raises(exceptions.StoreError, match="no room"):
            stored.keeper.turn()
    stored.keeper.turn()
    stored.restart()
    assert stored.restored == 0


@pytest.mark.parametrize("step", ["collect", "write_ends", "write_messages", "write_changed"])
def test_a_commit_beside_a_turn_is_stored_as_a_whole(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Wherever the turn is when the commit is carried out: the disk has the old message or the new one."""
    old, new = (stored.connection.queue(name, durable=True) for name in ("old", "new"))
    put_numbers(old, 1)
    put_numbers(new, 1)
    channel = stored.connection.channel()
    channel.tx_select()
    delivery = channel.basic_get("old")
    assert delivery is not None
    stored.keeper.turn()
    put_numbers(old, 1, first=1)  # so that the turn looks at both
    put_numbers(new, 1, first=1)
    real = getattr(following.Following, step)

    def commit_after(one: following.Following, *given: object, **named: object) -> object:
        done = real(one, *given, **named)
        monkeypatch.setattr(following.Following, step, real)
        channel.basic_publish("", "new", b"2")
        channel.basic_ack(delivery.delivery_tag)
        channel.tx_commit(timeout=0)
        return done

    monkeypatch.setattr(following.Following, step, commit_after)
    stored.keeper.turn()
    stored.restart()
    assert numbers_of(stored.connection.queue("old", passive=True)) == [1]
    assert numbers_of(stored.connection.queue("new", passive=True)) == [0, 1, 2]


def test_commits_that_go_on_are_held_back(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn whose passes all meet a commit comes to its end."""
    queues = [stored.connection.queue(name, durable=True) for name in ("one", "two")]
    stored.keeper.turn()
    channel = stored.connection.channel()
    channel.tx_select()
    held: list[bool] = []
    real, hold = Storekeeper._pass, storing.CoreStorekeeper.hold_commits  # noqa: SLF001

    def commit_meanwhile(*given: object, **named: object) -> None:
        real(*given, **named)  # type: ignore[arg-type]
        if not held:
            for queue in queues:
                channel.basic_publish("", queue.name, b"1")
            channel.tx_commit(timeout=0)

    def note(one: storing.CoreStorekeeper, *, held_back: bool) -> None:
        held.append(held_back)
        hold(one, held=held_back)

    monkeypatch.setattr(Storekeeper, "_pass", commit_meanwhile)
    monkeypatch.setattr(storing.CoreStorekeeper, "hold_commits", lambda one, *, held: note(one, held_back=held))
    stored.keeper.turn()
    assert held == [True, False]
    stored.restart()
    counts = [len(stored.connection.queue(queue.name, passive=True)) for queue in queues]
    assert counts == [4, 4]


def test_a_return_between_two_passes_is_stored(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that the turn has gathered already is returned, and a commit makes the turn look once more."""
    queues = [stored.connection.queue(name, durable=True) for name in ("one", "two")]
    stored.keeper.turn()
    channel = stored.connection.channel()
    channel.tx_select()
    put_numbers(queues[0], 1)
    real = Storekeeper._pass  # noqa: SLF001

    def return_meanwhile(*given: object, **named: object) -> None:
        real(*given, **named)  # type: ignore[arg-type]
        monkeypatch.setattr(Storekeeper, "_pass", real)
        queues[0].get(timeout=10).nack()
        for queue in queues:
            channel.basic_publish("", queue.name, b"1")
        channel.tx_commit(timeout=0)

    monkeypatch.setattr(Storekeeper, "_pass", return_meanwhile)
    stored.keeper.turn()
    stored.restart()
    queue = stored.connection.queue("one", passive=True)
    assert [queue.get(timeout=10).delivery_count for _ in range(2)] == [2, 1]
