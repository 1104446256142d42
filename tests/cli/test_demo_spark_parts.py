# SPDX-License-Identifier: Apache-2.0
"""What `shmbroker demo-spark` measures, needs, compares and prints, and what it asks of Spark, without Spark."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import os
from typing import TYPE_CHECKING, Any, Self

import pytest

from shmbroker_cli.demo.files import source_files
from shmbroker_cli.demo.serial import Serial, run_serially
from shmbroker_cli.demo_spark import command, needs
from shmbroker_cli.demo_spark.checkpoint import noted
from shmbroker_cli.demo_spark.measures import Measures, Score, measure, score, total
from shmbroker_cli.demo_spark.needs import _java_version
from shmbroker_cli.demo_spark.report import Report, compare
from shmbroker_cli.demo_spark.run import Drive, Outcome
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRIVES = [
    Drive(killed=True, batches=5, again=0, results=1, seconds=2.5, batch_seconds=0.5),
    Drive(killed=False, batches=7, again=2, results=3, seconds=4.5, batch_seconds=None),
]


def words(lines: list[str]) -> list[str]:
    """Return lines with single spaces, without the rule below a heading."""
    return [" ".join(line.split()) for line in lines if "\u2500" not in line]


def test_measures() -> None:
    """Of tokens and of text; a file of nothing is one blank line, and what cannot be read has no tokens."""
    assert score(b"a = a\n") == Score(tokens=3, vocabulary=2, volume=3.0, unread=0)
    assert score(b"") == Score()
    assert score(b"'''\n") == Score(unread=1)
    assert measure(b"") == Measures(lines=1, blank=1)
    assert measure(b"a = a\n\t# b\n \x0c\n\nc#") == Measures(
        tokens=4, vocabulary=3, volume=4 * math.log2(3), size=17, lines=5, blank=2, comments=1, longest=5
    )


def test_totals() -> None:
    """Of nothing, there is nothing; sums of all but the longest line."""
    assert total([]) == Measures()
    one = Measures(1, 2, 0.1, 3, 4, 5, 6, 7, 8)
    other = Measures(10, 20, 0.2, 30, 40, 50, 60, 70, 7)
    third = Measures(volume=0.3)
    assert total(iter([one, other, third])) == Measures(11, 22, math.fsum([0.1, 0.2, 0.3]), 33, 44, 55, 66, 77, 8)


def test_notes_of_a_query_that_has_not_begun(tmp_path: Path) -> None:
    """There are none."""
    assert (noted(tmp_path).planned, noted(tmp_path).done, noted(tmp_path).unfinished) == ({}, {}, set())


def test_notes_of_a_query(tmp_path: Path) -> None:
    """By the numbers of batches, with the times of their files."""
    for name, seconds in (("offsets/0", 5), ("offsets/1", 6), ("offsets/.1.crc", 7), ("commits/0", 8)):
        path = tmp_path / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (seconds, seconds))
    assert (noted(tmp_path).planned, noted(tmp_path).done) == ({0: 5.0, 1: 6.0}, {0: 8.0})
    assert noted(tmp_path).unfinished == {1}


def test_a_comparison() -> None:
    """All of the report, with rounded times."""
    one, two = Measures(lines=1), Measures(lines=2)
    outcome = Outcome([("a", one), ("a", one), ("b", one), ("x", two)], DRIVES, {"leases": 1}, 4.00051)
    report = compare(outcome, Serial({"a": one, "b": two, "c": two}, 2.00051), to_kill=True)
    assert report == Report(
        files=3, lost=1, duplicated=1, differing=2, to_kill=True, drives=DRIVES, left={"leases": 1}, seconds=4.001,
        serial_seconds=2.001, totals=Measures(lines=5), serial_totals=Measures(lines=5),
    )  # fmt: skip
    good = dataclasses.replace(report, lost=0, duplicated=0, differing=0, left={"leases": 0})
    assert (good.good, good.killed) == (True, 1)
    for worse in (
        {"lost": 1},
        {"duplicated": 1},
        {"differing": 1},
        {"left": {"leases": 0, "messages": 1}},
        {"totals": one},
        {"to_kill": False},
        {"drives": DRIVES[1:]},
    ):
        assert not dataclasses.replace(good, **worse).good


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Return what a run is asked for, with a library of eight files; no file in `lost` has a result."""
    for number in range(8):
        (tmp_path / f"{number}.py").write_bytes(b"a\n" * number)
    seen: dict[str, Any] = {"lost": [], "checked": 0}

    def fake(root: Path, paths: list[str], *, kill: bool, progress: Callable[[int], None]) -> Outcome:
        seen.update(paths=paths, kill=kill)
        progress(1)
        results = [(path, measure((root / path).read_bytes())) for path in paths if path not in seen["lost"]]
        return Outcome(results, DRIVES if kill else DRIVES[1:], {"leases": 0, "findings": 0}, 4.0)

    monkeypatch.setattr(needs, "check", lambda: seen.update(checked=seen["checked"] + 1))
    monkeypatch.setattr(command, "run", fake)
    monkeypatch.setattr(command, "library", lambda: tmp_path)
    monkeypatch.setattr(command, "run_serially", lambda *given: dataclasses.replace(run_serially(*given), seconds=3.0))
    return seen


