# SPDX-License-Identifier: Apache-2.0
"""Commits at the level of the core: several queues and settlements in one call, or none of it."""

from __future__ import annotations

import operator
import queue as standard_queue
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import core_of
from scenario_support.nursery import served

from shmbroker._core import native
from shmbroker._core.queue import PutOptions
from shmbroker._core.transaction import ACK, REJECT, REQUEUE, Outcome, Publication, Settlement, commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

CORE, RECORD = operator.attrgetter("_core"), operator.attrgetter("_record")
DONE = Outcome(native.OK, None, None)
FEW, MANY = 3, 100
LENGTHS = [0, 5, 4096, 4097, 300_000]


@pytest.fixture
def connection(broker_name: str) -> Iterator[shmbroker.Connection]:
    """A connection to a broker of the test's own."""
    with served(broker_name, memory="64M") as broker, broker.connect() as connection:
        yield connection


def queues(connection: shmbroker.Connection, count: int) -> list[shmbroker.Queue]:
    """New queues."""
    return [connection.queue(f"q{number}") for number in range(count)]


def publish(connection: shmbroker.Connection, body: bytes, to: list[shmbroker.Queue]) -> Outcome:
    """One body to some queues."""
    return commit(core_of(connection), [Publication(body, [CORE(queue) for queue in to])])


def tag_of(message: shmbroker.Message) -> int:
    """What the core knows a held message by."""
    return int.from_bytes(RECORD(message)[:8], "little")


def settlement(message: shmbroker.Message, queue: shmbroker.Queue, how: int = ACK) -> Settlement:
    """A settlement of a message that was taken from a queue."""
    return Settlement(CORE(queue), tag_of(message), how)


