# SPDX-License-Identifier: Apache-2.0
"""Connecting to a broker by its name."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp.utf8 import size_in_utf8
from shmbroker._broker import making
from shmbroker._checks import is_integer, is_number
from shmbroker._core import native, segments
from shmbroker._housekeeper.launch import ensure_housekeeper
from shmbroker._session.session import Session
from shmbroker._storekeeper import admission
from shmbroker._storekeeper.launch import ensure_storekeeper
from shmbroker.connection import Connection

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable

_PURGE_SECONDS = 30.0
_LOOK_SECONDS = 0.002


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
    name = making.check_name(name)
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
                making.checked(name).make()
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
    admission.loads_from_its_store(session.core.attachment)
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
