# SPDX-License-Identifier: Apache-2.0
"""Dead-letter exchanges with a queue behind them, and what the headers of dead messages say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scenario_support.observing import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

EXCHANGE, DEAD = "dlx", "dead"


def dead_letter_queue(
    connection: shmbroker.Connection, name: str = DEAD, exchange: str = EXCHANGE, **settings: object
) -> shmbroker.Queue:
    """Declare a fanout exchange and bind a queue to it."""
    queue = connection.queue(name, **settings)
    with connection.channel() as channel:
        channel.exchange_declare(exchange, "fanout")
        channel.queue_bind(name, exchange)
    return queue


@contextmanager
def without_housekeeper(broker: shmbroker.Broker) -> Iterator[None]:
    """Have no housekeeper: nothing becomes due, and what dies is carried out afterwards."""
    broker.stop()
    yield
    broker.start()


def deaths_of(message: shmbroker.Message) -> list[dict[str, Any]]:
    """Return the deaths of a message without their times, the latest first."""
    return [{name: one[name] for name in one if name != "time"} for one in message.headers["x-death"]]


def death(queue: str, reason: str, *routing_keys: str, exchange: str = "", **more: object) -> dict[str, Any]:
    """Return a death that is counted once, as `deaths_of` does."""
    entry = {"queue": queue, "reason": reason, "count": 1, "exchange": exchange, "routing-keys": [*routing_keys]}
    return entry | {name.replace("_", "-"): value for name, value in more.items()}


def reasons(message: shmbroker.Message) -> list[tuple[str, str, int]]:
    """Return queue, reason and count of each death, the latest first."""
    return [(one["queue"], one["reason"], one["count"]) for one in message.headers["x-death"]]


def reject_next(queue: shmbroker.Queue) -> str:
    """Wait for the next message and reject it; return its body."""
    message = queue.get(timeout=60)
    body = text(message)
    message.reject()
    return body


def next_dead(queue: shmbroker.Queue) -> shmbroker.Message:
    """Wait for the next dead message and take it for good."""
    return queue.get(timeout=60, auto_ack=True)