def test_what_it_prints(cli: Callable[..., Any], asked: dict[str, Any]) -> None:
    """The run, its drivers, and what was measured with and without Spark."""
    ran = cli("demo-spark", "--files", "2")
    assert ran.code == 0
    assert words(ran.lines) == [
        "files 2",
        "killed the driver",
        "lost 0",
        "duplicated 0",
        "left 0 leases, 0 findings",
        "seconds 4.0 with Spark's start, 3.0 alone",
        "driver micro-batches run again results seconds of a batch",
        "1, killed 5 0 1 2.5 0.5",
        "2 7 2 3 4.5 -",
        "measured through Spark alone",
        "tokens 4 4",
        "vocabulary 1 1",
        "volume 0.0 0.0",
        "unread 0 0",
        "size 8 8",
        "lines 6 6",
        "blank 2 2",
        "comments 0 0",
        "longest 1 1",
        "each file once, all totals right, nothing left",
    ]
    assert (asked["checked"], asked["kill"]) == (1, True)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [((), "01234567"), (("--files", "3"), "025"), (("--files", "6"), "012456"), (("--files", "99"), "01234567")],
)
def test_files_are_chosen_evenly(
    cli: Callable[..., Any], asked: dict[str, Any], options: tuple[str, ...], numbers: str
) -> None:
    """All, or so many; nobody is killed if that is not wanted, which is no fault."""
    ran = cli("demo-spark", "--json", "--no-kill", *options)
    assert (ran.code, ran.facts["good"], ran.facts["to_kill"]) == (0, True, False)
    assert asked["paths"] == [f"{number}.py" for number in numbers]
    assert asked["kill"] is False


def test_what_is_lost_is_exit_code_1(cli: Callable[..., Any], asked: dict[str, Any]) -> None:
    """And told; that all is well is not."""
    asked["lost"].append("7.py")
    ran = cli("demo-spark", "--no-kill")
    assert ran.code == 1
    assert words(ran.lines)[1:3] == ["killed nothing", "lost 1"]
    assert words(ran.lines)[-1].startswith("longest")
    ran = cli("demo-spark", "--json")
    assert (ran.code, ran.facts["good"], ran.facts["lost"]) == (1, False, 1)


