# SPDX-License-Identifier: Apache-2.0
"""What an administrator does with messages: retry, copy, expire, change priorities, deliver early, remove."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.dead_letters import dead_letter_queue, next_dead, reasons, reject_next
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import Actor
from scenario_support.waiting import eventually

from shmbroker import BasicProperties

if TYPE_CHECKING:
    import shmbroker

HOUR = 3600.0


# ---- scheduled messages ----


def put_numbered(queue: shmbroker.Queue, count: int, delay: float | None = None) -> None:
    """Put messages with a header `n` that is their body."""
    for n in range(count):
        queue.put(str(n).encode(), headers={"n": n}, delay=delay)


@pytest.mark.parametrize("how", [{"selector": "n IN (1, 3, 4)"}, {"ids": [4, 1, 3]}])
def test_t24_chosen_scheduled_messages_are_delivered_now(queue: shmbroker.Queue, how: dict[str, Any]) -> None:
    """By condition or by id: only those become ready, in the order of sending; the others stay scheduled."""
    put_numbered(queue, 6, delay=HOUR)
    assert queue.deliver_scheduled(**how) == 3
    assert listing(queue) == ["1", "3", "4"]
    assert texts(queue.browse(state="scheduled")) == ["0", "2", "5"]
    assert_counts(queue, ready=3, scheduled=3, message_count=6, added=6)
    assert take(queue, 3) == ["1", "3", "4"]
    assert queue.deliver_scheduled(**how) == 0
    assert queue.deliver_scheduled() == 3
    assert take(queue, 3) == ["0", "2", "5"]
    assert_balanced(queue)


def test_t24_a_delivered_message_comes_before_those_that_were_put_later(queue: shmbroker.Queue) -> None:
    """A message that becomes ready early takes the place that it was put at."""
    put_numbered(queue, 2, delay=HOUR)
    put_each(queue, ["later"])
    assert queue.deliver_scheduled(limit=1) == 1
    assert listing(queue) == ["0", "later"]


def test_t24_a_consumer_that_waits_gets_what_is_delivered_early(
    broker: shmbroker.Broker, queue: shmbroker.Queue
) -> None:
    """A process sleeps in get, and is woken; the end of the delay changes nothing more."""
    put_numbered(queue, 1, delay=HOUR)
    with Actor(broker.name) as consumer:
        consumer.begin("get", queue="q", settle="ack")
        assert queue.deliver_scheduled() == 1
        assert consumer.result()[0]["body"] == "0"
    assert_counts(queue, acked=1, message_count=0)


def test_t24_a_redelivery_delay_ends_early(connection: shmbroker.Connection) -> None:
    """A returned message that waits for its next attempt is scheduled, and can be delivered now."""
    queue = connection.queue("retried", redelivery_delay=HOUR)
    put_each(queue, ["A"])
    queue.get().nack()
    (seen,) = queue.browse(state="scheduled")
    assert seen.due_at == pytest.approx(time.time() + HOUR, abs=60)
    assert queue.deliver_scheduled(ids=[seen.sequence]) == 1
    message = queue.get_nowait()
    assert (message.delivery_count, message.redelivered) == (2, True)


def test_t24_a_ring_keeps_its_bound(connection: shmbroker.Connection) -> None:
    """A message that becomes ready in a full ring is its oldest one, as when its delay is over (R7)."""
    queue = connection.queue("ring", ring_size=2)
    put_numbered(queue, 1, delay=HOUR)
    put_each(queue, ["A", "B"])
    assert queue.deliver_scheduled() == 1
    assert_counts(queue, ready=2, replaced=1, scheduled=0)
    assert listing(queue) == ["A", "B"]


@pytest.mark.parametrize("how", ["purge", "expire"])
def test_t24_scheduled_messages_can_be_ended(queue: shmbroker.Queue, how: str) -> None:
    """Only the scheduled messages that are chosen end; ready ones stay, and what is left stays scheduled."""
    put_numbered(queue, 5, delay=HOUR)
    put_each(queue, ["ready"])
    end = getattr(queue, how)
    assert end(state="scheduled", ids=[1, 5]) == 1
    assert end(state="scheduled", selector="n > 2", limit=1) == 1
    assert texts(queue.browse(state="scheduled")) == ["0", "2", "4"]
    assert end(state="scheduled") == 3
    assert listing(queue) == ["ready"]
    assert_counts(queue, ready=1, scheduled=0, killed=5 * (how == "purge"), expired=5 * (how == "expire"))
    with pytest.raises(ValueError, match="state='delivering': 'ready' or 'scheduled' is allowed"):
        end(state="delivering")
    assert_balanced(queue)


def test_t24_a_dead_message_is_not_scheduled(connection: shmbroker.Connection) -> None:
    """A message that waits for room in its dead-letter queue stays there: it is no scheduled message."""
    dead = dead_letter_queue(connection, max_length=1)
    put_each(dead, ["full"])
    queue = connection.queue("q", dead_letter_exchange="dlx")
    put_each(queue, ["A"])
    reject_next(queue)
    assert queue.deliver_scheduled() == 0
    assert texts(queue.browse(state="scheduled")) == []
    (waiting,) = eventually(lambda: list(queue.browse(state="dead")))  # while the housekeeper tries, it is in its hands
    assert (bytes(waiting), waiting.state, waiting.due_at, waiting.held_by) == (b"A", "dead", None, None)
    assert take(dead, 2) == ["full", "A"]


def test_what_consumers_have_can_be_looked_at(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The copy says which connection holds the message, and how often it was delivered."""
    put_each(queue, ["A", "B"])
    queue.get().nack()
    held = queue.get()
    (seen,) = queue.browse(state="delivering")
    assert (bytes(seen), seen.sequence, seen.delivery_count) == (b"A", held.sequence, 2)
    (own,) = [one for one in connection.connections() if one.id == seen.held_by]
    assert own.name == connection.name
    held.ack()
    assert list(queue.browse(state="delivering")) == []
    assert listing(queue) == ["B"]


