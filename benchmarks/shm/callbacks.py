# SPDX-License-Identifier: Apache-2.0
"""Inlets that are called rather than call: a channel's consumer, and one of asyncio.

The callback is what an application would write: it keeps the body and acknowledges. Who waits for a window is told when
it is complete, not of each message.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.links import window_inlet
from benchmarks.shm.broker import OPERATION_SECONDS, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker
    from benchmarks.links import Inlet

PREFETCH = 64  # the default of a channel
FOR_EVER = 1 << 62


class Collector:
    """What callbacks got, and somebody who waits for so many."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.bodies: deque[bytes] = deque()
        self.wanted = FOR_EVER
        self._enough = threading.Event()

    def acknowledge(self, channel: shmbroker.Channel, method: Any, _: object, body: bytes) -> None:  # noqa: ANN401 (a delivery)
        """Callback: keep the body, acknowledge by the tag."""
        self.bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(self.bodies) >= self.wanted:
            self._reached()

    def keep(self, _: object, __: object, ___: object, body: bytes) -> None:
        """Callback of a consumer whose messages are acknowledged when they come."""
        self.bodies.append(body)
        if len(self.bodies) >= self.wanted:
            self._reached()

    def _reached(self) -> None:
        self.wanted = FOR_EVER
        self._enough.set()

    def take(self, number: int) -> list[bytes]:
        """Wait until there are so many, and take them."""
        self._enough.clear()
        self.wanted = number
        while len(self.bodies) < number:
            self._enough.wait()
        return [self.bodies.popleft() for _ in range(number)]


@contextmanager
def called_back(broker: str, queue: str, *, auto_ack: bool = False) -> Iterator[Inlet]:
    """Consume a queue, from the first window on, by a channel whose callbacks run in an executor of one thread.

    Args:
        broker: Name of the running broker.
        queue: Its name; declared if it does not exist.
        auto_ack: Whether messages are acknowledged when they come.
    """
    collector = Collector()
    callback = collector.keep if auto_ack else collector.acknowledge
    with ThreadPoolExecutor(1) as executor, connected(broker, executor=executor) as connection:
        connection.queue(queue)
        channel = connection.channel()

        def take(number: int) -> list[bytes]:
            if not channel.consumer_tags:
                channel.basic_consume(queue, callback, auto_ack=auto_ack)
            return collector.take(number)

        yield window_inlet(take)
        channel.stop_consuming()


@contextmanager
def awaited(broker: str, queue: str) -> Iterator[Inlet]:
    """Consume a queue, from the first window on, by asyncio: `async for`, `bytes`, `ack`.

    The loop stops between two windows, which costs some 10 us for each 256 messages.
    """
    aio = importlib.import_module("shmbroker.aio")
    with asyncio.Runner() as runner:
        run = runner.get_loop().run_until_complete
        stack = AsyncExitStack()
        connecting = aio.connect(broker, create=False, operation_timeout=OPERATION_SECONDS)
        opened = run(run(stack.enter_async_context(connecting)).queue(queue))
        consumers: list[Any] = []

        def take(number: int) -> list[bytes]:
            return run(_take(consumers, opened, number))

        try:
            yield window_inlet(take)
        finally:
            run(stack.aclose())


async def _take(consumers: list[Any], queue: Any, number: int) -> list[bytes]:  # noqa: ANN401 (of a late import)
    window: list[bytes] = []
    if not consumers:
        consumers.append(queue.consume(prefetch=PREFETCH))
    async for message in consumers[0]:
        window.append(bytes(message))
        message.ack()
        if len(window) == number:
            break
    return window
