# SPDX-License-Identifier: Apache-2.0
"""Message groups: a group goes to one consumer at a time, in order (as those of Qpid and Artemis)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import (
    arrived,
    assert_balanced,
    assert_counts,
    await_counts,
    listing,
    nothing_to_get,
    numbered,
    put_each,
    take,
    text,
    texts,
)
from scenario_support.processes import actors
from scenario_support.waiting import eventually

from shmbroker import BasicProperties
from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

BOTH = pytest.mark.parametrize("kind", ["sticky", "shared"])


def put_grouped(queue: shmbroker.Queue, *bodies: str) -> None:
    """Put each body; what lies before its hyphen is its group, which is none if nothing lies there."""
    for body in bodies:
        queue.put(body.encode(), group=body.partition("-")[0] or None)


def grouped(connection: shmbroker.Connection, kind: str, **settings: object) -> shmbroker.Queue:
    """Declare a queue with message groups."""
    return connection.queue("grouped", message_groups=kind, **settings)


@BOTH
def test_q49_a_consumer_passes_the_messages_of_the_group_of_another(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """Queue ONE TWO ONE TWO, prefetch 1: c1 gets ONE, c2 TWO; after c2's ack it gets TWO again, then c1 gets ONE."""
    queue = grouped(connection, kind)
    with queue.consume(prefetch=1) as first:
        put_grouped(queue, "ONE-1")
        one = first.get(timeout=60)
        with other.queue("grouped").consume(prefetch=1) as second:
            put_grouped(queue, "TWO-2", "ONE-3", "TWO-4")
            two = second.get(timeout=60)
            assert texts([one, two]) == ["ONE-1", "TWO-2"]
            two.ack()
            four = second.get(timeout=60)
            assert text(four) == "TWO-4"
            assert arrived(first) is None
            one.ack()
            three = first.get(timeout=60)
            assert text(three) == "ONE-3"
            three.ack()
            four.ack()
    assert_balanced(queue)


