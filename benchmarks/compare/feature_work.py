# SPDX-License-Identifier: Apache-2.0
"""What users of another broker write for a feature of queues, as a contender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness import Contender, Kind
from benchmarks.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Work = Callable[[Any, int], float]

BODY = b"x" * 64
DEPTH = 1000
"""Messages that lie in the queue while others come and go, as for our own contenders."""
LEVELS = 10


class Server(Protocol):
    """A server that the benchmark has started."""

    def client(self) -> AbstractContextManager[Any]:
        """Connect, to a server that has no messages."""

    def close(self) -> None:
        """End the server."""


class FeaturePeer(Protocol):
    """A broker with a server.

    Attributes:
        name: Shown in tables.
    """

    name: str

    def available(self) -> str | None:
        """Return the reason why it cannot run here, or None if it can."""

    def version(self) -> str:
        """Return the version of the client."""

    def start(self) -> Server:
        """Start a server."""


class FeatureWork(Contender):
    """A work that one client does, one message at a time."""

    def __init__(self, peer: FeaturePeer, work: Work, count: int) -> None:
        """Choose the work.

        Args:
            peer: The broker.
            work: Does it to a number of messages, and returns its nanoseconds.
            count: Messages of a run.
        """
        super().__init__(peer.name, Kind.PEER)
        self._peer, self._work, self._count = peer, work, count
        self._server: Server | None = None
        self.accountable = False

    def available(self) -> str | None:
        """Return why it cannot run here."""
        return self._peer.available()

    def version(self) -> str:
        """Return the version of the client."""
        return self._peer.version()

    def prepare(self) -> None:
        """Start the server."""
        self._server = self._peer.start()

    def run(self) -> Sample:
        """Do the work once."""
        if self._server is None:
            message = "prepare was not called"
            raise RuntimeError(message)
        with self._server.client() as client:
            value = self._work(client, self._count) / self._count
        return Sample(value, self._count, self._count, verified=True)

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
