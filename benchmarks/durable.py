# SPDX-License-Identifier: Apache-2.0
"""Publishing to a disk: several processes, each message or each batch is on the disk before the next one.

All systems write into a folder of the checkout, so that they meet the same disk: a temporary folder may lie in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.harness import Contender, Kind
from benchmarks.processes import Job, run_together
from benchmarks.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from benchmarks.processes import Control

    Send = Callable[[int], None]
    Publish = Callable[[str], AbstractContextManager[Send]]

BODY = b"x" * 1024
BATCH = 1000
SPAWN_SECONDS = 30.0
BUILD = Path(__file__).parents[1] / "build"


class System(Protocol):
    """Something that keeps messages on a disk.

    Attributes:
        kind: Whose it is.
    """

    kind: Kind

    def available(self) -> str | None:
        """Return the reason why it cannot run here, or None if it can."""

    def version(self) -> str:
        """Return its version, if it has one of its own."""

    def open(self, folder: Path) -> None:
        """Begin with an empty store in a folder."""

    @property
    def address(self) -> str:
        """What a publisher needs to find it."""

    def count(self) -> int:
        """Return how many messages it has."""

    def close(self) -> None:
        """End it."""


def _publish(control: Control, publish: Publish, address: str, count: int) -> None:
    with publish(address) as send:
        start_ns = control.ready()
        send(count)
        control.finish((start_ns, time.perf_counter_ns()))


@dataclass(frozen=True)
class Work:
    """What is published, and how.

    Attributes:
        publish: Connects to a system, and gives a function that sends messages; a function at the top of a module.
        producers: Processes.
        count: Messages of each, in a run.
    """

    publish: Publish
    producers: int
    count: int


class Publishing(Contender):
    """Several producers that publish to a system at the same time."""

    def __init__(self, name: str, system: System, work: Work, timeout: float) -> None:
        """Choose the work.

        Args:
            name: Shown in tables.
            system: Keeps the messages.
            work: What is published.
            timeout: Seconds for a run.
        """
        super().__init__(name, system.kind)
        self._system, self._work, self._timeout = system, work, timeout
        self._folder: str | None = None
        self._sent = 0
        self.accountable = False

    def available(self) -> str | None:
        """Return why it cannot run here."""
        return self._system.available()

    def version(self) -> str:
        """Return the version of the system."""
        return self._system.version()

    def prepare(self) -> None:
        """Make an empty store."""
        BUILD.mkdir(exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="bench-durable-", dir=BUILD)
        self._system.open(Path(self._folder))

    def run(self) -> Sample:
        """Publish, and count what the system has then."""
        given = self._work.publish, self._system.address, self._work.count
        jobs = [Job(f"{self.name} {number}", _publish, given) for number in range(self._work.producers)]
        spans = run_together(jobs, timeout=self._timeout + SPAWN_SECONDS)
        elapsed_ns = max(end for _, end in spans) - min(start for start, _ in spans)
        messages = self._work.producers * self._work.count
        self._sent += messages
        found = self._system.count()
        wrong = "" if found == self._sent else f"{found} messages instead of {self._sent}"
        return Sample(elapsed_ns / messages, messages, messages, verified=not wrong, fault=wrong)

    def close(self) -> None:
        """End the system, and remove its folder."""
        try:
            self._system.close()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
