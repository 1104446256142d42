# SPDX-License-Identifier: Apache-2.0
"""What clients write down before and after each step. A kill loses no line that was written.

| line | |
|---|---|
| put QUEUE COUNT | so many further messages are about to be put |
| confirmed QUEUE COUNT | so many further messages were confirmed |
| ack QUEUE NUMBER ... | these are about to be acknowledged |
| synced QUEUE NUMBER ... | the acknowledgements of these are on the disk |
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Notes:
    """The notes of one client, of which each line is written with one system call.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, what: str, queue: str, *numbers: int) -> None:
        """Add a line.

        Args:
            what: Its first word.
            queue: The queue.
            *numbers: The count, or the messages.
        """
        os.write(self._descriptor, f"{what} {queue} {' '.join(map(str, numbers))}\n".encode("ascii"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


@dataclass
class Promises:
    """What the clients of one queue were told. Its messages have the numbers from 0.

    Attributes:
        put: Number of messages that may be there: so many were about to be put.
        confirmed: Number of messages that were confirmed.
        acked: The messages that may be gone.
        synced: The messages that must be gone.
    """

    put: int = 0
    confirmed: int = 0
    acked: set[int] = field(default_factory=set)
    synced: set[int] = field(default_factory=set)

    @property
    def due(self) -> set[int]:
        """The messages that must be there."""
        return set(range(self.confirmed)) - self.acked


def promises(paths: Iterable[Path]) -> dict[str, Promises]:
    """Return what the clients of each queue were told.

    Args:
        paths: The notes of all clients. A file that a client has not made yet has no lines.
    """
    found: dict[str, Promises] = {}
    for path in paths:
        text = path.read_text("ascii") if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # cut short by a kill: what it was about had not begun
            what, queue, *words = line.split()
            numbers = [int(word) for word in words]
            of_queue = found.setdefault(queue, Promises())
            match what:
                case "put":
                    of_queue.put += numbers[0]
                case "confirmed":
                    of_queue.confirmed += numbers[0]
                case "ack":
                    of_queue.acked.update(numbers)
                case "synced":
                    of_queue.synced.update(numbers)
    return found
