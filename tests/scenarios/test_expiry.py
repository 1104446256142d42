# SPDX-License-Identifier: Apache-2.0
"""Messages whose time ends: which ones the queue removes, and when (as in Artemis, Qpid and RabbitMQ)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import dead_letter_queue, next_dead, reasons
from scenario_support.observing import (
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
)
from scenario_support.processes import Actor
from scenario_support.waiting import until_clock

import shmbroker
from shmbroker._core import managing

if TYPE_CHECKING:
    from collections.abc import Callable

HOLD_SECONDS = 3.0
"""Long enough to get a message before its time ends, on a machine that is busy with others too."""
LONGEST_TTL = 10.0
HOUR = 3600.0
LONGEST_ALLOWED = 315_360_000
LONGEST_OF_A_PUT = 100_000_000
READS = 20
CLOCKS = 0.5
"""Seconds by which the clock of the day, that `expires_at` is in, may be set meanwhile."""


@pytest.mark.parametrize("max_priority", [0, 3])
def test_t26_the_sweep_removes_what_is_expired_and_nothing_else(
    connection: shmbroker.Connection, max_priority: int
) -> None:
    """Every second of 100 messages expires: count 50, expired 50, delivering 0; the rest comes in order."""
    queue = connection.queue("q", max_priority=max_priority)
    bodies = numbered(100)
    for number, body in enumerate(bodies):
        queue.put(body.encode(), ttl=0.05 if number % 2 else None)
    await_counts(queue, message_count=50, ready=50, expired=50, delivering=0)
    assert listing(queue) == bodies[::2]
    assert take(queue, 50) == bodies[::2]
    assert_counts(queue, message_count=0, acked=50, expired=50, added=100, bytes=0)
    assert_balanced(queue)


@pytest.mark.parametrize("way", ["nack", "close", "kill"])
def test_t27_a_message_does_not_expire_in_delivery(
    broker: shmbroker.Broker, connection: shmbroker.Connection, way: str
) -> None:
    """Its time ends while a process holds it: it is not expired then. Returned, it expires, and nobody gets it."""
    queue = connection.queue("q")
    with Actor(broker.name) as holder:
        holder.do("consume", queue="q")
        queue.put(b"A", ttl=HOLD_SECONDS)
        end = time.monotonic() + HOLD_SECONDS
        assert [message["body"] for message in holder.do("receive", timeout=60)] == ["A"]
        put_each(queue, "B")
        assert [message["body"] for message in holder.do("receive", timeout=60, settle="ack")] == ["B"]
        until_clock(end)
        assert_counts(queue, delivering=1, expired=0, message_count=1)
        if way == "nack":
            holder.do("settle", how="nack")
        elif way == "close":
            holder.do("close_consumer")
        else:
            holder.kill()
        await_counts(queue, delivering=0, expired=1, message_count=0)
        assert nothing_to_get(queue)
    await_counts(queue, consumers=0)
    assert_counts(queue, acked=1, added=2)
    assert_balanced(queue)


def test_t27_a_message_that_is_acked_after_its_time_is_acked(queue: shmbroker.Queue) -> None:
    """A consumer that acknowledges late has had the message all the same: acked, not expired."""
    queue.put(b"A", ttl=0.5)
    end = time.monotonic() + 0.5
    message = queue.get(timeout=60)
    until_clock(end)
    message.ack()
    assert_counts(queue, acked=1, expired=0, message_count=0)
    assert_balanced(queue)


@pytest.mark.parametrize("behind", [False, True])
def test_b56_a_message_at_the_head_goes_when_its_expiration_is_over(
    channel: shmbroker.Channel, queue: shmbroker.Queue, *, behind: bool
) -> None:
    """Expiration "50": it is gone after 50 ms and not before, without a consumer, whatever lies behind it."""
    before = time.monotonic()
    channel.basic_publish("", "q", b"A", shmbroker.BasicProperties(expiration="50"))
    if behind:
        channel.basic_publish("", "q", b"B")
    await_counts(queue, expired=1, message_count=int(behind))
    assert time.monotonic() >= before + 0.05
    assert listing(queue) == ["B"] * behind
    assert_balanced(queue)


def life(queue: shmbroker.Queue, put: Callable[[], object]) -> tuple[float, float]:
    """Put a message; return between which times of life, in seconds, the queue must have given it one."""
    before = time.time()
    put()
    after = time.time()
    with queue.get(timeout=0) as message:
        # It reads two clocks one after the other: what the system runs in between makes the result too small.
        ends = max(message.expires_at or 0 for _ in range(READS))
    return ends - after - CLOCKS, ends - before + CLOCKS


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (None, LONGEST_TTL),
        (LONGEST_TTL + 5, LONGEST_TTL),
        (LONGEST_TTL, LONGEST_TTL),
        (LONGEST_TTL / 2, LONGEST_TTL / 2),
    ],
)
def test_q56_message_ttl_is_the_longest_life(
    connection: shmbroker.Connection, ttl: float | None, expected: float
) -> None:
    """Longest life 10 s: a message without a time has 10 s from its put, one with 15 s too; 5 s stay."""
    queue = connection.queue("q", message_ttl=LONGEST_TTL)
    least, most = life(queue, lambda: queue.put(b"A", ttl=ttl))
    assert least <= expected <= most


@pytest.mark.parametrize(("ttl", "expected"), [(None, LONGEST_ALLOWED), (LONGEST_OF_A_PUT, LONGEST_OF_A_PUT)])
def test_q56_the_longest_times_do_not_overflow(
    connection: shmbroker.Connection, ttl: float | None, expected: float
) -> None:
    """A life of ten years, the longest that a queue can give, ends in ten years; one of three years in three."""
    queue = connection.queue("q", message_ttl=LONGEST_ALLOWED)
    least, most = life(queue, lambda: queue.put(b"A", ttl=ttl))
    assert least <= expected <= most
    assert_counts(queue, expired=0, acked=1)


def publish(queue: shmbroker.Queue, connection: shmbroker.Connection, way: str) -> None:
    """Put a message whose own time is an hour."""
    if way == "put":
        queue.put(b"A", ttl=HOUR)
    elif way == "put_many":
        queue.put_many([b"A"], ttl=HOUR)
    elif way == "reserve":
        with queue.reserve(1, ttl=HOUR) as memory:
            memory[:] = b"A"
    else:
        with connection.channel() as channel:
            if way == "commit":
                channel.tx_select()
            channel.basic_publish("", "q", b"A", shmbroker.BasicProperties(expiration="3600000"))
            if way == "commit":
                channel.tx_commit()


@pytest.mark.parametrize("way", ["put", "put_many", "reserve", "publish", "commit"])
def test_q56_every_way_to_put_keeps_to_the_longest_life(connection: shmbroker.Connection, way: str) -> None:
    """However a message comes, it lives no longer than `message_ttl`."""
    queue = connection.queue("q", message_ttl=LONGEST_TTL)
    least, most = life(queue, lambda: publish(queue, connection, way))
    assert least <= LONGEST_TTL <= most


def test_q56_the_longest_life_is_for_other_processes_too(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A process that has opened the queue before keeps to a `message_ttl` that is set later."""
    queue = connection.queue("q")
    with Actor(broker.name) as producer:
        producer.do("put", queue="q", bodies=["A"])
        with queue.get(timeout=0) as message:
            assert message.expires_at is None
        queue.configure(message_ttl=LONGEST_TTL)
        least, most = life(queue, lambda: producer.do("put", queue="q", bodies=["A"], ttl=HOUR))
        assert least <= LONGEST_TTL <= most


