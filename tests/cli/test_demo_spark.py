# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo-spark`: what it measures, what it compares, what it needs, and a small run."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker_cli.demo_spark.command as demo_command
from shmbroker_cli.demo.serial import Serial, run_serially
from shmbroker_cli.demo_spark import needs
from shmbroker_cli.demo_spark.checkpoint import CHECKPOINT, noted
from shmbroker_cli.demo_spark.measures import Measures, measure, total
from shmbroker_cli.demo_spark.processes import Process
from shmbroker_cli.demo_spark.report import Report, compare
from shmbroker_cli.demo_spark.run import Drive, Outcome
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = b"""\
# all lines, and what is in them
import os

def f():
    return os.sep  # not a separate line
"""
ODD = {
    "bell.py": b"# \xef\xbb\xbf \x85\n\x85\n\xa0\n",
    "dos.py": b"a = 1\r\n\r\n\t# b\r\n",
    "empty.py": b"",
    "feed.py": b"\x0c\n \x0c\t\n\x0b\n\x1c\n",
    "latin.py": b"# coding: latin-1\na = '\xe4\xe4'\n",
    "nul.py": b"a\x00b\n",
    "open.py": b"'''\n",
    "utf8.py": "a = 'ü€𝄞\u2028'\n# ü\n\u00a0".encode(),
}


def test_measures_of_a_file() -> None:
    """Text: size, lines, blank ones, comments, the longest. Tokens: how many, how many different, their volume."""
    texts = {"size": 94, "lines": 6, "blank": 2, "comments": 1, "longest": 40}
    assert measure(SOURCE) == Measures(**texts, tokens=11, vocabulary=10, volume=11 * math.log2(10))


@pytest.mark.parametrize("source", [b"'''\n", b"# coding: nonsense\n", b"\xff = 1\n", b"  a\n b\n"])
def test_what_cannot_be_tokenised_counts_as_such(source: bytes) -> None:
    """Its text counts all the same."""
    found = measure(source)
    assert (found.unread, found.tokens, found.volume) == (1, 0, 0.0)
    assert (found.size, found.lines) == (len(source), source.count(b"\n") + 1)


def test_totals_do_not_depend_on_the_order() -> None:
    """Not even in the last bit: volumes are no whole numbers."""
    found = [Measures(volume=0.1), Measures(volume=0.2, longest=9), Measures(volume=0.3)]
    assert total(found) == total(reversed(found))
    assert total(found).longest == 9


def outcome(*results: tuple[str, Measures], killed: bool = True, **left: int) -> Outcome:
    """Return what came of a run with these results."""
    drives = [
        Drive(killed, 5, 0, 1, 2.0, 0.5),
        Drive(killed=False, batches=7, again=1, results=1, seconds=2.0, batch_seconds=None),
    ]
    return Outcome(list(results), drives if killed else drives[1:], left, 4.0)


ONE, TWO = Measures(lines=1), Measures(lines=2)
SERIAL = Serial({"a": ONE, "b": TWO}, 1.0)


def compared(*results: tuple[str, Measures], **options: Any) -> Report:  # noqa: ANN401 (whatever `outcome` takes)
    """Compare these results with one line in `a` and two in `b`."""
    return compare(outcome(*results, **options), SERIAL, to_kill=True)


def test_each_file_once_is_good() -> None:
    """In any order."""
    report = compared(("b", TWO), ("a", ONE))
    assert (report.good, report.lost, report.duplicated, report.differing) == (True, 0, 0, 0)


def test_a_lost_result_is_bad() -> None:
    """It is counted, and the totals differ."""
    report = compared(("a", ONE))
    assert (report.good, report.lost) == (False, 1)
    assert report.totals != report.serial_totals


def test_a_doubled_result_is_bad() -> None:
    """Though it says the same as the first: exactly once is what the query promises. No sum may make up for it."""
    report = compared(("a", ONE), ("a", ONE), ("b", TWO))
    assert (report.good, report.duplicated, report.lost) == (False, 1, 0)
    empty = compare(outcome(("a", Measures()), ("a", Measures())), Serial({"a": Measures()}, 1.0), to_kill=True)
    assert empty.totals == empty.serial_totals
    assert not empty.good


