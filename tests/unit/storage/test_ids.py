# SPDX-License-Identifier: Apache-2.0
"""The duplicate ids of stored queues: which of them a turn brings into the store, and what a restart makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shmbroker import BasicProperties, exceptions
from shmbroker._storekeeper import following
from shmbroker._storekeeper.remembering import Remembering
from shmbroker.storage import batch, rows
from shmbroker.storage.examining import Examination
from shmbroker.storage.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker
    from shmbroker.storage.batch import Batch
    from tests.unit.storage.conftest import Stored


def declared(stored: Stored, ids: int = 10, name: str = "q") -> shmbroker.Queue:
    """Declares a durable queue that remembers so many ids."""
    return stored.connection.queue(name, durable=True, duplicate_ids=ids)


def put(queue: shmbroker.Queue, *ids: str) -> None:
    """Puts a message for each id, whose body is the id, and waits for no turn."""
    for one in ids:
        queue.put(one.encode(), duplicate_id=one, timeout=0)


def restarted(stored: Stored, name: str = "q") -> shmbroker.Queue:
    """Loses the memory, and makes it again from the store."""
    stored.restart()
    return stored.connection.queue(name, passive=True)


def knows(queue: shmbroker.Queue, one: str) -> bool:
    """Whether the queue knows the id. If not, it knows it afterwards."""
    before = queue.statistics().duplicates
    put(queue, one)
    return queue.statistics().duplicates > before


def known(queue: shmbroker.Queue, *ids: str) -> list[str]:
    """Which of the ids the queue knows, from the last one on: one that it does not know makes it forget others."""
    return [one for one in reversed(ids) if knows(queue, one)][::-1]


def bodies(queue: shmbroker.Queue) -> list[str]:
    """The bodies that are ready."""
    return [bytes(message).decode() for message in queue.browse()]


def acked(queue: shmbroker.Queue, count: int) -> None:
    """Gets and acknowledges the next messages."""
    for _ in range(count):
        queue.get(timeout=10).ack()


def numbers_of(stored: Stored) -> list[int]:
    """The numbers of all ids in the store."""
    stored.keeper.settle()
    with stored.database.read() as transaction:
        reader = Reader(stored.database, transaction)
        return [number for queue in reader.queues() for _, number in reader.ids(queue)]


def after_lists(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Calls a function in the next turn, between the list of the ids and the gathering of messages."""
    begin = Remembering.begin

    def list_then(one: Remembering, *, everything: bool) -> None:
        begin(one, everything=everything)
        monkeypatch.setattr(Remembering, "begin", begin)
        then()

    monkeypatch.setattr(Remembering, "begin", list_then)


# ---- what a restart remembers ----


def test_ids_of_messages_that_are_there(stored: Stored) -> None:
    """A put of such an id stores nothing."""
    put(declared(stored), "a", "b")
    stored.keeper.turn()
    queue = restarted(stored)
    assert known(queue, "a", "b", "c") == ["a", "b"]
    assert bodies(queue) == ["a", "b", "c"]


@pytest.mark.parametrize("turns", [True, False], ids=["written", "never written"])
def test_ids_of_messages_that_were_acknowledged(stored: Stored, *, turns: bool) -> None:
    """Also if a message ended before a turn saw it."""
    queue = declared(stored)
    put(queue, "a", "b")
    if turns:
        stored.keeper.turn()
    acked(queue, 2)
    stored.keeper.turn()
    queue = restarted(stored)
    assert known(queue, "a", "b", "c") == ["a", "b"]
    assert bodies(queue) == ["c"]


def test_the_order_of_age_is_kept(stored: Stored) -> None:
    """After a restart, each new id makes the queue forget the oldest one; and after the next restart."""
    queue = declared(stored, ids=3)
    put(queue, "a", "b", "c", "d")
    stored.keeper.turn()
    queue = restarted(stored)
    put(queue, "e")
    assert known(queue, "c", "d", "e") == ["c", "d", "e"]
    stored.keeper.turn()
    queue = restarted(stored)
    put(queue, "f")
    assert known(queue, "d", "e", "f") == ["d", "e", "f"]
    assert not knows(queue, "c")


