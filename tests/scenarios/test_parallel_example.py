# SPDX-License-Identifier: Apache-2.0
"""Processing the messages of one queue in parallel, a question of RabbitMQ's users.

By its answer min(channels, threads of the executor) callbacks run at a time, and never two of one channel.
"""

from __future__ import annotations

import collections
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import publish
from scenario_support.observing import numbered
from scenario_support.waiting import WATCHDOG_SECONDS, becomes, eventually

if TYPE_CHECKING:
    from types import TracebackType

    from scenario_support.channels import Deliver

    import shmbroker


class Workshop:
    """Where callbacks meet: nobody leaves before it is opened. Counts who is inside, in all and of each channel."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._inside: collections.Counter[int] = collections.Counter()
        self.most = self.most_of_one_channel = 0

    @property
    def inside(self) -> int:
        """How many are inside now."""
        with self._changed:
            return self._inside.total()

    def work(self, channel: int) -> _Visit:
        """Be inside, on behalf of a channel, for the time of a block."""
        return _Visit(self, channel)

    def open(self) -> None:
        """Let everybody go, now and later."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def enter(self, channel: int) -> None:
        """Somebody comes."""
        with self._changed:
            self._inside[channel] += 1
            self.most = max(self.most, self._inside.total())
            self.most_of_one_channel = max(self.most_of_one_channel, *self._inside.values())
            assert self._changed.wait_for(lambda: self._open, WATCHDOG_SECONDS)

    def leave(self, channel: int) -> None:
        """Somebody goes."""
        with self._changed:
            self._inside[channel] -= 1


class _Visit:
    def __init__(self, workshop: Workshop, channel: int) -> None:
        self._workshop, self._channel = workshop, channel

    def __enter__(self) -> None:
        self._workshop.enter(self._channel)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workshop.leave(self._channel)


@pytest.mark.parametrize(("channels", "threads"), [(1, 1), (1, 4), (2, 4), (3, 3), (4, 2), (12, 3)])
def test_as_many_callbacks_as_the_smaller_of_channels_and_threads(
    broker: shmbroker.Broker, channels: int, threads: int
) -> None:
    """So many are inside at the same time, never more, and never two of one channel; each message is done once."""
    workshop, done = Workshop(), collections.deque[str]()

    def process(channel: shmbroker.Channel, method: Deliver, _properties: object, body: bytes) -> None:
        with workshop.work(channel.number):
            channel.basic_ack(method.delivery_tag)
            done.append(body.decode())

    with ThreadPoolExecutor(threads) as pool, broker.connect(executor=pool) as connection:
        opened = [connection.channel() for _ in range(channels)]
        opened[0].queue_declare("pictures")
        for channel in opened:
            channel.basic_consume("pictures", process)
        messages = numbered(20 * channels)
        publish(opened[0], "pictures", messages)
        eventually(lambda: workshop.inside == min(channels, threads), "as many callbacks as there may be")
        queue = connection.queue("pictures", passive=True)
        becomes(lambda: len(queue), 0)  # every channel has messages in its row, and would call back if it might
        workshop.open()
        becomes(lambda: sorted(done), messages)
        assert workshop.most == min(channels, threads)
        assert workshop.most_of_one_channel == 1
        becomes(lambda: queue.statistics().acked, len(messages))


def test_polling_in_parallel_takes_a_channel_for_each_thread(broker: shmbroker.Broker) -> None:
    """Threads that get with channels of their own are all inside at the same time, each with a message."""
    meeting = threading.Barrier(4, timeout=WATCHDOG_SECONDS)

    def poll(connection: shmbroker.Connection) -> str:
        with connection.channel() as channel:
            message = channel.basic_get("pictures", timeout=WATCHDOG_SECONDS)
            assert message is not None
            meeting.wait()
            message.ack()
            return bytes(message).decode()

    with broker.connect() as connection, ThreadPoolExecutor(4) as pool:
        with connection.channel() as channel:
            channel.queue_declare("pictures")
            polling = [pool.submit(poll, connection) for _ in range(4)]
            publish(channel, "pictures", numbered(4))
        assert sorted(future.result(WATCHDOG_SECONDS) for future in polling) == numbered(4)