def test_results_that_differ_are_bad_even_if_the_totals_agree() -> None:
    """Two errors must not cancel out; nor is a file right that was not sent."""
    report = compared(("a", TWO), ("b", ONE))
    assert report.totals == report.serial_totals
    assert (report.good, report.differing) == (False, 2)
    assert not compared(("a", ONE), ("b", TWO), ("c", Measures())).good


def test_what_is_left_is_bad() -> None:
    """A lease, an attempt that is staged, a process, a segment."""
    assert compared(("a", ONE), ("b", TWO), leases=0).good
    assert not compared(("a", ONE), ("b", TWO), leases=0, attempts=1).good


def test_a_driver_that_was_not_killed_is_bad() -> None:
    """If it was to be: then nothing was shown."""
    assert not compared(("a", ONE), ("b", TWO), killed=False).good
    assert compare(outcome(("a", ONE), ("b", TWO), killed=False), SERIAL, to_kill=False).good


@pytest.fixture
def no_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demonstration begin, whatever is missing."""
    monkeypatch.setattr(needs, "check", lambda: None)


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the demonstration find some files, most of them odd."""
    root = tmp_path / "library"
    root.mkdir()
    for name, source in ODD.items():
        (root / name).write_bytes(source)
    for number in range(12):
        (root / f"module_{number}.py").write_bytes(SOURCE * number)
    monkeypatch.setattr(demo_command, "library", lambda: root)
    return root


@pytest.mark.usefixtures("no_needs", "small_library")
@pytest.mark.parametrize(("wrong", "line"), [("lost", "lost 1"), ("doubled", "duplicated 1"), ("", "lost 0")])
def test_the_report_and_the_exit_code(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, wrong: str, line: str
) -> None:
    """What happened is printed, good or bad; what is bad is exit code 1."""

    def fake(root: Path, paths: list[str], **_options: object) -> Outcome:
        results = [(path, measure((root / path).read_bytes())) for path in paths]
        changed = {"lost": results[1:], "doubled": [*results, results[0]], "": results}[wrong]
        return outcome(*changed, leases=0)

    monkeypatch.setattr(demo_command, "run", fake)
    ran = cli("demo-spark", "--files", "6")
    lines = [" ".join(line.split()) for line in ran.lines]
    assert ran.code == (1 if wrong else 0)
    assert {"files 6", "killed the driver", line, "left 0 leases", "1, killed 5 0 1 2.0 0.5", "2 7 1 1 2.0 -"} <= {
        *lines
    }
    assert ("each file once, all totals right, nothing left" in lines) is not bool(wrong)


def fake_java(folder: Path, script: str) -> None:
    """Make a Java of a shell script."""
    (folder / "bin").mkdir()
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    (folder / "bin" / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", ["Java 17 or newer", "this is 11"]),
        ("echo 'java version \"1.8.0_292\"' >&2", ["Java 17 or newer", "this is 8"]),
        ("exit 3", ["exit code 3"]),
        ("", ["exit code 0"]),
    ],
)
def test_a_java_that_will_not_do_is_one_line(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: list[str]
) -> None:
    """With the command that installs one that does."""
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert cli("demo-spark").is_refused("apt install openjdk-17-jre-headless", *words)


