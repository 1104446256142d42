# SPDX-License-Identifier: Apache-2.0
"""A connection, which owns the messages that it took: how it is opened and closed."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from shmbroker._core import attachment, native
from shmbroker._core.calls import in_flight
from shmbroker._core.io_thread import IoThread
from shmbroker._core.memory_waits import MemoryWaits

if TYPE_CHECKING:
    from collections.abc import Callable

ffi, slow, fast = native.ffi, native.slow, native.fast


def _nothing() -> None:
    """Starts no storekeeper."""


class CoreConnection(IoThread, native.Finalized):
    """One connection to a broker. It counts the calls in flight, so that closing frees no memory they use.

    Attributes:
        on_storekeeper_missing: called by a wait for the store that finds no storekeeper.
    """

    # `_finalize` reads this and `handle`, even if a signal handler raises in `__init__` before they are set.
    mapping: attachment.MappingReference | None = None

    def __init__(self, path: str, name: str) -> None:
        # The core stores the handle here before a signal handler can raise; so no exception loses the handle.
        self._handles = ffi.new("sb_connection *[1]")  # cleared when `sb_connection_discard` frees the connection
        self._place = ffi.gc(self._handles, slow.sb_connection_discard)
        self._forgotten = False
        self.memory_waits = MemoryWaits()
        self.on_storekeeper_missing: Callable[[], None] = _nothing
        super().__init__()
        attachment.acquire(path, self)
        try:
            if self.attachment.closing():
                native.raise_for(native.STOPPING)
            self._open(name)
            # views keep the mapping alive longer than this connection
            self.mapping = attachment.MappingReference(self.attachment)
        except BaseException:
            slow.sb_connection_discard(self._place)
            self._detach()
            raise
        self.handle = self._place[0]
        self.address = int(ffi.cast("uintptr_t", self.handle))
        self.id = int(slow.sb_connection_id(self.handle))
        near = native.cast_fast(self.handle, "sb_connection *")
        # `count_channels` stores the number of open channels in shared memory, where other processes read it.
        self.count_channels: Callable[[int], None] = functools.partial(fast.sb_connection_set_channels, near)

    def _open(self, name: str) -> None:
        # The default name of a connection begins with the program's name, which may not be encodable in UTF-8.
        encoded = name.encode(errors="replace")[: slow.SB_NAME_MAX]
        while (
            status := slow.sb_connection_open_at(self.attachment.handle, encoded, len(encoded), self._place)
        ) != native.OK:
            if status == native.NO_MEMORY:
                what = f" for connection {name!r}"
                raise self.attachment.full(what)
            if status == slow.SB_LIMIT:
                raise self.attachment.all_connected(name)
            if status != native.GROW:
                native.raise_for(int(status), f"connection {name!r}")
            self.attachment.grow()

    def _detach(self) -> None:
        """Gives back the two uses of the attachment: this object's own, and that of ``mapping``.

        The caller calls it when no view remains. It is safe to call again, also if interrupted. In a forked child,
        inherited views may remain: they keep the :class:`MappingReference`.
        """
        mapping = self.mapping
        if mapping is not None:
            if not self.attachment.forked:
                attachment.release(self.attachment, mapping)
            self.mapping = None
        attachment.release(self.attachment, self)

    @in_flight
    def limit(self, prefetch: int) -> None:
        """Limits how many messages the consumers of all its channels may have unacked; 0: no limit."""
        status = slow.sb_connection_set_prefetch(self.handle, prefetch)
        if status != native.OK:
            native.raise_for(status, "the connection")

    # ---- closing ----

    def close(self) -> None:
        """Requeues held messages and ends every wait. Safe to call from any thread, and to call again."""
        inside = False
        try:
            with self._calls_lock:
                over = self._is_over()
                if not over:
                    handle = self.handle
                    self.calls += 1
                    inside = self.closed = True
            if over:
                self._detach()  # in case a signal handler raised in `forget`, before its end
        finally:
            if inside:
                try:
                    # This runs even if a signal handler raises after `closed` is set: the outer `try` has begun.
                    slow.sb_connection_close(handle)
                    io = self._io
                    if io is not None and io is not threading.current_thread() and not self.attachment.forked:
                        io.join()
                finally:
                    self.calls -= 1
                    if not self.calls:
                        self.forget()

    def _is_over(self) -> bool:
        """Whether the connection was released; then the handle must not be used.

        The finalizer of `_place` can release it before :meth:`forget` does, and frees the handle, too: the garbage
        collector finalizes the objects of a cycle in any order. This concerns a connection that was dropped without a
        close. It also concerns a connection that was closed but not forgotten, because a signal handler raised inside a
        call and so left the call counted for ever.
        """
        return self._forgotten or not self._handles[0]

    def forget(self) -> None:
        """Releases the connection after the last call; if views remain, the end of the last view does it.

        The handle stays until the finalizer of `_place` frees it.
        """
        with self._calls_lock:
            if self._is_over():
                return
            self._forgotten = gone = bool(slow.sb_connection_release(self.handle))
        if gone:
            self._detach()

    def _finalize(self) -> None:
        if not self.attached or self.attachment.forked:
            return
        if self.handle is None:  # a signal handler raised in `__init__`
            slow.sb_connection_discard(self._handles)
            self._detach()
        elif self._is_over():  # released by the finalizer of `_place`, or by a `forget` interrupted before `_detach`
            self._detach()
        else:
            self.close()  # no user is left; `_place` frees the handle afterwards
