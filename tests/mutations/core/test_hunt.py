# SPDX-License-Identifier: Apache-2.0
"""The runner finds a fault that is known to be found, accepts an equivalent one, and keeps what it learnt."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tree_sitter_c", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.apart import alone
from tests.mutations.core.evidence import STAGES, Evidence, Runner, all_evidence
from tests.mutations.core.hunt import Hunt, sift
from tests.mutations.core.points import points_of
from tests.mutations.core.tree import EQUIVALENT, ROOT, Tree, find
from tests.mutations.equivalents import equivalents
from tests.mutations.point import of_one_each
from tests.mutations.report import Known, account, all_found, survivors, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TEXT = "void f(int a) { g(); h(); i(); j(); }"
ENTRY = '[[equivalent]]\nfile = "a.c"\nfunction = "{function}"\nfault = "delete g();"\nbecause = "{because}"\n'


def test_evidence_of_each_stage_is_there() -> None:
    """Cases, operations, scenarios and test files are found; their names tell them apart."""
    found = list(all_evidence())
    assert {one.stage for one in found} == set(STAGES)
    assert len({one.name for one in found}) == len(found)
    programs = [one.command[0] for one in found if one.stage == "quick"]
    assert programs.count("interleavings") > 10
    assert programs.count("units") > 5
    assert programs.count("kill_at_step") > 50
    assert programs.count("races") > 40


def test_equivalents_fit_the_core_of_today() -> None:
    """Each entry of the table names one fault and has a reason."""
    equivalents(find().points, EQUIVALENT)


@pytest.mark.parametrize(("function", "because", "error"), [("g", "so", "there is no fault"), ("f", " ", "no reason")])
def test_an_equivalent_that_does_not_fit_is_refused(tmp_path: Path, function: str, because: str, error: str) -> None:
    """An entry whose function is not there, or without a reason, is an error that names it."""
    path = tmp_path / "equivalent.toml"
    path.write_text(ENTRY.format(function=function, because=because), encoding="utf-8")
    with pytest.raises(ValueError, match=error):
        equivalents(points_of("a.c", TEXT), path)


def test_a_folder_has_a_table_for_each_file(tmp_path: Path) -> None:
    """An entry is of the file that its table is named after; several faults can have one reason."""
    (tmp_path / "a.c.toml").write_text(
        '[[equivalent]]\nfunction = "f"\nfaults = ["delete g();", "delete j();"]\nbecause = "so"\n', encoding="utf-8"
    )
    points = points_of("a.c", TEXT)
    assert equivalents(points, tmp_path) == {points[0].key: "so", points[3].key: "so"}


def test_the_report_says_what_became_of_each(tmp_path: Path) -> None:
    """The score is the killed part of those that are judged and not equivalent; survivors are printed as entries."""
    points = points_of("a.c", TEXT)
    path = tmp_path / "equivalent.toml"
    path.write_text(ENTRY.format(function="f", because="pure speed: g() only warms a cache"), encoding="utf-8")
    _, second, third, fourth = points
    known = Known({second.key: "x"}, {third.key: {"x", "y"}}, equivalents(points, path), {fourth.key})
    assert table(points, known, all_files=True)[-1] == "| all of these | 33.3 % | 1 | 1 | 1 | 1 | 0 |"
    assert "# line 1: survived, 2 tried" in survivors(points, known)
    assert "fault = 'delete j();'" in survivors(points, known)


def test_an_equivalent_fault_that_is_found_is_told(tmp_path: Path) -> None:
    """Something finds what the table calls equivalent: the run ends badly and names it; else it ends well."""
    points = points_of("a.c", TEXT)
    path = tmp_path / "equivalent.toml"
    path.write_text(ENTRY.format(function="f", because="pure speed: g() only warms a cache"), encoding="utf-8")
    first, *others = points
    killed = {point.key: "x" for point in others}
    good = Known(killed, {}, equivalents(points, path), set())
    assert all_found(points, good)
    wrong = Known(killed | {first.key: "y"}, {}, good.equivalent, set())
    assert not all_found(points, wrong)
    assert account(points, wrong)[-1] == "a.c f: delete g(); is no equivalent: y finds it"
    assert not all_found(points, Known({}, {}, good.equivalent, {others[0].key}))


class Claims(Runner):
    """Says that evidence fails if `fails` is true of the faults in force, and counts its runs."""

    def __init__(self, fails: Callable[[set[int]], object]) -> None:
        self.fails, self.runs = fails, 0

    def finds(self, _evidence: Evidence, mutants: Sequence[int], _seconds: float) -> bool:
        """Whether these faults fail."""
        self.runs += 1
        return bool(self.fails(set(mutants)))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_faults_that_fail_are_sifted_from_a_group(count: int) -> None:
    """Those that fail alone are found, all and no others, wherever they stand; a clean group costs one run."""
    case, group = Evidence("case", "kills", ("case",)), range(1, 10)
    for bad in combinations(group, count):
        runner = Claims(set(bad).intersection)
        assert sift(runner, case, 0.0, list(group)) == set(bad)
        assert runner.runs == 1 or bad


def test_a_group_has_one_fault_of_each_function() -> None:
    """They stand in their order; what is left makes further groups, until all were in one."""
    left, groups = points_of("a.c", TEXT + TEXT.replace("f(", "k("), set()), []
    while left:
        group, left = of_one_each(left, 2)
        groups.append([(point.function, point.before) for point in group])
    assert groups == [[(name, text) for name in "fk"] for text in ("g();", "h();", "i();", "j();")]


def test_a_group_has_no_more_faults_than_asked_for() -> None:
    """One of each function, up to so many; the others are left, in their order."""
    points = points_of("a.c", TEXT + TEXT.replace("f(", "k("), set())
    group, left = of_one_each(points, 1)
    assert group == points[:1]
    assert left == points[1:]


def test_faults_that_fail_only_together_are_not_found() -> None:
    """A group that fails without any of its faults failing alone clears all of them: the score is not raised by it."""
    assert sift(Claims({1, 4}.issubset), Evidence("case", "kills", ("case",)), 0.0, [1, 2, 3, 4]) == set()


@pytest.mark.timeout(1800)
def test_a_fault_is_found_and_the_core_without_it_is_not() -> None:
    """A ring that evicts nobody is found by a case about rings; what was found is kept."""
    tree, core = Tree(ROOT / "build" / "mutation-test"), find()
    with alone(tree.folder):
        tree.write(core)
        tree.build_programs("interleavings")
        case = next(one for one in all_evidence() if one.name == "interleavings 'newest spared'")
        hunt = Hunt(tree, core, [case], ThreadPoolExecutor(1))
        hunt.look()
        point = next(p for p in core.points if p.function == "enforce_length" and p.kind == "true")
        hunt.results.forget([point.key])
        hunt.hunt([point])
        assert hunt.results.killed_by()[point.key] == case.name
        assert hunt.known().outcome(point) == "killed"
        unreached = next(p for p in core.points if p.file == "sb_transaction.c")
        hunt.hunt([unreached])
        assert hunt.known().outcome(unreached) == "unreached"
        hunt.results.close()
        other = next(p for p in core.points if p.file == "sb_transaction.c" and p != unreached)
        both = [hunt.numbers[other.key], hunt.numbers[point.key]]
        assert hunt.runner.finds(case, both, 1.0)
        assert not hunt.runner.finds(case, both[:1], 1.0)
        strange = subprocess.run(
            [tree.programs / "interleavings"],
            env=os.environ | {"SB_MUTANT": "1 x"},
            capture_output=True,
            check=False,
        )
        assert strange.returncode != 0
        assert b"there is no fault  x" in strange.stderr