@pytest.mark.usefixtures("asked")
def test_without_files_it_is_refused(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says where there are none."""
    (tmp_path / "empty").mkdir()
    assert source_files(tmp_path / "empty") == []
    monkeypatch.setattr(command, "library", lambda: tmp_path / "empty")
    assert cli("demo-spark").is_refused(f"no source files in {tmp_path / 'empty'}")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that makes a Java of a shell script, where JAVA_HOME says."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()

    def make(script: str) -> str:
        path = tmp_path / "bin" / "java"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'openjdk version \"17.0.2\"' >&2", 17),
        ("echo 'openjdk version \"21\"'", 21),
        ("echo 'java version \"1.8.0_292\"' >&2; exit 1", 8),
    ],
)
def test_the_version_of_java(java: Callable[[str], str], script: str, version: int) -> None:
    """Wherever it tells it."""
    java(script)
    assert _java_version() == version


def test_where_java_is(java: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where JAVA_HOME says, else on the path; else there is none."""
    java("echo 'version \"18\"'")
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert _java_version() == 18
    monkeypatch.delenv("JAVA_HOME")
    assert _java_version() == 0
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert _java_version() == 18
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "bin"))
    assert _java_version() == 0


def test_a_java_that_does_not_run(java: Callable[[str], str]) -> None:
    """The line has its path and its exit code."""
    path = java("exit 3")
    with pytest.raises(Refused) as refused:
        _java_version()
    assert str(refused.value).startswith(f"{path} -version ended with exit code 3: ")


