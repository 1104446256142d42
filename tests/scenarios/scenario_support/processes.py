# SPDX-License-Identifier: Apache-2.0
"""Other processes: real clients of a broker that can be stopped and killed.

An `Actor` is a fresh Python process with a connection of its own. It does what it is
told, one task at a time (see `actor.py` for the tasks), and reports over a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scenario_support.waiting import WATCHDOG_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

ACTOR = Path(__file__).with_name("actor.py")


class ActorError(AssertionError):
    """An actor failed at its task, died without being asked to, or never answered."""


class Actor:
    """A client process under the test's control."""

    def __init__(self, broker: str) -> None:
        """Start the process and wait until it is connected to `broker`."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(ACTOR), broker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""
        assert self.result() == "connected"

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def begin(self, task: str, **options: object) -> None:
        """Set the actor to work at a task."""
        assert self._process.stdin is not None
        line = json.dumps({"task": task, "options": options}) + "\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def item(self) -> Any:  # noqa: ANN401 (what the task reports)
        """Wait for the next report of a task that makes several."""
        return self._answer("item")

    def result(self) -> Any:  # noqa: ANN401 (what the task returns)
        """Wait for the end of the task, and return its result."""
        return self._answer("result")

    def do(self, task: str, **options: object) -> Any:  # noqa: ANN401 (as above)
        """Have a task done and return its result."""
        self.begin(task, **options)
        return self.result()

    def stop(self) -> None:
        """Stop every thread of the process, as SIGSTOP does, and wait until so."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: set(self._thread_states()) == {"T"}, "the process stopped")

    def resume(self) -> None:
        """Let a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process as SIGKILL does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process: by the end of its input, else by force."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.poll() is None:
            self.resume()
        try:
            self._process.wait(WATCHDOG_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def __enter__(self) -> Self:
        """Return the actor."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process; at once if the test has failed."""
        if error is not None:
            self._process.kill()
        self.close()

    def _thread_states(self) -> list[str]:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        texts = [(thread / "stat").read_text() for thread in threads]
        return [stat.rpartition(")")[2].split()[0] for stat in texts]

    def _answer(self, kind: str) -> Any:  # noqa: ANN401 (as above)
        answer = json.loads(self._line())
        if "error" in answer:
            raise ActorError(answer["error"])
        if kind not in answer:
            message = f"expected the {kind}, got {answer}"
            raise ActorError(message)
        return answer[kind]

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + WATCHDOG_SECONDS
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                message = f"no answer within {WATCHDOG_SECONDS:.0f} s"
                raise ActorError(message)
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                message = f"the process ended, status {self._process.wait()}"
                raise ActorError(message)
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line


@contextlib.contextmanager
def actors(broker: str, count: int) -> Iterator[list[Actor]]:
    """Run several actors."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Actor(broker)) for _ in range(count)]


OUTCOME_OF_A_USE = """
    from shmbroker.exceptions import ForkedConnectionError

    def outcome(use):
        try:
            use()
        except ForkedConnectionError as error:
            return "forked"
        except BaseException as error:
            return repr(error)
        return "no error"
"""
"""The beginning of a program for :func:`run_python`: ``outcome(use)`` calls a function and says how that ended."""


def run_python(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh Python process to its end and return what it printed.

    A program that never ends is killed by the watchdog, which fails the test.
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