@BOTH
def test_q51_the_group_of_a_consumer_that_dies_goes_to_another(
    broker: shmbroker.Broker, connection: shmbroker.Connection, kind: str
) -> None:
    """c1 dies with message 1 of ONE unacked: c2 gets 1 again, then the other messages, in order."""
    queue = grouped(connection, kind)
    put_grouped(queue, "ONE-1", "TWO-2", "ONE-3", "TWO-4")
    with actors(broker.name, 1) as (holder,):
        assert [message["body"] for message in holder.do("get", queue="grouped")] == ["ONE-1"]
        with queue.consume(prefetch=10) as consumer:
            passed = [consumer.get(timeout=60) for _ in range(2)]
            assert texts(passed) == ["TWO-2", "TWO-4"]
            assert arrived(consumer) is None
            holder.kill()
            rest = [consumer.get(timeout=60) for _ in range(2)]
            assert texts(rest) == ["ONE-1", "ONE-3"]
            assert [message.redelivered for message in rest] == [True, False]
            for message in passed + rest:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_q49_in_a_queue_that_was_filled_before(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """ONE TWO ONE TWO lie there: c1 gets 1, c2 gets 2; after c2's ack it gets 4, and passes 3; then c1 gets 3."""
    queue = grouped(connection, kind)
    put_grouped(queue, "ONE-1", "TWO-2", "ONE-3", "TWO-4")
    with queue.consume(prefetch=1) as first:
        one = first.get(timeout=60)
        with other.queue("grouped").consume(prefetch=1) as second:
            two = second.get(timeout=60)
            assert texts([one, two]) == ["ONE-1", "TWO-2"]
            two.ack()
            four = second.get(timeout=60)
            assert text(four) == "TWO-4"
            one.ack()
            three = first.get(timeout=60)
            assert text(three) == "ONE-3"
            for message in (three, four):
                message.ack()
    assert_balanced(queue)


@BOTH
def test_q51_a_consumer_that_dies_leaves_its_group_in_order(
    broker: shmbroker.Broker, connection: shmbroker.Connection, kind: str
) -> None:
    """c1, a consumer with prefetch 1, dies with message 1: c2, which has 2, gets 1 again, then 3, each in its group."""
    queue = grouped(connection, kind)
    with actors(broker.name, 1) as (first,):
        first.do("consume", queue="grouped", prefetch=1)
        put_grouped(queue, "ONE-1")
        assert [message["body"] for message in first.do("receive", timeout=60)] == ["ONE-1"]
        with queue.consume(prefetch=1) as second:
            put_grouped(queue, "TWO-2", "ONE-3", "TWO-4")
            two = second.get(timeout=60)
            assert text(two) == "TWO-2"
            first.kill()
            await_counts(queue, delivering=1, ready=3)
            two.ack()
            got = []
            for _ in range(3):
                with second.get(timeout=60) as message:
                    got.append((text(message), message.redelivered))
            assert got == [("ONE-1", True), ("ONE-3", False), ("TWO-4", False)]
    assert_balanced(queue)


def test_t47_what_comes_back_goes_to_its_owner_in_order(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """Each of two consumers returns five messages of its group, the last one first: it gets them again, in order."""
    queue = grouped(connection, "sticky")
    with queue.consume(prefetch=5) as first, other.queue("grouped").consume(prefetch=5) as second:
        put_grouped(queue, *(f"{group}-{number}" for number in range(5) for group in ("A", "B")))
        for consumer in (first, second):
            held = [consumer.get(timeout=60) for _ in range(5)]
            bodies = texts(held)
            assert bodies in ([f"{name}-{number}" for number in range(5)] for name in ("A", "B"))
            consumer.suspend()
            for message in reversed(held):
                message.nack()
            consumer.resume()
            again = [consumer.get(timeout=60) for _ in range(5)]
            assert texts(again) == bodies
            for message in again:
                message.ack()
    assert_balanced(queue)


def test_q52_a_sticky_group_stays_with_its_consumer_when_it_has_no_messages(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """STANDARD: the next ONE goes to c1, although c1 holds none and c2 is there, too."""
    queue = grouped(connection, "sticky")
    with queue.consume() as first:
        put_grouped(queue, "ONE-0")
        first.get(timeout=60).ack()
        with other.queue("grouped").consume() as second:
            for number in range(1, 6):
                put_grouped(queue, f"ONE-{number}")
                message = first.get(timeout=60)
                assert text(message) == f"ONE-{number}"
                message.ack()
            assert arrived(second) is None
    assert_balanced(queue)


def test_q52_a_shared_group_may_move_when_its_messages_are_settled(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """SHARED: while c1 holds a ONE, c2 gets none; when c1 has settled it and has no credit, the next ONE goes to c2."""
    queue = grouped(connection, "shared")
    first = queue.consume(prefetch=2)
    put_grouped(queue, "ONE-0", "TWO-0")
    one, two = first.get(timeout=60), first.get(timeout=60)
    with other.queue("grouped").consume() as second:
        put_grouped(queue, "ONE-1", "TWO-1")
        assert arrived(second) is None
        first.suspend()
        one.ack()
        moved = second.get(timeout=60)
        assert text(moved) == "ONE-1"
        moved.ack()
        two.ack()
        message = second.get(timeout=60)
        assert text(message) == "TWO-1"
        message.ack()
    first.close()
    assert_balanced(queue)


def test_q54_what_a_consumer_skipped_just_before_the_last_ack_is_delivered(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """SHARED: c2 has skipped the messages of a busy group; when c1 acks its last one, c2 gets them all."""
    queue = grouped(connection, "shared")
    for _ in range(50):
        put_grouped(queue, "ONE-0")
        one = queue.get(timeout=60)
        with other.queue("grouped").consume() as second:
            put_grouped(queue, "ONE-1", "ONE-2", "TWO-1")
            skipped = second.get(timeout=60)
            assert text(skipped) == "TWO-1"
            one.ack()
            rest = [second.get(timeout=60) for _ in range(2)]
            assert texts(rest) == ["ONE-1", "ONE-2"]
            for message in [skipped, *rest]:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_q55_a_busy_group_blocks_no_other_group(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """Groups A, A, B with A busy: B is delivered. Messages without a group: free if sticky, one group if shared."""
    queue = grouped(connection, kind)
    with queue.consume(prefetch=1) as first:
        put_grouped(queue, "A-1")
        busy = first.get(timeout=60)
        with other.queue("grouped").consume(prefetch=2) as second:
            put_grouped(queue, "A-2", "B-1", "-1", "-2")
            got = [second.get(timeout=60) for _ in range(2)]
            assert texts(got) == ["B-1", "-1"]
            third = other.queue("grouped").get(timeout=0) if kind == "sticky" else None
            if third is not None:
                assert text(third) == "-2"  # no group, so anybody may have it
                third.ack()
            else:
                assert nothing_to_get(queue)  # it is of the group that has no name, which the second consumer has
            for message in [busy, *got]:
                message.ack()
    assert_balanced(queue)


@BOTH
def test_t47_each_of_two_groups_goes_to_one_consumer_in_order(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """2 groups alternate, 2 consumers: each gets one group in order; what one returns comes to it again, in order."""
    queue = grouped(connection, kind)
    consumers = [queue.consume(prefetch=1), other.queue("grouped").consume(prefetch=1)]
    put_grouped(queue, *(f"{group}-{number}" for number in range(5) for group in ("A", "B")))
    held = [consumer.get(timeout=60) for consumer in consumers]
    names = [text(message).partition("-")[0] for message in held]
    assert sorted(names) == ["A", "B"]
    for message in held:
        message.nack()
    if kind == "sticky":
        for name, consumer in zip(names, consumers, strict=True):
            for number in range(5):
                message = consumer.get(timeout=60)
                assert text(message) == f"{name}-{number}"
                message.ack()
    for consumer in consumers:
        consumer.close()
    rest = listing(queue)
    assert rest == sorted(rest, key=lambda body: (int(body.partition("-")[2]), body))
    assert_balanced(queue)


def test_t47_no_consumer_is_idle_and_none_has_all_groups(broker: shmbroker.Broker) -> None:
    """10 groups over 3 consumers: each consumer gets at least one group, and each group goes to one consumer."""
    with broker.connect() as producer, broker.connect() as a, broker.connect() as b, broker.connect() as c:
        queue = grouped(producer, "sticky")
        consumers = [connection.queue("grouped").consume(prefetch=100) for connection in (a, b, c)]
        put_grouped(queue, *(f"g{number % 10}-{number}" for number in range(100)))
        await_counts(queue, delivering=100)
        seen: list[Counter[str]] = [Counter() for _ in consumers]
        for counter, consumer in zip(seen, consumers, strict=True):
            while (message := arrived(consumer)) is not None:
                counter[text(message).partition("-")[0]] += 1
                message.ack()
        assert all(seen), seen
        assert sorted(name for counter in seen for name in counter) == [f"g{number}" for number in range(10)]
        assert all(count == 10 for counter in seen for count in counter.values()), seen
        for consumer in consumers:
            consumer.close()
        assert_balanced(queue)


def test_t48_a_group_that_is_closed_may_go_elsewhere(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """JMSXGroupSeq -1 closes the group: its next message may go to another consumer, although groups are sticky."""
    queue = grouped(connection, "sticky")
    first = queue.consume(prefetch=1)
    put_grouped(queue, "A-1")
    first.get(timeout=60).ack()
    with other.queue("grouped").consume() as second:
        queue.put(b"A-last", group="A", headers={"JMSXGroupSeq": -1})
        last = first.get(timeout=60)
        assert text(last) == "A-last"
        put_grouped(queue, "A-new")
        assert arrived(second) is None
        first.suspend()
        last.ack()
        message = second.get(timeout=60)
        assert text(message) == "A-new"
        message.ack()
    first.close()
    assert_balanced(queue)


def test_t48_a_closing_message_that_returns_later_closes_nothing(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """A message with JMSXGroupSeq -1 that waits for its next delivery has not ended: its group keeps its consumer."""
    queue = grouped(connection, "sticky", redelivery_delay=3600.0)
    first = queue.consume()
    queue.put(b"A-last", group="A", headers={"JMSXGroupSeq": -1})
    last = first.get(timeout=60)
    with other.queue("grouped").consume() as second:
        first.suspend()
        last.nack()
        put_grouped(queue, "A-new")
        assert arrived(second) is None
        first.resume()
        message = first.get(timeout=60)
        assert text(message) == "A-new"
        message.ack()
    first.close()
    assert queue.statistics().scheduled == 1


def test_t50_a_group_is_handed_over_after_its_last_message_is_settled(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """When a consumer comes, it gets half of the groups, each after the first one has settled all that it holds."""
    queue = grouped(connection, "sticky")
    with queue.consume(prefetch=20, ack_batch=1) as first:
        put_grouped(queue, *(f"g{number % 10}-{number // 10}" for number in range(20)))
        held = [first.get(timeout=60) for _ in range(20)]  # two of each group
        put_grouped(queue, *(f"g{number}-2" for number in range(10)))
        with other.queue("grouped").consume(prefetch=10) as second:
            assert arrived(second) is None
            settled: Counter[str] = Counter()
            moved: list[str] = []
            for message in held:
                settled[text(message).partition("-")[0]] += 1
                message.ack()
                while (came := arrived(second)) is not None:
                    moved.append(text(came))
                    assert settled[moved[-1].partition("-")[0]] == 2
            await_counts(queue, ready=0)
            moved += texts(message for message in iter(lambda: arrived(second), None))
            kept = texts(message for message in iter(lambda: arrived(first), None))
            assert len(moved) == len(kept) == 5
            assert sorted(moved + kept) == [f"g{number}-2" for number in range(10)]
    assert_balanced(queue)


def test_messages_of_a_group_are_with_one_process_at_a_time(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Processes that get and ack messages of one shared group get them in order, whoever gets each."""
    queue = grouped(connection, "shared")
    bodies = numbered(300)
    put_each(queue, bodies, group="A")
    with actors(broker.name, 3) as takers:
        for taker in takers:
            taker.begin("get", queue="grouped", count=100, timeout=60, settle="ack")
        parts = [[message["body"] for message in taker.result()] for taker in takers]
    assert all(part == sorted(part) for part in parts)
    assert sorted(body for part in parts for body in part) == bodies
    assert_balanced(queue)


def test_channels_group_by_the_header(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """A publish names its group in the header JMSXGroupID; consumers of channels get groups as others do."""
    channel = connection.channel()
    channel.queue_declare("grouped", arguments={"x-message-groups": "sticky", "x-group-buckets": 16})
    for body in "A-1", "B-1", "A-2":
        headers = {"JMSXGroupID": body[0]}
        channel.basic_publish("", "grouped", body.encode(), BasicProperties(headers=headers))
    queue = connection.queue("grouped")
    with queue.consume(prefetch=1) as first:
        held = first.get(timeout=60)
        assert text(held) == "A-1"
        found: list[str] = []
        second = other.channel()
        second.basic_consume("grouped", lambda _, __, ___, body: found.append(bytes(body).decode()), auto_ack=True)
        eventually(lambda: found == ["B-1"], "the other group came")
        held.ack()
        message = first.get(timeout=60)
        assert text(message) == "A-2"
        message.ack()
        assert found == ["B-1"]
        second.close()
    assert_balanced(queue)


def test_a_transaction_keeps_its_group_until_it_ends(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """An acknowledgement in a transaction frees the group when the transaction commits."""
    queue = grouped(connection, "shared")
    put_grouped(queue, "A-1", "A-2")
    channel = other.channel()
    channel.tx_select()
    delivered = channel.basic_get("grouped")
    assert delivered is not None
    channel.basic_ack(delivered.delivery_tag)
    assert nothing_to_get(queue)
    channel.tx_commit()
    assert take(queue, 1) == ["A-2"]
    assert_balanced(queue)


@BOTH
def test_a_consumer_that_closes_gives_its_groups_to_others(
    connection: shmbroker.Connection, other: shmbroker.Connection, kind: str
) -> None:
    """What a consumer holds or has prefetched returns when it closes: another one gets it, and the rest, in order."""
    queue = grouped(connection, kind)
    put_grouped(queue, "A-1", "A-2", "A-3", "A-4")
    first = queue.consume(prefetch=3)
    first.get(timeout=60)
    with other.queue("grouped").consume(timeout=60) as second:
        assert arrived(second) is None
        first.close()
        rest = [second.get(timeout=60) for _ in range(4)]
        assert texts(rest) == ["A-1", "A-2", "A-3", "A-4"]
        for message in rest:
            message.ack()
    assert_balanced(queue)


@pytest.mark.parametrize("way", ["delayed", "dead"])
def test_a_message_that_waits_keeps_no_group_from_others(
    connection: shmbroker.Connection, other: shmbroker.Connection, way: str
) -> None:
    """A message that is returned and delayed, or rejected and dead, leaves its group: the next one is for anybody."""
    settings = {"redelivery_delay": 3600} if way == "delayed" else {"dead_letter_exchange": "nowhere"}
    queue = grouped(connection, "shared", **settings)
    put_grouped(queue, "A-1", "A-2")
    held = queue.get(timeout=60)
    elsewhere = other.queue("grouped")
    assert nothing_to_get(elsewhere)
    if way == "delayed":
        held.nack()
    else:
        held.reject()
    assert take(elsewhere, 1) == ["A-2"]


def test_a_message_that_expires_or_is_purged_keeps_no_group_from_others(
    connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """Whatever ends a message, the next one of its group is delivered."""
    queue = grouped(connection, "shared", ring_size=3)
    queue.put(b"A-0", group="A", ttl=0.001)
    put_grouped(queue, "A-1", "A-2", "A-3", "A-4")
    assert listing(queue) == ["A-2", "A-3", "A-4"]
    held = queue.get(timeout=0)
    assert queue.purge() == 2
    put_grouped(queue, "A-5")
    elsewhere = other.queue("grouped")
    assert nothing_to_get(elsewhere)
    held.reject()
    assert take(elsewhere, 1) == ["A-5"]
    assert_counts(queue, message_count=0)


@pytest.mark.parametrize(
    ("settings", "text_of_error"),
    [
        ({"message_groups": "exclusive"}, "message_groups='exclusive': one of none, sticky, shared is allowed"),
        ({"message_groups": "sticky", "group_buckets": 0}, "group_buckets=0: an integer from 1 to 256 is allowed"),
        ({"group_buckets": 1.5}, r"group_buckets=1\.5: an integer from 1 to 256 is allowed"),
    ],
)
def test_bad_settings_of_groups_are_refused(
    connection: shmbroker.Connection, settings: dict[str, object], text_of_error: str
) -> None:
    """A wrong value, or two that do not go together, is named with what is allowed."""
    with pytest.raises(ValueError, match=text_of_error):
        connection.queue("grouped", **settings)


def test_bad_arguments_and_names_of_groups_are_refused(connection: shmbroker.Connection) -> None:
    """A channel is closed with 406; a put refuses a group that is no string, or an empty one."""
    with pytest.raises(PreconditionFailed, match="x-message-groups"):
        connection.channel().queue_declare("grouped", arguments={"x-message-groups": "some"})
    queue = grouped(connection, "shared")
    with pytest.raises(TypeError, match="group=7: a string is needed"):
        queue.put(b"", group=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group='': a name of at least one character"):
        queue.put(b"", group="")
    assert_counts(queue, message_count=0)
