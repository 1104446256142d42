# SPDX-License-Identifier: Apache-2.0
"""Brokers: creating their memory, starting and stopping their housekeepers, and connecting to them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions, settings
from shmbroker._amqp.errors import amqp_error
from shmbroker._amqp.utf8 import size_in_utf8
from shmbroker._checks import is_integer, is_number
from shmbroker._core import attachment, native, segments
from shmbroker._core.housekeeper import awaiting_place
from shmbroker._housekeeper.launch import CannotStartError, ensure_housekeeper, start_housekeeper
from shmbroker._session.session import Session
from shmbroker._storekeeper import admission
from shmbroker._storekeeper.launch import await_children, ensure_storekeeper
from shmbroker.connection import Connection
from shmbroker.storage.place import is_in_use

if TYPE_CHECKING:
    import concurrent.futures
    import subprocess
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from shmbroker._core.attachment import Attachment
    from shmbroker._core.facts import BrokerFacts
    from shmbroker._housekeeper.housekeeper import Housekeeper
    from shmbroker.statistics import BrokerStatistics, ConnectionInfo

_NAME = re.compile(r"(?:(\d{1,10})/)?([A-Za-z0-9_-]{1,64})\Z")
_START_SECONDS = 30.0
_PURGE_SECONDS = 30.0
_CHILD_SECONDS = 5.0  # for a storekeeper that was only starting
_LOOK_SECONDS = 0.002
_LEAST_MARK = 0.001
_MODES = (0o600, 0o660)


class _Default(str):
    """The type of a default value that the operator ``is`` distinguishes from an equal string of a caller.

    A plain string would not do: CPython has only one object for equal literals.
    """

    __slots__ = ()


DEFAULT_MEMORY = _Default("256M")
_UNCHANGED: Any = _Default("unchanged")


def check_name(name: object) -> str:
    """Checks a broker's name, and returns it without the user number of this process.

    Raises:
        ValueError: the name is not 1 to 64 letters, digits, ``_`` or ``-``, or has a prefix that is not the number of a
            user and a slash.
    """
    found = _NAME.match(name) if isinstance(name, str) else None
    if found is None:
        msg = (
            f"broker name {name!r}: 1 to 64 of A-Z, a-z, 0-9, _ and - are allowed, "
            "for a broker of another user with the user's number and a slash before them, such as 1000/orders"
        )
        raise ValueError(msg)
    uid, own = found.groups()
    return own if uid is None or int(uid) == os.getuid() else f"{int(uid)}/{own}"


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
        mode: permissions of the memory: 0o600, or 0o660 for a broker that members of our (effective) group may use as
            ``<uid>/<name>``. With 0o660, the creation of the broker allocates all its memory.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        memory: int | str = DEFAULT_MEMORY,
        memory_high_watermark: float | None = None,
        memory_warning: float | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        mode: int = 0o600,
    ) -> None:
        self.name = check_name(name)
        self._memory = settings.parse_size(memory)
        self._given_memory = memory is not DEFAULT_MEMORY
        segments.plan(self._memory)
        self._marks = _checked_marks(memory_high_watermark, memory_warning)
        if mode not in _MODES:
            shown = oct(mode) if isinstance(mode, int) else repr(mode)
            msg = f"mode={shown}: 0o600 or 0o660 is allowed"
            raise ValueError(msg)
        self._mode = mode
        self.data_dir = None if data_dir is None else _folder_of(data_dir)
        self._path = segments.path_of(self.name)
        self._child: subprocess.Popen[bytes] | None = None
        self._process = os.getpid()  # the parent of the child

    # ---- life ----

    def create(self) -> Broker:
        """Creates the memory of the broker if it does not exist. Returns the broker.

        Raises:
            PreconditionFailed: the broker exists with another limit than the one given, or with other marks.
            OutOfMemory: /dev/shm has no room for the memory.
            BrokerNotFound: the broker belongs to another user, and does not exist.
        """
        if segments.uid_of(self._path) != os.getuid() and not segments.exists(self._path):
            text = f"no broker {self.name!r}, and only user {segments.uid_of(self._path)} can make it"
            raise amqp_error(exceptions.BrokerNotFound, text)
        if self.data_dir is not None:
            made = self._create_with_store(self.data_dir)
        else:
            made = segments.create(self._path, self.name, self._memory, self._mode)
            if made:
                self._begin(lambda _: None)
        if not made:
            self._compare()
        ensure_storekeeper(self.name)
        return self

    def _create_with_store(self, data_dir: str) -> bool:
        """Creates the memory of a broker with a store, and restores it; False if the broker exists.

        Raises:
            StoreError: the store is damaged, of another format, in use, or cannot be written.
        """
        from shmbroker._storekeeper import beginning  # noqa: PLC0415 - it imports LMDB

        while self._gives_up() or not segments.exists(self._path):
            try:
                database = beginning.store_of(self.name, data_dir)
            except exceptions.StoreError:
                if segments.exists(self._path):
                    continue  # another process makes the broker, and has its store
                raise
            with database:
                if segments.create(self._path, self.name, self._memory, self._mode, data_dir):
                    self._begin(functools.partial(beginning.restore, database))
                    return True
        return False

    def _begin(self, restore: Callable[[Attachment], None]) -> None:
        """Gives new memory what it needs before clients use it; removes the memory if that fails."""
        with self._attached() as attached:
            try:
                attached.grow_first()
                attached.set_memory_marks(*self._marks)
                restore(attached)
            except BaseException:
                attached.set_closing()
                segments.remove(self._path, segments.identity(self._path))
                raise

    def _gives_up(self) -> bool:
        """Removes the memory of a broker whose maker was killed while it restored the broker; whether it was one."""
        with contextlib.suppress(exceptions.BrokerNotFound, exceptions.LayoutMismatch), self._attached() as attached:
            if admission.is_abandoned(attached):
                attached.set_closing()
                segments.remove(self._path, segments.identity(self._path))
                return True
        return False

    def _compare(self) -> None:
        """Checks that the broker, which exists, has the limit and the marks that were given."""
        if self._given_memory:
            with self._attached() as attached:
                found, wanted = attached.facts().memory_limit, self._memory // segments.CHUNK * segments.CHUNK
            if found != wanted:
                text = f"broker {self.name!r} exists with memory={found}, not {wanted}"
                raise amqp_error(exceptions.PreconditionFailed, text)
        if self.data_dir is not None:
            with self._attached() as attached:
                has = attached.data_dir
            if has != self.data_dir:
                text = f"broker {self.name!r} exists with data_dir={has!r}, not {self.data_dir!r}"
                raise amqp_error(exceptions.PreconditionFailed, text)
        if self._marks != (None, None):
            with self._attached() as attached:
                exists = attached.memory_marks()
            if exists != self._marks:
                marks = "memory_high_watermark={}, memory_warning={}"
                text = f"broker {self.name!r} exists with {marks.format(*exists)}, not {marks.format(*self._marks)}"
                raise amqp_error(exceptions.PreconditionFailed, text)

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
        with self._attached() as attached:
            high, warning = attached.memory_marks()
            marks = _checked_marks(
                high if memory_high_watermark is _UNCHANGED else memory_high_watermark,
                warning if memory_warning is _UNCHANGED else memory_warning,
            )
            attached.set_memory_marks(*marks)
            self._marks = marks

    def start(self) -> Self:
        """Creates the memory if it does not exist, and starts a housekeeper if none runs. Returns the broker."""
        self.create()
        with self._attached() as attached:
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
            with self._attached() as attached:
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
        until = native.deadline(_START_SECONDS)
        known = 0
        with awaiting_place(self._path):
            while not keeper.begin():
                pid = attached.facts().housekeeper_pid
                if pid not in {0, known} and not _is_automatic(attached, pid):
                    raise exceptions.BrokerError(530, f"NOT_ALLOWED - broker {self.name!r} is being served already")
                known = pid
                if time.monotonic_ns() > until:
                    raise _still_there(attached, pid)
                attached.set_stopped(stopped=False)  # wakes the housekeeper: it looks whether a process waits
                time.sleep(_LOOK_SECONDS)

    def stop(self, purge: bool = False) -> None:  # noqa: FBT001, FBT002 - as the contract has it
        """Ends the broker's housekeeper; with ``purge`` also disconnects the clients and removes the memory.

        Without ``purge``, the housekeeper has given back the memory that it used when the call returns. It stays if
        another process starts the broker before it has ended.

        Raises:
            AccessRefused: the broker belongs to another user: only that user and root can purge it.
            Timeout: the housekeeper does not end. With ``purge`` the memory is removed nevertheless. Or the store
                cannot be written now: then nothing is stopped, and the memory stays.
        """
        what = segments.identity(self._path)
        if what is None:
            self._reap_child()
            return
        if purge and os.geteuid() not in {0, segments.uid_of(self._path)}:
            text = f"only user {segments.uid_of(self._path)} can purge broker {self.name!r}"
            raise amqp_error(exceptions.AccessRefused, text)
        try:
            with self._attached() as attached:
                if attached.data_dir is not None and not attached.is_restoring():
                    admission.sync(attached, native.deadline(_START_SECONDS))
                keepers = [] if purge else _keepers(attached)
                attached.set_stopped(stopped=True)
                _await_storekeeper_end(attached)
                if purge:
                    attached.set_closing()
                    segments.remove(self._path, what)
                _await_end(attached, keepers)
                self._reap_child(attached)
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
        until = native.deadline(_START_SECONDS)
        while child.poll() is None:
            if attached is not None and _is_started_again(attached.facts()):
                return
            if time.monotonic_ns() > until:
                child.kill()
                child.wait()
            time.sleep(_LOOK_SECONDS)

    def connect(self, **options: Any) -> Connection:  # noqa: ANN401
        """Opens a connection to this broker as :func:`connect` with ``create=False``; takes all its other options."""
        return connect(self.name, create=False, **options)

    @contextlib.contextmanager
    def _attached(self) -> Iterator[Attachment]:
        found = attachment.acquire(self._path)
        try:
            yield found
        finally:
            attachment.release(found)

    def statistics(self) -> BrokerStatistics:
        """Returns a snapshot of the statistics of the broker.

        Raises:
            BrokerNotFound: the broker does not exist.
        """
        with self._attached() as attached:
            return attached.statistics()

    def connections(self) -> list[ConnectionInfo]:
        """Lists the connections of the broker as :meth:`Connection.connections` does, without opening one.

        Raises:
            BrokerNotFound: the broker does not exist.
        """
        with self._attached() as attached:
            return attached.connections()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Broker {self.name!r}, {'exists' if segments.exists(self._path) else 'no memory'}>"


def connect(
    name: str = "default",
    *,
    create: bool = True,
    executor: concurrent.futures.Executor | None = None,
    channel_max: int = 65535,
    client_name: str | None = None,
    timeout: float | None = None,
    operation_timeout: float | None = 10.0,
    on_callback_error: Any = None,  # noqa: ANN401
) -> Connection:
    """Opens a connection to a broker of this machine.

    Args:
        name: the name of the broker.
        create: create the broker with defaults if it does not exist, and start a detached housekeeper if none runs.
        executor: runs the callbacks of channels; ``None`` = a pool of the connection.
        channel_max: the most channels that the connection may have open.
        client_name: the name that ``shmbroker connections`` shows.
        timeout: seconds to wait for another process to create the broker, with ``create=False`` or if the broker
            belongs to another user; ``None`` = not at all. In addition, the call waits up to 30 seconds for the end of
            a purge; 0 = wait for neither.
        operation_timeout: seconds that a topology change may wait for the topology lock; ``None`` = for ever.
        on_callback_error: called with an exception that a callback raised, or that kept callbacks from running;
            ``None`` = the exception is logged.

    Raises:
        BrokerNotFound: there was no such broker in time, and ``create`` is off or the broker belongs to another user.
        LayoutMismatch: another version created the broker.
        NotAllowed: the broker has the maximum number of connections or processes.
        Timeout: a broker of that name is being purged, and its purge does not finish.
        ValueError: the value of an option is not allowed.
    """
    name = check_name(name)
    check_options(
        executor=executor, channel_max=channel_max, client_name=client_name, operation_timeout=operation_timeout,
        on_callback_error=on_callback_error,
    )  # fmt: skip
    path = segments.path_of(name)
    until = 0 if timeout is None else native.deadline(timeout)
    purge_seconds = patience_with_purge(timeout)
    purged_until = native.deadline(purge_seconds)
    while True:
        try:
            if create and not segments.exists(path):
                Broker(name).create()
            session = Session(
                path,
                name=client_name or f"{os.path.basename(sys.argv[0]) or 'python'}:{os.getpid()}",  # noqa: PTH119
                executor=executor,
                channel_max=channel_max,
                operation_timeout=operation_timeout,
                on_callback_error=on_callback_error,
                on_housekeeper_missing=lambda: ensure_housekeeper(name),
            )
        except exceptions.BrokerNotFound:
            if time.monotonic_ns() >= until and not (create and segments.uid_of(path) == os.getuid()):
                raise
        except exceptions.NotAllowed:  # a limit: waiting does not help
            raise
        except exceptions.ConnectionClosedByBroker:
            if time.monotonic_ns() >= purged_until:
                raise being_purged(name, purge_seconds) from None
        else:
            if create:
                ensure_housekeeper(name)
            return Connection(_restored(session, purged_until))
        time.sleep(_LOOK_SECONDS)


def _restored(session: Session, until: int) -> Session:
    """Waits until the broker of a session admits clients; returns the session."""
    name = session.broker_full_name
    session.core.on_storekeeper_missing = functools.partial(ensure_storekeeper, name)
    if session.core.attachment.is_restoring():
        try:
            admission.await_restored(session.core.attachment, until)
        except BaseException:
            session.close()
            raise
    return session


def patience_with_purge(timeout: float | None) -> float:
    """The seconds for which :func:`connect` with this timeout waits for the end of a purge."""
    return 0.0 if timeout == 0 else _PURGE_SECONDS


def being_purged(name: str, seconds: float) -> exceptions.Timeout:
    """The error of :func:`connect` if a purge did not end within some seconds."""
    text = (
        f"broker {name!r} is being purged, and still there after {seconds:.0f} seconds: "
        f"`shmbroker stop --purge --broker {name}` finishes what a killed process began"
    )
    return exceptions.Timeout(text)


def check_options(**given: Any) -> None:  # noqa: ANN401
    """Checks options of :func:`connect`.

    Raises:
        ValueError: a value is not allowed.
    """
    for option, value in given.items():
        good, allowed = _OPTIONS[option]
        if not good(value):
            msg = f"{option}={value!r}: {allowed} is allowed"
            raise ValueError(msg)


def _folder_of(data_dir: object) -> str:
    """Checks the folder of a store; returns it as an absolute path."""
    path = os.fspath(data_dir) if isinstance(data_dir, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or "\0" in path:
        msg = f"data_dir={data_dir!r}: the path of a folder is allowed, or None"
        raise ValueError(msg)
    return os.path.realpath(path)


def _checked_marks(high_watermark: object, warning: object) -> tuple[float | None, float | None]:
    """Checks the two marks of memory; returns them as the core stores them."""
    marks: list[float | None] = []
    for name, mark in (("memory_high_watermark", high_watermark), ("memory_warning", warning)):
        if mark is not None and not (is_number(mark) and _LEAST_MARK <= mark <= 1):
            msg = f"{name}={mark!r}: a share from {_LEAST_MARK} to 1, or None, is allowed"
            raise ValueError(msg)
        marks.append(round(mark, 3) if is_number(mark) else None)
    if None not in marks and marks[1] > marks[0]:  # type: ignore[operator]
        msg = f"memory_warning={warning!r}: at most memory_high_watermark={high_watermark!r} is allowed"
        raise ValueError(msg)
    return marks[0], marks[1]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and size_in_utf8(value) is not None


_MAX_CHANNELS = 65535
_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "executor": (lambda given: given is None or callable(getattr(given, "submit", None)), "an executor, or None,"),
    "channel_max": (
        lambda given: is_integer(given) and 1 <= given <= _MAX_CHANNELS,
        f"an integer from 1 to {_MAX_CHANNELS}",
    ),
    "client_name": (lambda given: given is None or _is_text(given), "text that can be written in UTF-8, or None,"),
    "operation_timeout": (
        lambda given: given is None or (is_number(given) and given >= 0),
        "a number of seconds, 0 or more, or None",
    ),
    "on_callback_error": (lambda given: given is None or callable(given), "a callable, or None,"),
}


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
    until = native.deadline(_START_SECONDS)
    while attached.housekeeper_missing():
        if child.poll() is not None and attached.housekeeper_missing():
            text = f"the housekeeper of broker {attached.name!r} ended immediately, with status {child.returncode}"
            raise exceptions.BrokerError(541, text)
        if time.monotonic_ns() > until:
            text = f"the housekeeper of broker {attached.name!r} did not start in {_START_SECONDS} seconds"
            raise exceptions.Timeout(text)
        time.sleep(_LOOK_SECONDS)


def _keepers(attached: Attachment) -> list[ConnectionInfo]:
    """The connections that the housekeeper's program opened for its work: one, or none."""
    pid = attached.facts().housekeeper_pid
    return [info for info in attached.connections() if info.pid == pid and info.name in segments.HOUSEKEEPERS]


