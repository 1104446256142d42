# SPDX-License-Identifier: Apache-2.0
"""Kills a test process, and whatever it has started, when its time is up.

    python watchdog.py PID

It is a process of its own, so a test that holds the GIL or blocks every signal does not escape. A line of
standard input with a number of seconds winds it up, an empty line stops it; it ends with its process or its input.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time

import psutil

STANDARD_INPUT = 0


def main(pid: int) -> int:
    """Watch over a process until it ends.

    Args:
        pid: The process; the watchdog must have been started by it.

    Returns:
        1 if the process had to be killed, else 0.
    """
    ended = os.pidfd_open(pid)
    watched = psutil.Process(pid)
    deadline = None
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([STANDARD_INPUT, ended], [], [], left)
        if not ready:
            _kill(watched)
            return 1
        orders = os.read(STANDARD_INPUT, 65536).decode() if STANDARD_INPUT in ready else ""
        if not orders:
            return 0
        seconds = orders.splitlines()[-1]
        deadline = time.monotonic() + float(seconds) if seconds else None


def _kill(watched: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        victims = [watched, *watched.children(recursive=True)]
        sys.stderr.write(f"watchdog: a test hangs; killing {[victim.pid for victim in victims]}\n")
        for victim in victims:
            if victim.pid != os.getpid():
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
