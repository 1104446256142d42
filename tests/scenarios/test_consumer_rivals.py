# SPDX-License-Identifier: Apache-2.0
"""Consumer priorities and selectors together: a lower priority gets what no higher one wants (as in Qpid)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    numbered,
    put_each,
    text,
    texts,
)
from scenario_support.processes import Actor, actors
from scenario_support.waiting import eventually

if TYPE_CHECKING:
    import shmbroker

RED, BLUE, GREEN = {"color": "red"}, {"color": "blue"}, {"color": "green"}
IS_RED = "color = 'red'"


def consume(who: Actor, priority: int, selector: str | None = None, prefetch: int = 100) -> None:
    """Attach a consumer in another process."""
    who.do("consume", queue="colors", priority=priority, selector=selector, prefetch=prefetch)


def received(who: Actor, count: int, settle: str = "ack") -> list[str]:
    """Return the bodies of the next messages that come to another process."""
    return [message["body"] for message in who.do("receive", count=count, timeout=60, settle=settle)]


def assert_nothing_there(*processes: Actor) -> None:
    """Assert that no message has come to these processes beside what they took."""
    assert [who.do("arrived") for who in processes] == [[] for _ in processes]


def put_colors(queue: shmbroker.Queue, *bodies: str) -> None:
    """Put messages whose color is that of their first letter."""
    for body in bodies:
        put_each(queue, [body], headers={"r": RED, "b": BLUE, "g": GREEN}[body[0]])


@pytest.mark.parametrize("high_first", [True, False], ids=["high first", "low first"])
def test_q39_the_lower_priority_gets_exactly_what_the_selector_excludes(
    broker: shmbroker.Broker, connection: shmbroker.Connection, *, high_first: bool
) -> None:
    """High wants all but message 2, and low wants any: low gets exactly message 2, and of all later ones the same."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        for who in (high, low) if high_first else (low, high):
            consume(who, 10 if who is high else 0, "number <> 2" if who is high else None)
        for number in (1, 2, 3):
            queue.put(str(number).encode(), headers={"number": number})
        assert received(low, 1) == ["2"]
        assert received(high, 2) == ["1", "3"]
        chance = random.Random(39)
        for _ in range(300):
            number = chance.randint(1, 3)
            queue.put(str(number).encode(), headers={"number": number})
            assert received(low if number == 2 else high, 1) == [str(number)]
        assert_nothing_there(high, low)
    assert_balanced(queue)
    assert connection.doctor() == []


