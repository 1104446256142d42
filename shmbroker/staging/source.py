# SPDX-License-Identifier: Apache-2.0
"""The queue of a winner, as who holds the marker sees it: nobody else takes from it, and nobody writes to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from shmbroker import exceptions
from shmbroker._core import library
from shmbroker.staging.names import Attempt

if TYPE_CHECKING:
    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.state import Receipt
    from shmbroker.statistics import QueueStatistics

_GRACE = 2 * library.NANOSECONDS  # for the reaper of somebody who was killed while he held messages
_LOOK = 0.001  # seconds


class Source:
    """An attempt that is to be published.

    Attributes:
        receipt: its receipt.
        queue: its queue.
    """

    def __init__(self, connection: Connection, publication: str, receipt: Receipt) -> None:
        """Opens it.

        Raises:
            NotStaged: it is not there.
        """
        self.receipt = receipt
        self._attempt = Attempt(publication, receipt.batch, receipt.partition, receipt.attempt, receipt.token)
        try:
            self.queue: Queue = connection.queue(self._attempt.queue, passive=True)
        except exceptions.NotFound:
            self.missing("it was dropped, or has expired")

    def missing(self, why: str) -> NoReturn:
        """It cannot be published."""
        raise exceptions.NotStaged(text=f"{self._attempt} cannot be published: {why}") from None

    def check(self) -> None:
        """Before anything of it is published.

        Raises:
            NotStaged: it is not what its receipt says.
        """
        found = _left(self._rested())
        if found != self.receipt.count:
            self.missing(f"{self.receipt.count} messages were staged, and {found} are there")

    def keep(self) -> None:
        """It does not expire any more: a part of it is going to be published.

        Raises:
            NotStaged: it just did.
        """
        try:
            if self.queue.settings.expires is not None:
                self.queue.configure(expires=None)
        except exceptions.NotFound:
            self.missing("it has expired")

    def left(self) -> int:
        """How many of its messages have not been published. They are all ready."""
        return _left(self._rested())

    def acked(self) -> int:
        """How many of its messages were published by transactions."""
        return self.queue.statistics().acked

    def _rested(self) -> QueueStatistics:
        """What a killed publisher had done was counted before we got his marker; what he held comes back soon after."""
        until = time.monotonic_ns() + _GRACE
        try:
            while (facts := self.queue.statistics()).ready != _left(facts) or facts.delivering:
                if time.monotonic_ns() > until:
                    self.missing(f"of {_left(facts)} messages that are left {facts.ready} are ready")
                time.sleep(_LOOK)
        except exceptions.NotFound:
            self.missing("it was dropped meanwhile")
        return facts


def _left(facts: QueueStatistics) -> int:
    return facts.added - facts.moved - facts.acked
