# SPDX-License-Identifier: Apache-2.0
"""Brokers: their memory, their processes, and how a client finds them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions, settings
from shmbroker._core import attachment, library, segments
from shmbroker.connection import Connection

if TYPE_CHECKING:
    import concurrent.futures
    from types import TracebackType

    from shmbroker.statistics import BrokerStatistics

DEFAULT_MEMORY = "256M"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_START_SECONDS = 30.0
_MODES = frozenset({0o600, 0o660})


def check_name(name: object) -> str:
    """A broker's name.

    Raises:
        ValueError: it is not 1 to 64 letters, digits, ``_`` or ``-``.
    """
    if isinstance(name, str) and _NAME.match(name):
        return name
    msg = f"broker name {name!r}: 1 to 64 of A-Z, a-z, 0-9, _ and - are allowed"
    raise ValueError(msg)


def names() -> list[str]:
    """The names of this user's brokers."""
    return segments.names()


class Broker:
    """A broker by name: creates its memory, runs its housekeeper in a child process, and stops it.

    The memory stays until ``stop(purge=True)``; ``with Broker("x") as broker:`` starts it and stops its processes only.

    Args:
        name: 1 to 64 letters, digits, ``_`` and ``-``.
        memory: the limit for bodies and structures, bytes or a string such as "256M"; taken in segments as needed.
        data_dir: where durable queues will live; not used by transient ones.
        mode: permissions of the memory, 0o600 or 0o660.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        memory: int | str = DEFAULT_MEMORY,
        data_dir: str | None = None,
        mode: int = 0o600,
    ) -> None:
        self.name = check_name(name)
        self._memory = settings.parse_size(memory)
        self._given_memory = memory is not DEFAULT_MEMORY
        segments.plan(self._memory)
        if mode not in _MODES:
            msg = f"mode={mode!r}: 0o600 or 0o660 are allowed"
            raise ValueError(msg)
        self._mode = mode
        self.data_dir = data_dir
        self._path = segments.path_of(name)
        self._child: subprocess.Popen[bytes] | None = None

    # ---- life ----

    def create(self) -> Broker:
        """Makes the memory if there is none.

        Raises:
            PreconditionFailed: it exists with another limit than the one given.
            OutOfMemory: /dev/shm has no room for it.
        """
        if segments.create(self._path, self.name, self._memory, self._mode):
            with self._attached() as attached:
                try:
                    attached.grow_first()
                except exceptions.OutOfMemory:  # nobody could do anything with it
                    segments.remove(self._path)
                    raise
        elif self._given_memory:
            with self._attached() as attached:
                found, wanted = int(attached.facts().memory_limit), self._memory // segments.CHUNK * segments.CHUNK
            if found != wanted:
                text = f"PRECONDITION_FAILED - broker {self.name!r} exists with memory={found}, not {wanted}"
                raise exceptions.PreconditionFailed(406, text)
        return self

    def start(self) -> Self:
        """Makes the memory if there is none, and starts a housekeeper if none runs. Returns itself."""
        self.create()
        with self._attached() as attached:
            attached.set_stopped(stopped=False)
            if attached.housekeeper_missing():
                if self._child is not None:
                    self._child.wait()  # it was killed
                self._child = start_housekeeper(self.name, detached=False)
                _await_housekeeper(attached, self._child)
        return self

    def serve_forever(self) -> None:
        """Is the housekeeper, in this process, until SIGTERM or SIGINT, or until the broker is purged.

        Raises:
            BrokerError: another one serves already.
        """
        from shmbroker import housekeeper  # noqa: PLC0415 - the housekeeper is a client, not a part, of brokers

        self.create()
        with self._attached() as attached:
            attached.set_stopped(stopped=False)
        ended = housekeeper.EndFlag()
        previous = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            housekeeper.Housekeeper(self.name).run(ended, linger=None)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self, purge: bool = False) -> None:  # noqa: FBT001, FBT002 - as the contract has it
        """Ends the broker's processes; with ``purge`` its clients are cut off and its memory goes."""
        if not segments.exists(self._path):
            self._reap_child()
            return
        try:
            with self._attached() as attached:
                attached.set_stopped(stopped=True)
                pid = int(attached.facts().housekeeper_pid)
                if purge:
                    attached.set_closing()
                if pid and pid != os.getpid():
                    _terminate(attached, pid)
        except (exceptions.LayoutMismatch, exceptions.CorruptSegment, exceptions.BrokerNotFound):
            if not purge:
                raise
        if purge:
            segments.remove(self._path)
        self._reap_child()

    def _reap_child(self) -> None:
        if self._child is not None:
            if self._child.poll() is None:
                self._child.terminate()
            self._child.wait()
            self._child = None

    def connect(self, **options: Any) -> Connection:  # noqa: ANN401
        """Opens a connection; options as :func:`connect`."""
        return connect(self.name, create=False, **options)

    @contextlib.contextmanager
    def _attached(self) -> Any:  # noqa: ANN401
        found = attachment.acquire(self._path)
        try:
            yield found
        finally:
            attachment.release(found)

    def statistics(self) -> BrokerStatistics:
        """A snapshot.

        Raises:
            BrokerNotFound: it does not exist.
        """
        with self._attached() as attached:
            found: BrokerStatistics = attached.statistics()
            return found

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
    operation_timeout: float = 10.0,
    on_callback_error: Any = None,  # noqa: ANN401
) -> Connection:
    """Opens a connection to a broker of this machine.

    Args:
        name: the broker.
        create: make it with defaults, and start a detached housekeeper, when there is none.
        executor: where callbacks of channels will run.
        channel_max: channels the connection may have.
        client_name: shown by ``shmbroker connections``.
        timeout: seconds to wait for a broker that is being made; ``None`` = for ever.
        operation_timeout: seconds a topology change may wait for its lock.
        on_callback_error: called with the exception of a callback.

    Raises:
        BrokerNotFound: ``create`` is off and there is none.
        LayoutMismatch: it was made by another version.
    """
    check_name(name)
    library.deadline(timeout)
    path = segments.path_of(name)
    if not segments.exists(path):
        if not create:
            raise exceptions.BrokerNotFound(404, f"NOT_FOUND - no broker {name!r}")
        Broker(name).create()
    connection = Connection(
        path,
        name=client_name or f"{os.path.basename(sys.argv[0]) or 'python'}:{os.getpid()}",  # noqa: PTH119
        executor=executor,
        channel_max=channel_max,
        operation_timeout=operation_timeout,
        on_callback_error=on_callback_error,
        on_housekeeper_missing=lambda: ensure_housekeeper(name),
    )
    if create:
        ensure_housekeeper(name)
    return connection


