# SPDX-License-Identifier: Apache-2.0
"""Mutation points: the places of a C file where one small fault can stand, and the fault.

Each fault is one edit inside a function's body. Definitions of macros, constants, case labels and assertions of the
compiler have none. A fault that would behave as another one is left out: a negated condition is found wherever the same
condition is found that always holds, or never.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import tree_sitter_c
from tree_sitter import Language, Parser

from tests.mutations.point import Point, identified

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

SPECIFIER = re.compile(r"^#define (\w+) static\b", re.MULTILINE)  # macros that stand before a function's type
OPAQUE = {"static_assert_declaration", "sizeof_expression", "array_declarator", "enum_specifier", "gnu_asm_expression"}
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
NEGATED = {"==": "!=", "!=": "=="}
CONSTANT = re.compile(r"SB_[A-Z_]+|true|false|NULL|\w*\d\w*")
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)  # a text may hold what looks like one
TOOL_CALLS = {"SB_CRASHPOINT", "_Static_assert", "static_assert"}


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_c.language()))


def specifiers(texts: list[str]) -> set[str]:
    """Names of macros that stand for `static` and what follows it: C's grammar does not know them."""
    return {name for text in texts for name in SPECIFIER.findall(text)}


def points_of(file: str, text: str, known_specifiers: set[str] | None = None) -> list[Point]:
    """All faults of a file, in the order of its text.

    Raises:
        ValueError: The body of a function is not understood.
    """
    source = text.encode()
    names = (known_specifiers or set()) | specifiers([text])
    readable = text
    for name in names:
        readable = re.sub(
            rf"^{name}\b(?! static)", lambda m: "static".ljust(len(m[0]))[: len(m[0])], readable, flags=re.MULTILINE
        )
    found: list[Point] = []
    for function in _functions(_parser().parse(readable.encode()).root_node):
        body = function.child_by_field_name("body")
        if body is None:
            continue
        name = _name(function)
        if body.has_error:
            message = f"{file}: the body of {name} is not understood"
            raise ValueError(message)
        finder = _Finder(file, name, _type(function), source)
        finder.visit(body)
        found += identified(finder.found, _code(source[function.start_byte : function.end_byte].decode()))
    return sorted(found, key=lambda point: (point.start, -point.end))


