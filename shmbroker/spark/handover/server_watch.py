# SPDX-License-Identifier: Apache-2.0
"""Checks whether a queue has a server. A client checks this regularly while it waits for an answer."""

from __future__ import annotations

import time

import shmbroker

SLICE_SECONDS = 0.2
GRACE_SECONDS = 1.0


class ServerWatch:
    """Watches the servers of a queue.

    Args:
        connection: a connection to the broker of the queue.
        queue: the name of the queue of requests.
    """

    def __init__(self, connection: shmbroker.Connection, queue: str) -> None:
        self._connection, self._name = connection, queue
        self._queue: shmbroker.Queue | None = None
        self._missing_since: float | None = None

    def open(self) -> shmbroker.Queue:
        """Returns the queue, as soon as a process serves it.

        Raises:
            NoServer: no process serves it, and none starts within a second.
        """
        while not self.is_served():
            self.look()
            time.sleep(SLICE_SECONDS / 10)
        assert self._queue is not None  # noqa: S101
        return self._queue

    def is_served(self) -> bool:
        """Whether there is a server now."""
        try:
            if self._queue is None:
                self._queue = self._connection.queue(self._name, passive=True)
            return self._queue.statistics().consumers > 0
        except shmbroker.NotFound:
            self._queue = None
            return False

    def look(self) -> None:
        """Checks whether there is a server now; the first check without one only notes the time.

        Raises:
            NoServer: all checks for more than a second found no server.
        """
        now = time.monotonic()
        if self.is_served():
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > GRACE_SECONDS:
            text = (
                f"NO_CONSUMERS - no process serves queue {self._name!r} of broker {self._connection.broker_name!r}: "
                f"start shmbroker.spark.serve({self._name!r}, function) on this host, or see why it ended"
            )
            raise shmbroker.NoServer(text=text)
