# SPDX-License-Identifier: Apache-2.0
"""Starts the storekeeper of a broker that has none."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
import time

from shmbroker import exceptions
from shmbroker._core import attachment, segments
from shmbroker._housekeeper import launch

_PROGRAM = ("shmbroker._storekeeper", "process")
_AGAIN_SECONDS = 0.5  # after this time, a process that still finds no storekeeper starts another one ...
_LONGEST_SECONDS = 5.0  # ... and after up to so long, if the last ones could not begin
_CANNOT_BEGIN = 1  # the status of such a storekeeper, which says why
_log = logging.getLogger("shmbroker")
_started: dict[str, float] = {}
_children: dict[str, list[subprocess.Popen[bytes]]] = {}
_failures: dict[str, int] = {}  # how many storekeepers in a row could not begin, by the name of the broker
_told: dict[str, set[bytes]] = {}  # what these have said
ONCE = "--once"
"""Tells a storekeeper to take one turn, and to end."""


def ensure_storekeeper(name: str, *, once: bool = False) -> None:
    """Starts a storekeeper if the broker has a store, and no storekeeper. Returns immediately.

    For a broker that was stopped it does nothing, unless ``once``: then the storekeeper takes one turn, and ends.

    Several processes may start one at the same time: one of them gets the place, the others end. If none can be
    started, the call only logs that.
    """
    with contextlib.suppress(exceptions.BrokerNotFound), attachment.attached_to(segments.path_of(name)) as found:
        facts = found.facts()
        missing = found.storekeeper_missing() and not found.is_restoring()
        if missing and (once or not facts.stopped) and not facts.closing and _is_time(name):
            _start(name, ONCE if facts.stopped else None)


def _is_time(name: str) -> bool:
    now = time.monotonic()
    pause = min(_AGAIN_SECONDS * 2 ** min(_failures.get(name, 0), 10), _LONGEST_SECONDS)
    if now - _started.get(name, -pause) < pause:
        return False
    _started[name] = now
    return True


def _start(name: str, option: str | None = None) -> None:
    try:
        start(name, option)
    except exceptions.BrokerError as error:
        _log.warning("%s. Publishers to its durable queues wait", error.text)


def start(name: str, option: str | None = None, inherits: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Starts a storekeeper, and logs what it says. It outlives this process.

    Args:
        name: the broker.
        option: an option of the storekeeper; ``None``: no option.
        inherits: the descriptors that the process inherits.

    Raises:
        BrokerError: it cannot be started.
    """
    try:
        line = launch.command(name, automatic=True, program=_PROGRAM)
        line += [] if option is None else [option]
        child = subprocess.Popen(  # noqa: S603 - our own module
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={**os.environ, launch.MARK: name},
            pass_fds=inherits,
        )
    except (launch.CannotStartError, OSError) as error:
        text = f"no storekeeper can be started for broker {name!r}: {error}"
        raise exceptions.BrokerError(541, text) from error
    _children.setdefault(name, []).append(child)
    # The thread logs what the storekeeper says, and waits for its end: it would stay a zombie of this process.
    threading.Thread(target=_follow, args=(name, child), name="shmbroker-reap-storekeeper", daemon=True).start()
    return child


def _follow(name: str, child: subprocess.Popen[bytes]) -> None:
    lines = set[bytes]()
    if child.stderr is not None:
        with child.stderr as said:
            for line in said:
                if line not in _told.get(name, ()):  # one that was started before has said it
                    _log.warning("the storekeeper of broker %r says: %s", name, line.decode(errors="replace").rstrip())
                lines.add(line)
    if child.wait() == _CANNOT_BEGIN and lines:
        _failures[name] = _failures.get(name, 0) + 1
        _told[name] = _told.get(name, set()) | lines
    else:
        _failures.pop(name, None)
        _told.pop(name, None)


def await_children(name: str, seconds: float) -> None:
    """Waits until the storekeepers that this process has started have ended, of a broker that was stopped."""
    until = time.monotonic() + seconds
    for child in _children.pop(name, []):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