# ---- retry ----


def dead_of(connection: shmbroker.Connection, name: str, bodies: list[str]) -> shmbroker.Queue:
    """Have the bodies die in a queue of that name; return the queue."""
    queue = connection.queue(name, dead_letter_exchange="dlx")
    put_each(queue, bodies)
    for _ in bodies:
        reject_next(queue)
    return queue


def test_t34_retry_returns_to_the_queues_of_the_deaths(connection: shmbroker.Connection) -> None:
    """Each message goes back to the queue that it died in, in order, with the headers that tell of it."""
    dead = dead_letter_queue(connection)
    first, second = dead_of(connection, "first", ["A", "B"]), dead_of(connection, "second", ["C"])
    await_counts(dead, ready=3)
    result = dead.retry()
    assert (result.retried, result.stayed, result.reasons) == (3, 0, {})
    assert_counts(dead, message_count=0, moved=3)
    assert listing(first) == ["A", "B"]
    assert take(second, 1) == ["C"]
    message = first.get_nowait()
    assert reasons(message) == [("first", "rejected", 1)]
    assert (message.delivery_count, message.redelivered) == (1, False)
    for queue in (dead, first, second):
        assert_balanced(queue)


def test_t34_retry_uses_the_latest_death(connection: shmbroker.Connection) -> None:
    """A message that died twice goes back to the queue of its second death."""
    last = dead_letter_queue(connection, "last", "dlx2")
    middle = dead_letter_queue(connection, dead_letter_exchange="dlx2")
    dead_of(connection, "first", ["A"])
    reject_next(middle)
    await_counts(last, ready=1)
    assert last.retry().retried == 1
    assert listing(middle) == ["A"]


def test_t34_without_the_original_queue_a_message_stays_intact(connection: shmbroker.Connection) -> None:
    """The queue was deleted: the messages stay, the result says how many and why; others return."""
    dead = dead_letter_queue(connection)
    gone, there = dead_of(connection, "gone", ["A", "B"]), dead_of(connection, "there", ["C"])
    await_counts(dead, ready=3)
    before = [(one.sequence, bytes(one), one.headers) for one in dead.browse()][:2]
    gone.delete()
    result = dead.retry()
    assert (result.retried, result.stayed) == (1, 2)
    assert result.reasons == {"queue 'gone' does not exist": 2}
    assert [(one.sequence, bytes(one), one.headers) for one in dead.browse()] == before
    assert listing(there) == ["C"]
    assert_counts(dead, ready=2, moved=1)
    connection.queue("gone")
    assert dead.retry().retried == 2


def test_t34_a_full_queue_gets_what_fits(connection: shmbroker.Connection) -> None:
    """What has no room in the original queue stays in the dead-letter queue; so does what did not die anywhere."""
    dead = dead_letter_queue(connection)
    queue = dead_of(connection, "q", ["A", "B", "C"])
    await_counts(dead, ready=3)
    put_each(dead, ["alive"])
    queue.configure(max_length=1)
    result = dead.retry()
    assert (result.retried, result.stayed) == (1, 3)
    assert result.reasons == {"queue 'q' is full": 2, "no header x-death names a queue": 1}
    assert listing(dead) == ["B", "C", "alive"]


