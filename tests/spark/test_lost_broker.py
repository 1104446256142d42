# SPDX-License-Identifier: Apache-2.0
"""Queries between durable queues of a broker that is lost and begins again from its folder: each message comes once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_support.killed_drivers import DRIVER, MESSAGES, POINTS

import shmbroker
from shmbroker.staging import stages

SCENARIOS = str(Path(__file__).parents[1] / "scenarios")
if SCENARIOS not in sys.path:
    sys.path.append(SCENARIOS)

from scenario_support.lasting import Lasting  # noqa: E402 - the path comes first

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """A broker with a store and two durable queues."""
    folder = tmp_path / "store"
    folder.mkdir()
    with contextlib.closing(Lasting(broker_name, folder)) as made:
        made.connection.queue("out", durable=True)
        made.connection.queue("q", durable=True).put_many(numbers(0, MESSAGES))
        yield made


def numbers(first: int, end: int) -> list[bytes]:
    """Bodies."""
    return [b"%d" % number for number in range(first, end)]


def out(lasting: Lasting) -> list[int]:
    """What a query wrote."""
    return sorted(int(bytes(message)) for message in lasting.queue("out").browse())


@pytest.mark.timeout(1800)
def test_everything_is_lost_but_the_disks(lasting: Lasting, tmp_path: Path) -> None:
    """Spark is killed between lease and log, in a task, before the sink's commit and after it, and so is the broker.

    A driver that starts again knows its checkpoint, and the broker its store. The last driver ends by itself.
    """
    environment = os.environ | {"PYTHONPATH": str(DRIVER.parent)}
    for point, batch in POINTS:
        command = [sys.executable, str(DRIVER), lasting.name, str(tmp_path / "checkpoint"), point, str(batch)]
        with (tmp_path / "driver.log").open("ab") as log:
            driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            status = driver.wait()
        assert status == (0 if point == "none" else -signal.SIGKILL), (tmp_path / "driver.log").read_text()[-2000:]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # workers may be left
        lasting.restart()
    assert out(lasting) == list(range(MESSAGES))
    assert (len(lasting.queue("q")), stages(lasting.connection)) == (0, [])
    assert [one.messages for one in shmbroker.groups(lasting.connection)] == [0]
    assert lasting.connection.doctor() == []


def test_a_session_outlives_the_broker(spark: Any, lasting: Lasting, tmp_path: Path) -> None:  # noqa: ANN401
    """Its workers connect to the memory that was made again; the query goes on, and reads nothing twice."""
    from shmbroker.spark.source import ShmBrokerDataSource  # noqa: PLC0415 - not where there is no Spark

    spark.dataSource.register(ShmBrokerDataSource)

    def run() -> None:
        source = spark.readStream.format("shmbroker").option("broker", lasting.name).option("maxRowsPerTrigger", "20")
        sink = source.load("q").select("value").writeStream.format("shmbroker").option("broker", lasting.name)
        sink = sink.option("queue", "out").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()

    end = MESSAGES
    for _ in range(2):
        run()
        assert out(lasting) == list(range(end))
        lasting.restart()
        lasting.queue("q").put_many(numbers(end, end + 10))
        end += 10
    run()
    assert out(lasting) == list(range(end))
