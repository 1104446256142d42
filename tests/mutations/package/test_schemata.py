# SPDX-License-Identifier: Apache-2.0
"""A module with all its faults side by side behaves as the module with the one that is chosen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("mutmut", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.package.chooser import CHOSEN, MODULE, NUMBERS, Noting
from tests.mutations.package.points import points_of, with_fault
from tests.mutations.package.schemata import Schema

if TYPE_CHECKING:
    from tests.mutations.point import Point

SOURCE = '''"""A module."""
from __future__ import annotations

count = 0


def counted(numbers):
    """Counts, and changes a global."""
    global count
    for one in numbers:
        if one < 0 and count > 1:
            break
        count += one
    return f"{count}"


def squares(most):
    number = 0
    while number < most:
        yield number * number
        number += 1


class Base:
    def name(self, of="base"):
        return of


class Derived(Base):
    def __init__(self, size):
        self.size = size

    @property
    def double(self):
        """Is twice the size."""
        def twice(number):
            nonlocal_sum = number
            return nonlocal_sum * 2
        return twice(self.size)

    def name(self, of="derived"):
        return super().name(of=of) + "!"

    def kind(self):
        match self.size:
            case 0:
                return "none"
            case 1 | 2:
                return "few"
        return "many"


def counter():
    number = 0
    def up():
        nonlocal number
        number += 1
        return number
    return up
'''


@pytest.fixture
def points() -> list[Point]:
    """Give the faults of the source."""
    return points_of("source.py", SOURCE)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave `sys` as it was."""
    for name in (NUMBERS, MODULE):
        monkeypatch.setattr(sys, name, None, raising=False)


def _imported(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "source"}
    exec(compile(text, "source.py", "exec"), names)  # noqa: S102 -- the module under test
    return names


def _behaviour(names: dict[str, Any]) -> list[object]:
    def outcome(function: Any, *arguments: Any) -> object:  # noqa: ANN401
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 -- a fault may raise anything
            return type(error)

    def up() -> object:
        one = names["counter"]()
        return one(), one()

    derived = [outcome(names["Derived"], size) for size in (0, 1, 3)]
    return [
        outcome(names["counted"], [1, 2, -1, 5]),
        names["count"],
        outcome(lambda: [number for number, _ in zip(names["squares"](4), range(9), strict=False)]),
        *[outcome(lambda one=one: one.double) for one in derived],
        *[outcome(lambda one=one: one.name()) for one in derived],
        *[outcome(lambda one=one: one.kind()) for one in derived],
        outcome(up),
    ]


def test_each_fault_has_its_effect_and_no_other(points: list[Point], tmp_path: Path) -> None:
    """As if it stood alone in the text; with none chosen the module does what its own text does."""
    path = tmp_path / "chosen"
    schema = Schema(SOURCE, points, path)
    assert len(schema.places) == len(points) > 25
    own = _behaviour(_imported(SOURCE))
    for keys in ([], *[[point.key] for point in points]):
        path.write_text(" ".join(map(str, schema.chosen(keys))), encoding="ascii")
        alone = with_fault(SOURCE, next(p for p in points if [p.key] == keys)) if keys else SOURCE
        assert _behaviour(_imported(schema.text)) == _behaviour(_imported(alone)), keys
    changed = [point for point in points if _behaviour(_imported(with_fault(SOURCE, point))) != own]
    assert len(changed) > 20


def test_faults_of_several_functions_are_in_force_together(points: list[Point], tmp_path: Path) -> None:
    """One of each; a number for each function says which."""
    schema = Schema(SOURCE, points, tmp_path / "chosen")
    some = [next(p for p in points if p.function == name) for name in ("counted", "squares", "Derived.kind")]
    numbers = schema.chosen([point.key for point in some])
    assert sorted(numbers) == [0] * (len(numbers) - 3) + [1, 1, 1]
    function = numbers.index(1)
    own = {p.key for p in points if p.function == "counted"}
    assert schema.in_functions([function]) == own


def test_numbers_that_are_given_come_before_the_file(points: list[Point], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that chooses for itself reads no file; which functions ask is noted, and none has a fault then."""
    schema, noting = Schema(SOURCE, points, Path("/nowhere")), Noting()
    monkeypatch.setattr(sys, NUMBERS, noting, raising=False)
    names = _imported(schema.text)
    assert getattr(sys, MODULE) is names
    assert names["counted"]([1]) == "1"
    assert schema.in_functions(noting.asked) == {p.key for p in points if p.function == "counted"}
    names[CHOSEN] = schema.chosen([next(p.key for p in points if p.function == "counted" and p.kind == "assign")])
    assert names["counted"]([5, 7]) == "7"