def test_more_ids_than_a_block_has(stored: Stored) -> None:
    """They come back into several blocks, and the store has no more of them than the queue remembers."""
    queue = declared(stored, ids=6_000)
    for number in range(7_000):
        put(queue, str(number))
    stored.keeper.turn()
    assert len(numbers_of(stored)) == 6_000
    queue = restarted(stored)
    assert known(queue, *(str(number) for number in range(1_000, 7_000))) == [str(n) for n in range(1_000, 7_000)]
    assert not knows(queue, "999")


def test_an_id_that_no_turn_has_seen_is_free(stored: Stored) -> None:
    """The message is not there either: the producer puts it again."""
    queue = declared(stored)
    put(queue, "a")
    stored.keeper.turn()
    put(queue, "b")
    queue = restarted(stored)
    assert known(queue, "a", "b") == ["a"]
    assert bodies(queue) == ["a", "b"]


def test_ids_of_a_transaction(stored: Stored) -> None:
    """Those of a transaction that was rolled back are free; those of one that was committed are not."""
    for name in ("q", "r"):
        declared(stored, name=name)
    channel = stored.connection.channel()
    channel.tx_select()
    for one, name in (("a", "q"), ("b", "r")):
        channel.basic_publish("", name, one.encode(), BasicProperties(headers={"x-duplicate-id": one}))
    channel.tx_commit(timeout=0)
    channel.basic_publish("", "q", b"c", BasicProperties(headers={"x-duplicate-id": "c"}))
    channel.tx_rollback()
    stored.keeper.turn()
    stored.restart()
    assert known(stored.connection.queue("q", passive=True), "a", "b", "c") == ["a"]
    assert known(stored.connection.queue("r", passive=True), "a", "b", "c") == ["b"]


def test_a_queue_without_ids_writes_none(stored: Stored) -> None:
    """Its messages may have the header."""
    put(stored.connection.queue("q", durable=True), "a")
    put(declared(stored, name="r"), "a")
    stored.keeper.turn()
    assert len(numbers_of(stored)) == 1


def test_a_moved_message_brings_no_id(stored: Stored) -> None:
    """The queue to which it was moved does not know its id, nor does it after a restart."""
    put(declared(stored), "a")
    declared(stored, name="r")
    stored.connection.queue("q", passive=True).move("r")
    stored.keeper.turn()
    stored.restart()
    assert known(stored.connection.queue("q", passive=True), "a") == ["a"]
    assert known(stored.connection.queue("r", passive=True), "a") == []


# ---- id and message are in one turn ----