@pytest.mark.parametrize(
    ("version", "missing", "text"),
    [
        (0, (), "Spark needs Java 17 or newer, and there is none: apt install openjdk-17-jre-headless"),
        (16, (), "Spark needs Java 17 or newer, and this is 16: apt install openjdk-17-jre-headless"),
        (17, ("pyspark",), "no pyspark: pip install 'shmbroker[spark]'"),
        (17, ("pyarrow", "pandas"), "no pyarrow and no pandas: pip install 'shmbroker[spark]'"),
        (17, (), ""),
    ],
)
def test_what_spark_needs(monkeypatch: pytest.MonkeyPatch, version: int, missing: tuple[str, ...], text: str) -> None:
    """What is missing is told with the command that brings it."""
    monkeypatch.setattr(needs, "_java_version", lambda: version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    if not text:
        needs.check()
        return
    with pytest.raises(Refused) as refused:
        needs.check()
    assert str(refused.value) == text


def test_what_the_scorer_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that it got, with scores in place of sources; it serves one queue of one broker."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    from shmbroker_cli.demo_spark import scorer  # noqa: PLC0415 (not where there is no Arrow)

    batch = pa.RecordBatch.from_pydict({"path": ["a", "b"], "source": [b"a = a\n", b"'''\n"], "size": [6, 4]})
    answer = scorer.scored(batch)
    assert answer.schema == pa.schema([batch.schema.field("path"), batch.schema.field("size"), *scorer.SCORES])
    assert scorer.scored(batch.slice(0, 0)).schema == answer.schema
    assert answer.to_pylist() == [
        {"path": "a", "size": 6, "tokens": 3, "vocabulary": 2, "volume": 3.0, "unread": 0},
        {"path": "b", "size": 4, "tokens": 0, "vocabulary": 0, "volume": 0.0, "unread": 1},
    ]
    seen: list[object] = []
    monkeypatch.setattr(scorer, "end_with_parent", lambda: seen.append("ends with its parent"))
    monkeypatch.setattr(scorer, "serve", lambda *words, **options: seen.append((words, options)))
    scorer.main("b")
    assert seen == ["ends with its parent", (("score", scorer.scored), {"broker": "b"})]


class Chain:
    """Notes what is called on it, and on what that returns."""

    def __init__(self, name: str = "", seen: list[str] | None = None, **has: object) -> None:
        """Begin, or go on."""
        self._name, self.seen = name, [] if seen is None else seen
        self.__dict__.update(has)

    def __getattr__(self, name: str) -> Chain:
        if name == "rsplit":  # (no function of Spark)
            raise AttributeError(name)
        return Chain(f"{self._name}.{name}".lstrip("."), self.seen)

    def __call__(self, *words: object, **options: object) -> Self:
        """Note it."""
        told = [repr(word) for word in words] + [f"{name}={value!r}" for name, value in options.items()]
        self._name = f"{self._name}({', '.join(told)})"
        self.seen.append(self._name)
        return self

    def __repr__(self) -> str:
        return self._name


def test_what_the_query_asks_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are of bytes; a result is all but the path, under it."""
    sql = pytest.importorskip("pyspark.sql")
    from shmbroker_cli.demo_spark import query  # noqa: PLC0415 (beside the line above)

    functions = Chain("f")
    monkeypatch.setattr(sql, "functions", functions)
    scored: Any = Chain("scored", columns=["a", "path", "b"])
    query.results(scored)
    assert scored.seen == ["scored.select(f.column('path').alias('key'), f.to_json(f.struct('a', 'b')).alias('value'))"]
    files: Any = Chain("files")
    query.text_measures(files)
    lines = "f.split(f.decode('value', 'ISO-8859-1'), '\\n')"
    (asked,) = files.seen
    assert f"f.size({lines}).cast('long').alias('lines')" in asked
    assert f"f.array_max(f.transform({lines}, f.length)).cast('long').alias('longest')" in asked
    assert asked.count(lines) == 4


def test_what_the_driver_asks_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From one queue to another by way of the scorer, until all that was there is done; then Spark stops."""
    pytest.importorskip("pyspark.sql")
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    from pathlib import Path as AnyPath  # noqa: PLC0415 (the fixture's type has that name)

    from shmbroker_cli.demo_spark import driver  # noqa: PLC0415 (not where there is no Spark)

    session, query = Chain("spark"), importlib.import_module("shmbroker_cli.demo_spark.query")
    folders: list[AnyPath] = []
    parents: list[int] = []

    def start(folder: AnyPath) -> Chain:
        folders.append(folder)
        return session

    monkeypatch.setattr(driver, "end_with_parent", lambda: parents.append(1))
    monkeypatch.setattr(driver, "_session", start)
    monkeypatch.setattr(query, "text_measures", lambda files: ("measured", files))
    monkeypatch.setattr(driver, "exchange", lambda *words, **options: ("scored", words, options))
    sink = Chain("sink")
    monkeypatch.setattr(query, "results", lambda scored: sink.__dict__.update(scored=scored) or sink)
    driver.main("b", str(tmp_path), "7")
    assert (parents, folders, session.seen[-1]) == ([1], [AnyPath(tmp_path)], "spark.stop()")
    name, (measured, *queues), options = sink.__dict__["scored"]
    assert (name, queues, options) == ("scored", ["score", "scored", query.SCORED], {"broker": "b"})
    assert measured[0] == "measured"
    assert repr(measured[1]) == (
        "spark.readStream.format('shmbroker').option('broker', 'b').option('group', 'demo-spark')"
        ".option('columns', 'key,value').option('maxRowsPerTrigger', '7').option('minPartitions', 2).load('files')"
    )
    assert sink.seen[-1] == (
        f"sink.writeStream.format('shmbroker').option('broker', 'b').option('queue', 'results')"
        f".option('checkpointLocation', '{tmp_path}/checkpoint').trigger(availableNow=True).start().awaitTermination()"
    )


def test_how_the_driver_starts_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With this Python, on two cores, with all its files in one folder, and quiet."""
    pytest.importorskip("pyspark.sql")
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    import sys  # noqa: PLC0415 (beside the next one)

    from shmbroker_cli.demo_spark import driver  # noqa: PLC0415 (not where there is no Spark)

    spark = Chain("S")
    monkeypatch.setattr(driver, "SparkSession", spark)
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    session: Any = driver._session(tmp_path)  # noqa: SLF001 (of the module that is tested)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    asked = repr(session)
    assert asked.startswith("S.builder.master('local[2]').appName('shmbroker demo-spark').config(")
    assert asked.endswith(".getOrCreate()")
    assert f".config('spark.sql.warehouse.dir', '{tmp_path}/warehouse')" in asked
    assert asked.count(".config(") == 10
    assert spark.seen[-1] == f"{asked}.sparkContext.setLogLevel('ERROR')"
