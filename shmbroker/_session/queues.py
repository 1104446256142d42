# SPDX-License-Identifier: Apache-2.0
"""The queues that a connection has open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from shmbroker import exceptions, settings
from shmbroker._amqp.names import check_not_reserved
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import native
from shmbroker._core import queue as core_queue
from shmbroker._topology.administration import resource_locked

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._topology.addresses import Addresses

_FIRST_LOOK = 64  # the number of open queues at which the first search for deleted queues runs

C = TypeVar("C")
H = TypeVar("H", bound="Handle")


class OnCore(Protocol[C]):
    """An object of the application, with its counterpart in the core."""

    _core: C


def core_of(thing: OnCore[C]) -> C:
    """Returns the core's side of a queue or of a consumer of the application."""
    return thing._core  # noqa: SLF001 - for all layers above: applications do not see it


class Handle(OnCore["CoreQueue"], Protocol):
    """The application's handle of a queue."""

    name: str


class OpenQueues:
    """The queues that a connection has open: for each, at most one handle of the application and one of the core.

    A queue that a channel has used stays open in the core until it is deleted or the connection is closed. When the
    application closes its handle of any other queue, the queue stays open in the core only if the connection holds
    messages of it, if a consumer or a call of the connection still uses it, or if it is exclusive to the connection.
    Such a queue is not closed when that reason ends. It is closed when it is deleted, or when the application opens and
    closes it again.

    Args:
        connection: the connection in the core.
        lock: the lock of the connection.
        addresses: the address settings, which a new queue takes.
    """

    def __init__(self, connection: CoreConnection, lock: Any, addresses: Addresses) -> None:  # noqa: ANN401
        self._connection, self._lock, self._addresses = connection, lock, addresses
        self._handles: dict[str, Any] = {}
        self._kept: dict[str, CoreQueue] = {}  # queues without a handle of the application
        self._routed: dict[str, CoreQueue] = {}
        self._look_at = _FIRST_LOOK

    # ---- opening ----

    def open(self, name: str, given: dict[str, Any], *, passive: bool, make: Callable[[CoreQueue], H]) -> H:
        """Declares a queue and opens it; returns the existing handle of the application, or a new one.

        Args:
            name: 1 to 255 bytes of UTF-8 without NUL.
            given: settings; they are compared with the settings of an existing queue.
            passive: only open an existing queue.
            make: makes a handle.

        Raises:
            NotFound: with ``passive``: there is no such queue, or it was deleted during the call.
            PreconditionFailed: the queue exists with other settings.
            AccessRefused: the queue does not exist, and its name begins with ``amq.``.
            ResourceLocked: the queue is exclusive to another connection.
            ValueError: the name, or the value of a setting, is not allowed.
        """
        wanted = settings.validate(given)
        check_queue_name(name)
        with self._lock:
            if self._connection.closed:
                native.raise_for(native.CLOSED, "the connection")
            core = self._as_wanted(name, wanted, passive=passive)
            self._connection.touch(core.slot)
            handle: H | None = self._handles.get(name)
            if handle is None:
                handle = self._handles[name] = make(core)
                self._kept.pop(name, None)
            return handle

    def existing(self, name: str) -> CoreQueue:
        """Opens a queue in the core, for a call that the application has given its name.

        Raises:
            NotFound: there is no such queue, or it was deleted during the call.
            ResourceLocked: the queue is exclusive to another connection.
            ValueError: the name is not allowed.
        """
        check_queue_name(name)
        with self._lock:
            if self._connection.closed:
                native.raise_for(native.CLOSED, "the connection")
            return self._as_wanted(name, {}, passive=True)

    def _as_wanted(self, name: str, wanted: dict[str, Any], *, passive: bool) -> CoreQueue:
        """Returns the core's handle of a queue that the connection may use, and that has the wanted settings."""
        while True:
            core = self._declared(name, wanted, passive=passive)
            try:
                if core.exclusive and core.facts().locked:
                    raise resource_locked(name)
                _compare(core, wanted)
            except exceptions.NotFound:  # the queue has ended since it was opened
                if passive:
                    raise
            else:
                return core

    def _declared(self, name: str, wanted: dict[str, Any], *, passive: bool) -> CoreQueue:
        while True:
            slot = self._connection.queue_slot(name)
            if slot == 0:
                if passive:
                    native.raise_for(native.NOT_FOUND, f"queue {name!r}")
                check_not_reserved(name)
                self._addresses.declare(name, wanted)
                continue
            found = self._opened(name, slot)
            if found is not None:
                return found

    def _opened(self, name: str, slot: int) -> CoreQueue | None:
        """Returns the core's handle of a queue; ``None``: another process or thread has deleted the queue."""
        handle = self._handles.get(name)
        if handle is not None:
            core: CoreQueue = core_of(handle)
            if core.length() >= 0:  # the queue still exists, so no other queue has its name
                return core
            self.forget(handle)
        kept = self._living(name)
        if kept is not None:
            return kept
        try:
            opened = core_queue.CoreQueue(self._connection, name, slot)
        except exceptions.NotFound:
            return None
        if len(self._handles) + len(self._kept) >= self._look_at:
            self._forget_deleted()
        self._kept[name] = opened
        return opened

    def _living(self, name: str) -> CoreQueue | None:
        """Returns the core's handle of a queue that is open only in the core: the application has no handle of it.

        Returns:
            The handle. ``None``: no such queue is open, or it was deleted; then its handle is forgotten now.
        """
        kept = self._kept.get(name)
        if kept is not None and kept.length() < 0:
            del self._kept[name]
            kept.leave()
            return None
        return kept

    def routed(self, name: str) -> CoreQueue | None:
        """Returns the core's handle of a queue, for the channels of the connection.

        Returns:
            The handle, which stays open until the queue is deleted or the connection closed; ``None``: there is no such
            queue.
        """
        known = self._routed.get(name)
        if known is not None and known.length() >= 0:
            return known
        with self._lock:
            self._routed.pop(name, None)
            self._living(name)
            while slot := self._connection.queue_slot(name):
                opened = self._opened(name, slot)
                if opened is not None:
                    self._routed[name] = opened
                    return opened
            return None

    def handed_out(self) -> tuple[Any, ...]:
        """Returns the handles that the application has."""
        return tuple(self._handles.values())

    # ---- closing ----

    def closed(self, handle: Handle, core: CoreQueue) -> None:
        """Handles the closing of an application's handle: closes the queue in the core, too, if it is not needed there.

        The queue stays open in the core if a channel has used it, or for one of the other reasons that the class lists.
        """
        with self._lock:
            if self._handles.get(handle.name) is handle:
                del self._handles[handle.name]
                if self._routed.get(handle.name) is core or (
                    not self._connection.closed and not self._connection.attachment.forked and not core.leave()
                ):
                    self._kept[handle.name] = core

    def forget(self, handle: Handle) -> None:
        """Forgets the application's handle of a deleted queue.

        The core frees its own handle when the connection holds none of the queue's messages.
        """
        with self._lock:
            if self._handles.get(handle.name) is handle:
                del self._handles[handle.name]
        core_of(handle).leave()

    def _forget_deleted(self) -> None:
        """Forgets the handles of deleted queues. A message that the application has keeps its handle alive.

        The next search runs when there are twice as many handles as remain now, at least 64.
        """
        for name, handle in list(self._handles.items()):
            if core_of(handle).is_deleted():
                del self._handles[name]
        for known in (self._kept, self._routed):
            for name, core in list(known.items()):
                if core.is_deleted():
                    del known[name]
        self._look_at = max(_FIRST_LOOK, 2 * (len(self._handles) + len(self._kept)))

    def clear(self) -> None:
        """Forgets all queues when the connection is closed."""
        self._handles.clear()
        self._kept.clear()
        self._routed.clear()


def _compare(core: CoreQueue, wanted: dict[str, Any]) -> None:
    if not wanted:
        return
    current, _ = core.settings()
    for setting, value in wanted.items():
        found = getattr(current, setting)
        if found != value:
            raise settings.inequivalent(core.name, setting, value, found)


class ClosedQueue:
    """Replaces the core's queue in a closed handle: every use raises :exc:`ConnectionClosed`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        native.raise_for(native.CLOSED, self._what)