def test_an_id_that_became_known_after_the_list(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its message is in the turn, the id is, too."""
    queue = declared(stored)
    put(queue, "a")
    after_lists(monkeypatch, lambda: put(queue, "b"))
    assert stored.keeper.turn() == 2
    queue = restarted(stored)
    assert known(queue, "a", "b") == ["a", "b"]
    assert bodies(queue) == ["a", "b"]


def test_an_id_whose_message_ended_after_the_list(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn has it, although the queue has nothing else to store. Then turns leave the queue alone."""
    queue = declared(stored)
    put(queue, "a")

    def put_and_take() -> None:
        put(queue, "b")
        acked(queue, 2)

    after_lists(monkeypatch, put_and_take)
    stored.keeper.turn()
    stored.keeper.turn()
    begun: list[str] = []
    begin = following.Following.begin

    def note(one: following.Following, *, everything: bool) -> None:
        begun.append(one.queue.name)
        begin(one, everything=everything)

    with monkeypatch.context() as patched:
        patched.setattr(following.Following, "begin", note)
        stored.keeper.turn()
    assert begun == []
    assert known(restarted(stored), "a", "b") == ["a", "b"]


def test_a_message_behind_the_turn_is_neither_there_nor_known(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a message that came after the messages were gathered stays free."""
    queue = declared(stored)
    put(queue, "a")
    write = Remembering.write

    def put_then(one: Remembering, changes: Batch) -> None:
        monkeypatch.setattr(Remembering, "write", write)
        put(queue, "b")
        write(one, changes)

    monkeypatch.setattr(Remembering, "write", put_then)
    assert stored.keeper.turn() == 1
    queue = restarted(stored)
    assert known(queue, "a", "b") == ["a"]
    assert bodies(queue) == ["a", "b"]


def test_another_storekeeper_goes_on(stored: Stored) -> None:
    """It finds the ids that the first one has not written, and keeps the others."""
    queue = declared(stored)
    put(queue, "a")
    stored.keeper.turn()
    put(queue, "b")
    acked(queue, 2)
    stored.take_over()
    stored.keeper.turn()
    assert known(restarted(stored), "a", "b") == ["a", "b"]


def test_a_turn_that_fails_is_made_up_for(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn has the ids, and trims them."""
    queue = declared(stored, ids=2)
    put(queue, "a", "b")
    stored.keeper.turn()
    put(queue, "c")

    def full(*_: object) -> None:
        raise exceptions.StoreError(text="no room")

    with monkeypatch.context() as patched:
        patched.setattr(batch.Batch, "set_tail", full)
        with pytest.raises(exceptions.StoreError, match="no room"):
            stored.keeper.turn()
    acked(queue, 3)
    stored.keeper.turn()
    assert len(numbers_of(stored)) == 2
    assert known(restarted(stored, "q"), "b", "c") == ["b", "c"]


# ---- forgetting ----


def test_a_smaller_number_keeps_the_newest(stored: Stored) -> None:
    """What is forgotten leaves the store, and does not come back with a larger number."""
    queue = declared(stored, ids=5)
    put(queue, *"abcde")
    stored.keeper.turn()
    queue.configure(duplicate_ids=2)
    stored.keeper.turn()
    assert len(numbers_of(stored)) == 2
    queue = restarted(stored)
    queue.configure(duplicate_ids=5)
    assert known(queue, *"abcde") == ["d", "e"]


@pytest.mark.parametrize("turns", [True, False], ids=["a turn between", "no turn between"])
def test_none_forgets_all(stored: Stored, *, turns: bool) -> None:
    """`duplicate_ids=0`, and then more again: no id comes back, and the store has none."""
    queue = declared(stored, ids=5)
    put(queue, *"abc")
    stored.keeper.turn()
    queue.configure(duplicate_ids=0)
    if turns:
        stored.keeper.turn()
    queue.configure(duplicate_ids=5)
    stored.keeper.turn()
    assert numbers_of(stored) == []
    assert known(restarted(stored), *"abc") == []


def test_ids_that_the_queue_does_not_know(stored: Stored) -> None:
    """A restart removes them from the store, if the queue remembers no ids any more."""
    queue = declared(stored, ids=5)
    put(queue, *"abc")
    stored.keeper.turn()
    queue.configure(duplicate_ids=0)
    stored.keeper.turn()
    stored.keeper.settle()
    with stored.database.environment.begin(write=True) as transaction:
        key = rows.key_of_id(1, 7, bytes(16))
        transaction.put(key, rows.sealed(key, b""), db=stored.database.names[b"ids"])
    assert numbers_of(stored) == [7]
    stored.restart()
    assert numbers_of(stored) == []


def test_a_deleted_queue_takes_its_ids_along(stored: Stored) -> None:
    """A new queue of the same name has none."""
    queue = declared(stored)
    put(queue, *"abc")
    stored.keeper.turn()
    queue.delete()
    declared(stored)
    stored.keeper.turn()
    assert numbers_of(stored) == []
    assert known(restarted(stored), *"abc") == []


# ---- the store ----


def test_an_examination_reads_the_ids(stored: Stored) -> None:
    """It finds an id that is damaged, and one of a queue that is not there."""
    put(declared(stored), "a", "b")
    stored.keeper.turn()
    stored.keeper.settle()
    first = Examination(stored.database, lambda _done, _total: None)
    first.run()
    assert first.problems == []
    table = stored.database.names[b"ids"]
    with stored.database.environment.begin(write=True) as transaction, transaction.cursor(db=table) as cursor:
        assert cursor.first()
        damaged = bytes(cursor.key())
        transaction.put(damaged, b"damaged!", db=table)
        transaction.put(b"short", b"damaged!", db=table)
    second = Examination(stored.database, lambda _done, _total: None)
    second.run()
    assert len(second.problems) == 2
    assert any("an id of queue 1" in problem for problem in second.problems)
    with stored.database.environment.begin(write=True) as transaction:
        transaction.delete(damaged, db=table)
        transaction.delete(b"short", db=table)