def test_q39_a_backlog_is_shared_by_the_selector(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """3,000 messages lie there when both begin: each process gets its part, in order."""
    queue = connection.queue("colors")
    queue.pause()
    put_colors(queue, *(f"{'rb'[n % 2]}{n:05d}" for n in range(3000)))
    with actors(broker.name, 2) as (high, low):
        consume(low, 0, prefetch=2000)
        consume(high, 1, IS_RED, prefetch=2000)
        queue.resume()
        assert received(low, 1500) == [f"b{n:05d}" for n in range(1, 3000, 2)]
        assert received(high, 1500) == [f"r{n:05d}" for n in range(0, 3000, 2)]
        assert_nothing_there(high, low)
    assert_counts(queue, message_count=0)


def test_q39_a_consumer_without_credit_leaves_messages_to_the_lower_priority(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """High's prefetch is used up: low gets what high would want, with no further event; then high has credit again."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED, prefetch=2)
        put_colors(queue, "r1", "r2", "r3", "b1", "r4")
        assert sorted(received(low, 3)) == ["b1", "r3", "r4"]
        assert received(high, 2, settle="") == ["r1", "r2"]
        assert high.do("settle", how="ack") == 2
        put_colors(queue, "r5", "b2")
        assert received(high, 1) == ["r5"]
        assert received(low, 1) == ["b2"]
        assert_nothing_there(high, low)


def test_q39_a_killed_consumer_is_no_rival(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """High holds a message and is killed: low gets that one, and all that come afterwards."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED)
        put_colors(queue, "r1", "b1")
        assert received(high, 1, settle="") == ["r1"]
        assert received(low, 1) == ["b1"]
        high.kill()
        put_colors(queue, "r2", "b2")
        assert sorted(received(low, 3)) == ["b2", "r1", "r2"]
    assert_balanced(queue)
    await_counts(queue, consumers=0)
    assert connection.doctor() == []


def test_q39_a_stopped_consumer_is_no_rival(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """High is stopped (SIGSTOP): low gets what high would want; when high continues, it is a rival again."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED)
        high.stop()
        put_colors(queue, "r1", "r2", "b1")
        assert sorted(received(low, 3)) == ["b1", "r1", "r2"]
        high.resume()

        def high_gets_one() -> bool:
            put_colors(queue, "r3")
            eventually(lambda: queue.statistics().ready == 0, "a consumer took it")
            return bool(high.do("arrived"))

        eventually(high_gets_one, "high gets messages again")


def test_q39_both_with_selectors(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Low wants red and blue, high wants red: low gets red only when high is gone. Nobody wants green."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0, "color IN ('red', 'blue')")
        consume(high, 1, IS_RED)
        for _ in range(20):
            put_colors(queue, "r1", "b1", "g1", "r2", "b2")
            assert received(high, 2) == ["r1", "r2"]
            assert received(low, 2) == ["b1", "b2"]
        assert_nothing_there(high, low)
        high.do("close_consumer")
        put_colors(queue, "r3", "b3")
        assert received(low, 2) == ["r3", "b3"]
    assert_counts(queue, message_count=20)


def test_q39_three_priorities(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Red goes to the first, blue to the second, green to the third; when the second leaves, blue goes to the third."""
    queue = connection.queue("colors")
    with actors(broker.name, 3) as (first, second, third):
        consume(third, 1)
        consume(second, 2, "color IN ('red', 'blue')")
        consume(first, 3, IS_RED)
        put_colors(queue, "g1", "b1", "r1")
        assert [received(who, 1) for who in (third, second, first)] == [["g1"], ["b1"], ["r1"]]
        second.do("close_consumer")
        put_colors(queue, "b2", "r2", "g2")
        assert received(third, 2) == ["b2", "g2"]
        assert received(first, 1) == ["r2"]
        first.do("close_consumer")
        put_colors(queue, "r3")
        assert received(third, 1) == ["r3"]


def test_q39_what_a_rival_leaves_behind_goes_to_the_lower_priority(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """High closes with messages in its row, which return: low gets them, and all that it had left to high."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED, prefetch=50)
        put_colors(queue, *(f"r{n:02d}" for n in range(50)))
        eventually(lambda: queue.statistics().delivering == 50, "high has all")
        high.do("close_consumer")
        assert sorted(received(low, 50)) == [f"r{n:02d}" for n in range(50)]


def test_q39_a_returned_message_goes_to_the_rival_again(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """High returns a message: it comes to high again, and not to low."""
    queue = connection.queue("colors")
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED)
        put_colors(queue, "r1")
        for _ in range(50):
            assert received(high, 1, settle="nack") == ["r1"]
        assert received(high, 1) == ["r1"]
        assert_nothing_there(high, low)


def test_q39_no_local_of_a_higher_priority(
    connection: shmbroker.Connection, other: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """High wants no message of its own connection: low gets those, and only those."""
    queue = connection.queue("colors")
    mine: list[bytes] = []
    channel.basic_consume(
        "colors",
        lambda _c, _m, _p, body: mine.append(body),
        auto_ack=True,
        no_local=True,
        arguments={"x-priority": 5},
    )
    with other.queue("colors").consume(priority=0, auto_ack=True) as low:
        for n in range(20):
            other.queue("colors").put(b"theirs %d" % n)
            channel.basic_publish("", "colors", b"own %d" % n)
            assert text(low.get(timeout=60)) == f"own {n}"
        eventually(lambda: len(mine) == 20, "high got the others")
        assert mine == [b"theirs %d" % n for n in range(20)]
        assert arrived(low) is None
    await_counts(queue, ready=0)


def test_q39_channels_of_one_connection(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """Two consumers of one channel: the one with the selector and the higher priority gets what it wants."""
    queue = connection.queue("colors")
    red: list[bytes] = []
    rest: list[bytes] = []
    channel.basic_consume("colors", lambda _c, _m, _p, body: rest.append(body), auto_ack=True)
    channel.basic_consume(
        "colors",
        lambda _c, _m, _p, body: red.append(body),
        auto_ack=True,
        arguments={"x-priority": 5, "x-filter-jms-selector": IS_RED},
    )
    put_colors(queue, *(f"{'rb'[n % 2]}{n}" for n in range(200)))
    eventually(lambda: len(red) + len(rest) == 200, "all were delivered")
    assert red == [b"r%d" % n for n in range(0, 200, 2)]
    assert rest == [b"b%d" % n for n in range(1, 200, 2)]


def test_q39_a_sorted_queue(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """In a sorted queue low gets what high does not want in the order of the keys."""
    queue = connection.queue("colors", sort_key="rank")
    queue.pause()
    for rank in (5, 3, 1, 4, 2, 0):
        queue.put(str(rank).encode(), headers={"rank": rank, "color": "red" if rank % 2 else "blue"})
    with actors(broker.name, 2) as (high, low):
        consume(low, 0)
        consume(high, 1, IS_RED)
        queue.resume()
        assert received(low, 3) == ["0", "2", "4"]
        assert received(high, 3) == ["1", "3", "5"]
        high.do("close_consumer")
        queue.put(b"7", headers={"rank": 7, "color": "red"})
        assert received(low, 1) == ["7"]


def test_q39_a_get_takes_any_message(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Priorities are those of consumers: a get takes what a consumer with a selector would want."""
    queue = connection.queue("colors")
    with other.queue("colors").consume(priority=9, selector=IS_RED, prefetch=1) as consumer:
        put_colors(queue, "r1", "r2")
        assert text(consumer.get(timeout=60)) == "r1"
        assert text(queue.get(timeout=60)) == "r2"


def test_q39_nothing_is_lost_while_credit_comes_and_goes(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """High has a prefetch of 3, two producers put 1,000 messages each: all are acknowledged once, and nobody sleeps."""
    queue = connection.queue("colors")
    bodies = numbered(2000)
    with actors(broker.name, 4) as (high, low, first, second):
        consume(high, 5, "number LIKE '%7%'", prefetch=3)
        consume(low, 0, prefetch=3)
        for number, who in enumerate((first, second)):
            who.begin("put_values", queue="colors", values=[(b, b) for b in bodies[number::2]], header="number")
        high.begin("receive_all", until=2000, queue="colors")
        low.begin("receive_all", until=2000, queue="colors")
        first.result()
        second.result()
        to_high, to_low = ([m["body"] for m in who.result()] for who in (high, low))
    assert all("7" in body for body in to_high)
    assert sorted(to_high + to_low) == bodies
    assert_counts(queue, acked=2000, message_count=0)
    assert connection.doctor() == []


def test_q39_many_rivals(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Twenty consumers with selectors of several priorities: each number goes to the highest that wants it."""
    queue = connection.queue("colors")
    colors = other.queue("colors")
    rivals = [colors.consume(priority=n + 1, selector=f"number >= {n * 10}", prefetch=10) for n in range(20)]
    with other.queue("colors").consume(priority=0) as low:
        for number in (-5, 0, 25, 199, 95, -1):
            queue.put(str(number).encode(), headers={"number": number})
        assert texts(low.get(timeout=60) for _ in range(2)) == ["-5", "-1"]
        for n, number in ((0, 0), (2, 25), (19, 199), (9, 95)):
            assert text(rivals[n].get(timeout=60)) == str(number)
        assert arrived(low) is None
    for rival in rivals:
        rival.close()