@pytest.mark.parametrize("count", [1, 2, 8, 9, MANY])
@pytest.mark.parametrize("length", LENGTHS)
def test_each_queue_gets_the_body(connection: shmbroker.Connection, count: int, length: int) -> None:
    """A body that goes to several queues is whole in each, and stays whole when others have acknowledged it."""
    body = bytes(range(251)) * (length // 251 + 1)
    targets = queues(connection, count)
    assert publish(connection, body[:length], targets) == DONE
    for target in targets:
        with target.get(timeout=0) as message:
            assert bytes(message) == body[:length]
    assert [target.statistics().acked for target in targets] == [1] * count


@pytest.mark.parametrize("count", [8, MANY])
def test_a_body_is_stored_once(connection: shmbroker.Connection, count: int) -> None:
    """A long body takes its memory once, and gives it back with the last acknowledgement."""
    targets = queues(connection, count)
    body = bytes(1_000_000)
    assert publish(connection, b"first", targets) == DONE  # pages and structures exist from here on
    before = core_of(connection).attachment.facts(in_full=True).memory_used
    assert publish(connection, body, targets) == DONE
    used = core_of(connection).attachment.facts(in_full=True).memory_used - before
    assert len(body) <= used < 2 * len(body)
    for target in targets:
        target.get(timeout=0).ack()
        target.get(timeout=0).ack()
    assert core_of(connection).attachment.facts(in_full=True).memory_used < before + len(body)


def test_4096_queues_get_a_body(connection: shmbroker.Connection) -> None:
    """As many queues as a fan-out must reach."""
    targets = queues(connection, 4096)
    assert publish(connection, b"to all", targets) == DONE
    assert [len(target) for target in targets] == [1] * 4096
    assert {bytes(target.get(timeout=0, auto_ack=True)) for target in targets} == {b"to all"}
    assert publish(connection, b"too many", [*targets, connection.queue("one more")]).status == native.slow.SB_LIMIT


def test_views_of_a_shared_body_keep_it(connection: shmbroker.Connection) -> None:
    """A reader in one queue keeps the body although every other one is done with it, and it can be delivered again."""
    for count in (2, MANY):
        targets = queues(connection, count)
        assert publish(connection, bytes([count]) * 50_000, targets) == DONE
        views = []
        for _ in range(2):
            message = targets[0].get(timeout=0)
            views.append(message.body)
            message.nack()
        for target in targets:
            target.get(timeout=0).ack()
        assert publish(connection, b"x" * 50_000, targets) == DONE
        assert [bytes(view) for view in views] == [bytes([count]) * 50_000] * 2
        del views, message
        for target in targets:
            target.get(timeout=0).ack()


def test_a_shared_message_can_be_moved(connection: shmbroker.Connection) -> None:
    """Moving one of several leaves the others alone; each is there once, and memory comes back with the last."""
    for count in (2, MANY):
        targets = queues(connection, count)
        elsewhere = connection.queue(f"elsewhere {count}")
        assert publish(connection, b"moves", targets) == DONE
        assert [target.move(elsewhere) for target in targets[:20]] == [1] * min(count, 20)
        assert len(elsewhere) == min(count, 20)
        for _ in range(len(elsewhere)):
            assert bytes(elsewhere.get(timeout=0, auto_ack=True)) == b"moves"
        assert [bytes(target.get(timeout=0, auto_ack=True)) for target in targets[20:]] == [b"moves"] * max(
            count - 20, 0
        )


def test_options_are_those_of_a_put(connection: shmbroker.Connection) -> None:
    """Delay, time to live and priority are each target's."""
    targets = queues(connection, FEW)
    options = PutOptions(0, 3600, 7, b"key", b"")
    assert commit(core_of(connection), [Publication(b"later", [CORE(target) for target in targets], options)]) == DONE
    assert [target.statistics().scheduled for target in targets] == [1] * FEW
    assert [len(target) for target in targets] == [0] * FEW
    soon = PutOptions(0, 0.01, 7, b"key", b"")
    assert commit(core_of(connection), [Publication(b"soon", [CORE(target) for target in targets], soon)]) == DONE
    assert [target.get(timeout=10).priority for target in targets] == [7] * FEW


def test_no_target_is_no_error(connection: shmbroker.Connection) -> None:
    """A body that goes nowhere is published; so is nothing at all."""
    assert publish(connection, b"lost", []) == DONE
    assert commit(core_of(connection), []) == DONE


def test_a_deleted_queue_is_passed_over(connection: shmbroker.Connection) -> None:
    """As if it were not bound; the others get the body."""
    targets = queues(connection, FEW)
    gone = targets[1]
    gone.delete()
    assert publish(connection, b"x", targets) == DONE
    assert [len(targets[0]), len(targets[2])] == [1, 1]
    assert publish(connection, b"nowhere", [gone]) == DONE


@pytest.mark.parametrize("full", range(FEW))
def test_nothing_happens_if_one_is_full(connection: shmbroker.Connection, full: int) -> None:
    """Of several queues one that blocks has no room: none gets the body, and who is to blame is said."""
    targets = [connection.queue(f"b{place}", max_length=1 if place == full else -1) for place in range(FEW)]
    targets[full].put(b"first")
    first = Publication(b"goes", [CORE(connection.queue("other"))])
    second = Publication(b"does not", [CORE(target) for target in targets])
    assert commit(core_of(connection), [first, second]) == Outcome(native.FULL, 1, full)
    assert [len(target) for target in targets] == [int(place == full) for place in range(FEW)]
    assert len(connection.queue("other")) == 0
    targets[full].get(timeout=0).ack()
    assert commit(core_of(connection), [first, second]) == DONE
    assert [len(target) for target in targets] == [1] * FEW


def test_each_queue_keeps_its_own_limit(connection: shmbroker.Connection) -> None:
    """A ring evicts its oldest, a queue that drops what is new counts it, the others just get it."""
    ring = connection.queue("ring", ring_size=2)
    head = connection.queue("head", max_length=2, overflow="drop-head")
    drop = connection.queue("drop", max_length=2, overflow="drop")
    free = connection.queue("free")
    for number in range(4):
        assert publish(connection, b"%d" % number, [ring, head, drop, free]) == DONE
    assert [bytes(message) for message in ring.get_many(9, timeout=0)] == [b"2", b"3"]
    assert [bytes(message) for message in head.get_many(9, timeout=0)] == [b"2", b"3"]
    assert [bytes(message) for message in drop.get_many(9, timeout=0)] == [b"0", b"1"]
    assert [bytes(message) for message in free.get_many(9, timeout=0)] == [b"0", b"1", b"2", b"3"]
    assert drop.statistics().dropped == 2
    assert ring.statistics().replaced == 2


def test_a_transaction_settles_and_publishes(connection: shmbroker.Connection) -> None:
    """What was acknowledged is gone, what was rejected dropped, what was returned there again, with the new ones."""
    jobs, done = connection.queue("jobs"), connection.queue("done")
    jobs.put_many([b"ack", b"reject", b"requeue"])
    held = [jobs.get(timeout=0) for _ in range(3)]
    ends = [settlement(message, jobs, how) for message, how in zip(held, (ACK, REJECT, REQUEUE), strict=True)]
    assert commit(core_of(connection), [Publication(b"new", [CORE(jobs), CORE(done)])], ends) == DONE
    assert [bytes(message) for message in jobs.get_many(9, timeout=0)] == [b"requeue", b"new"]
    assert bytes(done.get(timeout=0)) == b"new"
    facts = jobs.statistics()
    assert (facts.acked, facts.dropped, facts.added) == (1, 1, 4)


@pytest.mark.parametrize("twice", [False, True])
def test_a_settled_message_undoes_all(connection: shmbroker.Connection, twice: bool) -> None:  # noqa: FBT001
    """A message that is not held any more, or is named twice: nothing is published, and the others stay held."""
    jobs, done = connection.queue("jobs"), connection.queue("done")
    jobs.put_many([b"a", b"b"])
    first, second = jobs.get(timeout=0), jobs.get(timeout=0)
    ends = [settlement(first, jobs), settlement(first if twice else second, jobs)]
    if not twice:
        second.ack()
    news = [Publication(b"new", [CORE(jobs), CORE(done)])]
    assert commit(core_of(connection), news, ends) == Outcome(native.SETTLED, None, None)
    with pytest.raises(standard_queue.Empty):
        done.get(timeout=0)
    assert jobs.statistics().delivering == (2 if twice else 1)
    first.nack()
    assert bytes(jobs.get(timeout=0)) == b"a"


def test_a_queue_is_a_target_once(connection: shmbroker.Connection) -> None:
    """The same queue twice is refused, among few and among many."""
    for count in (2, MANY):
        targets = queues(connection, count)
        assert publish(connection, b"x", [*targets, targets[0]]).status == native.slow.SB_INVALID
        assert [len(target) for target in targets] == [0] * count


def test_a_waiting_get_is_woken(connection: shmbroker.Connection) -> None:
    """Whoever waits in one of the queues is told."""
    targets = queues(connection, FEW)
    consumers = [target.consume() for target in targets]
    assert publish(connection, b"wake", targets) == DONE
    assert [bytes(consumer.get(timeout=60)) for consumer in consumers] == [b"wake"] * FEW
