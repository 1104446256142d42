# SPDX-License-Identifier: Apache-2.0
"""Marks in the statements of the package: which of them a test reaches, in whatever process.

A copy of the package notes each statement of a function in a file that all its processes map. What a process noted is
there even if it was killed; no process has to be told of the survey, so one with an empty environment counts, too.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREAMBLE = """
import mmap as _sb_mmap, sys as _sb_sys
if not hasattr(_sb_sys, "_sb_seen"):
    with open({path!r}, "r+b") as _sb_file:
        _sb_sys._sb_seen = _sb_mmap.mmap(_sb_file.fileno(), 0)
_sb_seen = _sb_sys._sb_seen
"""


@dataclass(frozen=True)
class Places:
    """The bytes of the file that is mapped: one for each line of the package.

    Args:
        first: The number of the byte for line 0 of each file.
        size: How many bytes there are.
    """

    first: Mapping[str, int]
    size: int

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Places:
        """The places of these files."""
        first, size = {}, 0
        for name, text in texts.items():
            first[name] = size
            size += text.count("\n") + 2
        return cls(first, size)


def marked(text: str, first: int, path: Path) -> str:
    """The text of a module whose functions note the line of each statement that they come to.

    Args:
        text: The module as it is.
        first: The number of the byte for line 0.
        path: The file that processes map.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body[:] = _marked(node.body, first)
    at = after_imports_of_the_future(tree)
    tree.body[at:at] = ast.parse(PREAMBLE.format(path=str(path))).body
    return ast.unparse(ast.fix_missing_locations(tree))


def after_imports_of_the_future(tree: ast.Module) -> int:
    """The number of the first statement of a module that others may stand before."""
    at = 1 if ast.get_docstring(tree, clean=False) is not None else 0
    while at < len(tree.body) and _is_future(tree.body[at]):
        at += 1
    return at


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _marked(body: list[ast.stmt], first: int) -> list[ast.stmt]:
    """The statements of a block, each behind its mark. Functions inside have theirs when they are walked to."""
    result: list[ast.stmt] = []
    for nth, statement in enumerate(body):
        text = nth == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not text:
            result += ast.parse(f"_sb_seen[{first + statement.lineno}] = 1").body
        result.append(statement)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for block in _blocks(statement):
            block[:] = _marked(block, first)
    return result


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement."""
    holders: list[ast.AST] = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    found = [getattr(holder, name, None) for holder in holders for name in ("body", "orelse", "finalbody")]
    return [block for block in found if isinstance(block, list) and block]
