# SPDX-License-Identifier: Apache-2.0
"""What a process did, line by line: a kill loses no line that was written.

A line is the time in nanoseconds of CLOCK_MONOTONIC, which all processes share, an event and its words. Messages are
written in hexadecimal.

| event | words | |
|---|---|---|
| connected, leave, bye | | the connection is there; is about to be closed; was closed |
| put | queue, messages | about to be put, in this order |
| commit | queue:message ... | about to be published together: all or none |
| take | queue, most, auto or hold | so many may come in hand at once, the next line says which |
| open | prefetch, auto or hold | a consumer |
| close | most | it is about to be closed: what it holds goes back, so many at most that it has not handed out |
| got | queue, message:sequence:mark ... | these came; the mark is 1 if it says that it was delivered before |
| ack, nack, reject | messages | about to be settled so |
| late | | the put is through, and its messages were not on the disk in time |
| done | number of messages put | what was begun is through: the put, or everything settled so far |
| move, moved | queue, target, most; how many | |
| dead | message:reason ... | why these, which came just before, were dead-lettered |
| saw | queue, messages | what the mover found where only it puts: these were moved |
| browsed | how many | |
| passed | message | it came after a newer one of its producer, from a queue whose messages stay |
| exec | | another program is about to run in its place |
| full | | the broker had no memory for a call; the connection was closed, with whatever was in hand |
| interrupted | | it ended in order after a SIGINT |
| torn, error | in words | what must not be |
| start, kill, interrupt, stop, cont, end | process | the director: about to be done; nobody is disturbed any more |
| lost | | the director: the memory of the broker was removed; each process of it had been killed |
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Line(NamedTuple):
    """A line of a journal."""

    ns: int
    event: str
    words: list[str]


class Journal:
    """Writes the journal of a process, each line with one write(2)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def beside(self, name: str) -> Path:
        """Return the path of the journal of somebody who belongs to this one: a child, or a thread."""
        return self._path.with_name(f"{self._path.name}.{name}")

    def write(self, event: str, *words: object) -> None:
        """Adds a line."""
        os.write(self._descriptor, " ".join([str(time.monotonic_ns()), event, *map(str, words)]).encode() + b"\n")

    def close(self) -> None:
        """No more lines."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def names(messages: Iterable[int]) -> str:
    """Messages as words of a line."""
    return " ".join(f"{message:x}" for message in messages)


def read(path: Path) -> Iterator[Line]:
    """The lines of a journal; one that a kill has cut short is no line."""
    with path.open(encoding="utf-8") as file:
        for text in file:
            if text.endswith("\n"):
                ns, event, *words = text.split()
                yield Line(int(ns), event, words)
