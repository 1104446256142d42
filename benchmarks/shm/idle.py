# SPDX-License-Identifier: Apache-2.0
"""The contender that does nothing: consumers at rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.harness import Contender
from benchmarks.processes import Standing
from benchmarks.samples import Sample
from benchmarks.shm import footprint
from benchmarks.shm.contenders import OnBroker

if TYPE_CHECKING:
    from benchmarks.harness import Settings


class IdleConsumers(OnBroker, Contender):
    """Processor time of consumers that get nothing, broker processes included."""

    def __init__(self, processes: int, consumers: int, settings: Settings) -> None:
        """Choose how many.

        Args:
            processes: Number of processes.
            consumers: Number of consumers in each.
            settings: How thorough to be.
        """
        super().__init__(f"{processes * consumers} consumers, {processes} processes")
        self._processes = processes
        self._consumers = consumers
        self._seconds = 2.0 if settings.quick else 5.0
        self._timeout = settings.timeout
        self._workers: list[Standing] = []
        self._name = ""
        self.accountable = False

    def prepare(self) -> None:
        """Start the processes."""
        self._name = self.start()
        for number in range(self._processes):
            worker = Standing(
                f"idle {number}",
                footprint.idle_consumers,
                self._name,
                self._consumers,
                timeout=self._timeout,
            )
            self._workers.append(worker)
        time.sleep(1.0)  # not to order anything: the consumers must come to rest

    def run(self) -> Sample:
        """Let them idle for some seconds."""
        pids = [worker.pid for worker in self._workers]
        pids += footprint.broker_pids(self._name)
        before_ns = footprint.processor_ns(pids)
        start_ns = time.perf_counter_ns()
        time.sleep(self._seconds)
        used_ns = footprint.processor_ns(pids) - before_ns
        elapsed_ns = time.perf_counter_ns() - start_ns
        alive = sum(worker.step() for worker in self._workers)
        expected = self._processes * self._consumers
        fault = "" if alive == expected else f"{alive} of {expected} consumers"
        share = 100.0 * used_ns / elapsed_ns
        return Sample(share, alive, 0, not fault, fault, details={"pids": len(pids)})

    def close(self) -> None:
        """End the processes and purge the broker."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self.stop()
