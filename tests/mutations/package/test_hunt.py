# SPDX-License-Identifier: Apache-2.0
"""The runner finds a fault that a test finds, in all processes of the test, and leaves the checkout as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("mutmut", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.equivalents import equivalents
from tests.mutations.package.__main__ import EQUIVALENT, chosen
from tests.mutations.package.hunt import Hunt
from tests.mutations.package.marking import Places
from tests.mutations.package.points import points_of
from tests.mutations.package.survey import STAGES, Surveys, files_of
from tests.mutations.package.survey import test_file as file_of
from tests.mutations.package.trial import Batch, Verdict, attempt
from tests.mutations.package.workshop import ROOT, Reach, texts
from tests.mutations.report import write_section
from tests.mutations.results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from tests.mutations.point import Point

FILE = "shmbroker/_amqp/utf8.py"
TESTS = ["tests/unit/test_times.py", "tests/scenarios/test_ring.py", "tests/unit/amqp/test_utf8.py"]
NAMESPACES = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
PROGRAM = """
import subprocess, sys
from pathlib import Path
from tests.mutations.package import workshop
folder = Path(sys.argv[1])
workshop.snapshot(folder / "copy")
workshop.begin(folder / "copy")
here = workshop.workshop()
text = here.original["shmbroker/_amqp/utf8.py"]
command = [sys.executable, "-I", "-c", "from shmbroker._amqp import utf8; print(utf8.size_in_utf8('abc'))"]
for changed in (text.replace("len(text.encode())", "7"), text.replace("len(text.encode())", "8"), text):
    here.write({"shmbroker/_amqp/utf8.py": changed})
    subprocess.run(command, env={}, check=True)
"""


class Told(Executor):
    """Answers calls of the runner instead of a pool.

    Args:
        finders: For the key of a fault the test that finds it.
    """

    def __init__(self, finders: Mapping[str, str] | None = None) -> None:
        self.finders = finders or {}
        self.alone: dict[str, list[list[str]]] = {}  # for a fault the batches of tests that it met alone
        self.together: list[tuple[list[str], list[str]]] = []  # the faults of each group, and the tests that they met

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_names: Any) -> Future[Any]:  # noqa: ANN401
        """Answer."""
        future: Future[Any] = Future()
        future.set_result((self._attempt if function is attempt else self._attempt_together)(*arguments))
        return future

    def _attempt(self, point: Point, batches: Sequence[Batch], files: Collection[str]) -> Verdict:
        self.alone[point.key] = [list(batch.tests) for batch in batches]
        tests = [test for batch in batches for test in batch.tests]
        assert {file_of(test) for test in tests} <= set(files)
        finder = self.finders.get(point.key)
        return Verdict(tuple(tests), finder if finder in tests else None)

    def _attempt_together(self, points: Sequence[Point], batch: Batch) -> dict[str, str]:
        keys = [point.key for point in points]
        self.together.append((keys, list(batch.tests)))
        return {key: self.finders[key] for key in keys if self.finders.get(key) in batch.tests}


def id_of(nth: int) -> str:
    """The id of the test in one of the files."""
    return f"{TESTS[nth]}::test_a"


@pytest.fixture
def points() -> list[Point]:
    """Give the faults of a small module."""
    return points_of(FILE, texts()[FILE])


@pytest.fixture
def hunt(tmp_path: Path, points: list[Point], monkeypatch: pytest.MonkeyPatch) -> Hunt:
    """Give a hunt in which three tests come to the first fault, and none to the last."""
    package = {FILE: texts()[FILE]}
    places = Places.of(package)
    results = Results(tmp_path / "results.sqlite")
    surveys = Surveys(results.file, package, [FILE])
    monkeypatch.setattr(surveys, "text", lambda name: f"text of {name}")
    seen = bytearray(places.size)
    for point in points[:-1]:
        seen[places.first[FILE] + point.place] = point.place != points[-1].place
    for name, seconds in zip(TESTS, (0.25, 0.04, 0.12), strict=True):
        surveys.add(name, {f"{name}::test_a": Reach(seconds, zlib.compress(seen))})
    return Hunt(surveys, results, {}, TESTS)


def test_tests_that_come_to_a_fault_meet_it_stage_by_stage(hunt: Hunt, points: list[Point]) -> None:
    """The cheapest of a stage is first, in batches that grow; scenarios come later; a fault nothing reaches is said."""
    pool = Told()
    hunt.hunt([points[0], points[-1]], pool, 1, 60.0)
    assert pool.alone == {points[0].key: [[id_of(2)], [id_of(0), id_of(1)]]}
    assert pool.together == []  # it has met all that reach it
    assert hunt.known().outcome(points[0]) == "survived"
    assert hunt.known().outcome(points[-1]) == "unreached"


def test_what_is_known_is_not_tried_again(hunt: Hunt, points: list[Point], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a fault that was found, nor a test that passed, until its file changes."""
    first, second = points[:2]
    pool = Told({first.key: id_of(2)})
    hunt.hunt([first, second], pool, 1, 0.15)
    assert hunt.known().outcome(first) == "killed"
    assert pool.together == [([second.key], [id_of(0), id_of(1)])]
    pool = Told()
    hunt.hunt([first, second], pool, 1, 60.0)
    assert pool.alone == {}
    assert pool.together == []
    monkeypatch.setattr(hunt.surveys, "text", lambda name: f"new text of {name}")
    everything = zlib.compress(b"\1" * Places.of({FILE: texts()[FILE]}).size)
    for name in TESTS:
        hunt.surveys.add(name, {f"{name}::test_a": Reach(1.0, everything)})
    again = Hunt(hunt.surveys, hunt.results, {}, TESTS)
    again.hunt([first, second], pool, 1, 60.0)
    assert [(keys, len(tests)) for keys, tests in pool.together] == [([second.key], 3)]


