# SPDX-License-Identifier: Apache-2.0
"""The processes of a run. Each leads a session of its own, by which the processes that it starts can be found."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import psutil

from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOOK = 0.01  # seconds between two checks of a process or of a queue
_ERROR = re.compile(r"^(?:\w+\.)*(?:\w+\.[A-Z]\w*|\w*Error): .+", re.MULTILINE)  # the last line of a traceback
_OURS = "shmbroker."


class Process:
    """A module that runs as a program. Its output goes to a file.

    At the end of a `with` block it is killed, if it still runs, with all other processes of its session.

    Args:
        module: The module to run.
        *arguments: Its arguments.
        folder: Its working directory, also for its temporary files.
    """

    def __init__(self, module: str, *arguments: str, folder: Path) -> None:
        self._module, self._log = module, folder / f"{module}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (Python, and a module of ours)
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,  # never written to: the new process reads end of file when this one ends
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def runs(self) -> bool:
        """Return whether the process still runs.

        Raises:
            Refused: If the process failed; the text has its last error.
        """
        status = self._process.poll()
        if status:
            how = f"ended with exit code {status}"
            raise self.failed(how)
        return status is None

    def failed(self, how: str) -> Refused:
        """Return an error whose text quotes what the process printed.

        That is the last error of shmbroker; if there is none, the last other error; if there is none, the last line.

        Args:
            how: What happened to the process, such as "ended with exit code 1".
        """
        said = self._log.read_text("utf-8", "backslashreplace")
        errors = _ERROR.findall(said)
        chosen = [error for error in errors if error.startswith(_OURS)] or errors or said.splitlines()
        message = f"the {self._module.rpartition('.')[2]} {how}: {chosen[-1] if chosen else 'it printed nothing'}"
        return Refused(message)

    def kill(self) -> None:
        """Kill the process and its group with SIGKILL. The group of a driver is its Python process and the JVM.

        Spark's Python workers have groups of their own. They end by themselves when the JVM is gone.
        """
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def left(self) -> list[int]:
        """Return the ids of all processes that are still alive in the session of this process."""
        return [pid for pid in psutil.pids() if _is_alive_in(pid, self._process.pid)]

    def close(self) -> None:
        """Kill all processes of the session, and wait until none is left."""
        while pids := self.left():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK)
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_alive_in(pid: int, session: int) -> bool:
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        return os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
