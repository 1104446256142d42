# SPDX-License-Identifier: Apache-2.0
"""Facts about the processes of a broker's connections, as the operating system reports them.

A process is identified by its pid, its start time and its pid namespace, as the broker recorded them. There are no
facts of a process that has ended, that the system does not show, or whose pid another process has now.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import psutil

    import shmbroker

PID_NAMESPACE = Path("/proc/self/ns/pid")
LONGEST_COMMAND = 60  # characters of a command line in a table
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PERCENT = 100.0


class ProcessId(NamedTuple):
    """What identifies a process.

    Attributes:
        pid: Its number, which another process may get after its end.
        start_ticks: Its start, in clock ticks since the boot; 0 if unknown.
        pid_namespace: The inode of the namespace in which it has this number; 0 if unknown.
    """

    pid: int
    start_ticks: int
    pid_namespace: int


@dataclass(frozen=True)
class ProcessFacts:
    """A process at one moment.

    Attributes:
        name: Name of its program.
        command: Its command line; empty if the system does not show it.
        started_at: Its start, in POSIX seconds.
        age: Seconds since its start.
        cpu_seconds: Processor time of all its threads since its start, user and system.
        cpu_percent: `cpu_seconds` per second of its age, in percent of one processor.
        memory: Its resident memory in bytes, with the pages of the broker's memory that it has touched.
        memory_shared: The bytes of `memory` that other processes may share: the broker's memory, and libraries.
    """

    name: str
    command: tuple[str, ...]
    started_at: float
    age: float
    cpu_seconds: float
    cpu_percent: float
    memory: int
    memory_shared: int

    @property
    def command_text(self) -> str:
        """The command line without the program's folder, shortened for a table; without a command line, the name."""
        program, *arguments = self.command or (self.name,)
        text = " ".join(" ".join([os.path.basename(program), *arguments]).split())  # noqa: PTH119 (any text)
        return text if len(text) <= LONGEST_COMMAND else text[: LONGEST_COMMAND - 1] + "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class ProcessSums:
    """Sums over several processes.

    Attributes:
        processes: Number of processes.
        known: Number of those processes that the system shows. The sums include only these.
        cpu_seconds: Processor time since the start of each.
        memory: Bytes of resident memory. A page that several of them share counts once for each.
        memory_shared: The bytes of `memory` that other processes may share.
    """

    processes: int
    known: int
    cpu_seconds: float
    memory: int
    memory_shared: int


def process_of(connection: shmbroker.ConnectionInfo) -> ProcessId:
    """Return what identifies the process of a connection.

    Args:
        connection: What the broker says of it.
    """
    return ProcessId(connection.pid, connection.start_ticks, connection.pid_namespace)


def look_at(processes: Iterable[ProcessId]) -> dict[ProcessId, ProcessFacts]:
    """Return the facts of those processes that the system shows.

    Args:
        processes: The processes; each is looked at once.
    """
    namespace = _own_pid_namespace()
    visible = {one for one in processes if one.pid_namespace == namespace and one.start_ticks}
    if not namespace or not visible:
        return {}
    import psutil  # noqa: PLC0415 (only commands that show processes wait until it is loaded)

    booted_at = psutil.boot_time()
    facts = ((one, _facts(one, booted_at)) for one in visible)
    return {one: found for one, found in facts if found is not None}


def _own_pid_namespace() -> int:
    try:
        return PID_NAMESPACE.stat().st_ino
    except OSError:  # there is no /proc: this process cannot tell in which namespace it is
        return 0


def _facts(identity: ProcessId, booted_at: float) -> ProcessFacts | None:
    import psutil  # noqa: PLC0415

    try:
        process = psutil.Process(identity.pid)
        started_at = process.create_time()
        if round((started_at - booted_at) * TICKS_PER_SECOND) != identity.start_ticks:
            return None
        with process.oneshot():
            age = max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - identity.start_ticks / TICKS_PER_SECOND)
            times, memory = process.cpu_times(), process.memory_info()
            seconds = times.user + times.system
            found = ProcessFacts(
                name=process.name(),
                command=_command(process),
                started_at=started_at,
                age=age,
                cpu_seconds=seconds,
                cpu_percent=PERCENT * seconds / age if age > 0 else 0.0,
                memory=memory.rss,
                memory_shared=memory.shared,
            )
            ended = process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        # If another process has got the pid meanwhile, is_running() is false: it compares start times.
        return None if ended or not process.is_running() else found
    except psutil.Error:  # it has ended, or the system does not show it
        return None


def _command(process: psutil.Process) -> tuple[str, ...]:
    import psutil  # noqa: PLC0415

    try:
        return tuple(process.cmdline())
    except psutil.AccessDenied:
        return ()


def cpu_percent(before: ProcessFacts | None, now: ProcessFacts) -> float | None:
    """Return the processor time that a process used between two looks, in percent of one processor; None: not known.

    Args:
        before: The earlier facts of the process.
        now: The later ones.
    """
    if before is None or now.age <= before.age:
        return None
    return PERCENT * max(0.0, now.cpu_seconds - before.cpu_seconds) / (now.age - before.age)


def sums(processes: Collection[ProcessId], facts: Mapping[ProcessId, ProcessFacts]) -> ProcessSums:
    """Return the sums over some processes.

    Args:
        processes: The processes, each once.
        facts: What is known of processes. Those that are not in `processes` are ignored.
    """
    known = [facts[one] for one in processes if one in facts]
    return ProcessSums(
        processes=len(processes),
        known=len(known),
        cpu_seconds=sum(one.cpu_seconds for one in known),
        memory=sum(one.memory for one in known),
        memory_shared=sum(one.memory_shared for one in known),
    )
