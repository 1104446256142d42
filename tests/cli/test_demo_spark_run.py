# SPDX-License-Identifier: Apache-2.0
"""The parts of a run of `shmbroker demo-spark`, without Spark."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of
from scenario_support.nursery import nursery

import shmbroker
from shmbroker_cli.demo_spark import parent, run
from shmbroker_cli.demo_spark.checkpoint import Noted
from shmbroker_cli.demo_spark.measures import Measures
from shmbroker_cli.demo_spark.parent import _watch, end_with_parent
from shmbroker_cli.demo_spark.processes import LOOK, Process
from shmbroker_cli.demo_spark.query import FILES, REQUESTS, RESULTS
from shmbroker_cli.demo_spark.run import (
    Bench,
    Drive,
    Outcome,
    _bench,
    _drive,
    _follow,
    _left,
    _left_at_rest,
    _start_scorer,
)
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Play:
    """A driver, its results and a clock, which are as a script says; each sleep goes one step on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: tuple[float, int, bool]) -> None:
        """Play steps: the time, how many results there are, and whether the driver runs."""
        self.steps, self.at, self.killed = steps, 0, 0
        self.told: list[int] = []
        clock = SimpleNamespace(monotonic=lambda: self.steps[self.at][0], sleep=self.sleep)
        monkeypatch.setattr(run, "time", clock)

    def sleep(self, seconds: float) -> None:
        """Go on."""
        assert seconds == LOOK
        self.at += 1

    def __len__(self) -> int:
        return self.steps[self.at][1]

    def runs(self) -> bool:
        """Whether it does."""
        return self.steps[self.at][2]

    def kill(self) -> None:
        """Count."""
        self.killed += 1

    def failed(self, how: str) -> Refused:
        """Return an error."""
        return Refused(how)

    def follow(self, kill_at: int | None) -> bool:
        """Follow it."""
        played: Any = self
        return _follow(played, played, kill_at, self.told.append)


def test_a_driver_is_killed_when_there_are_so_many_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before; progress is told when there are more."""
    play = Play(monkeypatch, (0, 1, True), (1, 1, True), (2, 2, True), (3, 4, True), (4, 4, True))
    assert play.follow(4) is True
    assert (play.told, play.killed, play.at) == ([2, 4], 1, 3)


def test_a_driver_that_is_not_to_be_killed_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many results there are."""
    play = Play(monkeypatch, (0, 1, True), (1, 5, True), (2, 5, False))
    assert play.follow(None) is False
    assert (play.told, play.killed, play.at) == ([5], 0, 2)


def test_a_driver_without_results_for_too_long_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result gives it three minutes more, to the moment."""
    play = Play(monkeypatch, (0, 0, True), (180, 0, True), (180.5, 1, True), (360.5, 1, True), (360.6, 1, True))
    with pytest.raises(Refused, match=r"^gave no result for 180 s$"):
        play.follow(None)
    assert (play.told, play.at, play.killed) == ([1], 4, 0)


class Started:
    """A process that is not."""

    def __init__(self, *words: str, folder: Path) -> None:
        """Note with what it is started."""
        self.words, self.folder, self.pid, self.closed = words, folder, 4711, 0

    def close(self) -> None:
        """Count."""
        self.closed += 1

    def left(self) -> list[int]:
        """Return two."""
        return [1, 2]


def bench_of(**has: object) -> Any:  # noqa: ANN401 (what does for a bench)
    """Return what does for a bench."""
    return SimpleNamespace(connection=SimpleNamespace(broker_name="b"), folder=Path("/f"), processes=[], **has)


def driven(monkeypatch: pytest.MonkeyPatch, before: Noted, after: Noted) -> tuple[Drive, Any]:
    """Return what came of a driver, by what Spark noted before and after it, and the bench."""
    results: list[int] = [0] * 4
    notes = iter([before, after])

    def follow(driver: Started, found: object, kill_at: int, progress: object) -> bool:
        assert (driver.words, driver.folder) == ((run.DRIVER, "b", "/f", "3"), Path("/f"))
        assert (found, kill_at, progress) == (results, 9, print)
        results.extend([0] * 3)
        return True

    times = iter([50.0, 61.23456])
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: next(times)))
    monkeypatch.setattr(run, "noted", lambda _folder: next(notes))
    monkeypatch.setattr(run, "Process", Started)
    monkeypatch.setattr(run, "_follow", follow)
    bench = bench_of(results=results)
    return _drive(bench, 3, 9, print), bench


BEFORE = Noted({0: 1.0, 1: 2.0, 2: 100.0}, {0: 5.0, 1: 6.0})


def test_what_came_of_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches that it finished, those that were begun before it, and the median of how long its own took."""
    planned = {**BEFORE.planned, 3: 1000.0, 4: 1001.0, 5: 1010.0}
    done = {**BEFORE.done, 2: 1002.0, 3: 1003.0004, 4: 1006.0006, 5: 1019.0}
    drive, bench = driven(monkeypatch, BEFORE, Noted(planned, done))
    assert drive == Drive(killed=True, batches=4, again=1, results=3, seconds=11.235, batch_seconds=5.001)
    assert len(bench.processes) == 1


