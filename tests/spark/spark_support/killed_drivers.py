# SPDX-License-Identifier: Apache-2.0
"""One query whose drivers are killed one after the other, beside other tests: a driver's start is mostly waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import shmbroker.testing

DRIVER = Path(__file__).with_name("killed_driver.py")
POINTS = (("leased", 1), ("reading", 2), ("staged", 3), ("published", 4), ("none", 0))
MESSAGES = 45


class KilledDrivers(threading.Thread):
    """Puts messages into queue q, and runs drivers until the query ends by itself.

    Attributes:
        statuses: of those that ended.
        broker: which has it all.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(name="killed drivers", daemon=True)
        self.statuses: list[int] = []
        self._folder, self._driver = folder, None
        self._kept = shmbroker.testing.broker(f"t-killed-{uuid.uuid4().hex[:8]}", memory="64M")
        self.broker = self._kept.__enter__()
        with self.broker.connect() as connection:
            connection.queue("out")
            connection.queue("q").put_many([b"%d" % n for n in range(MESSAGES)])

    def run(self) -> None:
        """Runs them."""
        environment = os.environ | {"PYTHONPATH": str(DRIVER.parent)}
        log = self._folder / "killed_drivers.log"
        with self.broker.connect() as connection, log.open("wb") as written:
            for point, batch in POINTS:
                command = [
                    sys.executable,
                    str(DRIVER),
                    self.broker.name,
                    str(self._folder / "checkpoint"),
                    point,
                    str(batch),
                ]
                self._driver = subprocess.Popen(
                    command, env=environment, stdout=written, stderr=written, start_new_session=True
                )
                self.statuses.append(self._driver.wait())
                while connection.doctor():
                    time.sleep(0.01)

    def close(self) -> None:
        """Ends it, wherever it is."""
        if self.is_alive() and self._driver is not None:
            os.killpg(self._driver.pid, signal.SIGKILL)
        self.join()
        self._kept.__exit__(None, None, None)