def test_t34_chosen_messages_are_retried(connection: shmbroker.Connection) -> None:
    """By id, by condition, and up to a number."""
    dead = dead_letter_queue(connection)
    queue = dead_of(connection, "q", ["0", "1", "2", "3", "4", "5"])
    await_counts(dead, ready=6)
    ids = [message.sequence for message in dead.browse()]
    assert dead.retry(ids=[ids[4], ids[1]]).retried == 2
    assert dead.retry(selector="\"x-last-death-queue\" = 'other'").retried == 0
    assert dead.retry(selector="\"x-last-death-queue\" = 'q'", limit=1).retried == 1
    assert listing(queue) == ["1", "4", "0"]
    assert listing(dead) == ["2", "3", "5"]


def test_a_message_that_dies_again_is_not_retried_again_by_the_same_call(connection: shmbroker.Connection) -> None:
    """Messages that return to the dead-letter queue while it is retried wait for the next call."""
    dead = dead_letter_queue(connection)
    queue = dead_of(connection, "q", numbered(100))
    await_counts(dead, ready=100)
    told: list[int] = []

    def die_again(done: int) -> None:
        if not told:
            for _ in range(done):
                reject_next(queue)
            await_counts(dead, ready=100)
        told.append(done)

    assert dead.retry(progress=die_again).retried == 100
    assert told[0] == 64
    assert (len(dead), len(queue)) == (64, 36)


@pytest.mark.parametrize("how", ["retry", "expire", "purge", "change_priority", "deliver_scheduled", "move", "copy"])
def test_a_killed_administrator_leaves_each_message_in_one_place(
    broker: shmbroker.Broker, connection: shmbroker.Connection, how: str
) -> None:
    """SIGKILL in the middle: each message is as it was, or dealt with; none is lost, held or there twice."""
    dead = dead_letter_queue(connection)
    bodies = numbered(400)
    queue = connection.queue("q", dead_letter_exchange="dlx", max_priority=1)
    put_each(queue, bodies, delay=HOUR if how == "deliver_scheduled" else None)
    if how == "retry":
        for _ in bodies:
            reject_next(queue)
        await_counts(dead, ready=400)
    elsewhere = connection.queue("elsewhere")
    arguments: dict[str, list[Any]] = {"change_priority": [1], "move": ["elsewhere"], "copy": ["elsewhere"]}
    with Actor(broker.name) as administrator:
        given = {"queue": "dead" if how == "retry" else "q", "how": how, "arguments": arguments.get(how, [])}
        administrator.begin("manage", most=len(bodies) - 1, **given)
        while administrator.item() < 40:
            pass
        administrator.kill()
    await_counts(queue, delivering=0)
    await_counts(dead, delivering=0)
    if how == "deliver_scheduled":
        done = len(queue)
        assert texts(queue.browse(state="scheduled")) == bodies[done:]
        assert listing(queue) == bodies[:done]
    elif how == "change_priority":
        ranks = {text(message): message.priority for message in queue.browse()}
        done = sum(ranks.values())
        assert [*ranks.values()] == [1] * done + [0] * (len(bodies) - done)
        assert [*ranks] == bodies
    elif how == "retry":
        done = len(queue)
        assert listing(queue) + listing(dead) == bodies
    elif how == "copy":
        done = 40
        assert listing(queue) == bodies
        assert set(listing(elsewhere)) == {bodies[0]}
    elif how == "expire":
        await_counts(queue, scheduled=0)
        eventually(lambda: len(dead) + len(queue) == len(bodies))  # those that a housekeeper has in hand arrive
        done = len(dead)
        assert listing(dead) + listing(queue) == bodies
    else:
        done = len(bodies) - len(queue)
        assert listing(queue) == bodies[done:]
        assert listing(elsewhere) == (bodies[:done] if how == "move" else [])
    assert 40 <= done < len(bodies)
    for one in (queue, dead, elsewhere):
        assert_balanced(one)
    assert connection.doctor() == []


# ---- the others ----


