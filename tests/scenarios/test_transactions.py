# SPDX-License-Identifier: Apache-2.0
"""Transactions and what queues count: nothing of a transaction counts before its commit (as those of Artemis)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import taken
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, put_each, text, texts
from scenario_support.processes import Actor

if TYPE_CHECKING:
    import shmbroker

TRIES = 10


@pytest.mark.parametrize("meanwhile", ["outside", "inside"])
def test_t04_what_a_rollback_brings_back_to_a_full_ring_is_replaced(
    connection: shmbroker.Connection, channel: shmbroker.Channel, meanwhile: str
) -> None:
    """ring=1: h0 acked in a transaction, h1 sent, rollback; h1 alone is left, its ack counts at the commit.

    A rollback leaves h0 unacked, as AMQP has it; `basic_recover` brings it back. If h1 was published inside the
    transaction, the rollback took it back, and h0 is left.
    """
    ring = connection.queue("ring", ring_size=1)
    put_each(ring, ["h0"])
    channel.tx_select()
    (held,) = taken(channel, "ring", 1)
    channel.basic_ack(held.delivery_tag)
    if meanwhile == "outside":
        put_each(ring, ["h1"])
    else:
        channel.basic_publish("", "ring", b"h1")
    assert_counts(ring, delivering=1, acked=0, replaced=0)
    channel.tx_rollback()
    channel.basic_recover()
    outside = int(meanwhile == "outside")
    assert_counts(ring, message_count=1, delivering=0, acked=0, replaced=outside)
    assert listing(ring) == [f"h{outside}"]
    (message,) = taken(channel, "ring", 1)
    assert (text(message), message.redelivered) == (f"h{outside}", not outside)
    channel.basic_ack(message.delivery_tag)
    assert_counts(ring, message_count=1, acked=0)
    channel.tx_commit()
    assert_counts(ring, message_count=0, delivering=0, acked=1, replaced=outside, added=1 + outside)
    assert_balanced(ring)


def test_t04_what_a_process_that_is_killed_in_a_transaction_had_is_replaced(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """The same where the death of the process takes the place of the rollback."""
    ring = connection.queue("ring", ring_size=1)
    put_each(ring, ["h0"])
    with Actor(broker.name) as victim:
        victim.do("on_channel", method="tx_select")
        victim.do("on_channel", method="basic_get", queue="ring")
        victim.do("on_channel", method="basic_ack", delivery_tag=1)
        put_each(ring, ["h1"])
        assert_counts(ring, message_count=2, delivering=1, acked=0, replaced=0)
        victim.kill()
        await_counts(ring, message_count=1, delivering=0, acked=0, replaced=1)
    assert listing(ring) == ["h1"]
    assert_balanced(ring)


def test_t61_acks_count_at_the_commit(channel: shmbroker.Channel, queue: shmbroker.Queue) -> None:
    """Ten tries, nine of which are rolled back and recovered: acked 1, delivered ten times, added 1."""
    put_each(queue, "A")
    channel.tx_select()
    for attempt in range(1, TRIES + 1):
        (message,) = taken(channel, "q", 1)
        assert (text(message), message.delivery_count, message.redelivered) == ("A", attempt, attempt > 1)
        channel.basic_ack(message.delivery_tag)
        assert_counts(queue, acked=0, delivering=1, message_count=1)
        if attempt < TRIES:
            channel.tx_rollback()
            channel.basic_recover()
            assert_counts(queue, acked=0, delivering=0, ready=1)
    channel.tx_commit()
    assert_counts(queue, acked=1, added=1, redelivered=TRIES - 1, message_count=0, delivering=0)
    assert_balanced(queue)


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_t70_what_was_acked_in_an_open_transaction_is_in_delivery(
    connection: shmbroker.Connection, queue: shmbroker.Queue, end: str
) -> None:
    """The consumer is cancelled, its ack not committed: delivering 1; 0 after the commit.

    After a rollback the message is unacked, still in delivery; when the channel closes, it returns.
    """
    channel = connection.channel()
    channel.tx_select()
    put_each(queue, "A")
    deliveries = channel.consume("q", inactivity_timeout=60)
    method, _, body = next(deliveries)
    assert body == b"A"
    channel.basic_ack(method.delivery_tag)
    deliveries.close()
    await_counts(queue, consumers=0)
    assert_counts(queue, delivering=1, ready=0, acked=0, message_count=1)
    assert texts(queue.browse(state="delivering")) == ["A"]
    if end == "commit":
        channel.tx_commit()
        assert_counts(queue, delivering=0, acked=1, message_count=0)
        assert texts(queue.browse(state="delivering")) == []
    elif end == "rollback":
        channel.tx_rollback()
        assert_counts(queue, delivering=1, acked=0, message_count=1)
    channel.close()
    left = int(end != "commit")
    assert_counts(queue, delivering=0, ready=left, message_count=left, acked=1 - left)
    assert_balanced(queue)
