# SPDX-License-Identifier: Apache-2.0
"""A pytest that is warm: it has collected its tests, and forks for each run.

A test of some milliseconds would wait a second or two for a pytest of its own. This module is both ends: `Warm` starts
a pytest with a plugin that calls `serve`, and asks it; the plugin answers instead of running what was collected, and
puts faults in force in its own way. Each run has a namespace of its own: when it ends, the kernel ends all that it has
started.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from _pytest.runner import runtestprotocol

from tests.mutations.apart import NEW_MOUNTS, Run, clear, die_with_parent

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pytest

SOCKET = "SHMBROKER_MUTATION_SOCKET"
NEW_PROCESSES = 0x20000000  # CLONE_NEWPID of unshare(2)
PASSED, FAILED, BROKEN = 0, 1, 2  # how a run ends


class Warm:
    """A pytest that has collected the tests of these files and runs them when it is asked.

    Args:
        plugin: The module that calls `serve`.
        files: Of tests, below the root.
        root: The checkout.
        folder: Where it may write.
        environment: What it has in its environment besides what this process has.

    Attributes:
        tests: The tests that it has collected, by their ids.
        told: What the plugin said of itself.
    """

    def __init__(
        self, plugin: str, files: Sequence[str], root: Path, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._seen = folder / f"seen-{os.getpid()}"
        ours, theirs = socket.socketpair()
        added = {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"), SOCKET: str(theirs.fileno())}
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", plugin]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *files],
                cwd=root,
                env={**os.environ, **added, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- this process has one thread
            )
        self._file = ours.makefile("rw", encoding="utf-8")
        ours.close()
        first = self._file.readline()
        if not first:
            message = f"pytest ended with exit code {self._process.wait()} before it had collected its tests"
            raise RuntimeError(message)
        self.tests: list[str]
        self.tests, self.told = json.loads(first)

    def run(self, tests: Sequence[str], mutants: Sequence[int], limit: float) -> tuple[Run, str]:
        """Runs these tests in one process, with these faults in force, until one fails; says which was the last, too.

        Args:
            tests: By their ids.
            mutants: The numbers of the faults, as the plugin has them.
            limit: Seconds until it counts as hung, from the beginning of a test; it may have twice as many.
        """
        answer = self._ask(tests, mutants, limit)
        run = Run(answer["code"] == PASSED, answer["code"] is None, answer["seconds"], answer["code"] or 0)
        return run, answer["notes"][-1][0] if answer["notes"] else tests[0]

    def survey(self, tests: Sequence[str], count: int, limit: float) -> dict[str, tuple[float, bytes]]:
        """What each of these tests comes to without a fault, and how long it takes; without those that do not pass.

        Args:
            tests: By their ids.
            count: How many faults there are.
            limit: Seconds for all of them.
        """
        self._seen.write_bytes(bytes(count + 1))
        self._seen.chmod(0o666)  # a test may run processes of another user
        answer = self._ask(tests, [], limit, str(self._seen))
        return {name: (seconds, bytes.fromhex(reached)) for name, seconds, reached in answer["notes"]}

    def _ask(self, tests: Sequence[str], mutants: Sequence[int], limit: float, seen: str = "") -> dict[str, Any]:
        request = {"tests": list(tests), "mutants": list(mutants), "limit": limit, "seen": seen}
        self._file.write(json.dumps(request) + "\n")
        self._file.flush()
        answer: dict[str, Any] = json.loads(self._file.readline())
        clear()
        return answer

    def close(self) -> None:
        """Ends it."""
        self._file.close()
        self._process.wait()
        self._seen.unlink(missing_ok=True)


# ---- the other end ----


def serve(
    session: pytest.Session, choose: Callable[[Sequence[int], str], mmap.mmap | None], told: object = None
) -> None:
    """Answers requests until the other end is closed, in the place of running what was collected.

    Args:
        session: Of pytest.
        choose: Puts faults in force, in the process that is forked for a run; returns the file of marks, if any.
        told: What the other end is told first.

    Raises:
        Interrupted: Something could not be collected.
    """
    if session.testsfailed:
        message = "some tests cannot be collected"
        raise session.Interrupted(message)
    items = {item.nodeid: item for item in session.items}
    connection = socket.socket(fileno=int(os.environ.pop(SOCKET)))
    with connection, connection.makefile("rw", encoding="utf-8") as file:
        file.write(json.dumps([list(items), told]) + "\n")
        file.flush()
        server = _Server(items, choose)
        for line in file:
            file.write(json.dumps(server.answer(**json.loads(line))) + "\n")
            file.flush()


class _Server:
    """Answers requests.

    Args:
        items: What was collected, by id.
        choose: See `serve`.
    """

    def __init__(
        self, items: Mapping[str, pytest.Item], choose: Callable[[Sequence[int], str], mmap.mmap | None]
    ) -> None:
        self.items, self.choose = items, choose

    def answer(self, tests: list[str], mutants: list[int], limit: float, seen: str) -> dict[str, Any]:
        """Runs these tests in a process of their own; says how it ended, and what it noted."""
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as notes:
            child = os.fork()
            if child == 0:
                _begin_alone()
                os._exit(_status(self._fork_run(tests, mutants, seen, notes)))
            code = _wait(child, limit, notes.fileno())
            notes.seek(0)
            return {
                "code": code,
                "seconds": time.monotonic() - begin,
                "notes": [json.loads(line) for line in notes if line.endswith("\n")],
            }

    def _fork_run(self, tests: list[str], mutants: list[int], seen: str, notes: Any) -> int:  # noqa: ANN401 (a file)
        """Becomes the second process of the namespace, whose parent, the first, adopts what tests leave behind."""
        first = os.fork()
        if first == 0:
            die_with_parent()
            subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)  # noqa: S607
            child = os.fork()
            if child == 0:
                os._exit(self._perform(tests, mutants, seen, notes))
            ended, status = os.wait()
            while ended != child:
                ended, status = os.wait()
            os._exit(_status(status))
        return os.waitpid(first, 0)[1]

    def _perform(self, tests: list[str], mutants: list[int], seen: str, notes: Any) -> int:  # noqa: ANN401 (a file)
        try:
            marks = self.choose(mutants, seen)
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                item, begin = self.items[test], time.monotonic()
                if marks is None:
                    print(json.dumps([test]), file=notes, flush=True)
                reports = runtestprotocol(item, log=False, nextitem=self.items.get(following or ""))
                good = all(report.outcome == "passed" for report in reports)
                if marks is None and any(report.failed for report in reports):
                    return FAILED
                if marks is not None:
                    if good:
                        notes.write(json.dumps([test, time.monotonic() - begin, marks[:].hex()]) + "\n")
                    marks[:] = bytes(len(marks))
            notes.flush()
        except BaseException:  # noqa: BLE001 -- whatever a fault brings about
            return BROKEN
        return PASSED


def _begin_alone() -> None:
    """Has the processes that this one starts be in a namespace of their own."""
    os.setsid()
    die_with_parent()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_PROCESSES | NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _wait(child: int, limit: float, notes: int) -> int | None:
    """How the child ended; None, if it noted nothing for that many seconds and was killed.

    Args:
        child: Its process number.
        limit: Seconds; a child that notes something has as many from the next look on.
        notes: The descriptor of what it notes: a line when it begins a test.
    """
    descriptor, size = os.pidfd_open(child), -1
    try:
        while not (ended := select.select([descriptor], [], [], limit)[0]) and os.fstat(notes).st_size != size:
            size = os.fstat(notes).st_size
    finally:
        os.close(descriptor)
    if not ended:
        apart = os.getpgid(child) == child  # else it has started nothing yet
        (os.killpg if apart else os.kill)(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return _status(status) if ended else None


def _status(status: int) -> int:
    return status >> 8 if status & 0x7F == 0 else BROKEN