def test_copies_leave_the_originals_as_they_are(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A copy has the body, the properties, the key, the priority and what is left of the life of its message."""
    properties = BasicProperties(message_id="m", priority=3, headers={"n": 1})
    queue.put(b"A", key="k", ttl=HOUR, properties=properties)
    queue.put(b"x" * 100_000, headers={"n": 2})
    put_each(queue, ["B"])
    before = [(one.sequence, bytes(one)) for one in queue.browse()]
    to = connection.queue("to")
    assert queue.copy(to, selector="n = 1 OR n = 2") == 2
    assert [(one.sequence, bytes(one)) for one in queue.browse()] == before
    copy = to.get_nowait()
    assert (bytes(copy), copy.key, copy.priority, copy.properties) == (b"A", "k", 3, properties)
    assert copy.expires_at == pytest.approx(time.time() + HOUR, abs=60)
    assert bytes(to.get_nowait()) == b"x" * 100_000
    assert queue.copy("to", ids=[before[2][0]]) == 1
    assert take(to, 1) == ["B"]
    assert_counts(queue, ready=3, added=3)


def test_copies_end_where_the_target_is_full(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """As many copies as fit, without an error; a queue that rejects gets as many."""
    put_each(queue, numbered(5))
    for name, overflow in (("a", "block"), ("b", "reject-publish")):
        assert queue.copy(connection.queue(name, max_length=2, overflow=overflow)) == 2
        assert listing(connection.queue(name, passive=True)) == numbered(2)


def test_expired_messages_count_as_expired(queue: shmbroker.Queue) -> None:
    """Without a dead-letter exchange they end."""
    put_numbered(queue, 6)
    assert queue.expire(selector="n > 3") == 2
    assert queue.expire(ids=[0, 0, 5, 77]) == 1
    assert queue.expire(limit=1) == 1
    assert listing(queue) == ["2", "3"]
    assert_counts(queue, expired=4, ready=2, killed=0)
    assert_balanced(queue)


def test_expired_messages_go_to_the_dead_letter_exchange(connection: shmbroker.Connection) -> None:
    """Their header x-death says that they expired."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange="dlx")
    put_each(queue, ["A", "B"])
    assert queue.expire(limit=1) == 1
    message = next_dead(dead)
    assert (bytes(message), reasons(message)) == (b"A", [("q", "expired", 1)])
    await_counts(queue, ready=1, scheduled=0, dead_lettered=1)


def test_a_changed_priority_is_a_place_at_the_end_of_its_level(connection: shmbroker.Connection) -> None:
    """Messages that change keep their order, behind those that have the priority already."""
    queue = connection.queue("ranked", max_priority=9)
    for n in range(6):
        queue.put(str(n).encode(), priority=n % 2, headers={"n": n}, properties=BasicProperties(priority=n % 2))
    queue.put(b"high", priority=9)
    assert queue.change_priority(9, selector="n >= 2") == 4
    assert listing(queue) == ["high", "3", "5", "2", "4", "1", "0"]
    assert {message.properties.priority for message in queue.browse("n >= 2")} == {9}
    assert queue.change_priority(9) == 2
    assert queue.change_priority(9) == 0
    assert queue.change_priority(0, limit=1) == 1
    assert listing(queue) == ["3", "5", "2", "4", "1", "0", "high"]
    assert_counts(queue, ready=7, moved=7, added=14, acked=0)
    assert_balanced(queue)


def test_a_full_ring_changes_priorities(connection: shmbroker.Connection) -> None:
    """A message that changes takes no room, so none is evicted, and none is dropped by a full queue."""
    for name, settings in (("ring", {"ring_size": 3}), ("drop", {"max_length": 3, "overflow": "drop"})):
        queue = connection.queue(name, max_priority=1, **settings)
        put_each(queue, ["0", "1", "2"])
        assert queue.change_priority(1, ids=[message.sequence for message in queue.browse()][1:]) == 2
        assert listing(queue) == ["1", "2", "0"]
        assert_counts(queue, replaced=0, dropped=0, ready=3)


@pytest.mark.parametrize("priority", [-1, 3, True, "1", None])
def test_a_priority_that_the_queue_does_not_have(connection: shmbroker.Connection, priority: Any) -> None:  # noqa: ANN401
    """The error names the queue and what is allowed."""
    with pytest.raises(ValueError, match="'ranked': 0 to 2 is allowed"):
        connection.queue("ranked", max_priority=2).change_priority(priority)
    with pytest.raises(ValueError, match="it has no max_priority"):
        connection.queue("plain").change_priority(0)


def test_chosen_messages_are_removed(queue: shmbroker.Queue) -> None:
    """By id, by condition, both, and up to a number; what is not ready is passed over."""
    put_numbered(queue, 10)
    held = queue.get()
    assert queue.purge(ids=[0, 1, 2]) == 2
    assert queue.purge(ids=range(3, 6), selector="n = 4") == 1
    assert queue.purge(selector="n > 4", limit=2) == 2
    assert queue.purge(ids=[]) == 0
    assert queue.purge(limit=0) == 0
    assert listing(queue) == ["3", "7", "8", "9"]
    held.nack()
    assert queue.purge(limit=2) == 2
    assert listing(queue) == ["7", "8", "9"]
    assert_counts(queue, killed=7, ready=3)


def test_chosen_messages_are_moved(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """By id, in their order, whatever the order of the ids."""
    put_numbered(queue, 6)
    to = connection.queue("to")
    assert queue.move(to, ids=[5, 0, 3, 99]) == 3
    assert queue.move("to", ids=[1, 2], limit=1) == 1
    assert listing(to) == ["0", "3", "5", "1"]
    assert [bytes(message) for message in queue.browse(ids=[4, 2, 5])] == [b"2", b"4"]
    assert [bytes(message) for message in queue.browse(limit=1)] == [b"2"]
