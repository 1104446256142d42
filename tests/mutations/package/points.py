# SPDX-License-Identifier: Apache-2.0
"""Mutation points of a Python file: mutmut's operators, and those that it has not.

Each fault is one edit inside a function. Annotations, decorators, defaults, docstrings, assertions and the texts of
errors have none. mutmut deletes no statement and leaves conditions as they are; both are added here.
"""

from __future__ import annotations

import ast
from itertools import takewhile
from typing import TYPE_CHECKING, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation import mutators

from tests.mutations.point import Point, identified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def _dropped_keywords(call: cst.Call) -> Iterator[cst.CSTNode]:
    """Arguments with a name are left out; one without a name that is left out is a TypeError."""
    for changed in mutators.operator_arg_removal(call):
        gone = [one for one in call.args if one.keyword and all(one is not other for other in changed.args)]
        if gone and len(changed.args) < len(call.args):
            yield changed


def _none(statement: cst.Assign | cst.AnnAssign) -> Iterable[cst.CSTNode]:
    """A local variable is None. What an attribute or an element is given is deleted instead."""
    targets = [one.target for one in statement.targets] if isinstance(statement, cst.Assign) else [statement.target]
    return mutators.operator_assignment(statement) if all(isinstance(one, cst.Name) for one in targets) else ()


def _deleted(statement: cst.BaseSmallStatement) -> Iterator[cst.CSTNode]:
    """A statement is left out: a call, an assignment to what outlives the function, an error that is raised."""
    if isinstance(statement, cst.Expr):
        text = isinstance(statement.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis, cst.Yield))
        if not text:
            yield cst.Pass()
    elif isinstance(statement, (cst.Assign, cst.AnnAssign)):
        targets = [one.target for one in statement.targets] if isinstance(statement, cst.Assign) else [statement.target]
        if statement.value is not None and any(isinstance(one, (cst.Attribute, cst.Subscript)) for one in targets):
            yield cst.Pass()
    elif isinstance(statement, (cst.AugAssign, cst.Del, cst.Raise)):
        yield cst.Pass()


def _side(operation: cst.BooleanOperation, *, left: bool) -> Iterator[cst.CSTNode]:
    yield operation.left if left else operation.right


OPERATORS: tuple[tuple[str, type | tuple[type, ...], Callable[..., Iterable[cst.CSTNode]]], ...] = (
    ("delete", cst.BaseSmallStatement, _deleted),
    ("left", cst.BooleanOperation, lambda node: _side(node, left=True)),
    ("right", cst.BooleanOperation, lambda node: _side(node, left=False)),
    ("number", cst.BaseNumber, mutators.operator_number),
    ("truth", cst.Name, mutators.operator_name),
    ("none", (cst.Assign, cst.AnnAssign), _none),
    ("assign", cst.AugAssign, mutators.operator_augmented_assignment),
    ("unary", cst.UnaryOperation, mutators.operator_remove_unary_ops),
    ("argument", cst.Call, _dropped_keywords),
    ("method", cst.Call, mutators.operator_symmetric_string_methods_swap),
    ("method", cst.Call, mutators.operator_unsymmetrical_string_methods_swap),
    ("keyword", (cst.Break, cst.Continue), mutators.operator_keywords),
)
SWAPPED = (cst.BinaryOperation, cst.AugAssign)
CONDITIONAL = (cst.If, cst.IfExp, cst.CompIf, cst.While)
NAMED = (cst.Is, cst.IsNot, cst.In, cst.NotIn)


def points_of(file: str, text: str) -> list[Point]:
    """All faults of a file, in the order of its text.

    Args:
        file: Its name, as results call it.
        text: The file as it is.
    """
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    finder = _Finder(file, text, wrapper.module)
    wrapper.visit(finder)
    return sorted(finder.points, key=lambda point: (point.start, -point.end))


def with_fault(text: str, point: Point) -> str:
    """The text of the file with this fault."""
    source = text.encode()
    return (source[: point.start] + point.after.encode() + source[point.end :]).decode()


