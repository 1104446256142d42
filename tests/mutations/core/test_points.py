# SPDX-License-Identifier: Apache-2.0
"""Which faults are found in a few lines of C, and how they are written."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("tree_sitter_c", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.core.points import points_of
from tests.mutations.core.schemata import with_faults

if TYPE_CHECKING:
    from pathlib import Path


def faults(body: str, kind: str = "void") -> list[str]:
    """What is found in a function with this body."""
    return [str(point) for point in points_of("a.c", f"static {kind} f(int a, int b) {{ {body} }}")]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("void", "(void)SB_ADD(&q->n, 1, SB_RELAXED);", ["delete (void)SB_ADD(&q->n, 1, SB_RELAXED);"]),
        ("void", "a = b;", ["delete a = b;"]),
        ("void", "a++;", ["delete a++;"]),
        ("void", 'SB_CRASHPOINT("x.y");', []),
        ("void", "(void)a;", []),
        ("void", "_Static_assert(sizeof a + 1 < 9);", []),
        ("void", "static const int x = 3 + 1;", []),
        ("int", "return 0;", []),
        ("void", "if (a == b) return;", ["true a == b => (true)", "false a == b => (false)"]),
        ("void", "while (g()) { }", ["false g() => (false)"]),
        ("void", "for (;;) { }", []),
        ("void", "if (!SB_CAS(&w, &a, 1, SB_SEQ_CST)) return;", [
            "true !SB_CAS(&w, &a, 1, SB_SEQ_CST) => (true)",
            "false !SB_CAS(&w, &a, 1, SB_SEQ_CST) => (false)",
        ]),
        ("bool", "return a == b;", ["negate a == b => a != b"]),
        ("bool", "return g(a);", ["negate g(a) => !(g(a))"]),
        ("bool", "return true;", ["negate true => false"]),
        ("void", "bool x = g(a);", ["negate g(a) => !(g(a))"]),
        ("int", "return a + 1;", ["offset a + 1 => (a)"]),
        ("int", "return a + b;", []),
        ("sb_status", "return SB_OK;", []),
        ("sb_status", "return SB_FULL;", ["success SB_FULL => SB_OK"]),
        ("sb_status", "return g();", ["success g() => (SB_OK)"]),
        ("void", "SB_STORE(w, 1, SB_SEQ_CST);", [
            "delete SB_STORE(w, 1, SB_SEQ_CST);",
            "weaken SB_STORE(w, 1, SB_SEQ_CST) => SB_STORE(w, 1, SB_RELAXED)",
        ]),
        ("void", "SB_STORE(w, 1, SB_RELEASE);", ["delete SB_STORE(w, 1, SB_RELEASE);"]),
        ("void", "switch (a) { case 1 + 1: g(); break; default: h(); }", [
            "delete g();", "delete break;", "delete h();",
        ]),
        ("void", "g(); g();", ["delete g();", "delete g(); #2"]),
    ],
)  # fmt: skip
def test_faults_of_a_statement(kind: str, body: str, expected: list[str]) -> None:
    """Each statement has the faults that can be told apart, and no others."""
    assert faults(body, kind) == expected


def test_a_bound_is_shifted() -> None:
    """A comparison is shifted by one, and negated where no condition does that already."""
    assert "bound a < b => a <= b" in faults("if (a < b) return;")
    assert not [fault for fault in faults("if (a < b) return;") if fault.startswith("negate")]
    assert faults("return a >= b;", "bool") == ["bound a >= b => a > b", "negate a >= b => !(a >= b)"]


def test_one_side_of_a_condition_is_dropped() -> None:
    """Of `&&` each side goes, and the whole never holds; that it always holds is found by what finds those."""
    whole = "a && g(b)"
    expected = [f"false {whole} => (false)", f"left {whole} => (a)", f"right {whole} => (g(b))"]
    assert sorted(faults(f"if ({whole}) return;")) == expected


def test_the_result_of_a_cas_is_ignored() -> None:
    """A CAS that is part of a condition is done, and counts as a success."""
    found = faults("while (a < b && !SB_CAS(h, &a, b, SB_ACQ_REL)) { }")
    assert "cas SB_CAS(h, &a, b, SB_ACQ_REL) => (true)" in found


def test_keys_depend_on_the_function_only() -> None:
    """An edit of another function keeps a fault's key; one of its own changes it."""
    first, moved, other = (
        points_of("a.c", text)[-1].key
        for text in (
            "void f(int a) { a++; }",
            "void g(void) { h(); }\nvoid f(int a) { a++; }",
            "void f(int a) { a++;; }",
        )
    )
    assert first == moved != other


def test_a_macro_before_the_type_is_no_obstacle() -> None:
    """Macros that stand for `static` and an attribute are read as `static`."""
    text = "#define SB_HOT static inline __attribute__((always_inline))\nSB_HOT bool f(int a) { return a == 1; }"
    assert [str(point) for point in points_of("a.h", text)] == ["negate a == 1 => a != 1"]


def test_what_is_not_understood_is_refused() -> None:
    """A function whose body cannot be parsed is an error, not a function without faults."""
    with pytest.raises(ValueError, match=r"a\.c: the body of f is not understood"):
        points_of("a.c", "void f(void) { if (; }")


PROGRAM = """
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
static unsigned chosen;
static bool sb_mutant(unsigned number) { return number == chosen; }
%s
int main(int count, char **arguments) {
  (void)count;
  chosen = (unsigned)atoi(arguments[1]);
  printf("%%d", f(2, 2));
}
"""


def test_each_number_is_one_fault(tmp_path: Path) -> None:
    """The text with all faults compiles, does what the original does, and with a number what that fault does."""
    text = "static int f(int a, int b) {\n  if (a == 2 && b < 3) a = b + 5; else if (b > 2) a = 9;\n  return a - 1;\n}"
    points = points_of("a.c", text)
    source = tmp_path / "a.c"
    source.write_text(PROGRAM % with_faults(text, list(enumerate(points, 1))), encoding="utf-8")
    subprocess.run(["cc", "-o", str(tmp_path / "a"), str(source)], check=True)  # noqa: S607

    def result(number: int) -> int:
        run = subprocess.run([str(tmp_path / "a"), str(number)], check=True, capture_output=True)
        return int(run.stdout)

    by_fault = {str(point): result(number) for number, point in enumerate(points, 1)}
    assert result(0) == 6
    assert by_fault["delete a = b + 5;"] == 1
    assert by_fault["offset b + 5 => (b)"] == 1
    assert by_fault["offset a - 1 => (a)"] == 7
    assert by_fault["false a == 2 && b < 3 => (false)"] == 1
    assert by_fault["bound b < 3 => b <= 3"] == 6
