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
_AGAIN_SECONDS = 0.5  # after this time, a process that still finds no storekeeper starts another one
_log = logging.getLogger("shmbroker")
_started: dict[str, float] = {}


def ensure_storekeeper(name: str) -> None:
    """Starts a storekeeper if the broker has a store, and no storekeeper. Returns immediately.

    Several processes may start one at the same time: one of them gets the place, the others end. If none can be
    started, the call only logs that.
    """
    with contextlib.suppress(exceptions.BrokerNotFound):
        found = attachment.acquire(segments.path_of(name))
        try:
            facts = found.facts()
            missing = found.storekeeper_missing() and not found.is_restoring()
            if missing and not facts.stopped and not facts.closing and _is_time(name):
                _start(name)
        finally:
            attachment.release(found)


def _is_time(name: str) -> bool:
    now = time.monotonic()
    if now - _started.get(name, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
        return False
    _started[name] = now
    return True


def _start(name: str) -> None:
    try:
        line = launch.command(name, automatic=True, program=_PROGRAM)
        child = subprocess.Popen(  # noqa: S603 - our own module
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={**os.environ, launch.MARK: name},
        )
    except (launch.CannotStartError, OSError) as error:
        text = "no storekeeper can be started for broker %r: %s. Publishers to its durable queues wait"
        _log.warning(text, name, error)
        return
    # The thread logs what the storekeeper says, and waits for its end: it would stay a zombie of this process.
    threading.Thread(target=_follow, args=(name, child), name="shmbroker-reap-storekeeper", daemon=True).start()


def _follow(name: str, child: subprocess.Popen[bytes]) -> None:
    if child.stderr is not None:
        with child.stderr as said:
            for line in said:
                _log.warning("the storekeeper of broker %r says: %s", name, line.decode(errors="replace").rstrip())
    child.wait()
