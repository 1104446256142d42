# SPDX-License-Identifier: Apache-2.0
"""Kills every process of a broker, and removes its memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)
LOOK = 0.005  # seconds
KINDS = {
    "from shmbroker._housekeeper": "housekeeper",
    "from shmbroker._storekeeper": "storekeeper",
    "producer-": "producer",
    "consumer-": "consumer",
}
"""What a process is, by a part of its command line; the first that fits."""
OTHER = "other"


def kill_all(broker: str) -> Counter[str]:
    """Kill the processes of a broker with SIGKILL, until there is none.

    A client that misses the housekeeper or the storekeeper starts another one. So the processes are looked for again
    until none is found: then none is left that could start one.

    Args:
        broker: The name of the broker, which no other process on the machine has among its arguments.

    Returns:
        How many processes of each kind were killed.
    """
    killed: dict[int, str] = {}
    while found := _processes_of(broker):
        for pid, kind in found.items():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.setdefault(pid, kind)
        time.sleep(LOOK)
    return Counter(killed.values())


def _processes_of(broker: str) -> dict[int, str]:
    """Return the kinds of all other processes that have the memory of a broker, or its name as an argument."""
    memory = str(SHARED_MEMORY / _prefix(broker))
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if broker in command.split("\0") or memory in (folder / "maps").read_text("utf-8", "replace"):
                kinds = (kind for word, kind in KINDS.items() if word in command)
                found[int(folder.name)] = next(kinds, OTHER)
    found.pop(os.getpid(), None)
    return found


def remove_memory(broker: str) -> None:
    """Remove the memory of a broker that has no process, as a reboot would.

    Args:
        broker: The name of the broker.
    """
    for path in SHARED_MEMORY.glob(f"{_prefix(broker)}*"):
        path.unlink()


def _prefix(broker: str) -> str:
    return f"shmbroker-{os.getuid()}.{broker}."
