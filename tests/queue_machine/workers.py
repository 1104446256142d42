# SPDX-License-Identifier: Apache-2.0
"""The worker processes, as the machine sees them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.queue_machine.worker import serve

if TYPE_CHECKING:
    from collections import deque

WATCHDOG_SECONDS = 120.0


class WorkerError(AssertionError):
    """An order failed, or the process did not answer."""


class Process:
    """A worker process. It is killed with the machine's process. `log`: gets the orders, and what came of them."""

    def __init__(self, broker: str, log: deque[str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.queue_machine.worker"])
        self._broker, self._log = broker, log
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=serve, args=(broker, other), daemon=True)
        self._process.start()
        other.close()
        self._answer("start")

    def do(self, order: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - what the order returns
        """Have an order carried out, and return what came of it.

        Raises:
            WorkerError: the order failed.
        """
        self._pipe.send((order, arguments, options))
        answer = self._answer(order)
        if order != "take" or answer:  # of those that find nothing there are thousands
            self._log.append(f"{self._process.pid}: {order}{arguments} {options} -> {answer}")
        return answer

    def _answer(self, order: str) -> Any:  # noqa: ANN401
        if not self._pipe.poll(WATCHDOG_SECONDS):
            self.kill()
            text = f"a worker did not answer to {order!r}"
            raise WorkerError(text)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            text = f"{order}: {answer!r}"
            raise WorkerError(text) from answer
        return answer

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._pipe.close()

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()
