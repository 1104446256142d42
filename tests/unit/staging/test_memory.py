# SPDX-License-Identifier: Apache-2.0
"""Dropping staged batches where there is no memory left."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import pytest

import shmbroker
import shmbroker.testing
from shmbroker.staging import Stage, stages

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1_000_000, 100_000, 10_000, 1_000, 90, 1)


def fill(put: Callable[[bytes], object]) -> None:
    """Leaves no room for a body of any size."""
    for size in SIZES:
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                put(bytes(size))


@pytest.mark.parametrize("known", [False, True], ids=["the first job", "a later job"])
def test_a_job_that_took_all_memory_is_dropped(broker_name: str, *, known: bool) -> None:
    """What it staged goes before it is noted that the job is over, for which there is no memory until then."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        stage = Stage(connection, "jobs")
        if known:
            stage.drop(uuid.UUID(int=1), timeout=0)
        job = uuid.UUID(int=2)
        with stage.attempt(job, 0, 0) as writer:
            fill(lambda body: writer.put(body, timeout=0))
        assert stage.drop(job, timeout=0) == 1
        assert stages(connection) == []
        with pytest.raises(shmbroker.NotStaged), stage.attempt(job, 0, 1):
            pass


def test_others_have_all_memory(broker_name: str) -> None:
    """The note that a job is over has memory of the reserve."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        hoard, stage, job = connection.queue("hoard"), Stage(connection, "jobs"), uuid.UUID(int=2)
        with stage.attempt(job, 0, 0):
            pass
        fill(lambda body: hoard.put(body, timeout=0))
        assert stage.drop(job, timeout=0) == 1
        assert stages(connection) == []
        with pytest.raises(shmbroker.NotStaged), stage.attempt(job, 0, 1):
            pass
