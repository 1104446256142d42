# SPDX-License-Identifier: Apache-2.0
"""`multiprocessing.SimpleQueue`: a pipe and two locks, without a thread."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.compare.protocol import Peer
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import SimpleQueue


@dataclass(frozen=True)
class SimpleQueueLink:
    """A queue, inherited by both workers."""

    queue: SimpleQueue[bytes]

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Put into the queue."""
        yield outlet(self.queue.put)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Get from the queue."""
        yield inlet(self.queue.get)

    def close(self) -> None:
        """Close the parent's ends."""
        self.queue.close()


class MultiprocessingSimpleQueue(Peer):
    """The standard library's simpler queue between processes."""

    name = "multiprocessing.SimpleQueue"
    short = "SimpleQueue"

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one queue for all sizes)
        """Make a queue."""
        return SimpleQueueLink(multiprocessing.get_context("spawn").SimpleQueue())
