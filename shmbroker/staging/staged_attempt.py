# SPDX-License-Identifier: Apache-2.0
"""A staged attempt, whose messages lie in a queue of its own until they are published.

Once the attempt is complete, only the process that holds the publication's marker (:mod:`shmbroker.staging.marker`)
takes messages from that queue or changes its settings. Any process may delete it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker.staging.names import Attempt

if TYPE_CHECKING:
    from shmbroker.connection import Connection
    from shmbroker.queue import Queue
    from shmbroker.staging.publication import Receipt
    from shmbroker.statistics import QueueStatistics

_GRACE = 2 * native.NANOSECONDS  # nanoseconds: the wait for the reaper to requeue what a killed process held
_LOOK = 0.001  # seconds


class StagedAttempt:
    """A staged attempt that is to be published.

    An attempt is one try of a writer to stage the messages of a partition of a batch.

    Attributes:
        receipt: says which attempt this is, and how many messages it staged.
        queue: the queue that holds these messages.
    """

    def __init__(self, connection: Connection, publication: str, receipt: Receipt) -> None:
        """Opens the queue of the attempt.

        Raises:
            NotStaged: the queue does not exist.
        """
        self.receipt = receipt
        self._attempt = Attempt(publication, receipt.batch, receipt.partition, receipt.attempt, receipt.token)
        try:
            self.queue: Queue = connection.queue(self._attempt.queue, passive=True)
        except exceptions.NotFound:
            self.missing("it was dropped, or has expired")

    def missing(self, why: str) -> NoReturn:
        """Raises NotStaged, the error of an attempt that cannot be published; ``why`` is the reason in its text."""
        raise exceptions.NotStaged(text=f"{self._attempt} cannot be published: {why}") from None

    def check(self) -> None:
        """Checks that the attempt is complete, before any of it is published. Waits until its messages are ready.

        Raises:
            NotStaged: the number of messages differs from the receipt, some messages are still not ready after two
                seconds, or the queue is gone.
        """
        found = _left(self._rested())
        if found != self.receipt.count:
            self.missing(f"{self.receipt.count} messages were staged, but {found} exist")

    def keep(self) -> None:
        """Prevents the attempt from expiring, because a part of it is about to be published.

        Raises:
            NotStaged: the attempt has just expired.
        """
        try:
            if self.queue.settings.expires is not None:
                self.queue.configure(expires=None)
        except exceptions.NotFound:
            self.missing("it has expired")

    def left(self) -> int:
        """Waits until all unpublished messages of the attempt are ready, and returns their number.

        Raises:
            NotStaged: some are still not ready after two seconds, or the queue is gone.
        """
        return _left(self._rested())

    def _rested(self) -> QueueStatistics:
        """Waits until all remaining messages are ready, and returns the statistics.

        A killed publisher may have held some of them, until the reaper requeues these.

        Raises:
            NotStaged: some are still not ready after two seconds, or the queue is gone.
        """
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
