# SPDX-License-Identifier: Apache-2.0
"""All faults of a module side by side: each function has its own body and one for each of its faults.

A number for each function chooses its body, so one process that has imported the module can meet any of the faults. The
module reads the numbers from a file when it is imported. So a process that a test starts has the same fault, whatever
its environment is.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.mutations.package.chooser import CHOSEN, MODULE, NUMBERS
from tests.mutations.package.marking import after_imports_of_the_future
from tests.mutations.package.points import with_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.mutations.point import Point

Function = ast.FunctionDef | ast.AsyncFunctionDef
PREAMBLE = """
import sys as _sb_sys
_sb_sys.{module} = globals()
{chosen} = getattr(_sb_sys, {numbers!r}, None)
if {chosen} is None:
    with open({path!r}, encoding="ascii") as _sb_file:
        {chosen} = [int(_sb_number) for _sb_number in _sb_file.read().split()]
"""


class Schema:
    """A module with all its faults.

    Args:
        text: The module as it is.
        points: Its faults.
        path: The file that says which are in force.

    Attributes:
        text: The module with all its faults.
        places: For each fault, by key, the number of its function, and the number that chooses it.
    """

    def __init__(self, text: str, points: Sequence[Point], path: Path) -> None:
        tree = ast.parse(text)
        outer = list(_outermost(tree))
        faults: dict[int, list[Point]] = defaultdict(list)
        for point in points:
            line = 1 + text.encode()[: point.start].count(b"\n")
            number = next(n for n, one in enumerate(outer) if _first_line(one) <= line <= (one.end_lineno or line))
            faults[number].append(point)
        self.places: dict[str, tuple[int, int]] = {}
        for number, own in faults.items():
            bodies = []
            for nth, point in enumerate(own, 1):
                faulty = list(_outermost(ast.parse(with_fault(text, point))))
                bodies.append(faulty[number].body)
                self.places[point.key] = (number, nth)
            _give_bodies(outer[number], number, bodies)
        self._functions = len(outer)
        at = after_imports_of_the_future(tree)
        tree.body[at:at] = ast.parse(
            PREAMBLE.format(path=str(path), chosen=CHOSEN, numbers=NUMBERS, module=MODULE)
        ).body
        self.text = ast.unparse(ast.fix_missing_locations(tree))

    def chosen(self, keys: Sequence[str]) -> list[int]:
        """The numbers that put these faults in force, of one function one at most."""
        numbers = [0] * self._functions
        for key in keys:
            function, fault = self.places[key]
            numbers[function] = fault
        return numbers

    def in_functions(self, numbers: Iterable[int]) -> set[str]:
        """The keys of all faults of these functions."""
        return {key for key, (function, _) in self.places.items() if function in set(numbers)}


def _outermost(tree: ast.AST) -> Iterator[Function]:
    """The functions that are in no other, in the order of the text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node
        else:
            yield from _outermost(node)


def _first_line(function: Function) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _give_bodies(function: Function, number: int, bodies: Sequence[list[ast.stmt]]) -> None:
    """Lets the function have one of these bodies, or its own.

    Its documentation stays in front, and what it declares to be global, too: that must come before the first use.
    """
    own = function.body
    document = own[:1] if ast.get_docstring(function, clean=False) is not None else []
    declared = [node for node in _in_scope(own) if isinstance(node, ast.Global | ast.Nonlocal)]
    choice = ast.parse(f"match {CHOSEN}[{number}]:\n    case 0:\n        pass").body[0]
    assert isinstance(choice, ast.Match)
    for nth, body in enumerate([*bodies, own], 1):
        rest = [_Undeclared().visit(statement) for statement in body[len(document) :]]
        pattern = ast.MatchValue(ast.Constant(nth)) if nth <= len(bodies) else ast.MatchAs()
        choice.cases.append(ast.match_case(pattern=pattern, body=[ast.Pass(), *rest]))
    del choice.cases[0]
    function.body = [*document, *declared, choice]


def _in_scope(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a function but those of functions and classes in it."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _in_scope(list(ast.iter_child_nodes(node)))


class _Undeclared(ast.NodeTransformer):
    """Leaves out what a function declares to be global, but not what functions in it do."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Stays as it is."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Stays as it is."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Stays as it is."""
        return node

    def visit_Global(self, _node: ast.Global) -> ast.Pass:
        """Is declared above."""
        return ast.Pass()

    def visit_Nonlocal(self, _node: ast.Nonlocal) -> ast.Pass:
        """Is declared above."""
        return ast.Pass()