def test_q56_a_commit_keeps_to_a_longest_life_that_is_set_later(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A connection that has opened the queue before `message_ttl` is set keeps to it in its transactions, too."""
    queue = connection.queue("q")
    with broker.connect() as other:
        publish(queue, other, "commit")
        with queue.get(timeout=0):
            queue.configure(message_ttl=LONGEST_TTL)
        least, most = life(queue, lambda: publish(queue, other, "commit"))
        assert least <= LONGEST_TTL <= most


@pytest.mark.parametrize("before", [None, HOUR])
def test_q58_a_shorter_longest_life_is_for_what_is_there(
    connection: shmbroker.Connection, before: float | None
) -> None:
    """Messages that are older than the new `message_ttl` expire now, others when their time is over; the rest stays."""
    queue = connection.queue("q", message_ttl=before)
    put_each(queue, ["held", "old"], ttl=before)
    held = queue.get()
    assert text(held) == "held"
    queue.configure(message_ttl=LONGEST_TTL)
    (there,) = queue.browse()
    assert there.expires_at is not None
    assert there.expires_at <= time.time() + LONGEST_TTL
    until_clock(time.monotonic() + 0.06)
    queue.configure(message_ttl=0.05)
    assert_counts(queue, expired=1, ready=0)
    queue.configure(message_ttl=None)
    held.nack()
    put_each(queue, ["C"])
    assert take(queue, 2) == ["held", "C"]
    assert_balanced(queue)


def test_q58_what_expires_goes_to_the_dead_letter_exchange(connection: shmbroker.Connection) -> None:
    """A message whose time is over at the change is dead for the reason `expired`."""
    dead = dead_letter_queue(connection)
    queue = connection.queue("q", dead_letter_exchange="dlx")
    put_each(queue, ["A"])
    until_clock(time.monotonic() + 0.06)
    queue.configure(message_ttl=0.05)
    assert reasons(next_dead(dead)) == [("q", "expired", 1)]


def test_q58_what_is_there_expires_by_itself_at_its_new_time(connection: shmbroker.Connection) -> None:
    """A message that is younger than the new `message_ttl` expires when that is over, although nobody looks at it."""
    queue = connection.queue("q")
    put_each(queue, ["A"])
    before = time.monotonic()
    queue.configure(message_ttl=0.5)
    await_counts(queue, expired=1, ready=0)
    assert time.monotonic() >= before + 0.3
    assert_balanced(queue)


def test_q58_the_same_again_completes_an_interrupted_change(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that an interrupt ended after the setting was stored is completed by the same call."""
    queue = connection.queue("q")
    put_each(queue, ["A"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(managing, "shorten_lives", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.configure(message_ttl=LONGEST_TTL)
    assert [message.expires_at for message in queue.browse()] == [None]
    queue.configure(message_ttl=LONGEST_TTL)
    assert [message.expires_at is None for message in queue.browse()] == [False]


def test_q58_a_longer_life_changes_nothing(connection: shmbroker.Connection) -> None:
    """A greater `message_ttl`, or none, is for what is put then; a message that ends earlier keeps its time."""
    queue = connection.queue("q", message_ttl=LONGEST_TTL)
    put_each(queue, ["A"])
    (before,) = queue.browse()
    for ttl in (HOUR, None, HOUR):
        queue.configure(message_ttl=ttl)
        (there,) = queue.browse()
        assert there.expires_at == pytest.approx(before.expires_at, abs=0.05)


def test_q58_a_message_of_several_queues_keeps_its_time(
    connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """A body that other queues have, too, cannot end earlier in one of them, unless its time is over already."""
    queues = [connection.queue(name) for name in "ab"]
    for name in "ab":
        channel.queue_bind(name, "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"A")
    queues[0].configure(message_ttl=LONGEST_TTL)
    assert [message.expires_at for queue in queues for message in queue.browse()] == [None, None]
    until_clock(time.monotonic() + 0.06)
    queues[0].configure(message_ttl=0.05)
    assert_counts(queues[0], expired=1, message_count=0)
    assert listing(queues[1]) == ["A"]


def test_q58_a_live_address_setting_shortens_lives(connection: shmbroker.Connection) -> None:
    """A change of `default_message_ttl` is a change of the queues that have none of their own."""
    queue = connection.queue("q")
    put_each(queue, ["A"])
    connection.settings.set("#", default_message_ttl=LONGEST_TTL)
    (message,) = queue.browse()
    assert message.expires_at is not None
