# SPDX-License-Identifier: Apache-2.0
"""Makes a process end with the process that started it, even if that one is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading


def end_with_parent() -> None:
    """Kill this process, and its group, at the end of file of its standard input: then its parent has ended."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)
