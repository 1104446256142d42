# SPDX-License-Identifier: Apache-2.0
"""A warm pytest knows which functions were called before a run chooses its faults."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.package import chooser
from tests.mutations.package.points import points_of
from tests.mutations.package.schemata import Schema
from tests.mutations.warm import Warm

ROOT = Path(__file__).parents[3]
SOURCE = """
def decorated(function):
    function.known = True
    return function

def later(one):
    one.called = True

@decorated
def used():
    return 1
"""


@pytest.mark.parametrize("importer", ["conftest.py", "test_it.py"])
def test_what_is_called_while_tests_are_collected_is_told(tmp_path: Path, importer: str) -> None:
    """Whoever imports the module first: a conftest does so before pytest is configured."""
    points = points_of("module.py", SOURCE)
    schema = Schema(SOURCE, points, tmp_path / "chosen")
    (tmp_path / "chosen").write_text(" ".join("0" for _ in schema.chosen([])), encoding="ascii")
    (tmp_path / "module.py").write_text(schema.text, encoding="utf-8")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    with (tmp_path / importer).open("a", encoding="utf-8") as file:
        file.write("import module\n")
    warm = Warm(chooser.__name__, ["test_it.py"], tmp_path, tmp_path, {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    try:
        called = schema.in_functions(warm.told)
    finally:
        warm.close()
    assert called == {point.key for point in points if point.function == "decorated"} != set()
