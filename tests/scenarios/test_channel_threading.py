# SPDX-License-Identifier: Apache-2.0
"""Connections, channels and threads (scenarios B01 to B10)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, content, publish
from scenario_support.observing import await_counts, numbered
from scenario_support.waiting import WATCHDOG_SECONDS, becomes, until_clock

from shmbroker.exceptions import NoFreeChannels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scenario_support.channels import Deliver

    import shmbroker

LONGEST_BOUNDED_WAIT = 0.5
"""What takes the place of a heartbeat: after so long somebody looks who is alive."""

WORK_SECONDS = 0.05
"""How long the callbacks of B02 take."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Run an executor of four threads."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


class Overlaps:
    """Counts who is in a callback at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


def test_b01_one_callback_at_a_time_in_the_order_of_delivery(
    broker: shmbroker.Broker, pool: ThreadPoolExecutor
) -> None:
    """Four threads, one channel, two consumers, 1,000 messages: callbacks never overlap and keep the order."""
    overlaps, calls = Overlaps(), []

    def take(channel: shmbroker.Channel, method: Deliver, _properties: object, body: bytes) -> None:
        with overlaps:
            calls.append((method.delivery_tag, method.consumer_tag, body.decode()))
            os.sched_yield()
            channel.basic_ack(method.delivery_tag)

    with broker.connect(executor=pool) as connection, connection.channel() as channel:
        channel.queue_declare("q")
        consumers = [channel.basic_consume("q", take) for _ in range(2)]
        publish(channel, "q", numbered(1000))
        becomes(lambda: len(calls), 1000)
        assert overlaps.most == 1
        assert [tag for tag, _, _ in calls] == list(range(1, 1001))
        for consumer in consumers:
            received = [body for _, owner, body in calls if owner == consumer]
            assert received == sorted(received)
        assert sorted(body for _, _, body in calls) == numbered(1000)
        await_counts(connection.queue("q", passive=True), message_count=0, acked=1000)


def test_b01_what_a_callback_wrote_the_next_one_sees(broker: shmbroker.Broker, pool: ThreadPoolExecutor) -> None:
    """The callbacks of a channel need no lock for what is theirs, whichever threads run them."""
    state = {"calls": 0}
    threads = set()

    def take(_channel: shmbroker.Channel, _method: object, _properties: object, _body: bytes) -> None:
        threads.add(threading.current_thread())
        before = state["calls"]
        os.sched_yield()
        state["calls"] = before + 1

    with broker.connect(executor=pool) as connection, connection.channel() as channel:
        channel.queue_declare("q")
        channel.basic_consume("q", take, auto_ack=True)
        publish(channel, "q", numbered(1000))
        becomes(lambda: state["calls"], 1000)
    assert threading.main_thread() not in threads
    assert len(threads) <= 4


def consume_on_channels(
    connection: shmbroker.Connection, channels: int, callback: Callable[..., None]
) -> list[shmbroker.Channel]:
    """Give each of several channels a queue, "q0" and so on, and a consumer for it."""
    opened = [connection.channel() for _ in range(channels)]
    for number, channel in enumerate(opened):
        channel.queue_declare(f"q{number}")
        channel.basic_consume(f"q{number}", callback, auto_ack=True)
    return opened


def test_b02_channels_run_side_by_side(broker: shmbroker.Broker, pool: ThreadPoolExecutor) -> None:
    """Four channels, four threads: four callbacks can wait for each other."""
    meeting = threading.Barrier(4)
    done = Inbox()

    def take(channel: shmbroker.Channel, method: Deliver, properties: shmbroker.BasicProperties, body: bytes) -> None:
        meeting.wait(WATCHDOG_SECONDS)
        done(channel, method, properties, body)

    with broker.connect(executor=pool) as connection:
        for number, channel in enumerate(consume_on_channels(connection, 4, take)):
            publish(channel, f"q{number}", numbered(10))
        done.wait(40)


def test_b02_no_more_run_than_there_are_threads(broker: shmbroker.Broker, pool: ThreadPoolExecutor) -> None:
    """Eight channels, four threads: never more than four callbacks at once, and all come to run."""
    overlaps, done = Overlaps(), Inbox()

    def take(channel: shmbroker.Channel, method: Deliver, properties: shmbroker.BasicProperties, body: bytes) -> None:
        with overlaps:
            os.sched_yield()
            done(channel, method, properties, body)

    with broker.connect(executor=pool) as connection:
        for number, channel in enumerate(consume_on_channels(connection, 8, take)):
            publish(channel, f"q{number}", numbered(50))
        done.wait(400)
    assert overlaps.most <= 4


def test_b02_forty_callbacks_of_50_ms_take_less_than_700_ms(broker: shmbroker.Broker, pool: ThreadPoolExecutor) -> None:
    """Four channels with a consumer each, four threads: ten callbacks one after the other, not forty.

    The maximum is the scenario's. On a busy machine the best of several rounds counts.
    """
    done = Inbox()

    def take(channel: shmbroker.Channel, method: Deliver, properties: shmbroker.BasicProperties, body: bytes) -> None:
        time.sleep(WORK_SECONDS)
        done(channel, method, properties, body)

    seconds = []
    with broker.connect(executor=pool) as connection:
        channels = consume_on_channels(connection, 4, take)
        for attempt in range(1, 11):
            began = time.monotonic()
            for number, channel in enumerate(channels):
                publish(channel, f"q{number}", numbered(10))
            done.wait(40 * attempt)
            seconds.append(time.monotonic() - began)
            if seconds[-1] < 0.7:
                break
    assert min(seconds) < 0.7, seconds
    assert min(seconds) >= 10 * WORK_SECONDS, "callbacks of one channel overlapped"


def test_b04_a_callback_may_use_its_channel(broker: shmbroker.Broker) -> None:
    """A callback declares, publishes and acks on its own channel with one thread in the executor: no deadlock."""

    def take(channel: shmbroker.Channel, method: Deliver, _properties: object, body: bytes) -> None:
        answers = channel.queue_declare(f"answers-{body.decode()}").queue
        channel.basic_publish("", answers, b"answer to " + body)
        channel.basic_ack(method.delivery_tag)

    with (
        ThreadPoolExecutor(1) as executor,
        broker.connect(executor=executor) as connection,
        connection.channel() as channel,
    ):
        channel.queue_declare("q")
        channel.basic_consume("q", take)
        publish(channel, "q", "AB")
        await_counts(connection.queue("q", passive=True), acked=2, message_count=0)
        assert content(channel, "answers-A") == ["answer to A"]
        assert content(channel, "answers-B") == ["answer to B"]


def test_b04_a_callback_may_get_bind_cancel_and_open_channels(broker: shmbroker.Broker) -> None:
    """Every synchronous operation may be used in a callback, the end of its own consumer too."""
    outcome = []
    with ThreadPoolExecutor(1) as executor, broker.connect(executor=executor) as connection:

        def take(channel: shmbroker.Channel, method: Deliver, _properties: object, _body: bytes) -> None:
            channel.exchange_declare("x", "fanout")
            channel.queue_bind("spare", "x")
            channel.basic_publish("x", "", b"through x")
            message = channel.basic_get("spare", auto_ack=True)
            assert message is not None
            channel.basic_qos(prefetch_count=5)
            channel.basic_cancel(method.consumer_tag)
            with connection.channel() as second:
                second.queue_declare("spare", passive=True)
            channel.basic_ack(method.delivery_tag)
            outcome.append(bytes(message))

        channel = connection.channel()
        channel.queue_declare("spare")
        channel.queue_declare("q")
        channel.basic_consume("q", take)
        publish(channel, "q", "A")
        becomes(lambda: outcome, [b"through x"])
        assert channel.queue_declare("q", passive=True).consumer_count == 0


def test_b05_a_callback_that_raises_is_reported_and_the_next_is_called(broker: shmbroker.Broker) -> None:
    """The next message is delivered, the hook hears of the error, and the message stays unacked."""
    errors: list[BaseException] = []
    done = Inbox()

    def take(channel: shmbroker.Channel, method: Deliver, properties: shmbroker.BasicProperties, body: bytes) -> None:
        if body == b"bad":
            message = "this one is bad"
            raise ValueError(message)
        done(channel, method, properties, body)
        channel.basic_ack(method.delivery_tag)

    with broker.connect(on_callback_error=errors.append) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", take)
        publish(channel, "q", ["bad", "good"])
        assert [delivery.text for delivery in done.wait(1)] == ["good"]
        assert [(type(error), str(error)) for error in errors] == [(ValueError, "this one is bad")]
        await_counts(connection.queue("q", passive=True), ready=0, delivering=1, acked=1)
        assert channel.is_open
        publish(channel, "q", ["another"])
        done.wait(2)
        channel.close()
        with connection.channel() as second:
            assert content(second, "q") == ["badR"]


def test_b05_a_hook_that_raises_harms_nobody(broker: shmbroker.Broker) -> None:
    """An error of the hook itself does not keep the next messages from their callbacks."""
    calls = []

    def hook(error: BaseException) -> None:
        calls.append(str(error))
        raise error

    def take(_channel: shmbroker.Channel, _method: object, _properties: object, body: bytes) -> None:
        raise RuntimeError(body.decode())

    with broker.connect(on_callback_error=hook) as connection, connection.channel() as channel:
        channel.queue_declare("q")
        channel.basic_consume("q", take, auto_ack=True)
        publish(channel, "q", "ABC")
        becomes(lambda: list(calls), list("ABC"))


ENDS = """
    import atexit, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, channel = connection.queue("q"), connection.channel()
    channel.basic_consume("q", lambda *_: None)
    atexit.register(lambda: queue.put(b"late"))
