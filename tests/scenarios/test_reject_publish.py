# SPDX-License-Identifier: Apache-2.0
"""Queues that reject a message beyond their limits, and tell its publisher (RabbitMQ's reject-publish)."""

from __future__ import annotations

import array
import asyncio
import pickle
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.dead_letters import EXCHANGE, dead_letter_queue, death, deaths_of, next_dead, reasons
from scenario_support.observing import assert_balanced, assert_counts, await_counts, listing, nothing_to_get, put_each
from scenario_support.observing import text as text_of

import shmbroker
import shmbroker.columns
from shmbroker import aio

if TYPE_CHECKING:
    from collections.abc import Callable

TWO = {"x-max-length": 2, "x-overflow": "reject-publish"}
TWO_TO_DEAD = TWO | {"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": EXCHANGE}


@pytest.fixture
def dead(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a dead-letter exchange and the queue behind it."""
    return dead_letter_queue(connection)


def fanout(channel: shmbroker.Channel, **queues: dict[str, Any]) -> None:
    """Declare queues, and bind them to a fanout exchange."""
    channel.exchange_declare("news", "fanout")
    for name, arguments in queues.items():
        channel.queue_declare(name, arguments=arguments)
        channel.queue_bind(name, "news")


# ---- publishers ----


def test_b61_the_third_is_nacked(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """reject-publish, max-length 2: the third is nacked, the queue keeps 1 and 2; after a get there is room again."""
    channel.queue_declare("q", arguments=TWO)
    channel.confirm_delivery()
    assert [channel.basic_publish("", "q", body) for body in (b"1", b"2")] == [1, 2]
    assert channel.wait_for_confirms()
    assert channel.basic_publish("", "q", b"3") == 3
    assert not channel.wait_for_confirms()
    assert channel.wait_for_confirms()  # none was rejected since
    queue = connection.queue("q", passive=True)
    assert listing(queue) == ["1", "2"]
    queue.get_nowait(auto_ack=True)
    channel.basic_publish("", "q", b"4")
    assert channel.wait_for_confirms()
    assert listing(queue) == ["2", "4"]
    assert_balanced(queue)


def test_b61_the_other_queue_of_the_fanout_has_it(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A message that one queue of a fanout rejects is in the other one, and is nacked."""
    fanout(channel, q=TWO, other={})
    futures = [channel.publish_confirmed("news", "", body) for body in (b"1", b"2", b"3")]
    assert [future.exception() is None for future in futures] == [True, True, False]
    error = futures[2].exception()
    assert isinstance(error, shmbroker.NackError)
    assert "max_length=2" in error.text
    assert listing(connection.queue("q", passive=True)) == ["1", "2"]
    assert listing(connection.queue("other", passive=True)) == ["1", "2", "3"]
    assert not channel.wait_for_confirms()


def test_b61_all_queues_of_a_fanout_reject(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """If each queue rejects the message, it is nacked, and no queue has it."""
    one = {"x-max-length": 1, "x-overflow": "reject-publish"}
    fanout(channel, a=one, b=one, c=one)
    channel.confirm_delivery()
    for body in (b"1", b"2"):
        channel.basic_publish("news", "", body)
    assert not channel.wait_for_confirms()
    assert [listing(connection.queue(name, passive=True)) for name in "abc"] == [["1"]] * 3


def test_b61_without_confirms_the_channel_goes_on(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """Without confirms the publisher does not learn of it: the channel stays open, and the message is not returned."""
    returned: list[Any] = []
    channel.add_on_return_callback(lambda *what: returned.append(what))
    channel.queue_declare("q", arguments=TWO)
    assert [channel.basic_publish("", "q", body, mandatory=True) for body in (b"1", b"2", b"3")] == [None] * 3
    assert channel.is_open
    assert listing(connection.queue("q", passive=True)) == ["1", "2"]
    assert returned == []


def test_b61_a_transaction_is_not_committed(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """A commit with a message that a queue rejects fails with 406, and publishes nothing, also to other queues."""
    channel.queue_declare("q", arguments=TWO)
    channel.queue_declare("other")
    channel.tx_select()
    for name, body in (("other", b"0"), ("q", b"1"), ("q", b"2"), ("q", b"3")):
        channel.basic_publish("", name, body)
    with pytest.raises(shmbroker.PreconditionFailed, match="transaction not committed: queue 'q' rejects") as caught:
        channel.tx_commit()
    assert caught.value.code == 406
    assert not channel.is_open
    assert [listing(connection.queue(name, passive=True)) for name in ("q", "other")] == [[], []]


def test_b62_by_bytes(connection: shmbroker.Connection, channel: shmbroker.Channel) -> None:
    """max-length-bytes 10: what would exceed it is nacked, also a body that is longer than the limit; the rest fits."""
    channel.queue_declare("q", arguments={"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    nacked = []
    for body in (b"123456", b"12345", b"1234", b"", b"1", b"12345678901"):
        channel.basic_publish("", "q", body)
        nacked.append(not channel.wait_for_confirms())
    assert nacked == [False, True, False, False, True, True]
    assert listing(connection.queue("q", passive=True)) == ["123456", "1234", ""]


# ---- puts ----


def columns_put(queue: shmbroker.Queue, *bodies: bytes) -> int:
    """Put bodies as a column."""
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(body))
    columns = shmbroker.columns.Columns()
    columns.set_text("body", array.array("i", ends), bytearray(b"".join(bodies)))
    return shmbroker.columns.put(queue, columns, len(bodies))


PUTS: dict[str, Callable[[shmbroker.Queue], object]] = {
    "put": lambda queue: queue.put(b"3", timeout=60),
    "put_nowait": lambda queue: queue.put_nowait(b"3"),
    "with options": lambda queue: queue.put(b"3", key="k", ttl=60, timeout=60),
    "put_many": lambda queue: queue.put_many([b"3", b"4"], timeout=60),
    "columns": lambda queue: columns_put(queue, b"3", b"4"),
}


@pytest.mark.parametrize("way", PUTS)
def test_q67_a_put_is_rejected_immediately(connection: shmbroker.Connection, way: str) -> None:
    """Over messages: a put raises a queue.Full that names the queue, whatever its timeout."""
    queue = connection.queue("q", max_length=2, overflow="reject-publish")
    put_each(queue, "12")
    with pytest.raises(shmbroker.PublishRejected, match=r"queue 'q' rejects .* 2 messages are ready") as caught:
        PUTS[way](queue)
    assert isinstance(caught.value, standard_queue.Full)
    assert caught.value.queue_name == "q"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - its own data
    assert (str(again), again.queue_name) == (str(caught.value), "q")
    assert listing(queue) == ["1", "2"]
    assert_counts(queue, added=2, dropped=0)


def test_q67_over_bytes(connection: shmbroker.Connection) -> None:
    """Over bytes: a put is rejected; room comes back with a get, and with a deletion of messages."""
    queue = connection.queue("q", max_bytes=10, overflow="reject-publish")
    queue.put(b"123456")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"12345")
    queue.get_nowait(auto_ack=True)
    queue.put(b"12345")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"123456")
    assert queue.purge() == 1
    queue.put(b"1234567890")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"1")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"12345678901")


def test_q67_a_rejected_put_keeps_no_room(connection: shmbroker.Connection) -> None:
    """A put that was rejected, by messages or by bytes, has reserved nothing: as much fits as before."""
    queue = connection.queue("q", max_length=3, max_bytes=10, overflow="reject-publish")
    queue.put(b"1234")
    for _ in range(5):
        with pytest.raises(shmbroker.PublishRejected):
            queue.put(b"1234567")  # there is room for the message, but not for its bytes
    queue.put(b"123456")
    queue.put(b"")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"")
    assert_balanced(queue)


