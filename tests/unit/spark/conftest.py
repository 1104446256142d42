# SPDX-License-Identifier: Apache-2.0
"""A broker for what is tried without a JVM, as Spark's Python workers would call it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.nursery import nursery

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def broker(broker_name: str, request: pytest.FixtureRequest) -> Iterator[shmbroker.Broker]:
    """A broker with 64 MiB, or what the parameter says.

    At the end the connection closes that this process has as a worker of Spark: a purge waits for it.
    """
    running = nursery().start(shmbroker.Broker(broker_name, memory=getattr(request, "param", "64M")))
    yield running
    disconnect(broker_name)
    running.stop(purge=True)


def disconnect(broker: str) -> None:
    """Closes the connection that this process has as a worker of Spark."""
    from shmbroker._process import connections  # noqa: PLC0415
    from shmbroker.spark import attachment  # noqa: PLC0415 - not where there is no Arrow

    found = connections._shared.pop((attachment._connected, broker), None)  # noqa: SLF001
    if found is not None:
        found.close()


@pytest.fixture
def until_true() -> Callable[[Callable[[], object]], None]:
    """Waits for something that will be; the watchdog ends the test if it is not."""

    def wait(what: Callable[[], object]) -> None:
        pause = threading.Event()
        while not what():
            pause.wait(0.01)

    return wait
