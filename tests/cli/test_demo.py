# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: what it counts, what it compares, and a small run."""

from __future__ import annotations

import dataclasses
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
import shmbroker_cli.demo.command as demo_command
from shmbroker_cli.demo.analysis import Counts, count
from shmbroker_cli.demo.files import WITH_TEXTS, library, source_files
from shmbroker_cli.demo.report import compare
from shmbroker_cli.demo.run import Outcome
from shmbroker_cli.demo.serial import Serial, run_serially

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


SOURCE = b"""\
import os
from sys import path

class Thing:
    def one(self):
        if path:
            return 1
        elif os:
            return 2
        for _ in path:
            async def two(): pass
"""


def test_counts_of_a_file() -> None:
    """Lines, functions, classes, imports, and how deeply blocks lie in blocks."""
    assert count(SOURCE) == Counts(lines=11, functions=2, classes=1, imports=2, nesting=4)


def test_an_elif_is_no_deeper_than_its_if() -> None:
    """An `if` inside an `else` is."""
    chain = b"if a: pass\nelif b: pass\nelif c: pass\n"
    assert count(chain).nesting == 1
    assert count(b"if a: pass\nelse:\n    if b: pass\n").nesting == 2


@pytest.mark.parametrize("source", [b"def\n", b"\x00\n", b"# coding: nonsense\n", b"\xff = 1\n"])
def test_what_is_not_python_counts_as_such(source: bytes) -> None:
    """Bad syntax and bad encodings alike; the lines are counted all the same."""
    assert count(source) == Counts(lines=1, unparsed=1)


def test_old_code_warns_nobody() -> None:
    """An escape that Python does not know is a warning, not an error."""
    assert count(b"'\\d'\n") == Counts(lines=1)


def test_counts_add_up_and_travel() -> None:
    """Sums, except for the deepest nesting; and through a message unchanged."""
    total = Counts(1, 2, 3, 4, 5, 0) + Counts(1, 1, 1, 1, 9, 1)
    assert total == Counts(2, 3, 4, 5, 9, 1)
    assert Counts.from_bytes(total.to_bytes()) == total


def test_the_library_is_the_running_python_s() -> None:
    """Hundreds of files, also where its tests are not installed; sorted, without what was installed beside it."""
    paths = source_files(library())
    assert str(library()) == sysconfig.get_path("stdlib")
    assert len(paths) > 500
    assert paths == sorted(paths)
    assert "ast.py" in paths
    assert not [path for path in paths if "site-packages" in path]


def test_every_library_has_something_that_is_no_python() -> None:
    """So that the demonstration has dead letters, also where Python comes without its tests: a text on `email`."""
    text = "email/architecture.rst"
    assert text in source_files(library(), WITH_TEXTS)
    assert count((library() / text).read_bytes()).unparsed == 1


def outcome(results: dict[str, Counts], **given: int) -> Outcome:
    """Return an outcome with these results."""
    return Outcome(results=results, seconds=1.0, **given)


def test_a_lost_file_is_bad() -> None:
    """It is counted, and the totals differ."""
    serial = Serial({"a": Counts(1), "b": Counts(2)}, 2.0)
    report = compare(outcome({"a": Counts(1)}), serial, 4)
    assert (report.good, report.lost) == (False, 1)
    assert report.speed_up == 2.0


def test_counts_that_differ_are_bad_even_if_the_totals_agree() -> None:
    """Two errors must not cancel out."""
    serial = Serial({"a": Counts(1), "b": Counts(2)}, 1.0)
    report = compare(outcome({"a": Counts(2), "b": Counts(1)}), serial, 4)
    assert report.totals == report.serial_totals
    assert (report.good, report.differing) == (False, 2)


def test_duplicates_are_told_but_not_bad() -> None:
    """They are recognised by their id and counted once."""
    serial = Serial({"a": Counts(1)}, 1.0)
    report = compare(outcome({"a": Counts(1)}, duplicated=3, redelivered=3), serial, 4)
    assert (report.good, report.duplicated) == (True, 3)


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the demonstration find 200 files, one of them bad, and one urgent."""
    for number in range(199):
        name = f"module_{number:03}.py" if number else "__init__.py"
        (tmp_path / name).write_bytes(SOURCE * (number % 7 + 1))
    (tmp_path / "zz_bad.py").write_bytes(b"def\n")
    monkeypatch.setattr(demo_command, "library", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", [(), ("--no-kill",)], ids=["kill", "no-kill"])
def test_a_run_loses_nothing(
    cli: Callable[..., Any], small_library: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed half-way; its own brokers are gone afterwards. Only with kills there is a restart."""
    made: list[str] = []
    true_start = shmbroker.Broker.start

    def start(self: shmbroker.Broker) -> shmbroker.Broker:
        made.append(self.name)
        return true_start(self)

    monkeypatch.setattr(shmbroker.Broker, "start", start)
    ran = cli("demo", "--workers", "2", "--json", *options)
    assert (ran.code, ran.err) == (0, "")
    facts = ran.facts
    assert (facts["files"], facts["lost"], facts["differing"]) == (200, 0, 0)
    assert facts["killed"] == ([] if options else ["worker", "housekeeper"])
    expected = run_serially(small_library, source_files(small_library), count, lambda _done: None)
    total = sum(expected.results.values(), start=Counts())
    assert facts["totals"] == dataclasses.asdict(total)
    assert total.unparsed == 1
    assert (facts["misplaced"], facts["urgent"]) == (0, 1)
    (dead,) = facts["left"]["rejected"]
    assert dead == {"path": "zz_bad.py", "reason": "rejected", "why": "SyntaxError: invalid syntax (line 1)"}
    assert facts["left"]["lines"] >= 200
    assert len(facts["left"]["last_lines"]) == 5
    assert (facts["restart"] is None) == bool(options)
    assert len(made) == (1 if options else 3)
    assert not {*made} & {*shmbroker.brokers()}


@pytest.mark.usefixtures("small_library")
def test_a_difference_is_exit_code_1(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the report is printed all the same."""
    true_run = demo_command.run

    def losing(*arguments: object, **options: object) -> Outcome:
        result = true_run(*arguments, **options)
        del result.results["module_001.py"]
        return result

    monkeypatch.setattr(demo_command, "run", losing)
    ran = cli("demo", "--workers", "1", "--no-kill")
    assert ran.code == 1
    assert [line.split() for line in ran.lines if line.startswith("lost")] == [["lost", "1"]]


@pytest.mark.usefixtures("small_library")
def test_a_file_that_no_queue_would_get_is_an_error(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are mandatory: none is lost without a word, and nobody waits for its result."""
    monkeypatch.setattr("shmbroker.channel.Channel.queue_bind", lambda *_arguments: None)
    assert cli("demo", "--workers", "1", "--no-kill").is_refused("NO_ROUTE", "work")
