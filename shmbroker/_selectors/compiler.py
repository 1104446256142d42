# SPDX-License-Identifier: Apache-2.0
"""Compiles selectors: checks the types of operands, and writes the program that the core runs.

The parser calls a method of :class:`_Compiler` for each rule that it has recognised, with what the methods returned for
its parts. So the code grows while the text is read: there is no syntax tree, and no recursion over one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

from shmbroker._core.opcodes import DEPTH, HEADER, OPCODES
from shmbroker._selectors import grammar, literals, names
from shmbroker._selectors.program import Kind, Operand, Place, Problem, number, text16, together
from shmbroker.exceptions import InvalidSelector

if TYPE_CHECKING:
    from lark import Token

MAX_SELECTOR = 8192
"""The most bytes of the text of a selector, in UTF-8."""

_SHOWN = 80  # characters of a selector in an error
_COMPARISONS = {
    "=": "EQUAL", "<>": "NOT_EQUAL", "<": "LESS", "<=": "LESS_OR_EQUAL", ">": "GREATER", ">=": "GREATER_OR_EQUAL",
}  # fmt: skip
_CALCULATIONS = {"+": "ADD", "-": "SUBTRACT", "*": "MULTIPLY", "/": "DIVIDE"}


def compile_selector(text: object, argument: str = "selector") -> bytes:
    """Compiles a selector to a program for the core.

    Args:
        text: the selector.
        argument: the name of the argument, for errors.

    Raises:
        TypeError: the selector is no string.
        InvalidSelector: the selector is empty or too long, or is no condition in the language of selectors.
    """
    return _compiled(_checked(text, argument), argument, "selector")


def compile_name(text: object, argument: str) -> bytes:
    """Compiles the name of a property or a header to a program that returns its value.

    Raises:
        TypeError: the name is no string.
        InvalidSelector: it is no name as a selector has it.
    """
    return _compiled(_checked(text, argument), argument, "name")


def _checked(text: object, argument: str) -> str:
    if not isinstance(text, str):
        msg = f"{argument}={text!r}: a string is needed"
        raise TypeError(msg)
    if len(text) > MAX_SELECTOR:  # before it is encoded
        _refuse(argument, text, Place(1, 1), f"at most {MAX_SELECTOR} bytes of UTF-8 are allowed")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        place = Place(text.count("\n", 0, error.start) + 1, error.start - text.rfind("\n", 0, error.start))
        _refuse(argument, text, place, "text that can be written in UTF-8 is allowed")
    if size > MAX_SELECTOR:
        _refuse(argument, text, Place(1, 1), f"at most {MAX_SELECTOR} bytes of UTF-8 are allowed")
    return text


@functools.lru_cache(maxsize=256)
def _compiled(text: str, argument: str, rule: str) -> bytes:
    try:
        operand: Operand = grammar.parser(_COMPILER).parse(text, start=rule)  # type: ignore[assignment]
    except Problem as problem:
        _refuse(argument, text, problem.place, problem.text)
    except grammar.syntax_errors() as error:
        _refuse(argument, text, *_explained(error, text))
    return HEADER + operand.code


def _refuse(argument: str, text: str, place: Place, why: str) -> NoReturn:
    shown = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
    msg = f"{argument}={shown}: line {place.line}, column {place.column}: {why}"
    raise InvalidSelector(msg, *place) from None  # the error of the parser says the same in its own words


def _explained(error: Any, text: str) -> tuple[Place, str]:  # noqa: ANN401 - an error of lark
    """Returns where the parser failed, and why."""
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        last = text.rstrip()
        place = Place(last.count("\n") + 1, len(last) - last.rfind("\n"))
        return place, "the text ends where more is needed" if last else "a condition is needed"
    place = Place(error.line, error.column)
    if token is not None:
        return place, f"{str(token)!r} is not allowed here"
    character = text[error.pos_in_stream]
    if character in "'\"":
        return place, f"the {'string' if character == chr(39) else 'name'} that begins here has no end"
    if character.isdigit():
        return place, "a number is followed by a letter, a digit or a point"
    if text.startswith("!=", error.pos_in_stream):
        return place, "'!=' is not allowed here: '<>' says that two values differ"
    return place, f"{character!r} is not allowed here"


def _place(token: Token) -> Place:
    return Place(token.line or 1, token.column or 1)


class _Compiler:
    """Has a method for each rule of the grammar; it gets what the methods returned for the parts of the rule."""

    # ---- operands ----

    def plain_name(self, parts: list[Any]) -> Operand:
        return names.plain(_place(parts[0]), str(parts[0]))

    def quoted_name(self, parts: list[Any]) -> Operand:
        return names.header(_place(parts[0]), literals.unquoted(parts[0]))

    def string(self, parts: list[Any]) -> Operand:
        text = literals.unquoted(parts[0]).encode()
        return Operand(_place(parts[0]), Kind.STRING, OPCODES["STRING_TEXT16"] + text16(text))

    def number(self, parts: list[Any]) -> Operand:
        return literals.number_of(_place(parts[0]), str(parts[0]))

    def true(self, parts: list[Any]) -> Operand:
        return Operand(_place(parts[0]), Kind.BOOLEAN, OPCODES["TRUE"])

    def false(self, parts: list[Any]) -> Operand:
        return Operand(_place(parts[0]), Kind.BOOLEAN, OPCODES["FALSE"])

    # ---- arithmetic ----

    def sign(self, parts: list[Any]) -> Operand:
        sign, of = parts
        place = _place(sign)
        if of.literal is not None:
            return number(place, -of.literal) if sign == "-" else _usable(of)._replace(place=place)
        _need(of, Kind.NUMBER, f"{sign} needs a number")
        return Operand(place, Kind.NUMBER, *together("NEGATE", of)) if sign == "-" else of

    def calculation(self, parts: list[Any]) -> Operand:
        left, sign, right = parts
        for operand in (left, right):
            _need(operand, Kind.NUMBER, f"{sign} needs numbers")
        return _result(Kind.NUMBER, _CALCULATIONS[sign], left, right)

    # ---- conditions ----

    def comparison(self, parts: list[Any]) -> Operand:
        left, sign, right = parts
        _comparable(left, right, ordered=sign not in {"=", "<>"})
        return _result(Kind.BOOLEAN, _COMPARISONS[sign], left, right)

    def between(self, parts: list[Any]) -> Operand:
        of, low, high = parts
        _comparable(of, low, ordered=True)
        _comparable(of, high, ordered=True)
        return _result(Kind.BOOLEAN, "BETWEEN", of, low, high)

    def not_between(self, parts: list[Any]) -> Operand:
        return self.negated([self.between(parts)])

    def is_in(self, parts: list[Any]) -> Operand:
        of, *constants = parts
        for constant in constants:
            if constant.kind is Kind.BOOLEAN:
                raise Problem(constant.place, "a boolean in a list of IN: strings and numbers are allowed")
            _comparable(of, constant, ordered=False)
        listed = b"".join(_usable(constant).code for constant in constants)
        found = _result(Kind.BOOLEAN, "IN_U16", of)
        return found._replace(code=found.code + text16(listed))

    def not_in(self, parts: list[Any]) -> Operand:
        return self.negated([self.is_in(parts)])

    def like(self, parts: list[Any]) -> Operand:
        of, pattern, escape = parts
        _need(of, Kind.STRING, "LIKE needs a string")
        place = _place(pattern)
        character = None if escape is None else literals.unquoted(escape)
        at = place if escape is None else _place(escape)
        encoded = literals.pattern_of(place, literals.unquoted(pattern), character, at)
        found = _result(Kind.BOOLEAN, "LIKE_TEXT16", of)
        return found._replace(code=found.code + text16(encoded))

    def not_like(self, parts: list[Any]) -> Operand:
        return self.negated([self.like(parts)])

    def is_null(self, parts: list[Any]) -> Operand:
        return _result(Kind.BOOLEAN, "IS_NULL", parts[0])

    def is_not_null(self, parts: list[Any]) -> Operand:
        return self.negated([self.is_null(parts)])

    def negated(self, parts: list[Any]) -> Operand:
        _need(parts[0], Kind.BOOLEAN, "NOT needs a condition")
        return _result(Kind.BOOLEAN, "NOT", parts[0])

    def both(self, parts: list[Any]) -> Operand:
        return _decided_early("AND", "SKIP_IF_FALSE_U16", *parts)

    def either(self, parts: list[Any]) -> Operand:
        return _decided_early("OR", "SKIP_IF_TRUE_U16", *parts)

    def selector(self, parts: list[Any]) -> Operand:
        _need(parts[0], Kind.BOOLEAN, "a selector is a condition")
        operand: Operand = parts[0]
        return operand


_COMPILER = _Compiler()


def _decided_early(instruction: str, skip: str, left: Operand, right: Operand) -> Operand:
    """Returns the code of AND or OR, which skips the right side if the left side decides."""
    for operand in (left, right):
        _need(operand, Kind.BOOLEAN, f"{instruction} needs conditions")
    behind = right.code + OPCODES[instruction]
    skipping = left._replace(code=left.code + OPCODES[skip] + len(behind).to_bytes(2, "little"))
    return _result(Kind.BOOLEAN, instruction, skipping, right)


def _result(kind: Kind, instruction: str, *operands: Operand) -> Operand:
    """Returns the code of an instruction on operands.

    Raises:
        Problem: the program would keep more values at a time than the core allows.
    """
    code, height = together(instruction, *map(_usable, operands))
    if height > DEPTH:
        raise Problem(operands[-1].place, f"nested too deeply: at most {DEPTH} values may wait for their operators")
    return Operand(operands[0].place, kind, code, height)


def _usable(operand: Operand) -> Operand:
    if operand.literal is not None and not operand.code:
        least = -operand.literal
        raise Problem(operand.place, f"{operand.literal}: an integer from {least} to {operand.literal - 1} is allowed")
    return operand


def _need(operand: Operand, kind: Kind, why: str) -> None:
    if operand.kind not in {kind, Kind.ANY}:
        raise Problem(operand.place, f"{operand.kind.value} is not allowed here: {why}")


def _comparable(left: Operand, right: Operand, *, ordered: bool) -> None:
    if Kind.ANY not in {left.kind, right.kind} and left.kind is not right.kind:
        text = f"{left.kind.value} is compared with {right.kind.value}: values of one type are allowed"
        raise Problem(right.place, text)
    if ordered and Kind.BOOLEAN in {left.kind, right.kind}:
        operand = left if left.kind is Kind.BOOLEAN else right
        raise Problem(operand.place, "booleans have no order: = and <> are allowed")
