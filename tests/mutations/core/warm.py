# SPDX-License-Identifier: Apache-2.0
"""Tests of Python on the mutated core, from a pytest that is warm: it has collected them, and forks for each run.

A test of some milliseconds would wait a second or two for a pytest of its own. This module is both ends: `Warm` starts
a pytest that loads the module as a plugin, and asks it; the plugin answers instead of running what was collected. Each
run has a namespace of its own: when it ends, the kernel ends all that it has started.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutations.apart import NEW_MOUNTS, Run, clear, die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.core.tree import Tree

SOCKET = "SHMBROKER_MUTATION_SOCKET"
NEW_PROCESSES = 0x20000000  # CLONE_NEWPID of unshare(2)
CORE = "libshmbroker_core.so"
PASSED, FAILED, BROKEN = 0, 1, 2  # how a run ends


class Warm:
    """A pytest that has collected the tests of these files and runs them when it is asked.

    Args:
        tree: Where the mutated library is.
        files: Of tests, below the root.
        root: The checkout.
    """

    def __init__(self, tree: Tree, files: Sequence[str], root: Path) -> None:
        self._seen = tree.folder / f"seen-{os.getpid()}"
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(tree.library.parent),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(tree.folder / "hypothesis"),
            SOCKET: str(theirs.fileno()),
            "SB_MUTANT": "",
        }
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", __name__]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *files],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- this process has one thread
            )
        self._file = ours.makefile("rw", encoding="utf-8")
        ours.close()
        self.tests: list[str] = json.loads(self._file.readline())

    def run(self, tests: Sequence[str], mutants: Sequence[int], limit: float) -> tuple[Run, str]:
        """Runs these tests in one process, with these faults in force, until one fails; says which was the last, too.

        Args:
            tests: By their ids.
            mutants: The numbers of the faults.
            limit: Seconds until it counts as hung.
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


# ---- the plugin ----


class Server:
    """Answers requests.

    Args:
        items: What was collected, by id.
    """

    def __init__(self, items: dict[str, pytest.Item]) -> None:
        self.items = items

    def serve(self, connection: socket.socket) -> None:
        """Answers until the other end is closed."""
        with connection, connection.makefile("rw", encoding="utf-8") as file:
            file.write(json.dumps(list(self.items)) + "\n")
            file.flush()
            for line in file:
                file.write(json.dumps(self._answer(**json.loads(line))) + "\n")
                file.flush()

    def _answer(self, tests: list[str], mutants: list[int], limit: float, seen: str) -> dict[str, Any]:
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as notes:
            child = os.fork()
            if child == 0:
                _begin_alone()
                os._exit(_status(self._fork_run(tests, mutants, seen, notes)))
            code = _wait(child, limit)
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
            marks = _choose(mutants, seen)
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


def _choose(mutants: Sequence[int], seen: str) -> mmap.mmap | None:
    """Puts these faults in force, here and in processes that tests start; returns the file of marks, if it is named."""
    core = ctypes.CDLL(CORE)
    chosen = ctypes.POINTER(ctypes.c_ubyte).in_dll(core, "sb_mutant_chosen")
    for number in mutants:
        chosen[number] = 1
    os.environ["SB_MUTANT"] = " ".join(map(str, mutants))
    if not seen:
        return None
    os.environ["SB_MUTANT_SEEN"] = seen
    with Path(seen).open("r+b") as file:
        marks = mmap.mmap(file.fileno(), 0)
    address = ctypes.addressof((ctypes.c_ubyte * len(marks)).from_buffer(marks))
    ctypes.c_void_p.in_dll(core, "sb_mutant_seen").value = address
    return marks


def _wait(child: int, limit: float) -> int | None:
    """How the child ended; None, if it took longer than that many seconds and was killed."""
    descriptor = os.pidfd_open(child)
    try:
        ended = select.select([descriptor], [], [], limit)[0]
    finally:
        os.close(descriptor)
    if not ended:
        apart = os.getpgid(child) == child  # else it has started nothing yet
        (os.killpg if apart else os.kill)(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return _status(status) if ended else None


def _status(status: int) -> int:
    return status >> 8 if status & 0x7F == 0 else BROKEN


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Serves, instead of running what was collected.

    Raises:
        Interrupted: Something could not be collected.
    """
    if session.testsfailed:
        message = "some tests cannot be collected"
        raise session.Interrupted(message)
    Server({item.nodeid: item for item in session.items}).serve(socket.socket(fileno=int(os.environ.pop(SOCKET))))
    return True
