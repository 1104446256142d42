# SPDX-License-Identifier: Apache-2.0
"""What every test gets: a broker name that leaves nothing behind, and a watchdog.

A test that takes too long is ended by pytest-timeout, and the run goes on. One that does not answer even to that
has the stacks of all its threads printed, and is killed together with the processes it started.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)
SECONDS_TO_STACKS = 10.0
SECONDS_TO_KILL = 20.0
FOLDER = Path(__file__).parent
SUPPORT = str(FOLDER / "scenarios")
if SUPPORT not in sys.path:  # makes `scenario_support` importable
    sys.path.insert(0, SUPPORT)
WATCHDOG = pytest.StashKey["Watchdog"]()
# What takes longest begins first, so that two processes end at about the same time; paths below this folder.
LONGEST_FIRST = (
    "spark",
    "multiprocess/test_races.py",
    "multiprocess/test_kill_at_step.py",
    "cli/test_demo_spark.py",
    "multiprocess/test_kill_at_instruction.py",
    "sanitizers",
    "mutations",
    "packages",
    "models",
)


@pytest.fixture
def broker_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the test a broker name of its own; whatever has that name is gone afterwards.

    Before a broker is purged the doctor examines it. What it finds when everybody has come to rest fails the test,
    unless that is marked as one that damages its broker. So does a rescue: the housekeeper's repairs must not hide a
    fault. A test that brings one about is marked with `repairs`.
    """
    from scenario_support import examination  # noqa: PLC0415

    import shmbroker  # noqa: PLC0415 (tests of the build run without it)

    name = f"t-{uuid.uuid4().hex[:16]}"
    damaged = request.node.get_closest_marker("damaged") is not None
    repairs = request.node.get_closest_marker("repairs") is not None
    findings = [] if damaged else examination.before_purging(monkeypatch, repairs=repairs)
    yield name
    if _left_behind(name):
        shmbroker.Broker(name).stop(purge=True)
    left = _left_behind(name)
    for path in left:
        path.unlink(missing_ok=True)
    assert left == []
    assert findings == []


def _left_behind(name: str) -> list[Path]:
    return sorted(SHARED_MEMORY.glob(f"*{name}*"))


class Watchdog:
    """Prints the stacks of a test that hangs, then has it killed by another process."""

    def __init__(self) -> None:
        """Start the process that kills."""
        self._standard_error = os.dup(2)  # pytest redirects it while a test runs
        self._killer = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("watchdog.py")), str(os.getpid())],
            stdin=subprocess.PIPE,
            stderr=self._standard_error,
            start_new_session=True,
        )

    def wind_up(self, seconds: float) -> None:
        """Let a test run for so long."""
        faulthandler.dump_traceback_later(seconds + SECONDS_TO_STACKS, file=self._standard_error)
        self._order(f"{seconds + SECONDS_TO_KILL}\n")

    def stop(self) -> None:
        """The test has ended."""
        faulthandler.cancel_dump_traceback_later()
        self._order("\n")

    def close(self) -> None:
        """End the process that kills."""
        self._killer.communicate()
        os.close(self._standard_error)

    def _order(self, line: str) -> None:
        assert self._killer.stdin is not None
        os.write(self._killer.stdin.fileno(), line.encode())


def pytest_configure(config: pytest.Config) -> None:
    """Start the watchdog; interrupt programs also if a shell in the background has us ignore that signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["PYTHONFAULTHANDLER"] = "1"  # a process that a test starts and that crashes says where it did
    config.stash[WATCHDOG] = Watchdog()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the watchdog."""
    config.stash[WATCHDOG].close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.path.relative_to(FOLDER)
    turns = (turn for turn, first in enumerate(LONGEST_FIRST) if path.is_relative_to(first))
    return next(turns, len(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:  # noqa: ANN401 (of a plugin without types)
    """Give a whole file of tests to one process, and all tests with Spark: they share their fixtures."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 (not where the plugin is left out)

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch over a test, its fixtures included."""
    watchdog = item.config.stash[WATCHDOG]
    seconds = _seconds_allowed(item)
    if seconds > 0:
        watchdog.wind_up(seconds)
    try:
        return (yield)
    finally:
        watchdog.stop()


def _seconds_allowed(item: pytest.Item) -> float:
    """Return what pytest-timeout allows the test; 0 is no limit."""
    if item.config.getoption("usepdb"):
        return 0.0
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    option = item.config.getoption("timeout")
    return float(item.config.getini("timeout") if option is None else option)
