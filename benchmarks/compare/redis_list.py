# SPDX-License-Identifier: Apache-2.0
"""Redis: RPUSH and BLPOP on a list, over a unix socket, to a server of our own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START_SECONDS = 10.0
STOP_SECONDS = 5.0
KEY = "benchmark"


@dataclass(frozen=True)
class RedisEnd:
    """What the workers need: the server's socket."""

    socket: str

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Connect."""
        client = module("redis").Redis(unix_socket_path=self.socket)
        try:
            yield client
        finally:
            client.close()

    @contextlib.contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Push at the right, one command and one answer per message."""
        with self.client() as client:
            yield outlet(lambda body: client.rpush(KEY, body))

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Pop at the left, waiting; one command and one answer per message."""
        with self.client() as client:
            yield inlet(lambda: client.blpop(KEY)[1])


class RedisLink(RedisEnd):
    """The parent's side: starts the server, waits for it, ends it."""

    def __init__(self, options: Sequence[str] = ("--save", "", "--appendonly", "no")) -> None:
        """Start a server that listens on no port.

        Args:
            options: Of the server; without any it keeps nothing on disk.
        """
        self._directory = tempfile.mkdtemp(prefix="benchmark-redis-")
        socket = str(Path(self._directory) / "socket")
        super().__init__(socket)
        command = ["redis-server", "--port", "0", "--unixsocket", socket]
        command += ["--dir", self._directory, *options]
        self._server = subprocess.Popen(  # noqa: S603 (a fixed command)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[type[RedisEnd], tuple[str]]:
        """Hand only the socket's name to the workers."""
        return RedisEnd, (self.socket,)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        redis = module("redis")
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except redis.ConnectionError:
                if time.monotonic() > deadline or self._server.poll() is not None:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """End the server and remove its directory."""
        self._server.terminate()
        try:
            self._server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait(STOP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)


class RedisList(Peer):
    """One message per command, no pipelining."""

    name = "Redis list"
    short = "Redis"
    distribution = "redis"
    module_name = "redis"

    def available(self) -> str | None:
        """Return why it cannot run here: both client and server are needed."""
        if shutil.which("redis-server") is None:
            return "not installed (no redis-server)"
        return super().available()

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one list for all sizes)
        """Start a server."""
        return RedisLink()
