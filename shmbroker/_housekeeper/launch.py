# SPDX-License-Identifier: Apache-2.0
"""Starts housekeepers: chooses the interpreter, and passes the module search path on."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time

from shmbroker import exceptions
from shmbroker._core import attachment, segments
from shmbroker._core.housekeeper import starting

STARTING = "--starting="
"""Tells a housekeeper which descriptor it inherits: the one that holds the lock of `_core.housekeeper.starting`."""
MARK = "SHMBROKER_HOUSEKEEPER_OF"
"""The environment variable that marks a housekeeper's process. A program that finds it set starts no housekeeper."""
_PYTHON = re.compile(r"(python|pypy|graalpy)[\d.]*\w?(-\w+)*", re.IGNORECASE)
_RUN = "import sys\nsys.path[:] = {path}\nfrom {package} import {program}\nsys.exit({program}.main(sys.argv[1:]))"
_PROGRAM = ("shmbroker._housekeeper", "housekeeper")
_ORDERED = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL, 0, 1}  # expected ends; for 1, see `housekeeper.main`
# If a housekeeper that another process is starting does not serve after this time, this process starts another one:
# that process or its housekeeper may be stopped, or be starved.
_PATIENCE_SECONDS = 5.0
_log = logging.getLogger("shmbroker")
_told: set[tuple[str, str]] = set()
_starting_since: dict[str, float] = {}  # brokers whose housekeeper another process was starting when this one looked


class CannotStartError(Exception):
    """Raised when no housekeeper can be started; the error's text gives the reason."""


def interpreter() -> str:
    """Returns the path of the Python interpreter that runs this process, or of one of the same installation.

    Raises:
        CannotStartError: this is a frozen program, or one that embeds Python and brings no interpreter.
    """
    if getattr(sys, "frozen", False) or hasattr(sys.modules.get("__main__"), "__compiled__"):
        msg = "this program is frozen, so it has no Python interpreter beside it"
        raise CannotStartError(msg)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    beside = [f"{prefix}/bin/{name}" for prefix in (sys.exec_prefix, sys.base_exec_prefix)]
    for path in [sys.executable or "", *beside, os.path.realpath("/proc/self/exe")]:
        # No pathlib: it is slow to import.
        if _PYTHON.fullmatch(os.path.basename(path)) and os.access(path, os.X_OK):  # noqa: PTH119
            return path
    msg = f"no Python interpreter was found, sys.executable is {sys.executable!r}"
    raise CannotStartError(msg)


def _path() -> list[str]:
    """Returns the module search path with absolute entries, and with the script's own folder last.

    So a file beside the script cannot hide a module of the standard library that the housekeeper imports.
    """
    path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - an entry may be no path at all
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None and path and path[0] == os.path.dirname(os.path.abspath(script)):  # noqa: PTH100, PTH120
        path.append(path.pop(0))
    return path


def command(name: str, *, automatic: bool, program: tuple[str, str] = _PROGRAM) -> list[str]:
    """Builds the command line of a housekeeper, or of another program of a broker.

    Args:
        name: the broker.
        automatic: whether a client starts the program, not a user.
        program: its package and its module, whose ``main`` gets the arguments.

    Raises:
        CannotStartError: there is no interpreter.
    """
    flags = ["-P"]
    for wanted, flag in (
        (sys.flags.isolated, "-I"),
        (sys.flags.ignore_environment, "-E"),
        (sys.flags.no_user_site, "-s"),
        (sys.flags.no_site and "site" not in sys.modules, "-S"),
        (sys.dont_write_bytecode, "-B"),
    ):
        flags += [flag] if wanted else []
    return [
        interpreter(),
        *flags,
        "-c",
        _RUN.format(path=ascii(_path()), package=program[0], program=program[1]),
        name,
        *(["--automatic"] if automatic else []),
    ]