def test_q67_many_that_fit_in_part(connection: shmbroker.Connection) -> None:
    """put_many ends at the first message that the queue rejects, and returns how many it put before."""
    queue = connection.queue("q", max_length=3, overflow="reject-publish")
    assert queue.put_many([b"1", b"2", b"3", b"4", b"5"]) == 3
    assert listing(queue) == ["1", "2", "3"]


def test_q67_a_reservation_is_rejected(connection: shmbroker.Connection) -> None:
    """A reservation is rejected before anything is written."""
    queue = connection.queue("q", max_length=1, overflow="reject-publish")
    with queue.reserve(1) as memory:
        memory[:] = b"1"
        with pytest.raises(shmbroker.PublishRejected), queue.reserve(1):
            pass
    assert listing(queue) == ["1"]


def test_q67_a_reservation_that_is_given_up_keeps_no_room(connection: shmbroker.Connection) -> None:
    """What was reserved and given up leaves room for as much as before; what was put takes its place once."""
    queue = connection.queue("q", max_length=2, max_bytes=4, overflow="reject-publish")
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), queue.reserve(4):
            raise ZeroDivisionError
    with queue.reserve(2) as memory:
        memory[:] = b"12"
    with pytest.raises(shmbroker.PublishRejected), queue.reserve(3):
        pass
    queue.put(b"34")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"")
    assert listing(queue) == ["12", "34"]
    assert_balanced(queue)


