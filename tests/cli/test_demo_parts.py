# SPDX-License-Identifier: Apache-2.0
"""The parts of `shmbroker demo`, one by one and without processes."""

from __future__ import annotations

import dataclasses
import io
import os
import queue
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from rich.console import Console
from scenario_support.inside import connection_of
from scenario_support.nursery import nursery
from scenario_support.waiting import becomes

import shmbroker
from shmbroker_cli import progress
from shmbroker_cli.demo import command, run, serial
from shmbroker_cli.demo.analysis import Counts, count, why_unparsable
from shmbroker_cli.demo.files import WITH_TEXTS, is_urgent, source_files, urgent_last
from shmbroker_cli.demo.left import Left, Rejected, left_in
from shmbroker_cli.demo.report import Report, compare
from shmbroker_cli.demo.run import Outcome, _bench, _gather, _kill, _note, _publish
from shmbroker_cli.demo.serial import Serial, run_serially
from shmbroker_cli.demo.workers import Analyst

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_counts_of_many_things() -> None:
    """Each is counted each time, and depth is of what lies in another."""
    source = b"""\
import a, b
from c import d
def f():
    if a:
        pass
    elif b:
        for x in a: pass
    else:
        if d:
            if b: pass
async def g(): pass
class C: pass
class D:
    def h(self): pass
"""
    assert count(source) == Counts(lines=14, functions=3, classes=2, imports=2, nesting=4, unparsed=0)
    assert count(b"") == Counts()
    assert count(b"a = 1\nif a: b = 2\n") == Counts(lines=2, nesting=1)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"a = 1\n", ""),
        (b"a = 1\ndef\n", "SyntaxError: invalid syntax (line 2)"),
        (b"# coding: nonsense\n", "SyntaxError: unknown encoding: nonsense"),
        (b"-" * 100_000 + b"1", "MemoryError"),  # or another one, by the version of Python
    ],
)
def test_why_a_file_cannot_be_parsed(source: bytes, why: str) -> None:
    """The words of the parser, with the line if it names one; nothing where it can."""
    assert why_unparsable(source) == why or why == "MemoryError"
    assert bool(why) == bool(count(source).unparsed)


def test_urgent_files_are_sent_last() -> None:
    """The first file of each package is urgent; the others keep their order before them."""
    paths = ["a/__init__.py", "a/b.py", "c__init__.py", "d.py", "z/__init__.py", "z/y.py"]
    assert [is_urgent(path) for path in paths] == [True, False, False, False, True, False]
    assert urgent_last(paths) == ["a/b.py", "c__init__.py", "d.py", "z/y.py", "a/__init__.py", "z/__init__.py"]


def test_sums_of_counts() -> None:
    """Of each its own; the nesting is the deepest."""
    assert Counts(1, 2, 3, 4, 5, 6) + Counts(10, 20, 30, 40, 4, 60) == Counts(11, 22, 33, 44, 5, 66)


