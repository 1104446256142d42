# SPDX-License-Identifier: Apache-2.0
"""The contender without Python: the C core alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from benchmarks.harness import Contender
from benchmarks.payload import CHECKSUM_MASK
from benchmarks.samples import Sample
from benchmarks.shm import broker as brokers
from benchmarks.shm.contenders import OnBroker

C_PROGRAMS = Path(__file__).parents[2] / "build" / "bench" / "benchmarks"
C_START_DELAY_NS = 300_000_000


class CPrograms(OnBroker, Contender):
    """The C core alone: the two programs of `benchmarks/c`, without Python."""

    def __init__(self, size: int, count: int, timeout: float) -> None:
        """Choose the stream.

        Args:
            size: Length of each body in bytes.
            count: Number of messages.
            timeout: Seconds after which a run is given up.
        """
        super().__init__("C core")
        self._size = size
        self._count = count
        self._timeout = timeout
        self._name = ""
        self.accountable = False
        directory = Path(os.environ.get("SHMBROKER_BENCH_C", C_PROGRAMS))
        self._programs = [directory / "bench_consumer", directory / "bench_producer"]

    def available(self) -> str | None:
        """Return why it cannot run: the programs are not built."""
        missing = [path.name for path in self._programs if not path.exists()]
        if missing:
            return f"not built ({', '.join(missing)})"
        return super().available()

    def prepare(self) -> None:
        """Start a broker with the queue."""
        self._name = self.start()
        with brokers.opened(self._name, "stream") as (connection, _):
            brokers.grow_to_the_limit(connection)  # C programs cannot

    def run(self) -> Sample:
        """Run both programs once."""
        start_ns = time.perf_counter_ns() + C_START_DELAY_NS
        arguments = [self._name, "stream", self._size, self._count, start_ns]
        with contextlib.ExitStack() as stack:
            started = []
            for program in self._programs:
                command = [str(program), *map(str, arguments)]
                process = stack.enter_context(
                    subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 (our own programs)
                )
                stack.callback(process.kill)
                started.append(process)
            output, _ = started[0].communicate(timeout=self._timeout)
            started[1].communicate(timeout=self._timeout)
        report = json.loads(output)
        count, checksum = int(report["count"]), int(report["checksum"])
        expected = (self._count, self._count * (self._count - 1) // 2 & CHECKSUM_MASK)
        fault = "" if (count, checksum) == expected else f"{report}"
        return Sample(count / float(report["seconds"]), count, checksum, not fault, fault)

    def close(self) -> None:
        """Purge the broker."""
        self.stop()
