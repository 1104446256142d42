# SPDX-License-Identifier: Apache-2.0
"""Looking at a queue from outside: its statistics, its listing, what consumers get."""

from __future__ import annotations

from queue import Empty
from typing import TYPE_CHECKING

from scenario_support.waiting import becomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import shmbroker

STRUCTURE_BYTES = 64 * 1024
"""What the memory of an empty queue may differ by: a page or two of its tree. Tests
that look for leaks move bodies that are, taken together, many times this size."""


def text(message: shmbroker.Message) -> str:
    """Return the body as text."""
    return bytes(message).decode()


def texts(messages: Iterable[shmbroker.Message]) -> list[str]:
    """Return the bodies as texts."""
    return [text(message) for message in messages]


def numbered(count: int, first: int = 0) -> list[str]:
    """Return `count` texts that sort as they count."""
    return [f"m{number:05d}" for number in range(first, first + count)]


def put_each(queue: shmbroker.Queue, bodies: Iterable[str], **options: object) -> None:
    """Put the texts one by one."""
    for body in bodies:
        queue.put(body.encode(), **options)


def listing(queue: shmbroker.Queue) -> list[str]:
    """Return what browsing shows."""
    return texts(queue.browse())


def counts(queue: shmbroker.Queue, names: Iterable[str]) -> dict[str, int]:
    """Return some of the queue's statistics, read at one moment."""
    statistics = queue.statistics()
    return {name: getattr(statistics, name) for name in names}


def assert_counts(queue: shmbroker.Queue, **expected: int) -> None:
    """Assert some of the queue's statistics, now."""
    assert counts(queue, expected) == expected


def await_counts(queue: shmbroker.Queue, **expected: int) -> None:
    """Wait until some of the queue's statistics are as expected."""
    becomes(lambda: counts(queue, expected), expected)


def balance(queue: shmbroker.Queue) -> tuple[int, int]:
    """Return what was added, and what became of it; at rest the two are equal."""
    s = queue.statistics()
    gone = s.acked + s.expired + s.killed + s.replaced + s.dropped
    return s.added, gone + s.dead_lettered + s.moved + s.message_count


def assert_balanced(queue: shmbroker.Queue) -> None:
    """Assert that every message ever added is accounted for, once."""
    added, accounted = balance(queue)
    assert added == accounted, queue.statistics()
    s = queue.statistics()
    assert s.message_count == s.ready + s.delivering + s.scheduled, s


def nothing_to_get(queue: shmbroker.Queue) -> bool:
    """Tell whether a get that does not wait finds nothing; must not be used else."""
    try:
        message = queue.get_nowait()
    except Empty:
        return True
    found = text(message)
    raise AssertionError(found)


def take(queue: shmbroker.Queue, count: int, timeout: float = 60.0) -> list[str]:
    """Get and ack `count` messages and return their texts."""
    bodies = []
    for _ in range(count):
        message = queue.get(timeout=timeout)
        bodies.append(text(message))
        message.ack()
    return bodies


def arrived(consumer: shmbroker.Consumer) -> shmbroker.Message | None:
    """Return the consumer's next message if one is there."""
    try:
        return consumer.get(timeout=0)
    except Empty:
        return None


class Gathered:
    """What several consumers of this process receive, in the order of arrival."""

    def __init__(self, consumers: Sequence[shmbroker.Consumer]) -> None:
        """Watch `consumers`."""
        self._consumers = consumers
        self.messages: list[list[shmbroker.Message]] = [[] for _ in consumers]
        self.order: list[tuple[int, str]] = []

    def look(self) -> int:
        """Take what has arrived by now; return how much that makes in all."""
        for index, consumer in enumerate(self._consumers):
            message = arrived(consumer)
            while message is not None:
                self.messages[index].append(message)
                self.order.append((index, text(message)))
                message = arrived(consumer)
        return len(self.order)

    def wait(self, total: int) -> None:
        """Wait until `total` messages have arrived, and see that no more have."""
        becomes(self.look, total)
        assert self.look() == total

    def texts(self) -> list[list[str]]:
        """Return what each consumer received."""
        return [texts(messages) for messages in self.messages]

    def ack(self) -> None:
        """Ack everything received since the last time."""
        for messages in self.messages:
            for message in messages:
                message.ack()
            messages.clear()
