# SPDX-License-Identifier: Apache-2.0
"""Which faults are found in a few lines of Python, and how they are written."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent

import pytest

pytest.importorskip("mutmut", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.package.points import points_of, with_fault

ROOT = Path(__file__).parents[3]


def faults(body: str) -> list[str]:
    """What is found in a function with this body."""
    return [str(point) for point in points_of("a.py", f"def f(a, b):\n{indent(body, '    ')}\n")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("g(a)", ["delete g(a)"]),
        ("self.a = b", ["delete self.a = b"]),
        ("c = a", ["none c = a => c = None"]),
        ("a += b", ["delete a += b", "assign a += b => a = b", "operator a += b => a -= b"]),
        ("raise KeyError(a + 1)", ["delete raise KeyError(a + 1)"]),
        ('"""Text."""', []),
        ("assert a == 1", []),
        ("c: int", []),
        ("def g(c=1): ...", []),
        ("if a == b:\n    return", ["true a == b => True", "false a == b => False"]),
        ("if (a and b):\n    return", [
            "left a and b => a", "right a and b => b", "true a and b => True", "false a and b => False",
        ]),
        ("if a < b:\n    return", ["true a < b => True", "false a < b => False", "operator < b => <= b"]),
        ("while a:\n    break", ["false a => False", "keyword break => return"]),
        ("return a == b", ["operator == b => != b"]),
        ("return a not in b", ["operator not in => in"]),
        ("return not a", ["unary not a => a"]),
        ("return a if (b) else 1", ["true b => True", "false b => False", "number 1 => 2"]),
        ("return [c for c in a if c]", ["true c => True", "false c => False"]),
        ("return g(a, c=b, d=a)", ["argument c=b,", "argument d=a"]),
        ("if TYPE_CHECKING:\n    g()", []),
        ("match a:\n    case 1:\n        return\n    case _:\n        return", [
            "case case 1: return", "number 1 => 2", "case case _: return",
        ]),
        ("g()\ng()", ["delete g()", "delete g() #2"]),
    ],
)  # fmt: skip
def test_faults_of_a_function(body: str, expected: list[str]) -> None:
    """Each kind is found where it can stand, once, and written as what changes."""
    assert sorted(faults(body)) == sorted(expected)


def test_only_functions_have_faults() -> None:
    """Constants, defaults, decorators and annotations have none; properties and methods have."""
    text = "A = 1\nclass C:\n    b = 2\n    @g(3)\n    @property\n    def d(self, e=4) -> x[5]:\n        return 6\n"
    assert [(point.function, str(point), point.place) for point in points_of("a.py", text)] == [
        ("C.d", "number 6 => 7", 7)
    ]


def test_a_key_outlives_edits_of_other_functions() -> None:
    """It depends on the text of its function alone."""
    text = "def f():\n    g()\n"
    (before,) = points_of("a.py", text)
    (after,) = points_of("a.py", "import b\n\n" + text)
    (other,) = points_of("a.py", text + "    return\n")
    assert before.key == after.key != other.key


def test_a_key_outlives_edits_of_comments() -> None:
    """Comments, docstrings and empty lines have no part in it."""
    bare = "def f():\n    g('#')\n    if a:\n        return\n"
    text = '''# F.
def f():  # Here.
    """Calls g."""
    # It returns.

    g('#')  # Twice.
    if a:  # Perhaps.

        return
    # All.
'''
    assert [point.key for point in points_of("a.py", text)] == [point.key for point in points_of("a.py", bare)]
    assert points_of("a.py", bare)[0].key != points_of("a.py", bare.replace("#", "/"))[0].key


@pytest.mark.parametrize("name", ["shmbroker/_housekeeper/auto_delete.py", "shmbroker/_topology/records.py"])
def test_a_module_with_a_fault_is_one(name: str) -> None:
    """Every fault leaves valid Python that differs; the keys tell all of them apart."""
    text = (ROOT / name).read_text(encoding="utf-8")
    points = points_of(name, text)
    assert len({point.key for point in points}) == len(points) > 10
    original = ast.dump(ast.parse(text))
    assert all(ast.dump(ast.parse(with_fault(text, point))) != original for point in points)
