# SPDX-License-Identifier: Apache-2.0
"""faster-fifo: a ring buffer in shared memory under a process-shared mutex."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet, sharing_inlet

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_BYTES = 1_000_000
MESSAGES = 32


@dataclass(frozen=True)
class FasterFifoLink:
    """A queue, inherited by all workers."""

    queue: Any
    consumers: int

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Put into the queue."""
        yield outlet(self.queue.put)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Get from the queue."""
        get = self.queue.get
        yield inlet(get) if self.consumers == 1 else sharing_inlet(get, lambda seconds: get(timeout=seconds), Empty)

    def close(self) -> None:
        """Close the parent's end; the memory goes with the last reference."""
        self.queue.close()


class FasterFifo(Peer):
    """One message per call, pickled, as its documentation shows."""

    name = "faster-fifo"
    short = "fasterfifo"
    distribution = "faster-fifo"
    module_name = "faster_fifo"
    shares = True

    def link(self, size: int, consumers: int = 1) -> Link:
        """Make a queue of the default size, or larger for large bodies."""
        capacity = max(DEFAULT_BYTES, MESSAGES * size)
        return FasterFifoLink(module("faster_fifo").Queue(capacity), consumers)
