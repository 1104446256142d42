# SPDX-License-Identifier: Apache-2.0
"""A bare shared mapping: what two processes can do with memory alone, as the bound of bodies that are written and read.

It passes messages, but is no way to pass them: whoever waits spins, the lengths are fixed, and a process that dies
leaves the other one alone. Each slot has a flag on a cache line of its own. The producer writes a body into a free slot
and raises the flag; the consumer reads the body and lowers it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.contenders import StreamContender
from benchmarks.harness import Kind, Settings
from benchmarks.links import Inlet, Outlet, outlet
from benchmarks.payload import touch
from benchmarks.streams import Stream, run_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.payload import Mark
    from benchmarks.samples import Sample

T = TypeVar("T")

SHARED_MEMORY = "/dev/shm"  # noqa: S108 (memory that has a name)
LINE = 64
LINE_WORDS = LINE // 8
PAGE = 4096


@dataclass(frozen=True)
class MappingLink:
    """A file in memory, with so many slots."""

    path: str
    size: int
    slots: int
    mark: Mark = touch

    @contextmanager
    def _opened(self) -> Iterator[tuple[memoryview, list[memoryview], Iterator[int]]]:
        """Map the file: its flags, its slots, and the numbers of the slots in turn."""
        with (
            Path(self.path).open("r+b") as file,
            mmap.mmap(file.fileno(), 0) as mapped,
            contextlib.ExitStack() as views,
        ):
            whole = views.enter_context(memoryview(mapped))
            flags = views.enter_context(whole[: self.slots * LINE].cast("Q"))
            first = len(whole) - self.slots * self.size
            bodies = [
                views.enter_context(whole[start : start + self.size]) for start in range(first, len(whole), self.size)
            ]
            yield flags, bodies, itertools.cycle(range(self.slots))

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Write into one slot after the other."""
        with self._opened() as (flags, bodies, turn):

            def send(body: bytes) -> None:
                slot = next(turn)
                flag = slot * LINE_WORDS
                while flags[flag]:
                    pass
                bodies[slot][:] = body
                flags[flag] = 1

            yield outlet(send)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Read from one slot after the other."""
        with self._opened() as (flags, bodies, turn):

            def taker(look: Callable[[memoryview], T]) -> Callable[[int], list[T]]:
                def take(limit: int) -> list[T]:
                    window = []
                    for slot in itertools.islice(turn, limit):
                        flag = slot * LINE_WORDS
                        while not flags[flag]:
                            pass
                        window.append(look(bodies[slot]))
                        flags[flag] = 0
                    return window

                return take

            receive_many = taker(bytes)
            yield Inlet(lambda: receive_many(1)[0], receive_many, taker(self.mark))

    def close(self) -> None:
        """Remove the file."""
        Path(self.path).unlink()


class BareMapping(StreamContender):
    """A stream through a bare shared mapping."""

    def __init__(self, stream: Stream, slots: int, settings: Settings) -> None:
        """Choose how many bodies may lie in the mapping.

        Args:
            stream: Its shape.
            slots: Bodies that were written and not read, at most.
            settings: How long a run should take.
        """
        super().__init__("bare mapping", Kind.BOUND, "mapping", stream, settings)
        self._slots = slots
        self.waiting = "spinning"

    def run(self) -> Sample:
        """Run once, over a new file."""
        descriptor, path = tempfile.mkstemp(prefix="benchmark-mapping-", dir=SHARED_MEMORY)
        flags = -(-self._slots * LINE // PAGE) * PAGE  # so that bodies begin with a page
        os.truncate(descriptor, flags + self._slots * self.stream.size)
        os.close(descriptor)
        with contextlib.closing(MappingLink(path, self.stream.size, self._slots, self.stream.mark or touch)) as link:
            return run_stream(link, self.stream)
