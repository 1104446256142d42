# SPDX-License-Identifier: Apache-2.0
"""What a program pays before its first message: the import, and the connect() that makes its broker."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

from benchmarks.harness import Contender
from benchmarks.samples import Sample
from benchmarks.shm import broker as brokers

IMPORT = """
import time
start_ns = time.perf_counter_ns()
import shmbroker
print(time.perf_counter_ns() - start_ns)
"""
CONNECT = """
import sys, time
import shmbroker
start_ns = time.perf_counter_ns()
connection = shmbroker.connect(sys.argv[1])
elapsed_ns = time.perf_counter_ns() - start_ns
connection.queue("one").put(b"works")
assert bytes(connection.queue("one").get(auto_ack=True)) == b"works"
connection.close()
print(elapsed_ns)
"""


class Start(Contender):
    """Runs a small program in a new interpreter, which prints how many nanoseconds a part of it took."""

    def __init__(self, name: str, program: str, timeout: float) -> None:
        """Choose the program.

        Args:
            name: Shown in tables.
            program: Its argument is the name of a broker that does not exist.
            timeout: Seconds after which a run is given up.
        """
        super().__init__(name)
        self._program = program
        self._timeout = timeout
        self.accountable = False
        self._environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def available(self) -> str | None:
        """Return why shmbroker cannot run here."""
        return brokers.unavailable()

    def prepare(self) -> None:
        """Run it twice, so that its modules are compiled, and in the cache of files."""
        for _ in range(2):
            self.run()

    def run(self) -> Sample:
        """Run it once."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        command = [sys.executable, "-c", self._program, name]
        done = subprocess.run(  # noqa: S603 (our own program)
            command, capture_output=True, text=True, check=False, timeout=self._timeout, env=self._environment
        )
        if name in brokers.package().brokers():
            brokers.package().Broker(name).stop(purge=True)
        works = done.returncode == 0
        return Sample(int(done.stdout) / 1e6 if works else 0.0, 1, 0, works, done.stderr)