def test_without_java_there_is_one_line(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on the path nor where JAVA_HOME says."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert cli("demo-spark").is_refused("there is none", "apt install openjdk-17-jre-headless")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert cli("demo-spark").is_refused("there is none", "apt install openjdk-17-jre-headless")


def test_without_spark_there_is_one_line(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what is missing, and how to get it."""
    fake_java(tmp_path, "echo 'openjdk version \"21\" 2023' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else object())
    assert cli("demo-spark").is_refused("no pyspark:", "pip install 'shmbroker[spark]'")


def test_what_spark_noted(tmp_path: Path) -> None:
    """Batches that were planned, and done; other files of the log are none."""
    assert noted(tmp_path).planned == {}
    for log, names in {"offsets": "0 1 2 .2.crc", "commits": "0 1 .1.crc"}.items():
        (tmp_path / CHECKPOINT / log).mkdir(parents=True)
        for name in names.split():
            (tmp_path / CHECKPOINT / log / name).touch()
    os.utime(tmp_path / CHECKPOINT / "commits" / "1", (7, 7))
    found = noted(tmp_path)
    assert (found.planned.keys(), found.done.keys(), found.unfinished) == ({0, 1, 2}, {0, 1}, {2})
    assert found.done[1] == 7


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Process]:
    """Return a function that runs a text as a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def start(text: str) -> Process:
        (tmp_path / "told.py").write_text(text, encoding="ascii")
        return Process("told", folder=tmp_path)

    return start


def until_it_ends(process: Process) -> None:
    """Wait for the end of a process, good or bad."""
    while process.runs():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('Query: 7'); print('One: 8'); raise ValueError('seven')", "ValueError: seven"),
        ("print('shmbroker.exceptions.NoServer: 312'); print('a.b.QueryException: 7'); exit(1)", r"shmbroker.*: 312"),
        ("print('a.b.QueryException: 7'); print('Identifier: 8'); exit(1)", "a.b.QueryException: 7"),
        ("print('seven'); exit(1)", "seven"),
        ("exit(1)", "it printed nothing"),
    ],
    ids=["python", "broker", "spark", "text", "nothing"],
)
def test_a_process_that_fails_says_of_what(program: Callable[[str], Process], text: str, told: str) -> None:
    """In a line: the broker's error, if it is among Spark's many lines; else the last error, else the last line."""
    with program(text) as process, pytest.raises(Refused, match=f"^the told ended with exit code 1: {told}$"):
        until_it_ends(process)


def test_all_of_a_process_ends_with_its_block(program: Callable[[str], Process], tmp_path: Path) -> None:
    """Also what it started in a group of its own, as Spark does with its workers, and what outlives a kill."""
    text = """
import subprocess, sys
waits = [sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"]
with open("pids", "w") as file:
    for group in (None, 0):
        print(subprocess.Popen(waits, process_group=group).pid, file=file)
    print("all", file=file)
sys.stdin.read()
"""
    pids = tmp_path / "pids"
    with program(text) as process:
        while not pids.exists() or not pids.read_text("ascii").endswith("all\n"):
            time.sleep(0.01)
        same_group, own_group = map(int, pids.read_text("ascii").split()[:2])
        assert {*process.left()} == {process.pid, same_group, own_group}
        process.kill()
        while process.left() != [own_group]:
            time.sleep(0.01)
    assert process.left() == []


def test_a_process_ends_with_its_parent() -> None:
    """It notices that nobody has the other end of its standard input any more."""
    text = (
        "import signal; from shmbroker_cli.demo_spark.parent import end_with_parent; end_with_parent(); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, start_new_session=True)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.fixture
def spark_is_there() -> None:
    """Skip the test where Spark cannot run, with the line that says why."""
    try:
        needs.check()
    except Refused as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_is_there")
def test_a_run_loses_and_doubles_nothing(cli: Callable[..., Any], small_library: Path) -> None:
    """The driver is killed half-way; what Spark and the scorer find out is what Python does, however odd a file is."""
    ran = cli("demo-spark", "--json")
    assert (ran.code, ran.err) == (0, "")
    facts = ran.facts
    paths = [path.name for path in small_library.iterdir()]
    assert (facts["files"], facts["lost"], facts["duplicated"], facts["differing"]) == (len(paths), 0, 0, 0)
    first, second = facts["drives"]
    assert (first["killed"], second["killed"]) == (True, False)
    assert len(paths) / 2 <= first["results"] < len(paths)
    assert first["results"] + second["results"] == len(paths)
    expected = run_serially(small_library, paths, measure, lambda _done: None)
    assert facts["totals"] == dataclasses.asdict(total(expected.results.values()))
    assert facts["totals"]["unread"] > 1
    assert {*facts["left"].values()} == {0}
