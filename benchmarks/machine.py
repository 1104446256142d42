# SPDX-License-Identifier: Apache-2.0
"""What a result depends on and must therefore say: the machine and the versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF
from typing import Any

PACKAGES = (
    "shmbroker",
    "cffi",
    "faster-fifo",
    "pyzmq",
    "posix_ipc",
    "iceoryx2",
    "redis",
)
HIGH_LOAD_PER_CORE = 0.25


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def load() -> float:
    """Return the load of the last minute."""
    return os.getloadavg()[0]


def _busy_seconds() -> float:
    """Return the processor time used or stolen on all cores since the start."""
    fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    usages = [resource.getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Disturbance:
    """Watches how much processor time others use; to be started before a run."""

    def __init__(self) -> None:
        """Start to watch."""
        self._busy, self._own = _busy_seconds(), _own_seconds()
        self._start = time.monotonic()

    def foreign_cores(self) -> float:
        """Return the number of cores that others used, on average, since the start.

        What is still running counts as other: ask when the workers have ended.
        """
        elapsed = max(time.monotonic() - self._start, 1e-3)
        foreign = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return max(0.0, foreign / elapsed)


def _first_value(path: str, key: str) -> str:
    """Return the value of a `key : value` line of a file, or an empty string."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def versions() -> dict[str, str]:
    """Return the versions of all packages that may take part; empty if missing."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    found["redis-server"] = _redis_server_version()
    return found


def _redis_server_version() -> str:
    program = shutil.which("redis-server")
    if program is None:
        return ""
    answer = subprocess.run(  # noqa: S603 (found on the path, fixed argument)
        [program, "--version"], capture_output=True, text=True, check=False, timeout=10
    )
    words = answer.stdout.split()
    return next((word[2:] for word in words if word.startswith("v=")), "")


def describe() -> dict[str, Any]:
    """Return what the machine is, without naming it."""
    return {
        "processor": _first_value("/proc/cpuinfo", "model name"),
        "cores": cores(),
        "memory": _first_value("/proc/meminfo", "MemTotal"),
        "virtual": "hypervisor" in _first_value("/proc/cpuinfo", "flags").split(),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": load(),
    }


def warnings(processes: int) -> list[str]:
    """Return what makes a result doubtful on this machine, now.

    Args:
        processes: The largest number of busy processes in one run.
    """
    found = []
    if cores() < processes:
        found.append(
            f"{processes} busy processes share {cores()} cores: they take turns, and the scheduler is measured as well"
        )
    if load() > HIGH_LOAD_PER_CORE * cores():
        found.append(f"the load is {load():.2f} on {cores()} cores: something else runs")
    return found
