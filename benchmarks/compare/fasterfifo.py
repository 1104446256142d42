# SPDX-License-Identifier: Apache-2.0
"""faster-fifo: a ring buffer in shared memory under a process-shared mutex."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_BYTES = 1_000_000
MESSAGES = 32


@dataclass(frozen=True)
class FasterFifoLink:
    """A queue, inherited by both workers."""

    queue: Any

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Put into the queue."""
        yield outlet(self.queue.put)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Get from the queue."""
        yield inlet(self.queue.get)

    def close(self) -> None:
        """Close the parent's end; the memory goes with the last reference."""
        self.queue.close()


class FasterFifo(Peer):
    """One message per call, pickled, as its documentation shows."""

    name = "faster-fifo"
    short = "fasterfifo"
    distribution = "faster-fifo"
    module_name = "faster_fifo"

    def link(self, size: int) -> Link:
        """Make a queue of the default size, or larger for large bodies."""
        capacity = max(DEFAULT_BYTES, MESSAGES * size)
        return FasterFifoLink(module("faster_fifo").Queue(capacity))
