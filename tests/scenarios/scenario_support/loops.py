# SPDX-License-Identifier: Apache-2.0
"""Running coroutines of a test, with a connection of the asyncio twin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import shmbroker
from shmbroker import aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


def run(main: Callable[[aio.Connection], Coroutine[Any, Any, object]], broker: shmbroker.Broker) -> None:
    """Runs a coroutine function with a connection of its own."""

    async def connected() -> None:
        async with aio.connect(broker.name, create=False) as connection:
            await main(connection)

    asyncio.run(connected())


async def until_waiting(queue: aio.Queue, kind: str = "interested") -> None:
    """Until a task waits at a queue, where others can see it."""
    while getattr(queue.statistics(), kind) == 0:  # noqa: ASYNC110 - another process would see it no sooner
        await asyncio.sleep(0)


async def ready(tasks: Awaitable[Any]) -> Any:  # noqa: ANN401
    """What comes, or the watchdog."""
    return await asyncio.wait_for(tasks, 30)
