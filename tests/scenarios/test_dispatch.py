# SPDX-License-Identifier: Apache-2.0
"""consumers_before_dispatch and delay_before_dispatch: from when on consumers get messages (T51)."""

from __future__ import annotations

import re
import time
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, refused
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, put_each, text
from scenario_support.processes import Actor, actors
from scenario_support.waiting import becomes

from shmbroker.exceptions import AccessRefused, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

DELAY = 0.4
FOR_EVER = 86400.0


def assert_waits(consumer: shmbroker.Consumer) -> None:
    """Assert that the consumer gets nothing now, though it looks."""
    with pytest.raises(Empty):
        consumer.get(timeout=0)
    assert consumer.statistics().waiting == 0


@pytest.mark.parametrize("end", ["close", "kill"])
def test_t51_the_second_consumer_begins_the_flow(
    broker: shmbroker.Broker, connection: shmbroker.Connection, end: str
) -> None:
    """One of two gets nothing; with the second both do; when one leaves the other goes on; after the last it resets.

    The consumers are in processes, which close their consumers or are killed.
    """
    queue = connection.queue("q", consumers_before_dispatch=2)
    put_each(queue, "ABC")
    with actors(broker.name, 3) as (first, second, third):

        def leaves(actor: Actor) -> None:
            if end == "close":
                actor.do("close_consumer")
            else:
                actor.kill()

        first.do("consume", queue="q", prefetch=1)
        assert first.do("arrived") == []
        assert_counts(queue, consumers=1, not_interested=1, ready=3)
        second.do("consume", queue="q", prefetch=1)
        got = [actor.do("receive", timeout=60)[0]["body"] for actor in (first, second)]
        assert sorted(got) == ["A", "B"]
        for actor in second, first:
            actor.do("settle", how="ack")
        leaves(second)
        await_counts(queue, consumers=1)
        assert first.do("receive", timeout=60, settle="ack")[0]["body"] == "C"
        put_each(queue, "D")
        assert first.do("receive", timeout=60, settle="ack")[0]["body"] == "D"
        leaves(first)
        await_counts(queue, consumers=0)
        put_each(queue, "E")
        third.do("consume", queue="q", prefetch=1)
        assert third.do("arrived") == []
        with queue.consume(priority=-1):
            third.begin("receive", timeout=60, settle="ack")
            becomes(lambda: queue.statistics().ready, 0)
        assert third.result()[0]["body"] == "E"
    await_counts(queue, consumers=0, acked=5)
    assert_balanced(queue)


