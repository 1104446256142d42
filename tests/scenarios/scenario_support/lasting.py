# SPDX-License-Identifier: Apache-2.0
"""A broker with a store whose memory a test loses, and whose storekeeper it stops and kills."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Self

import psutil

import shmbroker
from scenario_support.brokers import SHARED_MEMORY, files, remove_files
from scenario_support.nursery import nursery
from scenario_support.waiting import eventually
from shmbroker._core import attachment, native, paging, segments
from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

LEAF = 64
"""Messages leave the memory, and come back, by so many at a time."""
_END = 1 << 52
_PROGRAMS = ("shmbroker._storekeeper", "shmbroker._housekeeper")


class Lasting:
    """A broker that a test begins from a folder, again and again.

    Attributes:
        broker: the broker.
        connection: a connection of the broker.

    Args:
        name: the name of the broker.
        folder: the folder of its store.
        memory: the limit of its memory.
        sync: what publishers wait for.
    """

    def __init__(self, name: str, folder: Path, memory: str = "64M", sync: str = "always") -> None:
        self.broker = shmbroker.Broker(name, memory=memory, data_dir=folder, sync=sync)
        self.name, self.folder = name, folder
        self.begin()

    def begin(self) -> None:
        """Makes the memory from the folder, starts the broker's processes, and connects to it."""
        nursery().start(self.broker)
        self.connection = self.broker.connect()

    def stop(self) -> None:
        """Ends the broker in order: the storekeeper writes everything, and the memory is removed."""
        self.connection.close()
        self.broker.stop(purge=True)

    def lose(self) -> None:
        """Kills all processes of the broker, and removes its memory: what the store has now is left."""
        with attachment.attached_to(segments.path_of(self.name)) as found:
            pids = {found.facts().housekeeper_pid, int(native.slow.sb_store_keeper(found.handle))}
        for pid in pids:
            if pid > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        remove_files(self.name)  # before another storekeeper can write what this memory has
        self.connection.close()
        _kill_programs(self.name)  # those that were starting
        assert files(self.name) == []

    def restart(self) -> None:
        """The memory is lost, and made again from the folder."""
        self.lose()
        self.begin()

    def queue(self, name: str = "q") -> shmbroker.Queue:
        """Opens a queue that exists."""
        return self.connection.queue(name, passive=True)

    # ---- the storekeeper ----

    def keeper(self) -> int:
        """The process of the storekeeper, as soon as there is one that serves."""
        with attachment.attached_to(segments.path_of(self.name)) as found:

            def serving() -> int:
                pid = int(native.slow.sb_store_keeper(found.handle))
                return pid if pid > 0 and psutil.pid_exists(pid) else 0

            return eventually(serving, "a storekeeper that serves")

    def kill_keeper(self) -> int:
        """Kills the storekeeper, and waits for its end; returns the process that it was."""
        pid = self.keeper()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not _runs(pid), "the end of the storekeeper")
        return pid

    @contextlib.contextmanager
    def keeper_stopped(self) -> Iterator[None]:
        """The storekeeper does nothing meanwhile."""
        pid = self.keeper()
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the storekeeper stopped")
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may have been killed meanwhile
                os.kill(pid, signal.SIGCONT)

    # ---- the memory ----

    def blocks(self) -> int:
        """The bytes of memory that the system has given to the broker's files."""
        total = 0
        for name in files(self.name):
            with contextlib.suppress(FileNotFoundError):
                total += (SHARED_MEMORY / name).stat().st_blocks * 512
        return total

    def close(self) -> None:
        """Ends the broker, and removes its memory."""
        self.connection.close()
        self.broker.stop(purge=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def absent(queue: shmbroker.Queue, end: int = _END) -> int:
    """The number of leaves of a queue that are not in the memory, of those before a sequence number."""
    core, count, at = core_of(queue), 0, 0
    while (found := paging.absent(core, at, end)) is not None:
        count += 1
        at = found.sequence // LEAF * LEAF + LEAF
    return count


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _kill_programs(name: str) -> None:
    """Kills the storekeepers and housekeepers that were started for a broker, and waits until they are gone."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = one.info["cmdline"] or []
        if name in line and any(program in word for word in line for program in _PROGRAMS):
            found.append(one)
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    psutil.wait_procs(found, timeout=60)
