# SPDX-License-Identifier: Apache-2.0
"""A run of `shmbroker demo` with played parts: when it kills, when it ends, and what it returns."""

from __future__ import annotations

import inspect
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli.demo import run
from shmbroker_cli.demo.analysis import Counts
from shmbroker_cli.demo.left import Left
from shmbroker_cli.demo.run import Outcome, _bench, _send, _settle
from shmbroker_cli.demo_spark.run import _bench as _spark_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import CodeType, FrameType


class Play:
    """A run whose results come one at a time, as many as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, results: int) -> None:
        """Have so many results."""
        self.left = results
        self.did: list[Any] = []
        self.sent: Callable[[threading.Event], object] = lambda _: None
        statistics = SimpleNamespace(redelivered=7)
        files = SimpleNamespace(name="files", statistics=lambda: statistics)
        self.bench = SimpleNamespace(broker=SimpleNamespace(name="b"), files=files, results="results", log="log")
        times = iter([10.0, 12.5])
        monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times)))
        monkeypatch.setattr(run, "_bench", self.opened)
        monkeypatch.setattr(run, "_send", lambda *given: self.sent(given[-1]))
        monkeypatch.setattr(run, "_gather", self.gather)
        monkeypatch.setattr(run, "_settle", lambda *given: self.did.append(("settle", *given)))
        monkeypatch.setattr(run, "_kill", self.kill)
        monkeypatch.setattr(run, "Analyst", lambda *queues: ("analyst", *queues))
        monkeypatch.setattr(run, "left_in", lambda broker, *queues: Left(3, [broker.name, *queues]))
        monkeypatch.setattr(shmbroker, "WorkerPool", self.pool)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Give the bench."""
        yield self.bench

    @contextmanager
    def pool(self, *given: object, **options: object) -> Iterator[Any]:
        """Give a pool, which can be started."""
        self.did.append((given, options))
        yield SimpleNamespace(start=lambda: self.did.append("start"))

    def gather(self, _bench: object, outcome: Outcome, _all_sent: object) -> bool:
        """Note the next result, if there is one."""
        if self.left == 0:
            return False
        self.left -= 1
        outcome.results[str(len(outcome.results))] = Counts(1)
        return True

    def kill(self, *_: object) -> list[str]:
        """Note when."""
        self.did.append("kill")
        return ["it"]

    def run(self, root: Path, files: int, *, kill: bool = False) -> Outcome:
        """Run with so many files."""
        paths = [f"{number}.py" for number in range(files)]
        return run.run(root, paths, workers=3, kill=kill, progress=self.did.append)


@pytest.mark.parametrize(
    ("files", "events"), [(4, [1, 2, "kill", 3, 4]), (5, [1, 2, 3, "kill", 4, 5]), (1, [1, "kill"])]
)
def test_a_run_with_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, events: list[object]) -> None:
    """It is half-way, once; the run ends with the last result, and then settles what came twice."""
    play = Play(monkeypatch, files + 1)
    outcome = play.run(tmp_path, files, kill=True)
    results = {str(number): Counts(1) for number in range(files)}
    left = Left(3, ["b", "log", "unparsable"])
    assert outcome == Outcome(results, redelivered=7, killed=["it"], seconds=2.5, left=left)
    pool = (("analyst", "results", "log"), "files"), {"broker": "b", "processes": 3}
    assert play.did == [(pool[0], pool[1]), "start", *events, ("settle", play.bench, outcome)]
    assert play.left == 1


def test_a_run_that_gets_no_more_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with those that it has, and so does its sender."""
    play = Play(monkeypatch, 1)
    play.sent = threading.Event.wait
    outcome = play.run(tmp_path, 3)
    assert (outcome.results, outcome.seconds, outcome.redelivered) == ({"0": Counts(1)}, 2.5, 7)
    assert play.did[2:] == [1, ("settle", play.bench, outcome)]


def test_a_run_whose_sender_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises what the sender did."""

    def fail(_: threading.Event) -> None:
        text = "no such file"
        raise FileNotFoundError(text)

    play = Play(monkeypatch, 1)
    play.sent = fail
    with pytest.raises(FileNotFoundError, match="no such file"):
        play.run(tmp_path, 1)


def test_the_end_of_a_run_ends_its_sender(jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """It reads no more files."""
    (tmp_path / "a.py").write_bytes(b"a")
    ended = threading.Event()
    ended.set()
    broker: Any = SimpleNamespace(connect=lambda: shmbroker.connect(connection_of(jobs).broker_name, create=False))
    _send(broker, tmp_path, ["a.py", "gone.py"], ended)
    assert connection_of(jobs).queue_names() == ["jobs"]


def test_what_comes_again_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as anything comes; all is sent by then."""
    answers = [True, True, False]
    given: list[object] = []

    def gather(bench: object, outcome: object, all_sent: Callable[[], bool]) -> bool:
        given.append((bench, outcome, all_sent()))
        return answers.pop(0)

    bench: Any = "bench"
    outcome = Outcome()
    monkeypatch.setattr(run, "_gather", gather)
    _settle(bench, outcome)
    assert given == [("bench", outcome, True)] * 3


def interrupted_at(number: int, code: CodeType, deed: Callable[[], object]) -> bool:
    """Call `deed`, and raise as Control-C does before the n-th instruction of `code`; false, if it has fewer.

    They are counted until `sys.settrace(None)` is called.
    """
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        nonlocal left
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            deed()
    finally:
        sys.settrace(before)
    return left < 0


@pytest.mark.parametrize(("bench", "names"), [(_bench, []), (_spark_bench, ["demo-0"])])
@pytest.mark.parametrize("start_is_interrupted", [True, False])
def test_a_demonstration_that_is_interrupted_while_it_starts(
    broker_name: str,
    monkeypatch: pytest.MonkeyPatch,
    bench: Callable[..., AbstractContextManager[object]],
    names: list[str],
    *,
    start_is_interrupted: bool,
) -> None:
    """The memory of its broker is gone, wherever that happens: in the start of the broker or before the connection."""
    made = list[shmbroker.Broker]()
    broker_of = shmbroker.Broker

    def interrupt(_broker: shmbroker.Broker) -> NoReturn:
        sys.settrace(None)
        raise KeyboardInterrupt

    def start(broker: shmbroker.Broker) -> shmbroker.Broker:
        made.append(broker.create())
        if start_is_interrupted:
            interrupt(broker)
        return broker

    def enter() -> None:
        with bench(*names):
            pass

    monkeypatch.setattr(broker_of, "start", start)
    monkeypatch.setattr(broker_of, "connect", interrupt)
    monkeypatch.setattr(shmbroker, "Broker", lambda _name, **options: broker_of(broker_name, **options))
    number = 0
    while interrupted_at(number, inspect.unwrap(bench).__code__, enter):
        assert broker_name not in shmbroker.brokers()
        number += 1
    assert broker_name not in shmbroker.brokers()
    assert number > len(made) > 0