def _await_end(attached: Attachment, keepers: list[ConnectionInfo]) -> None:
    """Waits until the housekeeper has ended, or until another call starts the broker again.

    Args:
        keepers: its connections, which it closes after it gave up its place. A connection whose process was killed
            meanwhile stays until a client reaps it: the call does not wait for that.
    """
    until = native.deadline(_START_SECONDS)
    while not attached.housekeeper_missing() or _are_open(attached, keepers):
        facts = attached.facts()
        if _is_started_again(facts):
            return
        if time.monotonic_ns() > until:
            raise _still_there(attached, facts.housekeeper_pid or keepers[0].pid)
        time.sleep(_LOOK_SECONDS)


def _await_storekeeper_end(attached: Attachment) -> None:
    """Waits until the storekeeper has taken its last turn and ended, or until another call starts the broker again."""
    until = native.deadline(_START_SECONDS)
    folder = attached.data_dir
    if folder is None:
        return
    await_children(attached.name, _CHILD_SECONDS)
    while (attached.storekeeper_serves() or is_in_use(folder)) and not _is_started_again(attached.facts()):
        if time.monotonic_ns() > until:
            text = f"the storekeeper of broker {attached.name!r} was told to end, and has not ended within 30 seconds"
            raise exceptions.Timeout(text)
        time.sleep(_LOOK_SECONDS)


def _are_open(attached: Attachment, keepers: list[ConnectionInfo]) -> bool:
    """Whether one of these connections is still open, and its process still runs."""
    listed = {(info.id, info.pid, info.created_at) for info in attached.connections()} if keepers else set()
    return any((info.id, info.pid, info.created_at) in listed and _runs(info.pid) for info in keepers)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


def _is_started_again(facts: BrokerFacts) -> bool:
    """Whether another call has started the broker since it was stopped. A purged broker cannot be started again."""
    return not facts.stopped and not facts.closing


def _still_there(attached: Attachment, pid: int) -> exceptions.Timeout:
    text = (
        f"the housekeeper of broker {attached.name!r}, process {pid}, was told to end, "
        f"and has not ended within {_START_SECONDS:.0f} seconds: that process may be stopped"
    )
    return exceptions.Timeout(text)


def _is_automatic(attached: Attachment, pid: int) -> bool:
    """Whether a client started the housekeeper ``pid`` automatically. Also true if it has ended in the meantime."""
    listed = {(info.pid, info.name) for info in attached.connections()}
    return (pid, segments.AUTOMATIC) in listed or attached.facts().housekeeper_pid != pid