def _code(function: str) -> str:
    """The function without comments, on one line."""
    return " ".join(COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", function).split())


def _functions(node: Node) -> Iterator[Node]:
    if node.type == "function_definition":
        yield node
        return
    for child in node.children:
        yield from _functions(child)


def _name(function: Node) -> str:
    node = function.child_by_field_name("declarator")
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return (node.text or b"").decode() if node is not None else "?"


def _type(function: Node) -> str:
    declarator, node = function.child_by_field_name("declarator"), function.child_by_field_name("type")
    pointer = declarator is not None and declarator.type == "pointer_declarator"
    return "*" if pointer or node is None else (node.text or b"").decode()


class _Finder:
    """Walks through the body of one function."""

    def __init__(self, file: str, function: str, type_: str, source: bytes) -> None:
        self.file, self.function, self.type, self.source = file, function, type_, source
        self.found: list[Point] = []

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def add(self, node: Node, kind: str, after: str, *, truth: bool = False) -> None:
        self.found.append(
            Point(
                self.file,
                self.function,
                node.start_point.row + 1,
                node.start_byte,
                node.end_byte,
                kind,
                self.text(node),
                after,
                truth,
            )
        )

    def visit(self, node: Node, *, decides: bool = False) -> None:
        """Looks at a node and what is below. `decides`: it is the whole of a condition."""
        if node.type in OPAQUE or node.type.startswith("preproc_"):
            return
        if node.type == "call_expression" and self._called(node) in TOOL_CALLS:
            return
        if node.type == "declaration" and any(self.text(c) == "static" for c in node.children):
            return
        handler = getattr(self, f"on_{node.type}", None)
        if handler is not None:
            handler(node, decides)
        condition = node.child_by_field_name("condition")
        label = node.child_by_field_name("value") if node.type == "case_statement" else None
        for child in node.named_children:
            if child == label:
                continue
            self.visit(child, decides=child == condition or (decides and node.type == "parenthesized_expression"))

    def _called(self, node: Node) -> str:
        called = node.child_by_field_name("function")
        return self.text(called) if called is not None else ""

    # ---- statements ----

    def on_expression_statement(self, node: Node, _decides: bool) -> None:  # noqa: FBT001 -- handlers are called alike
        inner = node.named_children[0] if node.named_children else None
        if inner is None or (inner.type == "call_expression" and self._called(inner) in TOOL_CALLS):
            return
        if inner.type == "cast_expression":
            value = inner.child_by_field_name("value")
            if value is not None and value.type == "identifier":  # says that a parameter is not used
                return
        self.add(node, "delete", "")

    def on_break_statement(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        if node.parent is not None and node.parent.type == "case_statement":
            self.add(node, "delete", "")

    def on_return_statement(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        value = node.named_children[0] if node.named_children else None
        if value is None:
            return
        text = self.text(value)
        if self.type == "sb_status" and text != "SB_OK":
            self.add(value, "success", "SB_OK" if CONSTANT.fullmatch(text) else f"((void)({text}), SB_OK)")
        elif self.type == "bool":
            self._negate(value)

    def on_declaration(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        kind = node.child_by_field_name("type")
        if kind is None or self.text(kind) != "bool":
            return
        for declarator in node.named_children:
            value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
            if value is not None and not CONSTANT.fullmatch(self.text(value)):
                self._negate(value)

    def _negate(self, value: Node) -> None:
        operator = value.child_by_field_name("operator")
        known = operator is not None and self.text(operator) in SHIFTED | NEGATED | {"&&": "", "||": ""}
        if value.type != "binary_expression" or not known:
            flipped = {"true": "false", "false": "true"}.get(self.text(value), f"!({self.text(value)})")
            self.add(value, "negate", flipped, truth=True)

    # ---- conditions ----

    def _decide(self, condition: Node | None, *, always: bool) -> None:
        while condition is not None and condition.type == "parenthesized_expression":
            condition = condition.named_children[0]
        if condition is None or CONSTANT.fullmatch(self.text(condition)):
            return
        text, operator = self.text(condition), condition.child_by_field_name("operator")
        joined = self.text(operator) if operator is not None and condition.type == "binary_expression" else ""
        if always and joined != "&&":  # of "a && b" to leave out either side is less, and found by the same
            self.add(condition, "true", f"((void)({text}), true)", truth=True)
        if joined != "||":
            self.add(condition, "false", f"((void)({text}), false)", truth=True)

    def on_if_statement(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        self._decide(node.child_by_field_name("condition"), always=True)

    def on_conditional_expression(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        self._decide(node.child_by_field_name("condition"), always=True)

    def on_while_statement(self, node: Node, _decides: bool) -> None:  # noqa: FBT001
        self._decide(node.child_by_field_name("condition"), always=False)

    on_do_statement = on_for_statement = on_while_statement

    # ---- expressions ----

    def on_binary_expression(self, node: Node, decides: bool) -> None:  # noqa: FBT001
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator_node = node.child_by_field_name("operator")
        if left is None or right is None or operator_node is None:
            return
        operator, first, second = self.text(operator_node), self.text(left), self.text(right)
        if operator in {"&&", "||"}:
            self.add(node, "left", f"({first})", truth=True)
            self.add(node, "right", f"({second})", truth=True)
        elif operator in SHIFTED:
            self.add(node, "bound", f"{first} {SHIFTED[operator]} {second}", truth=True)
            if not self._in_condition(node, decides=decides):
                self.add(node, "negate", f"!({first} {operator} {second})", truth=True)
        elif operator in NEGATED:
            if not self._in_condition(node, decides=decides):
                self.add(node, "negate", f"{first} {NEGATED[operator]} {second}", truth=True)
        elif operator in {"+", "-"} and right.type == "number_literal":
            self.add(node, "offset", f"({first})")

    def _in_condition(self, node: Node, *, decides: bool) -> bool:
        """Whether a condition that always holds, or never, finds what a negation of this would."""
        if decides:
            return True
        parent = node.parent
        while parent is not None and parent.type in {"binary_expression", "parenthesized_expression"}:
            operator = parent.child_by_field_name("operator")
            if operator is not None and self.text(operator) not in {"&&", "||"}:
                return False
            if parent.parent is not None and parent.parent.child_by_field_name("condition") == parent:
                return True
            parent = parent.parent
        return False

    def on_call_expression(self, node: Node, decides: bool) -> None:  # noqa: FBT001
        called, arguments = self._called(node), node.child_by_field_name("arguments")
        if arguments is None:
            return
        given = [self.text(argument) for argument in arguments.named_children if argument.type != "comment"]
        if called == "SB_CAS" and not self._alone(node, decides=decides):
            self.add(node, "cas", f"((void)({self.text(node)}), true)", truth=True)
        elif given[-1:] == ["SB_SEQ_CST"] and (called == "SB_STORE" or (called == "SB_SWAP" and self._dropped(node))):
            self.add(node, "weaken", f"SB_STORE({', '.join(given[:-1])}, SB_RELAXED)")

    def _dropped(self, node: Node) -> bool:
        return node.parent is not None and node.parent.type == "cast_expression"

    def _alone(self, node: Node, *, decides: bool) -> bool:
        """Whether the result is not used, or is the whole of a condition, which has its own faults."""
        parent = node.parent
        negated = parent is not None and parent.type == "unary_expression" and self._is_condition(parent)
        return decides or self._dropped(node) or negated

    def _is_condition(self, node: Node) -> bool:
        parent = node.parent
        while parent is not None and parent.type == "parenthesized_expression":
            node, parent = parent, parent.parent
        return parent is not None and parent.child_by_field_name("condition") == node
