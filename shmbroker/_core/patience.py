# SPDX-License-Identifier: Apache-2.0
"""Patience: an operation that makes many messages waits for memory, as a put does.

In a broker with a store, what the operation has made is stored, and may then leave the memory: the operation asks the
storekeeper for turns, and continues. In a broker without one, nothing leaves: the operation ends immediately.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import syncing
from shmbroker._core.growing import out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker._core.connection import CoreConnection

PATIENCE_NS = 5_000_000_000
"""How long an operation waits that makes no progress."""
TURN_NS = 100_000_000
"""How long it waits for one turn of the storekeeper."""
_FIRST_REST, _LONGEST_REST = 0.001, 0.02  # seconds between two turns that brought no progress


class Patience:
    """The waits of one operation.

    Args:
        connection: the connection of the operation.
        did: what the operation does with messages, for its error, such as ``"copied"``.

    Attributes:
        done: with how many messages it has done so.
        answered: whether the storekeeper has taken a turn meanwhile.
    """

    def __init__(self, connection: CoreConnection, did: str = "") -> None:
        self._connection, self._did = connection, did
        self._until, self._rest = 0, _FIRST_REST
        self.done = 0
        self.answered = False

    def worked(self, count: int = 1) -> None:
        """Notes that the operation has dealt with messages: the next wait may be as long as the first one."""
        self.done += count
        self._until, self._rest = 0, _FIRST_REST

    def rest(self) -> bool:
        """Waits until the storekeeper has stored what there is; then messages may leave. False: the time is over."""
        now = time.monotonic_ns()
        if self._until == 0:
            self._until = now + PATIENCE_NS
        elif now > self._until:
            return False
        else:  # messages leave after the turn, which may have come too early
            time.sleep(self._rest)
            self._rest = min(2 * self._rest, _LONGEST_REST)
        with contextlib.suppress(exceptions.Timeout):
            syncing.wait(self._connection, syncing.ask(self._connection), now + TURN_NS)
            self.answered = True
        return True

    def waits(self) -> bool:
        """Waits as :meth:`rest` does, if messages can leave the memory. False: the caller gives up."""
        return self._connection.attachment.data_dir is not None and self.rest()

    def no_memory(self) -> None:
        """Handles a call that found no memory; returns if the caller should try again.

        Raises:
            OutOfMemory: no memory came free in time, or there is no store.
        """
        if self._connection.let_go():
            return
        if not self.waits():
            raise out_of_memory(self._connection, 0)

    @contextlib.contextmanager
    def told(self) -> Iterator[Patience]:
        """Adds to an :exc:`OutOfMemory` with how many messages the operation has dealt."""
        try:
            yield self
        except exceptions.NeverFits:
            raise
        except exceptions.OutOfMemory as error:
            if not self._did:
                raise
            were = "message was" if self.done == 1 else "messages were"
            text = f"{error}; {self.done} {were} {self._did} before"
            raise exceptions.OutOfMemory(text) from error