class _Finder(cst.CSTVisitor):
    """Walks through a module; what it finds in a function is identified when that ends."""

    METADATA_DEPENDENCIES = (ByteSpanPositionProvider, PositionProvider, ParentNodeProvider)

    def __init__(self, file: str, text: str, module: cst.Module) -> None:
        super().__init__()
        self.file, self.text, self.source, self.module = file, text, text.encode(), module
        self.points: list[Point] = []
        self._names: list[str] = []
        self._outer: cst.FunctionDef | None = None
        self._found: list[Point] = []
        self._places: list[int] = []  # the lines of the statements that are open

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Notes where it is, and adds the faults of this node; says whether to go on below."""
        if isinstance(node, (cst.Annotation, cst.Decorator, cst.Parameters, cst.Assert, cst.FormattedString)):
            return False
        if isinstance(node, cst.If) and _is_for_types(node.test):
            return False
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)) and self._outer is None:
            self._names.append(node.name.value)
            if isinstance(node, cst.FunctionDef):
                self._outer = node
        if isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            self._places.append(self._line(node))
        if self._outer is not None:
            self._look(node)
        return not isinstance(node, cst.Raise)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Notes what has ended."""
        node = original_node
        if isinstance(node, cst.If) and _is_for_types(node.test):
            return
        if isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)) and not isinstance(node, cst.Assert):
            self._places.pop()
        if node is self._outer:
            self._outer = None
            span = self.get_metadata(ByteSpanPositionProvider, node)
            own = self.source[span.start : span.start + span.length]
            valid = [one for one in self._found if _is_valid(one, own, span.start)]
            self.points += identified(valid, self._code(_without_comments(original_node)))
            self._found = []
            self._names.pop()
        elif isinstance(node, cst.ClassDef) and self._outer is None:
            self._names.pop()

    def _look(self, node: cst.CSTNode) -> None:
        for kind, types, operator in OPERATORS:
            if isinstance(node, types):
                for changed in operator(node):
                    self._add(kind, node, self._code(changed, node))
        for changed in self._swapped(node):
            self._add("operator", node, self._code(changed, node))
        if isinstance(node, cst.Match) and len(node.cases) > 1:  # mutmut's own operator writes the whole statement anew
            for case in node.cases:
                self._add("case", case, "")
        if isinstance(node, CONDITIONAL):
            self._look_at_condition(node.test, may_hold=not isinstance(node, cst.While))

    def _swapped(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The node with another operator."""
        if isinstance(node, SWAPPED) or (isinstance(node, cst.ComparisonTarget) and not self._decides(node)):
            yield from mutators.operator_swap_op(node)
        if isinstance(node, NAMED) and not self._decides(self.get_metadata(ParentNodeProvider, node)):
            yield from mutators.operator_keywords(node)

    def _look_at_condition(self, test: cst.BaseExpression, *, may_hold: bool) -> None:
        before = self._code(test)
        if may_hold:
            self._add("true", test, f"({before}) or True")
        if before != "True":
            self._add("false", test, f"({before}) and False")

    def _decides(self, target: cst.ComparisonTarget) -> bool:
        """Whether it is the whole of a condition, and its opposite is found where the condition always holds or never.

        Bounds are shifted everywhere.
        """
        node: cst.CSTNode = self.get_metadata(ParentNodeProvider, target)
        while True:
            above = self.get_metadata(ParentNodeProvider, node)
            if isinstance(above, CONDITIONAL) and above.test is node:
                return isinstance(target.operator, (cst.Equal, cst.NotEqual, *NAMED))
            if not isinstance(above, (cst.BooleanOperation, cst.UnaryOperation)):
                return False
            node = above

    def _code(self, node: cst.CSTNode, origin: cst.CSTNode | None = None) -> str:
        """Its text, without the parentheses that it has from `origin`, which stay."""
        parentheses = getattr(node, "lpar", ())
        if parentheses and (origin is None or parentheses is getattr(origin, "lpar", ())):
            node = node.with_changes(lpar=[], rpar=[])
        return str(self.module.code_for_node(node))

    def _line(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)

    def _add(self, kind: str, node: cst.CSTNode, after: str) -> None:
        span = self.get_metadata(ByteSpanPositionProvider, node)
        start, end = span.start, span.start + span.length
        name, line, before, after = (
            ".".join(self._names),
            self._line(node),
            self.source[start:end].decode(),
            after.strip(),
        )
        if kind == "argument":
            head = _common(before, after)
            tail = _common(before[head:][::-1], after[head:][::-1])
            start, end = start + len(before[:head].encode()), end - len(before[len(before) - tail :].encode())
            before, after = before[head : len(before) - tail], after[head : len(after) - tail]
        self._found.append(Point(self.file, name, line, start, end, kind, before, after, place=self._places[-1]))


class _WithoutComments(cst.CSTTransformer):
    """Leaves out comments, docstrings and empty lines."""

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.RemovalSentinel:  # noqa: ARG002, N802
        """Leaves out the line."""
        return cst.RemoveFromParent()

    def leave_TrailingWhitespace(  # noqa: N802
        self,
        original_node: cst.TrailingWhitespace,  # noqa: ARG002
        updated_node: cst.TrailingWhitespace,
    ) -> cst.TrailingWhitespace:
        """Leaves out a comment at the end of a line."""
        return updated_node.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:  # noqa: ARG002, N802
        """Leaves out a docstring."""
        first, *others = updated_node.body
        match first:
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]):
                return updated_node.with_changes(body=others)
        return updated_node


def _without_comments(node: cst.CSTNode) -> cst.CSTNode:
    return cast("cst.CSTNode", node.visit(_WithoutComments()))


def _is_valid(point: Point, function: bytes, start: int) -> bool:
    """Whether the function is still one with this fault: a return outside of a loop can be none, for example.

    Args:
        point: The fault.
        function: The text of the function, which begins without the indentation that its other lines have.
        start: Where it begins in the file.
    """
    text = function[: point.start - start] + point.after.encode() + function[point.end - start :]
    try:
        ast.parse(b"if 1:\n " + text)
    except SyntaxError:
        return False
    return True


def _common(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _is_for_types(test: cst.BaseExpression) -> bool:
    return isinstance(test, cst.Name) and test.value == "TYPE_CHECKING"
