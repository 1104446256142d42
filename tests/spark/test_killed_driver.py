# SPDX-License-Identifier: Apache-2.0
"""A query from queue to queue whose driver is killed, again and again: each message is there once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from spark_support.killed_drivers import MESSAGES, POINTS

import shmbroker
from shmbroker.staging import stages

if TYPE_CHECKING:
    from spark_support.killed_drivers import KilledDrivers


@pytest.mark.timeout(1800)
def test_each_message_is_there_once_however_the_driver_dies(killed_drivers: KilledDrivers) -> None:
    """Killed between lease and log, in a task, before the sink's commit and after it; the last run ends by itself."""
    killed_drivers.join()
    assert killed_drivers.statuses == [-signal.SIGKILL] * (len(POINTS) - 1) + [0]
    with killed_drivers.broker.connect() as connection:
        queue, out = (connection.queue(name, passive=True) for name in ("q", "out"))
        assert sorted(int(bytes(message)) for message in out.browse()) == list(range(MESSAGES))
        assert (len(queue), stages(connection)) == (0, [])
        assert [one.messages for one in shmbroker.groups(connection)] == [0]
        assert connection.doctor() == []
