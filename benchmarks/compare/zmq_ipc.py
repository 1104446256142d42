# SPDX-License-Identifier: Apache-2.0
"""pyzmq: PUSH to PULL over `ipc://`, a unix socket with batching I/O threads."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator

UNCOPIED_BYTES = 1 << 16
LINGER_MS = 1000
CONNECT_MS = 10_000


@dataclass(frozen=True)
class ZeroMQLink:
    """An address in a directory of its own."""

    directory: str
    size: int

    @property
    def address(self) -> str:
        """Where both ends meet."""
        return f"ipc://{Path(self.directory) / 'socket'}"

    @contextmanager
    def _socket(self, kind: str) -> Iterator[Any]:
        zmq = module("zmq")
        with zmq.Context() as context, context.socket(getattr(zmq, kind)) as socket:
            socket.linger = LINGER_MS
            yield socket

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Push, once the other end is there; large bodies without a copy."""
        zmq = module("zmq")
        with self._socket("PUSH") as socket:
            events = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            socket.connect(self.address)
            if not events.poll(CONNECT_MS):
                message = "the PULL socket did not appear"
                raise TimeoutError(message)
            socket.disable_monitor()
            if self.size < UNCOPIED_BYTES:
                yield outlet(socket.send)
            else:
                yield outlet(lambda body: socket.send(body, copy=False))

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Pull; a body that is only touched stays in the frame."""
        with self._socket("PULL") as socket:
            socket.bind(self.address)
            yield inlet(socket.recv, lambda: socket.recv(copy=False).buffer)

    def close(self) -> None:
        """Remove the socket's directory."""
        shutil.rmtree(self.directory, ignore_errors=True)


class ZeroMQ(Peer):
    """The default limits: 1,000 messages on each side."""

    name = "pyzmq"
    short = "pyzmq"
    distribution = "pyzmq"
    module_name = "zmq"

    def version(self) -> str:
        """Return the versions of pyzmq and of the library below it."""
        version = super().version()
        return f"{version} (libzmq {module('zmq').zmq_version()})" if version else ""

    def link(self, size: int) -> Link:
        """Choose an address."""
        return ZeroMQLink(tempfile.mkdtemp(prefix="benchmark-zmq-"), size)
