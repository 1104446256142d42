# SPDX-License-Identifier: Apache-2.0
"""Which calls of a connection wait for memory: AMQP's connection.blocked and connection.unblocked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryWaits:
    """The publishing calls of one connection. A ``with`` block around such a call may lie in another one.

    Attributes:
        changed: called with ``True`` when a call begins to wait for memory and no other one waits, and with ``False``
            when the last call that waited has ended. In the thread of that call; it must not raise.
    """

    def __init__(self) -> None:
        self.changed: Callable[[bool], None] = _ignore
        self._lock = locks.lock()
        self._depths: dict[int, int] = {}
        self._waiting: set[int] = set()

    @property
    def any(self) -> bool:
        """Whether a call waits for memory."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Notes that the call of this thread waits for memory; safe to call again."""
        me = threading.get_ident()
        with self._lock:
            first = not self._waiting
            self._waiting.add(me)
        if first:
            self.changed(True)  # noqa: FBT003 - blocked

    def __enter__(self) -> None:
        me = threading.get_ident()
        self._depths[me] = self._depths.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        depth = self._depths.pop(me, 1) - 1
        if depth > 0:
            self._depths[me] = depth
        elif me in self._waiting:
            with self._lock:
                self._waiting.discard(me)
                last = not self._waiting
            if last:
                self.changed(False)  # noqa: FBT003 - not blocked any more


def _ignore(blocked: bool) -> None:  # noqa: FBT001 - see `MemoryWaits.changed`
    del blocked