def start_housekeeper(name: str, *, detached: bool, inherits: int | None = None) -> subprocess.Popen[bytes]:
    """Starts a housekeeper process and logs its error output. A detached one outlives this process.

    Args:
        name: the broker.
        detached: whether the process leads a session of its own, and counts as automatic, not as started by a user.
        inherits: the descriptor that `_core.housekeeper.starting` gave, for the new process; ``None``: it inherits
            none.

    Raises:
        CannotStartError: the housekeeper cannot be started; the text gives the reason.
    """
    _check_place()
    line = command(name, automatic=detached)
    kept = [] if inherits is None else [inherits]
    line += [f"{STARTING}{descriptor}" for descriptor in kept]
    try:
        child = subprocess.Popen(  # noqa: S603 - our own module
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # not ours: a reader of our stderr would get EOF only at the housekeeper's end
            start_new_session=detached,
            cwd="/",
            pass_fds=kept,
            env={**os.environ, MARK: name},
        )
    except OSError as error:
        msg = f"{line[0]}: {error.strerror}"
        raise CannotStartError(msg) from error
    # The thread `follower` logs the housekeeper's errors, and waits for its end. Otherwise the housekeeper would stay a
    # zombie of this process.
    follower = threading.Thread(target=_follow, args=(name, child), name="shmbroker-reap-housekeeper", daemon=True)
    try:
        follower.start()
    except RuntimeError as error:
        child.kill()
        child.communicate()  # reaps the process, and closes the pipe
        msg = f"this process cannot start a thread that reads its errors: {error}"
        raise CannotStartError(msg) from error
    return child


def _check_place() -> None:
    if MARK in os.environ:
        msg = f"this program was started itself in the place of a housekeeper of broker {os.environ[MARK]!r}"
        raise CannotStartError(msg)


def _follow(name: str, child: subprocess.Popen[bytes]) -> None:
    assert child.stderr is not None  # noqa: S101
    with child.stderr as said:
        for line in said:
            _log.warning("the housekeeper of broker %r says: %s", name, line.decode(errors="replace").rstrip())
    status = child.wait()
    level = logging.INFO if status in _ORDERED else logging.WARNING
    _log.log(level, "the housekeeper of broker %r, process %d, ended with status %d", name, child.pid, status)


def ensure_housekeeper(name: str) -> None:
    """Starts a detached housekeeper, unless one works or the broker is stopped or purged. Returns immediately.

    A housekeeper whose process is stopped does not work: the new one replaces it until that process continues. Of the
    processes that find no housekeeper, only one starts it. Another process starts a second one only if the first one
    does not serve within some seconds. If a housekeeper cannot be started, the call only logs that, once for each
    reason: messages flow without one.
    """
    with contextlib.suppress(exceptions.BrokerNotFound), attachment.attached_to(segments.path_of(name)) as found:
        try:
            if not _needs_one(found):
                _starting_since.pop(name, None)
            else:
                # First: a program with MARK set may itself hold the lock of `starting`. It would take its own lock for
                # that of another process that starts a housekeeper.
                _check_place()
                with starting(found.path) as descriptor:
                    if _needs_one(found) if descriptor is not None else _is_overdue(name):
                        start_housekeeper(name, detached=True, inherits=descriptor)
        except (CannotStartError, OSError) as error:
            if (name, str(error)) not in _told:
                _told.add((name, str(error)))
                text = (
                    "no housekeeper can be started for broker %r: %s. Messages flow without one, but nothing comes "
                    "back from processes that die, and nothing expires: run `shmbroker serve %s`"
                )
                _log.warning(text, name, error, name)


def _needs_one(found: attachment.Attachment) -> bool:
    if not found.housekeeper_missing() and not found.housekeeper_stopped():
        return False
    facts = found.facts()
    return not facts.stopped and not facts.closing


def _is_overdue(name: str) -> bool:
    """Whether a housekeeper that another process starts still does not serve, 5 s after this process first looked."""
    now = time.monotonic()
    waited = now - _starting_since.setdefault(name, now)
    if waited > _PATIENCE_SECONDS:
        _starting_since.pop(name, None)
    return _PATIENCE_SECONDS < waited < 2 * _PATIENCE_SECONDS  # 10 s or more: the time is that of an earlier start
