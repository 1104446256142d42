# SPDX-License-Identifier: Apache-2.0
"""`multiprocessing.Pipe`: the bare pipe, bytes in and bytes out, without a lock."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.compare.protocol import Peer
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection


@dataclass(frozen=True)
class PipeLink:
    """Both ends of a pipe; each worker closes the one that it does not use."""

    reader: Connection
    writer: Connection

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Write to the pipe."""
        self.reader.close()
        yield outlet(self.writer.send_bytes)

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Read from the pipe."""
        self.writer.close()
        yield inlet(self.reader.recv_bytes)

    def close(self) -> None:
        """Close the parent's ends."""
        self.reader.close()
        self.writer.close()


class MultiprocessingPipe(Peer):
    """The standard library's pipe, with `send_bytes` and `recv_bytes`."""

    name = "multiprocessing.Pipe"
    short = "mp.Pipe"

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one pipe for all sizes)
        """Make a one-way pipe."""
        return PipeLink(*multiprocessing.get_context("spawn").Pipe(duplex=False))
