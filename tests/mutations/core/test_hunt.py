# SPDX-License-Identifier: Apache-2.0
"""The runner finds a fault that is known to be found, accepts an equivalent one, and keeps what it learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tree_sitter_c", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.core.__main__ import Hunt
from tests.mutations.core.equivalents import equivalents
from tests.mutations.core.evidence import STAGES, all_evidence
from tests.mutations.core.points import points_of
from tests.mutations.core.report import Known, survivors, table
from tests.mutations.core.tree import ROOT, Tree, find

if TYPE_CHECKING:
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
    assert programs.count("kill_at_step") > 50
    assert programs.count("races") > 40


def test_equivalents_fit_the_core_of_today() -> None:
    """Each entry of the table names one fault and has a reason."""
    equivalents(find().points)


@pytest.mark.parametrize(("function", "because", "error"), [("g", "so", "there is no fault"), ("f", " ", "no reason")])
def test_an_equivalent_that_does_not_fit_is_refused(tmp_path: Path, function: str, because: str, error: str) -> None:
    """An entry whose function is not there, or without a reason, is an error that names it."""
    path = tmp_path / "equivalent.toml"
    path.write_text(ENTRY.format(function=function, because=because), encoding="utf-8")
    with pytest.raises(ValueError, match=error):
        equivalents(points_of("a.c", TEXT), path)


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


@pytest.mark.timeout(1800)
def test_a_fault_is_found_and_the_core_without_it_is_not() -> None:
    """A ring that evicts nobody is found by a case about rings; what was found is kept."""
    tree, core = Tree(ROOT / "build" / "mutation-test"), find()
    with tree.alone():
        tree.write(core)
        tree.build_programs("interleavings")
        case = next(one for one in all_evidence() if one.name == "interleavings 'newest spared'")
        hunt = Hunt(tree, core, [case])
        hunt.look()
        point = next(p for p in core.points if p.function == "enforce_length" and p.kind == "true")
        hunt.results.forget([point.key])
        hunt.hunt([point], 600)
        assert hunt.results.killed_by()[point.key] == case.name
        assert hunt.known().outcome(point) == "killed"
        unreached = next(p for p in core.points if p.file == "sb_commit.c")
        hunt.hunt([unreached], 600)
        assert hunt.known().outcome(unreached) == "unreached"
        hunt.results.close()
