# SPDX-License-Identifier: Apache-2.0
"""Consumers with a selector: they take what it selects, and hide nothing from others (as those of Qpid and Artemis)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    arrived,
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
from scenario_support.processes import actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import InvalidSelector, PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

RED, BLUE = {"color": "red"}, {"color": "blue"}
IS_RED = "color = 'red'"


def take_all(consumer: shmbroker.Consumer, count: int) -> list[str]:
    """Take and acknowledge messages of a consumer."""
    bodies = []
    for _ in range(count):
        message = consumer.get(timeout=60)
        bodies.append(text(message))
        message.ack()
    return bodies


def test_t53_messages_that_do_not_match_hold_up_none_that_do(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """2000 messages that do not match, then 2000 that do: all of these come, in order, and the others stay."""
    queue = connection.queue("colors")
    bodies = numbered(2000)
    put_each(queue, bodies, headers=BLUE)
    put_each(queue, bodies, headers=RED)
    with other.queue("colors").consume(selector=IS_RED, prefetch=50) as consumer:
        assert take_all(consumer, 2000) == bodies
        assert arrived(consumer) is None
        put_each(queue, ["late"], headers=RED)
        assert take_all(consumer, 1) == ["late"]
    assert_counts(queue, message_count=2000)
    assert listing(queue) == bodies
    assert_balanced(queue)


def test_t55_no_message_is_lost_or_reordered_when_consumers_come_and_go(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """A consumer of red messages and one of any: whichever is closed and opened again, each gets its part in order."""
    queue = connection.queue("colors")
    for _ in range(5):
        put_each(queue, ["1"], headers=RED)
        put_each(queue, ["2"], headers=BLUE)
        put_each(queue, ["3"], headers=RED)
        with queue.consume(prefetch=1) as first:
            held = first.get(timeout=60)
            with other.queue("colors").consume(selector=IS_RED) as red:
                assert take_all(red, 1) == ["3"]
                assert arrived(red) is None
            held.nack()
        with other.queue("colors").consume(selector=IS_RED) as red:
            assert take_all(red, 1) == ["1"]
            assert arrived(red) is None
        assert take(queue, 1) == ["2"]
    assert_balanced(queue)


def test_t55_what_a_consumer_of_any_returns_goes_on_to_the_one_of_red(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """The consumer of any has all and is closed: the one of red, which stays, gets the red ones, a new one the rest."""
    queue = connection.queue("colors")
    with other.queue("colors").consume(selector=IS_RED) as red:
        any_one = queue.consume()
        red.suspend()
        for number in range(4):
            put_each(queue, [f"red {number}"], headers=RED)
            put_each(queue, [f"blue {number}"], headers=BLUE)
        assert texts([any_one.get(timeout=60) for _ in range(2)]) == ["red 0", "blue 0"]
        await_counts(queue, delivering=8)
        red.resume()
        assert arrived(red) is None
        any_one.close()
        assert take_all(red, 4) == [f"red {number}" for number in range(4)]
        with queue.consume() as again:
            assert take_all(again, 4) == [f"blue {number}" for number in range(4)]
    assert_balanced(queue)


def test_t56_a_returned_message_that_matches_no_consumer_holds_up_no_other(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """The only consumer that wants a message returns it and leaves: the other consumer gets all that it wants."""
    queue = connection.queue("colors")
    blue = other.queue("colors").consume(selector="color = 'blue'", prefetch=1)
    put_each(queue, ["b1"], headers=BLUE)
    held = blue.get(timeout=60)
    with queue.consume(selector=IS_RED) as red:
        put_each(queue, ["r1"], headers=RED)
        assert take_all(red, 1) == ["r1"]
        blue.suspend()
        held.nack()
        blue.close()
        put_each(queue, ["r2", "r3"], headers=RED)
        assert take_all(red, 2) == ["r2", "r3"]
        assert arrived(red) is None
    assert listing(queue) == ["b1"]
    assert take(queue, 1) == ["b1"]
    assert_balanced(queue)


def test_a_consumer_that_dies_leaves_its_messages_to_who_wants_them(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A process takes all messages and is killed: each consumer gets those that its selector selects, in order."""
    queue = connection.queue("colors")
    put_each(queue, ["b1"], headers=BLUE)
    put_each(queue, ["r1", "r2"], headers=RED)
    with actors(broker.name, 1) as (holder,):
        assert len(holder.do("get", queue="colors", count=3)) == 3
        with queue.consume(selector=IS_RED) as red:
            assert arrived(red) is None
            holder.kill()
            got = [red.get(timeout=60) for _ in range(2)]
            assert texts(got) == ["r1", "r2"]
            assert all(message.redelivered for message in got)
            for message in got:
                message.ack()
    assert take(queue, 1) == ["b1"]
    assert_balanced(queue)


