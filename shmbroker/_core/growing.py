# SPDX-License-Identifier: Apache-2.0
"""Calls that may need more memory than the broker has at the moment."""

from __future__ import annotations

import collections
import itertools
import time
from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker._core.calls import in_flight
from shmbroker._core.inspection import Inspection

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker import exceptions

ffi, slow = native.ffi, native.slow
_PATIENCE_NS, _TURN_NS = 1_000_000_000, 50_000_000
_LET_GO_SECONDS = 0.25


class Growing(Inspection):
    """Adds segments, frees what deleted queues left, and says what the memory of a full broker is used for."""

    _let_go_at = 0.0

    def let_go(self, *, at_once: bool = False) -> bool:
        """Frees memory of deleted queues, as the housekeeper does; for a call that finds no memory.

        Args:
            at_once: sweep even if the last sweep was a moment ago.

        Returns:
            Whether it tried; without ``at_once``, it tries at most once per 0.25 s. It sweeps nothing while another
            thread or process holds the topology lock.
        """
        now = time.monotonic()
        if now < self._let_go_at and not at_once:
            return False
        self._let_go_at = now + _LET_GO_SECONDS
        slow.sb_housekeeper_sweep(self.handle, 0)
        slow.sb_connection_reclaim(self.handle)  # chunks that were kept for structures, and are unused, can hold bodies
        return True

    def no_memory(self) -> None:
        """Handles a call that found no memory: frees that of deleted queues, and returns if the caller should retry.

        Raises:
            OutOfMemory: a call has freed the memory of deleted queues less than 0.25 s ago.
        """
        if not self.let_go():
            raise out_of_memory(self, 0)

    def _some_may_leave(self, until: int) -> bool:
        """Waits for a turn of the storekeeper, after which messages leave a memory that is full; not after a time.

        Returns:
            Whether there is a store, and was time.
        """
        now = time.monotonic_ns()
        if now > until or self.attachment.data_dir is None:
            return False
        slow.sb_store_await(self.handle, slow.sb_store_ask(self.handle), now + _TURN_NS)
        return True

    @in_flight
    def growing(
        self,
        call: Callable[..., int],
        *arguments: Any,  # noqa: ANN401 - cffi has no types
    ) -> int:
        """Calls a function of the core, and again as long as it needs another segment; returns its status.

        If the broker has no memory, this method frees that of deleted queues, and calls the function once more. If the
        broker has a store, messages may leave the memory: the method tries again for a second.

        Args:
            call: the function.
            arguments: its arguments.

        Raises:
            OutOfMemory: the broker has no memory for its structures.
        """
        swept, until = False, 0
        while True:
            status = int(call(*arguments))
            if status == native.GROW:
                self.attachment.grow()
            elif status != native.NO_MEMORY:
                return status
            elif not swept:
                swept, until = self.let_go(at_once=True), time.monotonic_ns() + _PATIENCE_NS
            elif not self._some_may_leave(until):
                raise out_of_memory(self, 0)

    def opening(
        self,
        call: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401 - cffi has no types
        made: list[Any] | None = None,
    ) -> tuple[Any, int]:
        """Calls a function that returns a handle, as :meth:`growing` does; adds an argument that receives the status.

        Args:
            call: the function.
            arguments: its arguments.
            made: gets what the function returns, even if a signal handler raises. The finalizer of the caller gives
                it to :meth:`end_made`: so no handle stays behind that the caller could not store.

        Returns:
            The handle and the status.
        """
        status, handles = ffi.new("sb_status *"), [] if made is None else made

        def attempt() -> int:
            # One call of C opens and stores the handle. A signal handler that raises runs before this call or after it.
            handles.extend(itertools.starmap(call, [(*arguments, status)]))
            return int(status[0])

        self.growing(attempt)
        return handles[-1], int(status[0])

    def end_made(self, call: Callable[[Any], object], made: list[Any]) -> None:
        """Ends the handles in the list ``made``, as :meth:`end` does. Safe to call again."""
        self.calls += 1
        try:
            # One call of C takes out and ends all handles. A signal handler that raises runs before it or after it.
            collections.deque(map(call, filter(None, itertools.starmap(made.pop, [()] * len(made)))), maxlen=0)
        finally:
            self.calls -= 1
            if self.closed and not self.calls:
                self.forget()


def out_of_memory(connection: Growing, size: int) -> exceptions.OutOfMemory:
    """The error of a full broker: the bytes used, the limit, and the queue that holds most.

    Args:
        connection: the connection of the caller.
        size: bytes of the body there was no room for; 0: the room was for the broker's structures.
    """
    most, name = 0, None
    for slot in connection.queue_slots():
        queue = connection.queue_facts(slot)
        if queue is not None and queue.bytes > most:
            most, name = queue.bytes, queue.name
    holder = f"; queue {name!r} holds most, {most} bytes" if name is not None else "; no queue holds bodies"
    return connection.attachment.full(f" for a body of {size} bytes" if size else "", holder + connection.occupancy())
