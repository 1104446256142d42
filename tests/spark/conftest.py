# SPDX-License-Identifier: Apache-2.0
"""Brokers, servers and a session of Spark for these tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_SPARK = "no Spark: needs Java 17 (apt install openjdk-17-jre-headless) and pip install shmbroker[spark]"
FOLDER = str(Path(__file__).parent)
if FOLDER not in sys.path:  # makes `spark_support` importable
    sys.path.append(FOLDER)
SERVERS = Path(__file__).with_name("servers.py")


def _left_out() -> list[str]:
    """Return the files of tests that cannot run here; `test_spark.py` stays, and says why in one line."""
    arrow = importlib.util.find_spec("pyarrow") is not None
    spark = arrow and importlib.util.find_spec("pyspark") and (shutil.which("java") or os.environ.get("JAVA_HOME"))
    found = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {"test_spark.py"}
    return [] if spark else [name for name in sorted(found) if not (arrow and name.startswith("test_arrow_"))]


collect_ignore = _left_out()


@pytest.fixture(name="until_true")
def _until_true() -> Callable[[Callable[[], Any]], None]:
    """Wait for something that will be."""
    return until_true


@pytest.fixture
def broker(broker_name: str, request: pytest.FixtureRequest) -> Iterator[shmbroker.Broker]:
    """A broker of the test's own, with 64 MiB, or what the parameter says."""
    with shmbroker.Broker(broker_name, memory=getattr(request, "param", "64M")) as started:
        yield started


@pytest.fixture
def connection(broker: shmbroker.Broker) -> Iterator[shmbroker.Connection]:
    """A connection to that broker."""
    with broker.connect() as opened:
        yield opened


@pytest.fixture
def queue(connection: shmbroker.Connection) -> shmbroker.Queue:
    """A queue with default settings."""
    return connection.queue("q")


class Servers:
    """Processes that serve a queue; see servers.py."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, function: str, queue: str = "requests", *arguments: str) -> subprocess.Popen[bytes]:
        """Starts one; it serves when this returns."""
        with shmbroker.connect(self._broker, create=False) as connection:
            waiting = {one.pid for one in connection.consumers()}
            command = [sys.executable, str(SERVERS), self._broker, queue, function, *arguments]
            process = subprocess.Popen(command)
            self.started.append(process)
            until_true(lambda: process.pid in {one.pid for one in connection.consumers()} - waiting)
        return process

    def stop(self) -> None:
        """Ends all that still run."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def servers(broker: shmbroker.Broker) -> Iterator[Servers]:
    """Servers of that broker."""
    made = Servers(broker.name)
    try:
        yield made
    finally:
        made.stop()


def until_true(what: Callable[[], Any]) -> None:
    """Wait for something that will be; the watchdog ends the test if it is not."""
    while not what():
        time.sleep(0.01)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two cores; a task is tried twice."""
    if collect_ignore:
        pytest.skip(NO_SPARK)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - not where there is none

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,2]").appName("shmbroker tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drivers are killed beside the other tests, so what becomes of them is asked last."""
    items.sort(key=_waits)


def _waits(item: pytest.Item) -> bool:
    return "killed_drivers" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session", autouse=True)
def _beside(request: pytest.FixtureRequest) -> None:
    """Starts them with the first test of Spark, if somebody will ask."""
    if any(map(_waits, request.session.items)):
        request.getfixturevalue("killed_drivers")


@pytest.fixture(scope="session")
def killed_drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Drivers that are being killed."""
    if collect_ignore:
        pytest.skip(NO_SPARK)
    from spark_support.killed_drivers import KilledDrivers  # noqa: PLC0415 - not where there is no Spark

    made = KilledDrivers(tmp_path_factory.mktemp("killed_drivers"))
    made.start()
    yield made
    made.close()