@pytest.mark.parametrize("kind", ["sticky", "shared"])
def test_a_consumer_of_message_groups_leaves_out_nothing(connection: shmbroker.Connection, kind: str) -> None:
    """In a queue with message groups a selector is refused, and no_local, too; nothing of the consumer is left."""
    queue = connection.queue("colors", message_groups=kind)
    with pytest.raises(ValueError, match="which has message groups"):
        queue.consume(selector=IS_RED)
    with pytest.raises(ValueError, match="which has message groups"):
        connection.consumer([connection.queue("other"), queue], selector=IS_RED)
    arguments = {"x-filter-jms-selector": IS_RED}
    with pytest.raises(PreconditionFailed, match=r"x-filter-jms-selector.*message groups"):
        connection.channel().basic_consume("colors", print, arguments=arguments)
    with pytest.raises(PreconditionFailed, match=r"no_local.*message groups"):
        connection.channel().basic_consume("colors", print, no_local=True)
    assert_counts(queue, consumers=0)


def test_a_consumer_of_several_queues_has_one_selector(connection: shmbroker.Connection) -> None:
    """The selector of a consumer holds for all its queues."""
    one, two = connection.queue("one"), connection.queue("two")
    for queue in one, two:
        put_each(queue, ["b"], headers=BLUE)
        put_each(queue, ["r"], headers=RED)
    with connection.consumer([one, two], selector=IS_RED) as consumer:
        assert take_all(consumer, 2) == ["r", "r"]
        assert arrived(consumer) is None
    assert listing(one) == listing(two) == ["b"]


def test_a_consumer_of_a_channel_has_its_selector_as_an_argument(connection: shmbroker.Connection) -> None:
    """basic_consume takes x-filter-jms-selector, which Qpid's clients send; another consumer gets the rest."""
    channel = connection.channel()
    channel.queue_declare("colors")
    red: list[str] = []
    rest: list[str] = []
    arguments = {"x-filter-jms-selector": "color = 'red' AND JMSPriority > 2"}
    channel.basic_consume("colors", lambda *given: red.append(given[3].decode()), auto_ack=True, arguments=arguments)
    for body, headers, priority in ("r4", RED, 4), ("r1", RED, 1), ("b4", BLUE, 4):
        channel.basic_publish("", "colors", body.encode(), BasicProperties(headers=headers, priority=priority))
    eventually(lambda: red == ["r4"], "the consumer got what it wants")
    channel.basic_consume("colors", lambda *given: rest.append(given[3].decode()), auto_ack=True)
    eventually(lambda: rest == ["r1", "b4"], "the other consumer got the rest")
    assert red == ["r4"]
    channel.close()


def test_bad_selectors_of_consumers_are_refused(connection: shmbroker.Connection) -> None:
    """A selector that is no condition, or no string, is refused; nothing of the consumer is left."""
    queue = connection.queue("colors")
    with pytest.raises(InvalidSelector, match="line 1, column 8"):
        queue.consume(selector="color =")
    with pytest.raises(TypeError, match="selector"):
        connection.consumer([queue], selector=5)  # type: ignore[arg-type]
    for bad in "color =", 5:
        with pytest.raises(PreconditionFailed, match="x-filter-jms-selector"):
            connection.channel().basic_consume("colors", print, arguments={"x-filter-jms-selector": bad})
    assert_counts(queue, consumers=0)
