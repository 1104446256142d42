# SPDX-License-Identifier: Apache-2.0
"""Servers of a hand-over in this process: one that answers when it is told to, and one in a thread."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ByHand:
    """A server of queue "requests" that does nothing by itself."""

    def __init__(self, connection: shmbroker.Connection) -> None:
        """Serve from now on."""
        self.connection, self.keys = connection, list[str | None]()
        self.consumer = connection.queue("requests").consume(prefetch=1000)

    def taken(self) -> list[shmbroker.Message]:
        """The requests that are there."""
        found = []
        with contextlib.suppress(Exception):
            while True:
                found.append(self.consumer.get(timeout=0))
        self.keys += [one.key for one in found]
        return found

    def answer(self, request: shmbroker.Message, body: Any = None, kind: str = "", times: int = 1) -> None:  # noqa: ANN401 - bytes-like
        """Answers a request, by its own body if none is given."""
        _, number, answers = (request.key or "").split(" ")
        target = self.connection.queue(answers, passive=True)
        for _ in range(times):
            target.put(bytes(request) if body is None else body, key=f"{number} {kind}")
        request.ack()

    def answer_all(self) -> int:
        """Answers what is there; says how many requests that were."""
        found = self.taken()
        for request in found:
            self.answer(request)
        return len(found)


@pytest.fixture
def by_hand(connection: shmbroker.Connection) -> Iterator[ByHand]:
    """A server that answers when it is told to."""
    made = ByHand(connection)
    yield made
    made.consumer.close()


class Serving(threading.Thread):
    """Answers each request of queue "requests" with a function of its number and the server."""

    def __init__(self, broker: shmbroker.Broker, function: Callable[[ByHand, shmbroker.Message, int], None]) -> None:
        """Serve from now on."""
        super().__init__()
        self._function, self.seen = function, 0
        self._opened = broker.connect()
        self.server = ByHand(self._opened)
        self.start()

    def run(self) -> None:
        """Answer until the consumer is closed."""
        for request in self.server.consumer:
            self.seen += 1
            with contextlib.suppress(shmbroker.NotFound):  # the asker wants no more
                self._function(self.server, request, self.seen)

    def stop(self) -> None:
        """End it."""
        self.server.consumer.close()
        self.join()
        self._opened.close()


@pytest.fixture
def serving(broker: shmbroker.Broker) -> Iterator[Callable[..., Serving]]:
    """Starts a server in a thread, that is ended with the test."""
    started = []

    def start(function: Callable[[ByHand, shmbroker.Message, int], None]) -> Serving:
        started.append(Serving(broker, function))
        return started[-1]

    yield start
    for one in started:
        one.stop()