# ---- housekeeper processes ----


def start_housekeeper(name: str, *, detached: bool) -> subprocess.Popen[bytes]:
    """Starts a housekeeper process. A detached one outlives us."""
    command = [sys.executable, "-m", "shmbroker.housekeeper", name]
    return subprocess.Popen(  # noqa: S603 - our own module
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None,
        start_new_session=detached,
        cwd="/",
    )


def ensure_housekeeper(name: str) -> None:
    """Starts a detached housekeeper if none runs and none was stopped on purpose. Returns at once."""
    with contextlib.suppress(exceptions.BrokerNotFound):
        found = attachment.acquire(segments.path_of(name))
        try:
            facts = found.facts()
            if found.housekeeper_missing() and not facts.stopped and not facts.closing:
                child = start_housekeeper(name, detached=True)
                threading.Thread(target=child.wait, name="shmbroker-reap-housekeeper", daemon=True).start()
        finally:
            attachment.release(found)


def _await_housekeeper(attached: Any, child: subprocess.Popen[bytes]) -> None:  # noqa: ANN401
    until = library.deadline(_START_SECONDS)
    while attached.housekeeper_missing():
        if child.poll() is not None and attached.housekeeper_missing():
            text = f"the housekeeper of broker {attached.name!r} ended at once, with status {child.returncode}"
            raise exceptions.BrokerError(541, text)
        if time.monotonic_ns() > until:
            text = f"the housekeeper of broker {attached.name!r} did not start in {_START_SECONDS} seconds"
            raise exceptions.Timeout(text)
        time.sleep(0.002)


def _terminate(attached: Any, pid: int) -> None:  # noqa: ANN401
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = library.deadline(_START_SECONDS)
    while not attached.housekeeper_missing() and time.monotonic_ns() < until:
        time.sleep(0.002)