"""


def test_b05_the_end_of_the_process_is_no_error(broker: shmbroker.Broker) -> None:
    """A program that ends without closing its connection says nothing of what comes when its threads have ended.

    Nobody takes that: it stays in its queue.
    """
    program = [sys.executable, "-P", "-c", textwrap.dedent(ENDS), broker.name]
    ended = subprocess.run(program, check=True, capture_output=True, text=True)
    assert ended.stderr == ""
    with broker.connect() as connection:
        assert bytes(connection.queue("q", passive=True).get()) == b"late"


def test_b06_a_blocked_callback_is_no_death(broker: shmbroker.Broker, other: shmbroker.Connection) -> None:
    """A callback blocks for longer than anybody waits before looking who lives: its connection lives on."""
    entered, release = threading.Event(), threading.Event()

    def take(channel: shmbroker.Channel, method: Deliver, _properties: object, _body: bytes) -> None:
        entered.set()
        assert release.wait(WATCHDOG_SECONDS)
        channel.basic_ack(method.delivery_tag)

    with broker.connect(client_name="blocked") as connection, connection.channel() as channel:
        channel.queue_declare("q")
        channel.basic_consume("q", take)
        publish(channel, "q", "A")
        assert entered.wait(WATCHDOG_SECONDS)
        until_clock(time.monotonic() + 3 * LONGEST_BOUNDED_WAIT)
        assert connection.is_open
        assert channel.is_open
        queue = other.queue("q", passive=True)
        assert queue.statistics().delivering == 1
        assert "blocked" in [found.name for found in other.connections()]
        release.set()
        await_counts(queue, acked=1, message_count=0)
        assert queue.statistics().redelivered == 0


def test_b09_two_threads_declare_on_one_channel(channel: shmbroker.Channel) -> None:
    """Both succeed, and each gets the answer to its own question."""
    together = threading.Barrier(2)

    def declare(prefix: str) -> list[str]:
        answers = []
        for number in range(200):
            together.wait(WATCHDOG_SECONDS)
            answers.append(channel.queue_declare(f"{prefix}-{number}").queue)
        return answers

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(declare, ["left", "right"]))
    assert answers == [[f"{prefix}-{number}" for number in range(200)] for prefix in ("left", "right")]
    assert channel.is_open


def test_b09_different_operations_of_two_threads_are_not_mixed_up(channel: shmbroker.Channel) -> None:
    """One thread declares, the other gets, on one channel: each gets what it asked for."""
    together = threading.Barrier(2)
    channel.queue_declare("full")
    publish(channel, "full", numbered(200))

    def declare() -> list[str]:
        answers = []
        for number in range(200):
            together.wait(WATCHDOG_SECONDS)
            answers.append(channel.queue_declare(f"new-{number}").queue)
        return answers

    def get() -> list[str]:
        answers = []
        for _ in range(200):
            together.wait(WATCHDOG_SECONDS)
            message = channel.basic_get("full", auto_ack=True)
            assert message is not None
            answers.append(bytes(message).decode())
        return answers

    with ThreadPoolExecutor(2) as threads:
        declared, got = threads.submit(declare), threads.submit(get)
        assert declared.result() == [f"new-{number}" for number in range(200)]
        assert got.result() == numbered(200)


@pytest.mark.timeout(900)
def test_b10_there_are_65535_channels(connection: shmbroker.Connection) -> None:
    """One more is refused; the number of a closed one is given again."""
    channels = [connection.channel() for _ in range(65535)]
    assert sorted(channel.number for channel in channels) == list(range(1, 65536))
    with pytest.raises(NoFreeChannels):
        connection.channel()
    channels[4711].close()
    again = connection.channel()
    assert again.number == channels[4711].number
    again.queue_declare("q")
    assert again.is_open
    assert not channels[4711].is_open


def test_b10_channel_max_bounds_how_many_not_which(broker: shmbroker.Broker) -> None:
    """With channel_max=2 there are two channels, of whatever number; the connection survives the third."""
    with broker.connect(channel_max=2) as connection:
        first, second = connection.channel(), connection.channel(900)
        assert (first.number, second.number) == (1, 900)
        with pytest.raises(NoFreeChannels):
            connection.channel()
        assert connection.is_open
        second.close()
        assert connection.channel().number == 2
        assert first.is_open
