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
    from collections.abc import Callable


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


def test_keys_do_not_depend_on_comments() -> None:
    """Neither a comment nor the way the lines are broken changes a key; a text that looks like a comment does."""
    bare, commented, other = (
        points_of("a.c", f"void f(int a) {{ {body} }}")[-1].key
        for body in ('g("/* a */"); a++;', 'g("/* a */"); /* "b" */\n  // c\n  a++;', 'g("/* b */"); a++;')
    )
    assert bare == commented != other


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
static bool seen[64];
static bool sb_chosen(unsigned number) { return number == chosen; }
static void sb_differs(unsigned number, bool differs) { seen[number] = seen[number] || differs; }
static bool sb_mutant(unsigned number) { sb_differs(number, true); return sb_chosen(number); }
%s
int main(int count, char **arguments) {
  (void)count;
  chosen = (unsigned)atoi(arguments[1]);
  printf("%%d", f(atoi(arguments[2]), atoi(arguments[3])));
  for (unsigned i = 0; i < 64; i++) if (seen[i]) printf(" %%u", i);
}
"""
TEXT = "static int f(int a, int b) {\n  if (a == 2 && b < 3) a = b + 5; else if (b > 2) a = 9;\n  return a - 1;\n}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[int]]:
    """Compiles TEXT with its faults; gives what `f` returns with a fault in force, and the numbers that it reached."""
    points, folder = points_of("a.c", TEXT), tmp_path_factory.mktemp("schemata")
    source = folder / "a.c"
    source.write_text(PROGRAM % with_faults(TEXT, list(enumerate(points, 1))), encoding="utf-8")
    subprocess.run(["cc", "-o", str(folder / "a"), str(source)], check=True)  # noqa: S607

    def run_it(number: int, a: int, b: int) -> list[int]:
        command = [str(folder / "a"), str(number), str(a), str(b)]
        return [int(text) for text in subprocess.run(command, check=True, capture_output=True).stdout.split()]

    return run_it


def test_each_number_is_one_fault(run: Callable[..., list[int]]) -> None:
    """The text with all faults compiles, does what the original does, and with a number what that fault does."""
    by_fault = {str(point): run(number, 2, 2)[0] for number, point in enumerate(points_of("a.c", TEXT), 1)}
    assert run(0, 2, 2)[0] == 6
    assert by_fault["delete a = b + 5;"] == 1
    assert by_fault["offset b + 5 => (b)"] == 1
    assert by_fault["offset a - 1 => (a)"] == 7
    assert by_fault["false a == 2 && b < 3 => (false)"] == 1
    assert by_fault["bound b < 3 => b <= 3"] == 6


@pytest.mark.parametrize(
    ("a", "b", "reached"),
    [
        (2, 2, {"false a == 2 && b < 3 => (false)"}),
        (2, 3, {"left a == 2 && b < 3 => (a == 2)", "bound b < 3 => b <= 3", "false b > 2 => (false)"}),
        (1, 2, {"right a == 2 && b < 3 => (b < 3)", "true b > 2 => (true)", "bound b > 2 => b >= 2"}),
    ],
)
def test_a_fault_in_a_condition_is_reached_where_it_would_differ(
    run: Callable[..., list[int]], a: int, b: int, reached: set[str]
) -> None:
    """Coming to its place is not enough; other faults are reached where their place is."""
    points = points_of("a.c", TEXT)
    seen = [points[number - 1] for number in run(0, a, b)[1:]]
    assert {str(point) for point in seen if point.kind not in {"delete", "offset", "negate"}} == reached
    assert "offset a - 1 => (a)" in {str(point) for point in seen}


def test_two_operators_in_a_comparison() -> None:
    """What is compared may hold another operator: the one that the fault replaces is found."""
    text = "static int f(int a, int b) { return (a < b) < (b <= a); }"
    numbered = list(enumerate(points_of("a.c", text), 1))
    bounds = [number for number, point in numbered if point.kind == "bound"]
    assert len(bounds) == 3
    assert all(f"sb_chosen({number})" in with_faults(text, numbered) for number in bounds)
