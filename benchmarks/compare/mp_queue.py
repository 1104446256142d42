# SPDX-License-Identifier: Apache-2.0
"""`multiprocessing.Queue`: a pipe, two locks and a feeder thread that pickles."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.compare.protocol import Peer
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue


@dataclass(frozen=True)
class QueueLink:
    """A queue, inherited by both workers."""

    queue: Queue[bytes]

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Put into the queue; its feeder thread starts with the first put."""
        yield outlet(self.queue.put)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Get from the queue."""
        yield inlet(self.queue.get)

    def close(self) -> None:
        """Close the parent's ends."""
        self.queue.close()
        self.queue.join_thread()


class MultiprocessingQueue(Peer):
    """The standard library's queue between processes."""

    name = "multiprocessing.Queue"
    short = "mp.Queue"

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one queue for all sizes)
        """Make a queue without a limit, which is the default."""
        return QueueLink(multiprocessing.get_context("spawn").Queue())