def test_q67_a_move_stops(connection: shmbroker.Connection) -> None:
    """A move into a queue that rejects stops: the other messages stay in their queue."""
    queue = connection.queue("q", max_length=1, overflow="reject-publish")
    source = connection.queue("source")
    put_each(source, "123")
    assert source.move(queue) == 1
    assert (listing(queue), listing(source)) == (["1"], ["2", "3"])


def test_q67_asyncio(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A task learns of a rejection immediately, too, without a wait for room."""
    connection.queue("q", max_length=2, overflow="reject-publish")

    async def put() -> None:
        async with await aio.connect(broker.name) as client:
            queue = await client.queue("q", passive=True)
            assert await queue.put_many([b"1", b"2", b"3"]) == 2
            with pytest.raises(shmbroker.PublishRejected):
                await queue.put(b"4")
            with pytest.raises(shmbroker.PublishRejected):
                await queue.put_many([b"4", b"5"])

    asyncio.run(put())


# ---- dead letters ----


def test_b61_dlx_the_rejected_message_is_dead_lettered(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """reject-publish-dlx: the third is nacked, and goes to the dead-letter exchange with the reason maxlen."""
    channel.exchange_declare("work", "direct")
    channel.queue_declare("q", arguments=TWO_TO_DEAD)
    channel.queue_bind("q", "work", "k")
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("work", "k", body, shmbroker.BasicProperties(headers={"mine": 1}, priority=3))
    assert not channel.wait_for_confirms()
    message = next_dead(dead)
    assert (text_of(message), message.priority, message.headers["mine"]) == ("3", 3, 1)
    assert deaths_of(message) == [death("q", "maxlen", "k", exchange="work")]
    queue = connection.queue("q", passive=True)
    assert listing(queue) == ["1", "2"]
    await_counts(queue, added=3, dead_lettered=1, ready=2, scheduled=0, dropped=0)
    assert nothing_to_get(dead)
    assert_balanced(queue)


def test_b61_dlx_in_a_fanout(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """In a fanout, the queue that rejects the message sends it to its exchange; the other queue has it."""
    fanout(channel, q=TWO_TO_DEAD, other={}, third=TWO)
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("news", "", body)
    assert not channel.wait_for_confirms()
    message = next_dead(dead)
    assert (text_of(message), reasons(message)) == ("3", [("q", "maxlen", 1)])
    assert [listing(connection.queue(name, passive=True)) for name in ("q", "other", "third")] == [
        ["1", "2"],
        ["1", "2", "3"],
        ["1", "2"],
    ]
    assert nothing_to_get(dead)


@pytest.mark.parametrize("way", PUTS)
def test_q67_dlx_put(connection: shmbroker.Connection, dead: shmbroker.Queue, way: str) -> None:
    """A put that raises has sent the message to the dead-letter exchange, once."""
    queue = connection.queue("q", max_length=2, overflow="reject-publish-dlx", dead_letter_exchange=EXCHANGE)
    put_each(queue, "12")
    with pytest.raises(shmbroker.PublishRejected):
        PUTS[way](queue)
    message = next_dead(dead)
    assert (text_of(message), reasons(message)) == ("3", [("q", "maxlen", 1)])
    assert nothing_to_get(dead)
    assert listing(queue) == ["1", "2"]
    assert_balanced(queue)


def test_q67_dlx_many_that_fit_in_part(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """What put_many did not put, and did not raise for, is no dead letter: the caller still has it."""
    queue = connection.queue("q", max_length=2, overflow="reject-publish-dlx", dead_letter_exchange=EXCHANGE)
    assert queue.put_many([b"1", b"2", b"3"]) == 2
    assert nothing_to_get(dead)
    assert_counts(queue, added=2, dead_lettered=0)


def test_q67_dlx_by_bytes_with_long_bodies(connection: shmbroker.Connection, dead: shmbroker.Queue) -> None:
    """A body that is longer than max_bytes arrives whole in the dead-letter queue."""
    queue = connection.queue("q", max_bytes=1000, overflow="reject-publish-dlx", dead_letter_exchange=EXCHANGE)
    body = bytes(range(256)) * 4096
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(body)
    assert bytes(next_dead(dead)) == body
    queue.put(b"x" * 1000)  # a dead letter takes no room


def test_q67_dlx_in_a_transaction(
    connection: shmbroker.Connection, channel: shmbroker.Channel, dead: shmbroker.Queue
) -> None:
    """A transaction that is not committed makes no dead letters."""
    channel.queue_declare("q", arguments=TWO_TO_DEAD)
    channel.tx_select()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    with pytest.raises(shmbroker.PreconditionFailed):
        channel.tx_commit()
    assert nothing_to_get(dead)
    assert_counts(connection.queue("q", passive=True), added=0)


# ---- settings ----


def test_bad_combinations(connection: shmbroker.Connection) -> None:
    """A ring rejects nothing; reject-publish-dlx needs an exchange. Declared, configured or as arguments: refused."""
    with pytest.raises(ValueError, match="overflow='reject-publish', ring_size=3"):
        connection.queue("ring", ring_size=3, overflow="reject-publish")
    with pytest.raises(ValueError, match="overflow='reject-publish-dlx': it needs a dead_letter_exchange"):
        connection.queue("q", overflow="reject-publish-dlx")
    queue = connection.queue("q", overflow="reject-publish")
    with pytest.raises(ValueError, match="ring_size=3"):
        queue.configure(ring_size=3)
    with pytest.raises(ValueError, match="dead_letter_exchange"):
        queue.configure(overflow="reject-publish-dlx")
    assert queue.settings.overflow == "reject-publish"
    for arguments in ({"x-ring-size": 3, "x-overflow": "reject-publish"}, {"x-overflow": "reject-publish-dlx"}):
        with pytest.raises(shmbroker.PreconditionFailed):
            connection.channel().queue_declare("bad", arguments=arguments)


def test_a_live_change(connection: shmbroker.Connection) -> None:
    """From block to reject-publish and back, while the queue is full: each put follows the current setting."""
    queue = connection.queue("q", max_length=1)
    queue.put(b"1")
    queue.configure(overflow="reject-publish")
    with pytest.raises(shmbroker.PublishRejected):
        queue.put(b"2", timeout=60)
    queue.configure(overflow="block")
    with pytest.raises(standard_queue.Full) as caught:
        queue.put(b"2", timeout=0)
    assert not isinstance(caught.value, shmbroker.PublishRejected)
