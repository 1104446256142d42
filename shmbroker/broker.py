# SPDX-License-Identifier: Apache-2.0
"""Brokers: creating their memory, starting and stopping their housekeepers, and connecting to them."""

from __future__ import annotations

import os
import signal
import time
import warnings
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._broker import ending, making
from shmbroker._broker.connecting import connect
from shmbroker._core import native, segments
from shmbroker._core.attachment import attached_to
from shmbroker._core.housekeeper import awaiting_place
from shmbroker._dataclasses import replace
from shmbroker._housekeeper.launch import CannotStartError, start_housekeeper
from shmbroker._storekeeper.launch import ensure_storekeeper

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker._core.attachment import Attachment
    from shmbroker._housekeeper.housekeeper import Housekeeper
    from shmbroker.connection import Connection
    from shmbroker.statistics import BrokerStatistics, ConnectionInfo

_UNCHANGED: Any = making.Default("unchanged")


def names() -> list[str]:
    """Lists this user's brokers by name, and those that other users share with a group of ours as ``<uid>/<name>``."""
    return segments.names()


class Broker:
    """A broker by name: creates its memory, runs its housekeeper in a child process, and stops it.

    The memory stays until ``stop(purge=True)``. ``with Broker("x") as broker:`` starts the broker, and stops only its
    housekeeper at the end of the block.

    Args:
        name: 1 to 64 letters, digits, ``_`` and ``-``; ``<uid>/<name>`` is a broker of another user.
        memory: the limit for bodies and structures, bytes or a string such as "256M"; allocated in segments as needed.
        memory_high_watermark: publishers wait while this share of the memory is in use, see :meth:`configure`.
        memory_warning: the share of the memory in use from which on the broker warns, see there.
        data_dir: the folder of the broker's store, which must exist: durable queues, exchanges and bindings survive the
            loss of the memory, and are there again when the broker is created. ``None``: the broker has no store.
        sync: what a publisher to a durable queue waits for. "always", the default: its message is on the disk, and
            synced. "interval": nothing; what came is synced within half a second. "none": nothing, and nothing is
            synced, so a loss of the machine may lose more, or damage the store. ``None``: as the broker has it.
        store_full: what a put into a durable queue does while the disk of the store is full. "block", the default: it
            waits for room, as in a full queue. "refuse": it raises :class:`StoreRefused`. ``None``: as the broker has
            it.
        mode: permissions of the memory: 0o600, or 0o660 for a broker that members of our (effective) group may use as
            ``<uid>/<name>``. With 0o660, the creation of the broker allocates all its memory.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        memory: int | str = making.DEFAULT_MEMORY,
        memory_high_watermark: float | None = None,
        memory_warning: float | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        sync: str | None = None,
        store_full: str | None = None,
        mode: int = 0o600,
    ) -> None:
        marks = memory_high_watermark, memory_warning
        self._plan = making.checked(name, memory, marks, data_dir, mode, sync, store_full)
        self.name, self.data_dir, self._path = self._plan.name, self._plan.data_dir, self._plan.path
        self._child: subprocess.Popen[bytes] | None = None
        self._process = os.getpid()  # the parent of the child

    # ---- life ----

    def create(self) -> Broker:
        """Creates the memory of the broker if it does not exist. Returns the broker.

        Raises:
            PreconditionFailed: the broker exists with another limit than the one given, other marks or another folder.
            OutOfMemory: /dev/shm has no room for the memory.
            BrokerNotFound: the broker belongs to another user, and does not exist.
            StoreError: the store is damaged, of another format, in use, or cannot be written.
        """
        self._plan.make()
        return self

    def configure(
        self, *, memory_high_watermark: float | None = _UNCHANGED, memory_warning: float | None = _UNCHANGED
    ) -> None:
        """Changes the marks of the memory of a broker that exists; applies immediately, to all clients.

        A publish that needs memory beyond ``memory_high_watermark`` waits, as one does in a full broker. Consumers,
        acknowledgements, moves and leases continue, so that they make room; what they need comes from the rest of the
        memory. ``BrokerStatistics.memory_state`` says "warning" from ``memory_warning`` on, and "blocked" while a
        publish gets no further chunk of memory (2 MiB). A publish that fits into a chunk in use does not wait.

        Args:
            memory_high_watermark: a share of the memory limit, more than 0 and at most 1, in steps of 0.001; ``None`` =
                the broker keeps only its own reserve from publishers.
            memory_warning: a share as well, at most ``memory_high_watermark``; ``None`` = no warning.

        A mark that is not given stays.

        Raises:
            BrokerNotFound: the broker does not exist.
            ValueError: a mark is not allowed.
        """
        with attached_to(self._path) as attached:
            high, warning = attached.memory_marks()
            marks = making.checked_marks(
                high if memory_high_watermark is _UNCHANGED else memory_high_watermark,
                warning if memory_warning is _UNCHANGED else memory_warning,
            )
            attached.set_memory_marks(*marks)
            self._plan = replace(self._plan, marks=marks)

    def start(self) -> Self:
        """Creates the memory if it does not exist, and starts a housekeeper if none runs. Returns the broker."""
        self.create()
        with attached_to(self._path) as attached:
            attached.set_stopped(stopped=False)
            if attached.housekeeper_missing():
                # A child that an earlier call started may still be starting. This call does not wait for its end: the
                # earlier child may become the housekeeper, and then serves as long as there are clients. In that case
                # the child started here ends.
                child = _started(self.name)
                self._process, self._child = os.getpid(), child
                _await_housekeeper(attached, child)
        ensure_storekeeper(self.name)
        return self

    def serve_forever(self, *, on_ready: Callable[[], None] | None = None) -> None:
        """Runs the housekeeper in this process until SIGTERM or SIGINT, or until the broker is stopped or purged.

        This process replaces a housekeeper that a client started automatically.

        Args:
            on_ready: called once, as soon as this process is the housekeeper.

        Raises:
            BrokerError: another housekeeper serves the broker already.
            BrokerNotFound: another process has purged the broker meanwhile.
            Timeout: the automatic housekeeper does not end.
        """
        from shmbroker._housekeeper import housekeeper  # noqa: PLC0415 - the housekeeper is a client, not a part, of brokers

        self.create()
        ended = housekeeper.EndFlag()
        previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            _handle_signals(dict.fromkeys(previous, lambda *_: ended.set()))
            with attached_to(self._path) as attached:
                keeper = housekeeper.Housekeeper(self.name)
                try:
                    if not keeper.begin():
                        self._replace(attached, keeper)
                    attached.set_stopped(stopped=False)
                    if on_ready is not None:
                        on_ready()
                except BaseException:
                    keeper.close()
                    raise
            keeper.run(ended, linger=None)
        finally:
            try:
                _handle_signals(previous)
            except BaseException:  # the first of these handlers ran, and raised, before the second one was restored
                _handle_signals(previous)
                raise

    def _replace(self, attached: Attachment, keeper: Housekeeper) -> None:
        """Ends a housekeeper that a client started automatically, and becomes the housekeeper.

        A client may start another housekeeper before this process is the housekeeper: that one ends as well. If this
        process is killed meanwhile, the housekeeper stays, or clients start another one.
        """
        until = native.deadline(ending.PATIENCE_SECONDS)
        known = 0
        with awaiting_place(self._path):
            while not keeper.begin():
                pid = attached.facts().housekeeper_pid
                if pid not in {0, known} and not ending.is_automatic(attached, pid):
                    raise exceptions.BrokerError(530, f"NOT_ALLOWED - broker {self.name!r} is being served already")
                known = pid
                if time.monotonic_ns() > until:
                    raise ending.still_there(attached, pid)
                attached.set_stopped(stopped=False)  # wakes the housekeeper: it looks whether a process waits
                time.sleep(ending.LOOK_SECONDS)

    def stop(self, purge: bool = False) -> None:  # noqa: FBT001, FBT002 - as the contract has it
        """Ends the broker's housekeeper; with ``purge`` also disconnects the clients and removes the memory.

        The store gets everything first. If the folder of the store is gone, a purge loses what the memory has, and
        warns of that: :class:`shmbroker.StoreLost`. Without ``purge``, the housekeeper has given back the memory that
        it used when the call returns. It stays if another process starts the broker before it has ended.

        Raises:
            AccessRefused: the broker belongs to another user: only that user and root can purge it.
            Timeout: the housekeeper does not end. With ``purge`` the memory is removed nevertheless. Or the store
                cannot be written now: then nothing is stopped, and the memory stays.
            StoreError: without ``purge``: the folder of the store is gone, and no process writes it. Nothing is
                stopped.
        """
        what = segments.identity(self._path)
        if what is None:
            self._reap_child()
            return
        if purge and os.geteuid() not in {0, segments.uid_of(self._path)}:
            text = f"only user {segments.uid_of(self._path)} can purge broker {self.name!r}"
            raise amqp_error(exceptions.AccessRefused, text)
        try:
            with attached_to(self._path) as attached:
                lost = ending.settle(attached, purge=purge)
                keepers = [] if purge else ending.keepers_of(attached)
                attached.set_stopped(stopped=True)
                ending.await_storekeeper_end(attached)
                if purge:
                    attached.set_closing()
                    segments.remove(self._path, what)
                ending.await_end(attached, keepers)
                self._reap_child(attached)
            if lost:
                warnings.warn(lost, exceptions.StoreLost, stacklevel=2)
        except (
            exceptions.LayoutMismatch,
            exceptions.CorruptSegment,
            exceptions.BrokerNotFound,
            exceptions.ConnectionClosedByBroker,  # another process purges it
        ):
            if not purge:
                raise
            segments.remove(self._path, what)
            self._reap_child()

    def _reap_child(self, attached: Attachment | None = None) -> None:
        """Waits until the child that this object started has ended; kills it if it does not end.

        Args:
            attached: the attachment of the broker. If another call starts the broker again, the child stays: it may be
                the housekeeper. ``None``: the broker is gone, or this process could not use it.
        """
        child = self._child
        if child is None or self._process != os.getpid():  # a forked process cannot wait for its parent's child
            return
        until = native.deadline(ending.PATIENCE_SECONDS)
        while child.poll() is None:
            if attached is not None and ending.is_started_again(attached.facts()):
                return
            if time.monotonic_ns() > until:
                child.kill()
                child.wait()
            time.sleep(ending.LOOK_SECONDS)

    def connect(self, **options: Any) -> Connection:  # noqa: ANN401
        """Opens a connection to this broker as :func:`connect` with ``create=False``; takes all its other options."""
        return connect(self.name, create=False, **options)

    def statistics(self) -> BrokerStatistics:
        """Returns a snapshot of the statistics of the broker.

        Raises:
            BrokerNotFound: the broker does not exist.
        """
        with attached_to(self._path) as attached:
            return attached.statistics()

    def connections(self) -> list[ConnectionInfo]:
        """Lists the connections of the broker as :meth:`Connection.connections` does, without opening one.

        Raises:
            BrokerNotFound: the broker does not exist.
        """
        with attached_to(self._path) as attached:
            return attached.connections()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.name!r}, {'exists' if segments.exists(self._path) else 'no memory'}>"


def _handle_signals(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


# ---- housekeeper processes ----


def _started(name: str) -> subprocess.Popen[bytes]:
    try:
        return start_housekeeper(name, detached=False)
    except CannotStartError as error:
        text = f"the housekeeper of broker {name!r} cannot be started: {error}; run `shmbroker serve {name}`"
        raise exceptions.BrokerError(541, text) from error


def _await_housekeeper(attached: Attachment, child: subprocess.Popen[bytes]) -> None:
    until = native.deadline(ending.PATIENCE_SECONDS)
    while attached.housekeeper_missing() or not attached.facts().housekeeper_pid:  # it says which process it is last
        if child.poll() is not None and attached.housekeeper_missing():
            text = f"the housekeeper of broker {attached.name!r} ended immediately, with status {child.returncode}"
            raise exceptions.BrokerError(541, text)
        if time.monotonic_ns() > until:
            text = f"the housekeeper of broker {attached.name!r} did not start in {ending.PATIENCE_SECONDS} seconds"
            raise exceptions.Timeout(text)
        time.sleep(ending.LOOK_SECONDS)
