# SPDX-License-Identifier: Apache-2.0
"""Makes a process end with the process that started it, even if that one is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading


def end_with_parent() -> None:
    """Start a thread that kills this process and its group when the parent ends.

    The parent holds the other end of standard input, so the thread then reads end of file.
    """
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)
