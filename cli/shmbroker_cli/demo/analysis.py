# SPDX-License-Identifier: Apache-2.0
"""What is counted in a source file."""

from __future__ import annotations

import ast
import json
import warnings
from dataclasses import asdict, dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
BLOCKS = (
    *FUNCTIONS,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Counts:
    """The counts of one source file, or the totals of many.

    Attributes:
        lines: Lines of text.
        functions: Function definitions, methods included.
        classes: Class definitions.
        imports: Import statements.
        nesting: Deepest nesting of compound statements in any file.
        unparsed: Files that Python's parser refused: no valid Python, or nested too deeply. Only their lines count.
    """

    lines: int = 0
    functions: int = 0
    classes: int = 0
    imports: int = 0
    nesting: int = 0
    unparsed: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both together."""
        return Counts(
            lines=self.lines + other.lines,
            functions=self.functions + other.functions,
            classes=self.classes + other.classes,
            imports=self.imports + other.imports,
            nesting=max(self.nesting, other.nesting),
            unparsed=self.unparsed + other.unparsed,
        )

    def to_bytes(self) -> bytes:
        """Return the counts as the body of a message."""
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def from_bytes(cls, body: bytes) -> Counts:
        """Return the counts that are in the body of a message.

        Args:
            body: What `to_bytes` returned.
        """
        return cls(**json.loads(body))


def count(source: bytes) -> Counts:
    r"""Count what is in a source file.

    Args:
        source: Its content, in the encoding that it declares.

    >>> count(b"import os\n\ndef f():\n    if os:\n        return 1\n")
    Counts(lines=5, functions=1, classes=0, imports=1, nesting=2, unparsed=0)
    >>> count(b"def\n")
    Counts(lines=1, functions=0, classes=0, imports=0, nesting=0, unparsed=1)
    """
    lines = len(source.splitlines())
    try:
        tree = _parse(source)
    except UNPARSABLE:
        return Counts(lines=lines, unparsed=1)
    functions = classes = imports = nesting = 0
    rest: list[tuple[ast.AST, int]] = [(tree, 0)]  # no recursion: files nest deeply
    while rest:
        node, depth = rest.pop()
        functions += isinstance(node, FUNCTIONS)
        classes += isinstance(node, ast.ClassDef)
        imports += isinstance(node, IMPORTS)
        inside = depth + isinstance(node, BLOCKS)
        nesting = max(nesting, inside)
        rest.extend((child, depth if _is_elif(node, child) else inside) for child in ast.iter_child_nodes(node))
    return Counts(lines, functions, classes, imports, nesting)


def why_unparsable(source: bytes) -> str:
    r"""Return why Python's parser refuses a source file; an empty string if it does not.

    Args:
        source: Its content, in the encoding that it declares.

    >>> why_unparsable(b"a = 1\ndef\n")
    'SyntaxError: invalid syntax (line 2)'
    """
    try:
        _parse(source)
    except SyntaxError as error:
        place = f" (line {error.lineno})" if error.lineno else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    except UNPARSABLE as error:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    return ""


def _parse(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser may warn about a file, and the demo only counts what is in it
        return ast.parse(source)


def _is_elif(node: ast.AST, child: ast.AST) -> bool:
    """Return whether `child` is the `elif` of the `if` statement `node`, and not an `if` nested in it."""
    return (
        isinstance(node, ast.If)
        and isinstance(child, ast.If)
        and node.col_offset == child.col_offset  # a nested `if` is indented further
    )
