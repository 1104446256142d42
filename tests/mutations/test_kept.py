# SPDX-License-Identifier: Apache-2.0
"""What is known of faults goes from one checkout to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tree_sitter_c", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations import kept
from tests.mutations.core.points import points_of
from tests.mutations.report import Known
from tests.mutations.results import RESULTS, Results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POINTS = points_of("a.c", "void f(int a) { g(); h(); i(); j(); k(); l(); m(); }")
FOUND, ALSO_FOUND, SURVIVES, UNREACHED, EQUIVALENT, UNTRIED, *_ = (point.key for point in POINTS)
KNOWN = Known(
    {FOUND: "one 'x'", ALSO_FOUND: "two"}, {SURVIVES: {"one 'x'", "three"}}, {EQUIVALENT: "speed"}, {UNREACHED}
)


def read(path: Path, folder: Path, is_there: Callable[[str], bool] = bool) -> Results:
    """Results of a new checkout that has read that file."""
    results = Results(folder / RESULTS)
    kept.read(path, results, is_there)
    return results


def test_another_checkout_knows_the_same(tmp_path: Path) -> None:
    """What was found, what survived and what nothing reaches is read as it was written; the others are not named."""
    kept.write(tmp_path / "known.txt", POINTS, KNOWN, ["one 'x'"])
    results = read(tmp_path / "known.txt", tmp_path)
    assert results.killed_by() == {FOUND: "one 'x'", ALSO_FOUND: "two"}
    assert results.met("one 'x'") == {SURVIVES}
    assert results.unreached() == {UNREACHED}
    assert UNTRIED not in (tmp_path / "known.txt").read_text(encoding="utf-8")


def test_what_some_survivors_pass_is_known_of_these(tmp_path: Path) -> None:
    """Evidence that only some of them met is read for these alone."""
    known = Known({}, {FOUND: {"one 'x'"}, SURVIVES: {"three"}}, {}, set())
    kept.write(tmp_path / "known.txt", POINTS, known, [], ["three"])
    assert read(tmp_path / "known.txt", tmp_path).passed() == {SURVIVES: {"three"}}


def test_what_evidence_found_that_is_gone_is_open_again(tmp_path: Path) -> None:
    """A fault that only a test found which is no more counts as untried."""
    kept.write(tmp_path / "known.txt", POINTS, KNOWN, ["one 'x'"])
    results = read(tmp_path / "known.txt", tmp_path, "two".__eq__)
    assert results.killed_by() == {ALSO_FOUND: "two"}
    assert not results.passed()
    assert not results.met("one 'x'")


def test_what_is_forgotten_stays_so(tmp_path: Path) -> None:
    """A text is read once: faults that are to be tried again are tried, although it names them."""
    kept.write(tmp_path / "known.txt", POINTS, KNOWN)
    read(tmp_path / "known.txt", tmp_path).forget([FOUND])
    assert FOUND not in read(tmp_path / "known.txt", tmp_path).killed_by()


def test_what_evidence_has_met_adds_up(tmp_path: Path) -> None:
    """Group by group; keys that are no text as bytes, too. What is forgotten is not met."""
    results, keys = Results(tmp_path / RESULTS), ["ff" * 10, "80" * 10, "00" * 10]
    for key in keys:
        results.add_met("one", [key])
    assert results.met("one") == set(keys)
    results.forget(keys[:1])
    assert results.met("one") == set(keys[1:])


def test_a_checkout_without_such_a_file_knows_nothing(tmp_path: Path) -> None:
    """That is no error."""
    assert read(tmp_path / "known.txt", tmp_path).killed_by() == {}


def test_evidence_that_changed_meets_its_faults_again(tmp_path: Path) -> None:
    """What it passed in spite of is forgotten, alone or in a group; what others passed, and what it found, is not."""
    results = Results(tmp_path / RESULTS)
    for name in ("one 'x'", "two"):
        results.add(SURVIVES, name, found=False)
        results.add_met(name, [UNTRIED])
    results.add(FOUND, "one 'x'", found=True)
    results.forget_passed(["one 'x'"])
    assert results.met("one 'x'") == set()
    assert results.met("two") == {SURVIVES, UNTRIED}
    assert results.killed_by() == {FOUND: "one 'x'"}
