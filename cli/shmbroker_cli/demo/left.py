# SPDX-License-Identifier: Apache-2.0
"""What a run left: the last lines of the log, and the files that the workers rejected."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shmbroker_cli.demo.analysis import why_unparsable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker


@dataclass(frozen=True)
class Rejected:
    """A file in the dead-letter queue.

    Attributes:
        path: Its path.
        reason: Why its message is there, in the words of the broker.
        why: Why it cannot be parsed, in the words of the parser.
    """

    path: str
    reason: str
    why: str


@dataclass(frozen=True)
class Left:
    """What a run left in its queues.

    Attributes:
        lines: Number of lines that were written to the log.
        last_lines: Those that the log, a ring, kept: the last ones.
        rejected: The files in the dead-letter queue, sorted.
    """

    lines: int = 0
    last_lines: list[str] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def left_in(broker: shmbroker.Broker, log: str, dead: str) -> Left:
    """Read the log and the dead-letter queue of a run, as a consumer that comes when all is over.

    Args:
        broker: The broker of the run.
        log: The name of the log.
        dead: The name of the dead-letter queue.
    """
    with broker.connect() as connection:
        ring = connection.queue(log, passive=True)
        rejected = [_rejected(message) for message in _messages(connection.queue(dead, passive=True))]
        return Left(
            lines=ring.statistics().added,
            last_lines=[bytes(message).decode() for message in _messages(ring)],
            rejected=sorted(rejected, key=lambda one: one.path),
        )


def _messages(of: shmbroker.Queue) -> Iterator[shmbroker.Message]:
    """Take the messages of a queue, and acknowledge each when the caller has read it."""
    while True:
        try:
            message = of.get_nowait()
        except queue.Empty:
            return
        with message:
            yield message


def _rejected(message: shmbroker.Message) -> Rejected:
    reason = message.headers["x-death"][0]["reason"]
    return Rejected(message.properties.message_id or "", reason, why_unparsable(bytes(message)))