def test_what_came_of_a_driver_without_a_batch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of how long one takes."""
    drive, _ = driven(monkeypatch, BEFORE, Noted(BEFORE.planned, {**BEFORE.done, 2: 1002.0}))
    assert drive == Drive(killed=True, batches=1, again=1, results=3, seconds=11.235, batch_seconds=None)


def test_the_scorer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it consumes, or has ended."""
    monkeypatch.setattr(run, "Process", Started)
    pids = [[], [1], [1, 4711], [4711]]
    slept: list[float] = []
    runs = iter([True] * 9)
    monkeypatch.setattr(run, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(Started, "runs", lambda _self: next(runs), raising=False)
    bench = bench_of()
    bench.connection.consumers = lambda: [SimpleNamespace(pid=pid) for pid in pids.pop(0)]
    _start_scorer(bench)
    assert (slept, pids) == ([LOOK] * 2, [[4711]])
    (scorer,) = bench.processes
    assert (scorer.words, scorer.folder) == ((run.SCORER, "b"), Path("/f"))
    runs = iter([True, False])
    pids = [[], []]
    _start_scorer(bench)
    assert len(slept) == 3


def test_what_is_left_is_what_is_there_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ends when nothing is, or after half a minute."""
    times = iter([100.0, 110.0, 129.9, 130.0, 200.0, 200.1])
    slept: list[float] = []
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times), sleep=slept.append))
    left = iter([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4, "b": 0}, {"a": 0}])
    monkeypatch.setattr(run, "_left", lambda _bench: next(left))
    assert _left_at_rest(bench_of()) == {"a": 3}
    assert slept == [LOOK] * 2
    assert _left_at_rest(bench_of()) == {"a": 0}
    assert slept == [LOOK] * 3


def test_what_can_be_left(jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of two queues, leases, attempts, processes but the scorer, and what the doctor finds."""
    connection = connection_of(jobs)
    files, results = connection.queue(FILES), connection.queue(RESULTS)
    processes: Any = [SimpleNamespace(), Started(folder=Path()), Started(folder=Path())]
    bench = Bench(connection, Path(), files, results, processes)
    with pytest.raises(shmbroker.exceptions.NotFound):
        _left(bench)
    assert REQUESTS not in connection.queue_names()
    connection.queue(REQUESTS).put(b"x")
    files.put_many([b"1", b"2", b"3"])
    group = shmbroker.Group(connection, files, "g")
    group.attach()
    group.lease(0, max_messages=1)
    with monkeypatch.context() as patch:
        patch.setattr(shmbroker.Connection, "doctor", lambda _self: ["odd"])
        assert _left(bench) == {"messages": 3, "leases": 1, "attempts": 0, "processes": 4, "findings": 1}


def test_a_bench_goes_with_all_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker, its folder, and the processes that were started."""
    monkeypatch.setattr(shmbroker.Broker, "start", lambda broker: nursery().start(broker))
    name = f"t-spark-{os.getpid()}"
    started: Any = Started(folder=Path())
    with _bench(name) as bench:
        assert bench.connection.broker_name == name
        statistics = shmbroker.Broker(name).statistics()
        assert (statistics.memory_limit, bool(statistics.housekeeper_pid)) == (256 << 20, True)
        assert bench.folder.is_dir()
        assert (bench.files.name, bench.results.name, bench.processes) == (FILES, RESULTS, [])
        bench.processes.append(started)
    assert (started.closed, bench.folder.exists(), name in shmbroker.brokers()) == (1, False, False)


@pytest.mark.parametrize(("count", "rows", "half"), [(25, 3, 13), (24, 2, 12)])
@pytest.mark.parametrize("kill", [True, False])
def test_a_run(
    jobs: shmbroker.Queue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    count: int,
    rows: int,
    half: int,
    kill: bool,
) -> None:
    """Files are sent by their paths, drivers are started one after the other, and all results are read."""
    connection = connection_of(jobs)
    seen: list[object] = []

    @contextmanager
    def bench(name: str) -> Iterator[Bench]:
        seen.append(name)
        yield Bench(connection, tmp_path, connection.queue(FILES), connection.queue(RESULTS), [])

    def drive(found: Bench, *asked: object) -> Drive:
        seen.append(asked)
        key = f"{len(seen)}.py" if len(seen) == 3 else None
        found.results.put(b'{"lines": 7}', key=key)
        return Drive(killed=True, batches=1, again=0, results=1, seconds=1.0, batch_seconds=None)

    times = iter([10.0, 12.5])
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(run, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0123456789abcdef")))
    monkeypatch.setattr(run, "_bench", bench)
    monkeypatch.setattr(run, "_start_scorer", lambda _bench: seen.append("scorer"))
    monkeypatch.setattr(run, "_drive", drive)
    monkeypatch.setattr(run, "_left_at_rest", lambda _bench: {"messages": 0})
    monkeypatch.setattr(run, "SHARED_MEMORY", tmp_path)
    paths = [f"{number}.py" for number in range(count)]
    for path in (*paths, "a-demo-0123456789ab.0", "a-demo-0123456789ab.1"):
        (tmp_path / path).write_text(path, encoding="ascii")
    outcome = run.run(tmp_path, paths, kill=kill, progress=print)
    asked = [(rows, half, print), (rows, None, print)] if kill else [(rows, None, print)]
    assert seen == ["demo-0123456789ab", "scorer", *asked]
    one = Measures(lines=7)
    assert outcome == Outcome(
        [("3.py", one), ("", one)][: len(asked)], [Drive(True, 1, 0, 1, 1.0, None)] * len(asked),  # noqa: FBT003
        {"messages": 0, "segments": 2}, 2.5,
    )  # fmt: skip
    assert [(message.key, bytes(message).decode()) for message in connection.queue(FILES).browse()] == [
        (path, path) for path in paths
    ]


SAYS = """
import json, os, sys
with open(sys.argv[1], "w") as file:
    told = [sys.argv[2:], os.getcwd(), os.environ["TMPDIR"], os.getsid(0) == os.getpid(), sys.flags.safe_path]
    json.dump(told, file)
print("out")
print("err", file=sys.stderr)
sys.exit(sys.stdin.read() + "7")
"""


def test_how_a_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its folder, in a session of its own, with standard input that nobody writes; all that it says is kept."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "says.py").write_text(SAYS, encoding="ascii")
    process = Process("says", str(tmp_path / "told.json"), "a", "b", folder=tmp_path)
    while not (tmp_path / "says.log").stat().st_size:
        os.sched_yield()
    assert process.runs()
    assert process.left() == [process.pid]
    process.close()
    assert process.left() == []
    folder = os.path.realpath(tmp_path)
    assert json.loads((tmp_path / "told.json").read_text()) == [["a", "b"], folder, str(tmp_path), True, True]


def test_a_parent_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known by the end of standard input, whatever comes before that, and ends the group."""
    readable, writable = os.pipe()
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: readable))
    monkeypatch.setattr(os, "killpg", lambda *given: killed.append(given))
    os.write(writable, b"abc")
    os.close(writable)
    _watch()
    assert killed == [(os.getpgrp(), 9)]
    assert os.read(readable, 9) == b""
    os.close(readable)


def test_watching_the_parent_keeps_no_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done beside everything else."""
    done = threading.Event()
    threads: list[threading.Thread] = []

    def watch() -> None:
        threads.append(threading.current_thread())
        done.set()

    monkeypatch.setattr(parent, "_watch", watch)
    end_with_parent()
    done.wait()
    assert threads[0].daemon
    assert threads[0] is not threading.current_thread()
