# SPDX-License-Identifier: Apache-2.0
"""A query from queue to queue whose driver is killed, again and again: each message is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker.staging import stages

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER = Path(__file__).with_name("killed_driver.py")


def run(broker: str, checkpoint: Path, point: str, batch: int) -> int:
    """Runs the driver; its exit status."""
    environment = os.environ | {"PYTHONPATH": str(DRIVER.parent)}
    command = [sys.executable, str(DRIVER), broker, str(checkpoint), point, str(batch)]
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_each_message_is_there_once_however_the_driver_dies(
    broker: shmbroker.Broker, queue: shmbroker.Queue, tmp_path: Path, until_true: Callable[[Callable[[], Any]], None]
) -> None:
    """Killed between lease and log, in a task, before the sink's commit and after it; the last run ends by itself."""
    out = queue.connection.queue("out")
    queue.put_many([b"%d" % n for n in range(45)])
    checkpoint = tmp_path / "checkpoint"
    for batch, point in enumerate(("leased", "reading", "staged", "published"), start=1):
        assert run(broker.name, checkpoint, point, batch) == -signal.SIGKILL
        until_true(lambda: queue.connection.doctor() == [])
    assert run(broker.name, checkpoint, "none", 0) == 0
    assert sorted(int(bytes(message)) for message in out.browse()) == list(range(45))
    assert (len(queue), stages(queue.connection)) == (0, [])
    assert [one.messages for one in shmbroker.groups(queue.connection)] == [0]
