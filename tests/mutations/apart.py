# SPDX-License-Identifier: Apache-2.0
"""Runs of programs with a fault: apart from the rest of the machine, ended for sure, and compared if they hang."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SHM = Path("/dev/shm")  # noqa: S108 -- each process of the pool has mounted its own
APART = "SHMBROKER_MUTATION_APART"
CONTROL_FACTOR, CONTROL_SECONDS = 8, 2.0
NEW_MOUNTS, DEATH_SIGNAL = 0x00020000, 1  # CLONE_NEWNS of unshare(2), PR_SET_PDEATHSIG of prctl(2)


@dataclass(frozen=True)
class Run:
    """How a run ended: `passed`, or it failed, or took longer than its limit."""

    passed: bool
    hung: bool
    seconds: float
    code: int = 0


def run_limited(command: Sequence[str], limit: float, *, cwd: Path, environment: Mapping[str, str]) -> Run:
    """Runs a program, and ends its process group when it has ended or the time is up.

    Args:
        command: The program and its arguments.
        limit: Seconds.
        cwd: Where it works.
        environment: All of its environment.
    """
    begin, hung = time.monotonic(), False
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_prepare,  # noqa: PLW1509 -- this process has one thread
    ) as process:
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            hung = True
        _end(process.pid)
    code = process.returncode
    return Run(code == 0 and not hung, hung, time.monotonic() - begin, code)


def found(trial: Callable[[float], Run], control: Callable[[float], Run], seconds: float) -> Run:
    """The run of a fault, in a time that a run without it would have sufficed with.

    A run that takes too long is compared with one without a fault, so that a busy machine finds nothing.

    Args:
        trial: Runs with the fault, for as many seconds.
        control: Runs without it.
        seconds: How long that took before.
    """
    limit = CONTROL_FACTOR * seconds + CONTROL_SECONDS
    run = trial(limit)
    while run.hung and control(limit).seconds > limit / 2:
        limit *= 4
        run = trial(limit)
    return run


def _prepare() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    die_with_parent()


def die_with_parent() -> None:
    """Has this process killed when its parent ends."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


def _end(group: int) -> None:
    """Ends what a run has started, stopped processes too."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def own_shm() -> None:
    """Gives this process, one of the pool, a /dev/shm of its own.

    Raises:
        OSError: The system does not allow it.
    """
    die_with_parent()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(SHM)], check=True)  # noqa: S607


def clear() -> None:
    """Removes what a run has left in that /dev/shm."""
    if os.environ.get(APART):
        for path in SHM.iterdir():
            path.unlink(missing_ok=True)


def go_apart(module: str, arguments: Sequence[str]) -> None:
    """Starts this module again where it may mount what only it sees, at the lowest priority; returns there.

    Raises:
        OSError: The system has no `unshare`.
    """
    if os.environ.get(APART):
        return
    os.environ[APART] = "1"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user, "nice", "-n", "19", sys.executable, "-m", module]
    os.execvp("unshare", [*command, *arguments])  # noqa: S606, S607


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits until no other process works in this folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
