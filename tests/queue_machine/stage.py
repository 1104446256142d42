# SPDX-License-Identifier: Apache-2.0
"""The broker, the processes, and the housekeeper of a machine; they serve one run after the other."""

from __future__ import annotations

import shutil
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import shmbroker
from tests.queue_machine.choices import DELAY_SECONDS
from tests.queue_machine.housekeeping import SteppedHousekeeper
from tests.queue_machine.workers import Process

if TYPE_CHECKING:
    from types import TracebackType

MEMORY = "64M"
EXCHANGE = "dying"
ORDERS_SHOWN = 60


class Stage:
    """Everything real that a machine uses."""

    def __init__(self, name: str, workers: int, keeps: Path | None = None) -> None:
        self._keeps = keeps
        self.broker = shmbroker.Broker(name, memory=MEMORY)
        self.broker.create()
        self._keeper = SteppedHousekeeper(name)
        self._connection = shmbroker.connect(name, create=False)
        self.log: deque[str] = deque(maxlen=ORDERS_SHOWN)
        self.workers = [Process(name, self.log) for _ in range(workers)]
        self.queues: dict[str, shmbroker.Queue] = {}
        self._delayed_at = self._last_delay = 0.0
        self._steps = 0
        with self._connection.channel() as channel:
            channel.exchange_declare(EXCHANGE, "fanout")
        self._connection.queue("first group", message_groups="shared")  # from now on, puts note the groups of messages

    def declare(self, queues: dict[str, dict[str, Any]]) -> None:
        """Declare the queues of a run."""
        self.queues = {name: self._connection.queue(name, **given) for name, given in queues.items()}
        with self._connection.channel() as channel:
            for name in ("dead", "archive"):
                channel.queue_bind(name, EXCHANGE)
        self._delayed_at = 0.0
        self.log.clear()

    def statistics(self, name: str) -> shmbroker.QueueStatistics:
        """The statistics of a queue."""
        return self.queues[name].statistics()

    def delays(self, happens: bool) -> None:  # noqa: FBT001 - whether a message may be delayed by what comes next
        """Note that the next operation may delay a message from now on."""
        if happens:
            self._delayed_at = self._delayed_at or time.monotonic()

    def keep_house(self) -> bool:
        """Let the housekeeper do what is due; return whether it certainly saw each new delay before its end."""
        self._steps += 1
        self._keeper.step()
        if self._steps % 64 == 0:
            self._keeper.tick()
        slow = self._delayed_at and time.monotonic() - self._delayed_at > DELAY_SECONDS - 0.002
        if self._delayed_at:
            self._last_delay, self._delayed_at = time.monotonic(), 0.0
        return not slow

    def let_become_due(self) -> None:
        """Wait until all delays are over, and let the housekeeper see it."""
        time.sleep(max(0.0, self._last_delay + DELAY_SECONDS + 0.005 - time.monotonic()))
        self._keeper.let_become_due()

    def kill(self, worker: int) -> None:
        """Kill a worker, clear up after it, and start another one in its place."""
        self.workers[worker].kill()
        self._keeper.reap()
        self.workers[worker] = Process(self.broker.name, self.log)

    def keep_evidence(self) -> str:
        """Copy the memory of the broker to where a difference is to leave it, and return what the queues say."""
        if self._keeps is not None:
            for segment in Path("/dev/shm").glob(f"shmbroker-*.{self.broker.name}.*"):  # noqa: S108 - where they are
                shutil.copy(segment, self._keeps)
        seen = [f"{name}: {self.statistics(name)}" for name in self.queues]
        return "\n".join([*seen, *map(str, self._connection.consumers()), *map(str, self._connection.doctor())])

    def clear(self) -> None:
        """End what a run leaves."""
        for worker in self.workers:
            worker.do("leave")
        for queue in self.queues.values():
            queue.delete()
        self.queues = {}
        self._keeper.step()
        found = self._connection.doctor()
        if found:
            raise AssertionError(found)

    def close(self) -> None:
        """End all."""
        for worker in self.workers:
            worker.end()
        self._connection.close()
        self._keeper.close()
        self.broker.stop(purge=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