def test_what_is_left_meets_the_other_tests_in_groups(hunt: Hunt, points: list[Point]) -> None:
    """A group has one fault of a function; what the fault has met alone is not run again."""
    first, second = points[:2]
    assert first.function == second.function
    pool = Told({second.key: id_of(1)})
    hunt.hunt([first, second], pool, 1, 0.15)
    assert pool.alone == {point.key: [[id_of(2)]] for point in (first, second)}
    assert pool.together == [([point.key], [id_of(0), id_of(1)]) for point in (first, second)]
    assert [hunt.known().outcome(point) for point in (first, second)] == ["survived", "killed"]


def test_a_test_that_comes_to_little_besides_is_first(hunt: Hunt, points: list[Point]) -> None:
    """It is the one that was written for the module, even if others take less time."""
    places = Places.of({FILE: texts()[FILE]})
    place = places.first[FILE] + points[0].place
    narrow = bytes(nth == place for nth in range(places.size))
    hunt.surveys.add(TESTS[0], {id_of(0): Reach(0.25, zlib.compress(narrow))})
    pool = Told()
    hunt.hunt(points[:1], pool, 1, 60.0)
    assert pool.alone[points[0].key][0] == [id_of(0)]


def test_a_survey_holds_while_the_module_and_the_test_are_the_same(tmp_path: Path) -> None:
    """Edits of other modules move its lines; an edit of the module itself makes another survey necessary."""
    file, test = Results(tmp_path / "results.sqlite").file, "tests/unit/test_times.py"
    before = {"a.py": "1\n", "b.py": "2\n", "c.py": "3\n"}
    places = Places.of(before)
    seen = bytes(nth == places.first["b.py"] + 1 for nth in range(places.size))
    Surveys(file, before, ["b.py"]).add(test, {"x": Reach(1.0, zlib.compress(seen))})
    longer = before | {"a.py": "1\n1\n1\n"}
    (comes,) = Surveys(file, longer, ["b.py"]).reaching(test)
    assert comes.to("b.py", 1)
    assert not comes.to("c.py", 1)
    assert not Surveys(file, longer, ["a.py", "b.py"]).has(test)
    edited = Surveys(file, before | {"b.py": "4\n"}, ["b.py"])
    assert not edited.has(test)
    assert list(edited.reaching(test)) == []


def test_a_budget_bounds_what_a_fault_meets(hunt: Hunt, points: list[Point]) -> None:
    """The first batch is run in any case, so that each fault meets something."""
    pool = Told()
    hunt.hunt(points[:1], pool, 1, 0.15)
    assert pool.alone[points[0].key] == [[id_of(2)]]


def test_files_of_tests_are_found_by_stage() -> None:
    """Each stage has some, and each has one stage."""
    found = [name for stage in STAGES for name in files_of(stage)]
    assert all(files_of(stage) for stage in STAGES)
    assert len(found) == len(set(found))
    name = "tests/unit/housekeeper/test_launch.py"
    assert chosen(found, [name[:-1] + "?", name]) == [name]
    with pytest.raises(SystemExit, match="there is no tests/unit/x"):
        chosen(found, ["tests/unit/x"])


def test_equivalents_fit_the_package_of_today() -> None:
    """Each entry of the table names one fault and has a reason."""
    named = {
        line.partition('"')[2].rstrip('"')
        for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()
        if line.startswith("file = ")
    }
    package = texts()
    assert named <= set(package)
    equivalents([point for name in named for point in points_of(name, package[name])], EQUIVALENT)


def test_a_section_of_the_page_is_written_anew(tmp_path: Path) -> None:
    """The others stay as they are; one that is not there is added."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nText.\n\n## A\n\nold\n\n## B\n\nkept\n", encoding="utf-8")
    write_section(page, "A", "new\n")
    write_section(page, "C", "added")
    expected = "# Page\n\nText.\n\n## A\n\nnew\n\n## B\n\nkept\n\n## C\n\nadded\n"
    assert page.read_text(encoding="utf-8") == expected


@pytest.fixture
def namespaces() -> None:
    """Leave a test out where programs may not mount what only they see."""
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("the system allows no mount namespace")


@pytest.mark.usefixtures("namespaces")
def test_a_process_without_environment_has_the_fault(tmp_path: Path) -> None:
    """Each text counts from the moment when it is written, and the checkout has its own all the time."""
    before = (ROOT / FILE).stat()
    command = [*NAMESPACES, sys.executable, "-c", PROGRAM, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout.split() == ["7", "8", "3"], run.stderr
    assert (ROOT / FILE).stat() == before


@pytest.mark.usefixtures("namespaces")
@pytest.mark.timeout(1800)
def test_a_fault_is_found_and_the_next_run_knows_it(tmp_path: Path) -> None:
    """That the name of a queue is a string is held by a test; the second run tries nothing."""
    command = [sys.executable, "-m", "tests.mutations.package", FILE, "--fault", "delete raise TypeError"]
    tests = "tests/unit/amqp/test_utf8.py"
    command += ["--tests", tests, "--folder", str(tmp_path), "--jobs", "1"]
    for lines, options in ((1, ["--again"]), (0, [])):  # what `known.txt` says of it is forgotten first
        run = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1700)
        assert run.stdout.count(f": killed by {tests}::") == lines, run.stdout + run.stderr
        assert run.returncode == 0
        assert "| all of these | 100.0 % | 1 | 0 | 0 | 0 | 0 |" in run.stdout