def test_t51_a_sleeping_consumer_is_notified(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A consumer that waits in its get wakes when the last consumer comes, and when a message does later."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    with Actor(broker.name) as actor:
        actor.do("consume", queue="q", prefetch=4)
        actor.begin("receive", count=2, timeout=60, settle="ack")
        await_counts(queue, not_interested=1)
        put_each(queue, "A")
        with queue.consume(selector="1 = 2"):
            becomes(lambda: queue.statistics().acked, 1)
            put_each(queue, "B")
            assert [message["body"] for message in actor.result()] == ["A", "B"]


def test_t51_the_delay_begins_the_flow_with_one(connection: shmbroker.Connection) -> None:
    """With a delay one consumer of two gets messages when it has passed, and not before."""
    queue = connection.queue("q", consumers_before_dispatch=2, delay_before_dispatch=DELAY)
    put_each(queue, "AB")
    begun = time.monotonic()
    with queue.consume() as consumer:
        assert text(consumer.get(timeout=60)) == "A"
        assert time.monotonic() - begun >= DELAY
    begun = time.monotonic()
    with queue.consume() as consumer:  # the first has left: it begins anew
        assert text(consumer.get(timeout=60)) == "A"
        assert time.monotonic() - begun >= DELAY


def test_t51_the_number_does_not_wait_for_the_delay(connection: shmbroker.Connection) -> None:
    """When enough consumers are there, they get messages before the delay has passed."""
    queue = connection.queue("q", consumers_before_dispatch=2, delay_before_dispatch=FOR_EVER)
    put_each(queue, "AB")
    with queue.consume(prefetch=1) as first:
        assert_waits(first)
        with queue.consume(prefetch=1) as second:
            assert sorted(text(consumer.get(timeout=60)) for consumer in (first, second)) == ["A", "B"]


def test_t51_the_delay_alone(connection: shmbroker.Connection) -> None:
    """Without a number of consumers only the delay counts, from the first consumer on, also if that one leaves."""
    queue = connection.queue("q", delay_before_dispatch=DELAY)
    put_each(queue, "AB")
    begun = time.monotonic()
    first = queue.consume(prefetch=1)
    with queue.consume(prefetch=1) as second:
        first.close()
        assert text(second.get(timeout=60)) == "A"
        assert time.monotonic() - begun >= DELAY


def test_t51_a_number_of_one_is_reached_with_the_first_consumer(connection: shmbroker.Connection) -> None:
    """The delay is for consumers that are too few: there are none."""
    queue = connection.queue("q", consumers_before_dispatch=1, delay_before_dispatch=3600.0)
    put_each(queue, "A")
    with queue.consume() as consumer:
        assert text(consumer.get(timeout=60)) == "A"


def test_t51_the_consumers_of_channels_wait(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """They count, and wait, as others do; a callback is called when the last one has come."""
    connection.channel().queue_declare("q", arguments={"x-consumers-before-dispatch": 3})
    queue = connection.queue("q", passive=True)
    put_each(queue, "ABC")
    inbox = Inbox(ack=True)
    with connection.channel() as channel, other.channel() as second:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("q", inbox)
        second.basic_qos(prefetch_count=1)
        second.basic_consume("q", inbox)
        await_counts(queue, consumers=2, not_interested=2, ready=3)
        with queue.consume(selector="1 = 2"):
            assert sorted(delivery.text for delivery in inbox.wait(3)) == ["A", "B", "C"]


def test_t51_a_consumer_with_a_selector_waits(connection: shmbroker.Connection) -> None:
    """One that chooses its messages counts, and gets none before the others have come."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    queue.put(b"A", headers={"colour": "red"})
    with queue.consume(selector="colour = 'red'") as chooses:
        assert_waits(chooses)
        assert_counts(queue, non_acquiring=0, not_interested=1)
        with queue.consume(selector="colour = 'blue'"):
            assert text(chooses.get(timeout=60)) == "A"


def test_t51_message_groups_wait(connection: shmbroker.Connection) -> None:
    """A group has no consumer before the others have come."""
    queue = connection.queue("q", consumers_before_dispatch=2, message_groups="sticky")
    for body in b"A", b"B":
        queue.put(body, group="g")
    with queue.consume(prefetch=2) as first:
        assert_waits(first)
        with queue.consume(prefetch=2) as second:
            becomes(lambda: first.statistics().waiting + second.statistics().waiting, 2)
            assert {first.statistics().waiting, second.statistics().waiting} == {0, 2}


def test_t51_gets_do_not_wait(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A get and a browser are no consumers: the queue serves them whatever it waits for."""
    queue = connection.queue("q", consumers_before_dispatch=2, delay_before_dispatch=FOR_EVER)
    put_each(queue, "ABC")
    with queue.consume() as consumer:
        assert listing(queue) == ["A", "B", "C"]
        assert text(queue.get(timeout=60)) == "A"
        delivery = channel.basic_get("q", auto_ack=True)
        assert delivery is not None
        assert bytes(delivery) == b"B"
        assert_waits(consumer)


def test_t51_a_paused_queue(connection: shmbroker.Connection) -> None:
    """A queue that is paused gives nothing although all have come, and does when it resumes."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    put_each(queue, "AB")
    queue.pause()
    with queue.consume(prefetch=1) as first, queue.consume(prefetch=1) as second:
        for consumer in first, second:
            assert_waits(consumer)
        queue.resume()
        assert sorted(text(consumer.get(timeout=60)) for consumer in (first, second)) == ["A", "B"]
    with queue.consume() as first:
        queue.pause()
        queue.resume()
        assert_waits(first)


def test_t51_a_killed_consumer_does_not_count(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """One that was killed while it waited has left when it was reaped: the next one waits."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    put_each(queue, "A")
    with Actor(broker.name) as actor:
        actor.do("consume", queue="q")
        actor.kill()
    await_counts(queue, consumers=0)
    with queue.consume() as consumer:
        assert_waits(consumer)
        with queue.consume(selector="1 = 2"):
            assert text(consumer.get(timeout=60)) == "A"


def test_t51_a_stopped_consumer_counts(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """One whose process is stopped is attached: another one opens the gate, and gets messages without it."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    with Actor(broker.name) as actor:
        actor.do("consume", queue="q")
        actor.stop()
        with queue.consume() as consumer:
            put_each(queue, "A")
            assert text(consumer.get(timeout=60)) == "A"
        actor.resume()


def test_t51_settings_that_change(connection: shmbroker.Connection) -> None:
    """Fewer consumers, a delay, or none of both may be enough for those that wait; more do not stop the flow."""
    queue = connection.queue("q", consumers_before_dispatch=3)
    put_each(queue, "ABCD")
    with queue.consume(prefetch=1) as first, queue.consume(selector="1 = 2") as second:
        assert_waits(first)
        queue.configure(consumers_before_dispatch=2)
        message = first.get(timeout=60)
        assert text(message) == "A"
        queue.configure(consumers_before_dispatch=9)
        second.close()
        message.ack()
        assert text(first.get(timeout=60)) == "B"
    with queue.consume(prefetch=1) as waits:
        assert_waits(waits)
        queue.configure(delay_before_dispatch=0.001)
        message = waits.get(timeout=60)
        assert text(message) == "B"
        queue.configure(delay_before_dispatch=None)
        message.ack()
    with queue.consume(prefetch=1) as waits:
        assert_waits(waits)
        queue.configure(consumers_before_dispatch=0)
        assert text(waits.get(timeout=60)) == "C"
        queue.configure(consumers_before_dispatch=9)  # there is a consumer that gets messages: the flow goes on
        with queue.consume(prefetch=1) as joins:
            assert text(joins.get(timeout=60)) == "D"


def test_t51_with_a_single_active_consumer(connection: shmbroker.Connection) -> None:
    """A consumer that stands by counts; only the active one gets messages."""
    queue = connection.queue("q", consumers_before_dispatch=2, single_active_consumer=True)
    put_each(queue, "AB")
    with queue.consume(prefetch=4) as active:
        assert_waits(active)
        with queue.consume(prefetch=4) as stands_by:
            assert [text(active.get(timeout=60)) for _ in range(2)] == ["A", "B"]
            assert_waits(stands_by)


def test_t51_a_consumer_that_is_refused_does_not_count(connection: shmbroker.Connection) -> None:
    """An exclusive consumer stays alone, so only the delay lets it have messages."""
    queue = connection.queue("q", consumers_before_dispatch=2)
    put_each(queue, "A")
    inbox = Inbox(ack=True)
    with connection.channel() as channel:
        channel.basic_consume("q", inbox, exclusive=True)
        for _ in range(3):
            with pytest.raises(AccessRefused):
                queue.consume()
        assert_counts(queue, ready=1, not_interested=1)
        queue.configure(delay_before_dispatch=0.001)
        assert [delivery.text for delivery in inbox.wait(1)] == ["A"]


def test_t51_as_arguments_and_by_address_settings(connection: shmbroker.Connection) -> None:
    """Channels give the delay in milliseconds; address settings give both to queues that are made later."""
    arguments = {"x-consumers-before-dispatch": 2, "x-delay-before-dispatch": 1500}
    with connection.channel() as channel:
        channel.queue_declare("declared", arguments=arguments)
        channel.queue_declare("declared", arguments=arguments)
    found = connection.queue("declared", passive=True).settings
    assert (found.consumers_before_dispatch, found.delay_before_dispatch) == (2, 1.5)
    before = connection.queue("jobs.before").settings
    connection.settings.set("jobs.#", default_consumers_before_dispatch=3, default_delay_before_dispatch=0.25)
    after = connection.queue("jobs.after").settings
    assert (before.consumers_before_dispatch, before.delay_before_dispatch) == (0, 0.0)
    assert (after.consumers_before_dispatch, after.delay_before_dispatch) == (3, 0.25)
    for name, value in ("consumers_before_dispatch", -1), ("delay_before_dispatch", -0.5):
        with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}: ")):
            connection.queue("bad", **{name: value})
        with refused(PreconditionFailed):
            connection.channel().queue_declare("bad", arguments={f"x-{name.replace('_', '-')}": -1})
