# SPDX-License-Identifier: Apache-2.0
"""pyzmq: PUSH to PULL over `ipc://`, a unix socket with batching I/O threads."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet, sharing_inlet

if TYPE_CHECKING:
    from collections.abc import Iterator

UNCOPIED_BYTES = 1 << 16
LINGER_MS = 1000
CONNECT_MS = 10_000


@dataclass(frozen=True)
class ZeroMQLink:
    """A directory of its own, in which each consumer binds a socket; every producer connects to all of them."""

    directory: str
    size: int
    consumers: int

    def _bound(self) -> list[Path]:
        """Wait until every consumer has bound its socket."""
        until = time.monotonic() + CONNECT_MS / 1000
        while len(found := sorted(Path(self.directory).iterdir())) < self.consumers:
            if time.monotonic() > until:
                message = "the PULL sockets did not appear"
                raise TimeoutError(message)
            time.sleep(0.001)
        return found

    @contextmanager
    def _socket(self, kind: str) -> Iterator[Any]:
        zmq = module("zmq")
        with zmq.Context() as context, context.socket(getattr(zmq, kind)) as socket:
            socket.linger = LINGER_MS
            yield socket

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Push, once the other ends are there, to each in turn; large bodies without a copy."""
        zmq = module("zmq")
        with self._socket("PUSH") as socket:
            events = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            for path in self._bound():
                socket.connect(f"ipc://{path}")
                if not events.poll(CONNECT_MS):
                    message = "a PULL socket did not answer"
                    raise TimeoutError(message)
                events.recv_multipart()
            socket.disable_monitor()
            if self.size < UNCOPIED_BYTES:
                yield outlet(socket.send)
            else:
                yield outlet(lambda body: socket.send(body, copy=False))

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Pull; a body that is only touched stays in the frame."""
        zmq = module("zmq")
        with self._socket("PULL") as socket:
            socket.bind(f"ipc://{Path(self.directory) / str(os.getpid())}")
            if self.consumers == 1:
                yield inlet(socket.recv, lambda: socket.recv(copy=False).buffer)
                return

            def receive_soon(seconds: float) -> bytes:
                if seconds and not socket.poll(seconds * 1000):
                    raise zmq.Again
                body: bytes = socket.recv(zmq.NOBLOCK)
                return body

            yield sharing_inlet(socket.recv, receive_soon, zmq.Again)

    def close(self) -> None:
        """Remove the socket's directory."""
        shutil.rmtree(self.directory, ignore_errors=True)


class ZeroMQ(Peer):
    """The default limits: 1,000 messages on each side."""

    name = "pyzmq"
    short = "pyzmq"
    distribution = "pyzmq"
    module_name = "zmq"
    shares = True

    def version(self) -> str:
        """Return the versions of pyzmq and of the library below it."""
        version = super().version()
        return f"{version} (libzmq {module('zmq').zmq_version()})" if version else ""

    def link(self, size: int, consumers: int = 1) -> Link:
        """Choose a directory."""
        return ZeroMQLink(tempfile.mkdtemp(prefix="benchmark-zmq-"), size, consumers)