def test_the_files_of_a_library(tmp_path: Path) -> None:
    """Sorted, with their folders; what was installed is left out, and so is a folder with such a name."""
    for name in (
        "z.py",
        "a/b.py",
        "a/site-packages/c.py",
        "dist-packages/d.py",
        "a/__pycache__/e.py",
        "a/f.txt",
        "a/g.rst",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.py").mkdir()
    assert source_files(tmp_path) == ["a/b.py", "z.py"]
    assert source_files(tmp_path, WITH_TEXTS) == ["a/b.py", "a/g.rst", "z.py"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_for_a_terminal(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    """On standard error; elsewhere nothing is shown, and it can be told all the same."""
    file = io.StringIO()

    def console(*, stderr: bool = False) -> Console:
        assert stderr
        return Console(file=file, force_terminal=terminal, width=80, color_system=None, _environ={})

    monkeypatch.setattr(progress, "console", console)
    with progress.bar("workers", 7) as done:
        done(1)
        done(3)
    shown = file.getvalue()
    assert ("workers" in shown, "3/7" in shown) == (terminal, terminal)
    assert terminal or not shown


def clock(monkeypatch: pytest.MonkeyPatch, module: Any, *times: float) -> None:  # noqa: ANN401 (a module)
    """Let a module see these times."""
    left = iter(times)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(left)))


def test_a_serial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of each file, and how long all took; progress is told after each."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 3, encoding="ascii")
    clock(monkeypatch, serial, 10.0, 12.5)
    told: list[int] = []
    assert run_serially(tmp_path, ["b", "a"], bytes.upper, told.append) == Serial({"b": b"BBB", "a": b"AAA"}, 2.5)
    assert told == [1, 2]


def test_a_comparison() -> None:
    """All of the report, with rounded times."""
    outcome = Outcome({"a": Counts(1), "b": Counts(2)}, 3, 4, ["worker"], 4.00049)
    expected = Serial({"a": Counts(1), "b": Counts(5), "c": Counts(7)}, 9.00049)
    report = compare(outcome, expected, 2)
    assert report == Report(
        files=3, lost=1, duplicated=3, redelivered=4, killed=["worker"], workers=2, seconds=4.0, serial_seconds=9.0,
        messages_per_second=0.5, speed_up=2.25, totals=Counts(3), serial_totals=Counts(13), differing=1,
    )  # fmt: skip
    assert compare(Outcome({}, seconds=2.00051), Serial({}, 1.00151), 1).seconds == 2.001
    third = compare(Outcome({"a": Counts(1)}, seconds=3.0), Serial({"a": Counts(1)}, 1.0), 1)
    assert (third.messages_per_second, third.speed_up, third.good) == (0.3, 0.33, True)
    for worse in ({"lost": 1}, {"differing": 1}, {"misplaced": 1}, {"totals": Counts(9)}):
        assert not dataclasses.replace(third, **worse).good


def rejected(*paths: str) -> Left:
    """Return what a run left that rejected these."""
    return Left(rejected=[Rejected(path, "rejected", "why") for path in paths])


@pytest.mark.parametrize(
    ("left", "misplaced"),
    [(["b"], 0), ([], 1), (["a", "b"], 1), (["a"], 2), (["b", "b"], 1), (["b", "gone"], 1)],
)
def test_dead_letters_are_compared(left: list[str], misplaced: int) -> None:
    """Exactly the files that cannot be parsed have to be there, each once."""
    results = {"a": Counts(1), "b": Counts(1, unparsed=1)}
    report = compare(Outcome(results, seconds=1.0, left=rejected(*left)), Serial(results, 1.0), 1)
    assert (report.misplaced, report.good) == (misplaced, not misplaced)


@pytest.mark.parametrize(
    ("order", "overtaken"),
    [(["p/__init__.py", "a", "q/__init__.py", "b", "c"], 2), (["a", "p/__init__.py"], 0), (["a", "b"], 0)],
)
def test_what_urgent_files_overtake_is_counted(order: list[str], overtaken: int) -> None:
    """The results that came behind those of all urgent ones."""
    results = {path: Counts(1) for path in order}
    report = compare(Outcome(results, seconds=1.0), Serial(results, 1.0), 1)
    assert (report.urgent, report.overtaken) == (sum(map(is_urgent, order)), overtaken)


def test_what_a_run_left(jobs: shmbroker.Queue) -> None:
    """The late consumer finds the last lines of the ring, and the dead letters with their reasons, and takes them."""
    connection = connection_of(jobs)
    log, dead = connection.queue("log", ring_size=2), connection.queue("dead")
    files = connection.queue("f", dead_letter_exchange="", dead_letter_routing_key="dead")
    log.put_many([b"one", b"two", b"three"])
    for path, body in ("b.py", b"def\n"), ("a.py", b"1 +\n"):
        files.put(body, properties=shmbroker.BasicProperties(message_id=path))
        files.get(timeout=0).reject()
    becomes(lambda: dead.statistics().added, 2)
    why = "SyntaxError: invalid syntax (line 1)"
    expected = Left(3, ["two", "three"], [Rejected("a.py", "rejected", why), Rejected("b.py", "rejected", why)])
    assert left_in(shmbroker.Broker(connection.broker_name), "log", "dead") == expected
    assert (len(log), len(dead)) == (0, 0)


def test_a_worker_answers_under_the_name_it_was_given(jobs: shmbroker.Queue) -> None:
    """With the counts of the file."""
    results, log = (connection_of(jobs).queue(name) for name in ("results", "log"))
    jobs.put(b"import a\n", properties=shmbroker.BasicProperties(message_id="a.py"))
    with jobs.get(timeout=0) as message:
        Analyst(results, log)(message)
    assert jobs.statistics().acked == 1
    assert bytes(log.get(timeout=0, auto_ack=True)) == b"a.py: 1 lines, 0 functions"
    with results.get(timeout=0) as answer:
        assert answer.properties.message_id == "a.py"
        assert Counts.from_bytes(bytes(answer)) == Counts(lines=1, imports=1)


def test_a_worker_rejects_what_it_cannot_parse(jobs: shmbroker.Queue) -> None:
    """After it has answered, so that a kill in between brings the file again."""
    results, log = (connection_of(jobs).queue(name) for name in ("results", "log"))
    jobs.put(b"def\n", properties=shmbroker.BasicProperties(message_id="a.py"))
    with jobs.get(timeout=0) as message:
        Analyst(results, log)(message)
        assert message.settled
    assert (jobs.statistics().acked, jobs.statistics().dropped) == (0, 1)
    assert Counts.from_bytes(bytes(results.get(timeout=0, auto_ack=True))) == Counts(lines=1, unparsed=1)
    assert bytes(log.get(timeout=0, auto_ack=True)) == b"a.py: 1 lines, not parsed"


class Confirmed:
    """A channel that has room after some tries."""

    def __init__(self, *full: bool) -> None:
        """Be full so often."""
        self.full, self.waited = list(full), 0
        self.asked: list[object] = []

    def publish_confirmed(self, *arguments: object, **options: object) -> Self:
        """Publish."""
        self.asked = [*arguments, options]
        if self.full and self.full.pop(0):
            raise queue.Full
        return self

    def result(self) -> None:
        """Wait."""
        self.waited += 1


def test_a_file_is_published_when_there_is_room() -> None:
    """It is mandatory, and waited for; if all is over before, it is not published."""
    ended = threading.Event()
    channel: Any = Confirmed(True, True)  # noqa: FBT003 (full, and full again)
    assert _publish(channel, "a.py", b"x", ended) is True
    properties = shmbroker.BasicProperties(message_id="a.py", priority=0)
    assert channel.asked == ["work", "file", b"x", properties, {"mandatory": True, "timeout": run.LOOK}]
    assert (channel.full, channel.waited) == ([], 1)
    assert _publish(channel, "a/__init__.py", b"x", ended) is True
    assert channel.asked[3] == shmbroker.BasicProperties(message_id="a/__init__.py", priority=1)
    ended.set()
    assert _publish(channel, "a.py", b"x", ended) is False
    assert channel.waited == 2


def test_a_result_is_noted_once() -> None:
    """Others of the same file are counted."""
    outcome = Outcome()
    for path, lines in (("a", 1), ("a", 2), ("b", 3), ("a", 4)):
        _note(path, Counts(lines).to_bytes(), outcome)
    assert (outcome.results, outcome.duplicated) == ({"a": Counts(1), "b": Counts(3)}, 2)


class Table:
    """What does for a bench: queues of so many messages, and these deliveries."""

    def __init__(self, files: int, results: int, *deliveries: tuple[str, bytes] | None) -> None:
        """Have these; None stands for a while in which nothing came."""
        self.files, self.results = self.of(files), self.of(results)
        self.acked = 0
        self.deliveries = iter([self.delivery(one) for one in deliveries])

    @staticmethod
    def of(count: int) -> Any:  # noqa: ANN401 (what does for a queue)
        """Return a queue."""
        return SimpleNamespace(statistics=lambda: SimpleNamespace(message_count=count))

    def delivery(self, one: tuple[str, bytes] | None) -> tuple[Any, Any, Any]:
        """Return what a channel gives."""
        if one is None:
            return None, None, None
        properties = shmbroker.BasicProperties(message_id=one[0] or None)
        return SimpleNamespace(ack=self.ack), properties, one[1]

    def ack(self) -> None:
        """Count."""
        self.acked += 1


ONE = Counts(1).to_bytes()


@pytest.mark.parametrize(
    ("sent", "files", "results", "more"),
    [(True, 0, 0, False), (False, 0, 0, True), (True, 1, 0, True), (True, 0, 1, True), (True, 1, 1, True)],
)
def test_results_come_until_all_is_sent_and_dealt_with(*, sent: bool, files: int, results: int, more: bool) -> None:
    """One at a time; it is acknowledged after it was noted."""
    table: Any = Table(files, results, None, None, ("a", ONE), ("", ONE))
    outcome = Outcome()
    assert _gather(table, outcome, lambda: sent) is more
    assert (outcome.results, table.acked) == (({"a": Counts(1)}, 1) if more else ({}, 0))
    if more:
        assert _gather(table, outcome, lambda: sent)
        assert outcome.results == {"a": Counts(1), "": Counts(1)}


def test_a_result_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute."""
    clock(monkeypatch, run, 100.0, 159.9, 160.0)
    table: Any = Table(1, 0, None)
    assert _gather(table, Outcome(), lambda: False) is False
    assert list(table.deliveries) == []


def test_killing_is_for_others_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker and the housekeeper; not this process, and none that is unknown."""
    victims = [subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    statistics = SimpleNamespace(housekeeper_pid=0)
    broker: Any = SimpleNamespace(statistics=lambda: statistics)
    pool: Any = SimpleNamespace(pids=[])
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    killed: list[object] = []
    assert (_kill(broker, pool), killed) == ([], [])
    statistics.housekeeper_pid, pool.pids = os.getpid(), [victims[0].pid, victims[1].pid]
    assert (_kill(broker, pool), killed) == (["worker"], [(victims[0].pid, signal.SIGKILL)])
    killed.clear()
    statistics.housekeeper_pid, pool.pids = victims[1].pid, []
    assert (_kill(broker, pool), killed) == (["housekeeper"], [(victims[1].pid, signal.SIGKILL)])
    for victim in victims:
        victim.communicate(b"\n")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[shmbroker.Broker]:
    """Return the brokers that are started, whose housekeepers are forked."""
    brokers: list[shmbroker.Broker] = []

    def start(broker: shmbroker.Broker) -> shmbroker.Broker:
        brokers.append(broker)
        nursery().start(broker)
        return broker

    monkeypatch.setattr(shmbroker.Broker, "start", start)
    return brokers


def test_a_bench_has_a_broker_of_its_own(started: list[shmbroker.Broker]) -> None:
    """With room for the queue of files, beyond which a publisher waits; all of it goes."""
    with _bench() as bench:
        assert started == [bench.broker]
        assert bench.broker.name.startswith("demo-")
        assert bench.broker.statistics().memory_limit == 256 << 20
        assert bench.broker.statistics().housekeeper_pid
        settings = bench.files.settings
        assert (settings.max_bytes, settings.overflow, settings.max_priority) == (16 << 20, "block", 1)
        assert (settings.dead_letter_exchange, settings.dead_letter_routing_key) == ("", "unparsable")
        assert bench.log.settings.ring_size == 5
        with bench.broker.connect() as connection:
            (binding,) = connection.bindings()
            assert (binding.source, binding.destination, binding.routing_key) == ("work", "files", "file")
        bench.results.put(b"x")
        method, _, body = next(bench.deliveries)
        assert body == b"x"
        method.ack()
        assert next(bench.deliveries) == (None, None, None)
    assert bench.broker.name not in shmbroker.brokers()


class Crew:
    """Stands in for a pool of processes: a thread that deals with messages."""

    made: tuple[object, ...] = ()

    def __init__(self, call: Callable[[Any], None], name: str, *, broker: str, processes: int) -> None:
        """Note what is asked for."""
        type(self).made = (name, processes)
        self.call, self.name, self.broker, self.pids = call, name, broker, [os.getpid()]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.thread.ident is not None:
            self.thread.join()

    def work(self) -> None:
        """Deal with what comes."""
        with shmbroker.connect(self.broker, create=False) as connection:
            files = connection.queue(self.name, passive=True)
            while not self.ended.is_set():
                try:
                    with files.get(timeout=0.02) as message:
                        self.call(message)
                except queue.Empty:
                    continue


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Lay five files into a folder."""
    for number in range(5):
        (tmp_path / f"{number}.py").write_bytes(b"a\n" * number)
    return tmp_path


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.usefixtures("started")
def test_a_run_in_one_process(library: Path, monkeypatch: pytest.MonkeyPatch, *, kill: bool) -> None:
    """Each file has its result; progress is told; the kill is once, and half-way."""
    monkeypatch.setattr(shmbroker, "WorkerPool", Crew)
    killed: list[list[int]] = []
    told: list[int] = []

    def kill_one(_broker: object, _pool: object) -> list[str]:
        killed.append(told[:])
        return ["it"]

    monkeypatch.setattr(run, "_kill", kill_one)
    paths = source_files(library)
    outcome = run.run(library, paths, workers=3, kill=kill, progress=told.append)
    assert outcome.results == {path: Counts(lines=place) for place, path in enumerate(paths)}
    assert (outcome.duplicated, outcome.redelivered) == (0, 0)
    assert 0 < outcome.seconds < 3600
    assert told == [1, 2, 3, 4, 5]
    assert (killed, outcome.killed) == (([[1, 2, 3]], ["it"]) if kill else ([], []))
    assert Crew.made == ("files", 3)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, library: Path) -> dict[str, Any]:
    """Return what a run is asked for; it gives what a serial one does, but for what is in `lost`.

    There is no restart.
    """
    asked: dict[str, Any] = {"lost": [], "dead": 0}

    def fake(root: Path, paths: list[str], *, progress: Callable[[int], None], **options: object) -> Outcome:
        asked.update(options)
        progress(1)
        results = {path: count((root / path).read_bytes()) for path in paths if path not in asked["lost"]}
        left = Left(7, ["b: 1 lines", "c: 2 lines"], [Rejected("d.py", "rejected", "SyntaxError")] * asked["dead"])
        return Outcome(results, 1, 2, ["worker"] if options["kill"] else [], 2.0, left)

    monkeypatch.setattr(command, "run", fake)
    monkeypatch.setattr(command, "_restart", lambda: None)  # test_demo_restart.py has it
    monkeypatch.setattr(command, "library", lambda: library)
    monkeypatch.setattr(command, "run_serially", lambda *given: dataclasses.replace(run_serially(*given), seconds=3.0))
    return asked


def words(lines: list[str]) -> list[str]:
    """Return lines with single spaces, without the rule below a heading."""
    return [" ".join(line.split()) for line in lines if "\u2500" not in line]


def test_what_the_demonstration_prints(cli: Callable[..., Any], played: dict[str, Any]) -> None:
    """The run, and what was counted with and without the broker."""
    ran = cli("demo", "--workers", "3")
    assert ran.code == 0
    assert words(ran.lines) == [
        "files 5",
        "killed worker",
        "lost 0",
        "duplicated 1 (counted once)",
        "redelivered 2",
        "messages/s 2.5",
        "speed-up 1.50 with 3 workers (3.0 s alone, 2.0 s together)",
        "urgent 0, sent last; 0 others were done after all of them",
        "log 7 lines, of which a ring kept the last 2",
        "counted through the broker alone",
        "lines 10 10",
        "functions 0 0",
        "classes 0 0",
        "imports 0 0",
        "nesting 0 0",
        "unparsed 0 0",
        "last lines of the log",
        "b: 1 lines",
        "c: 2 lines",
        "no dead letters",
        "nothing lost, all counts right, and what cannot be parsed put aside",
    ]
    assert (played["workers"], played["kill"]) == (3, True)


def test_what_the_demonstration_prints_if_a_file_is_lost(cli: Callable[..., Any], played: dict[str, Any]) -> None:
    """All the same, but not that it was good; the exit code is 1, also with JSON."""
    played["lost"].append("4.py")
    ran = cli("demo", "--no-kill")
    assert ran.code == 1
    assert words(ran.lines)[1:3] == ["killed nothing", "lost 1"]
    assert words(ran.lines)[-1] == "no dead letters"
    assert (played["workers"], played["kill"]) == (4, False)
    ran = cli("demo", "--json")
    assert (ran.code, ran.facts["good"], ran.facts["lost"], ran.facts["files"]) == (1, False, 1, 5)


def test_what_the_demonstration_prints_of_dead_letters(cli: Callable[..., Any], played: dict[str, Any]) -> None:
    """The path, the broker's reason and the parser's; one that must not be there is exit code 1."""
    played["dead"] = 1
    ran = cli("demo")
    assert ran.code == 1
    assert words(ran.lines)[-2:] == ["dead letters reason what the parser said", "d.py rejected SyntaxError"]


@pytest.mark.usefixtures("played")
def test_a_demonstration_without_files_is_refused(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says where there are none."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(command, "library", lambda: tmp_path / "empty")
    assert cli("demo").is_refused(f"no source files in {tmp_path / 'empty'}")
