# SPDX-License-Identifier: Apache-2.0
"""Selectors as trees: their text, and their value for a message, computed in the plainest way."""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Headers = dict[str, Any]
OTHER = object()  # the value of bytes, a list or a table
LEAST, MOST = -(2**63), 2**63 - 1

# How tightly an expression binds; a part that binds less is in parentheses.
OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN, PRIMARY = range(8)


def seen(value: Any) -> Any:  # noqa: ANN401 - any value of a header
    """Return a header as a selector sees it: None, a bool, an int, a float, a string, or OTHER."""
    if isinstance(value, (bytes, list, dict)):
        return OTHER
    if isinstance(value, Decimal):
        return float(value)
    return int(value.timestamp()) if isinstance(value, dt.datetime) else value


def is_number(value: object) -> bool:
    """Whether a value is a number; booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def truth(value: object) -> bool | None:
    """Return the truth of a condition; None is unknown."""
    return None if value is None else value is True


def compared(sign: str, left: Any, right: Any) -> bool | None:  # noqa: ANN401
    """Compare two values."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = left.encode(), right.encode()
    elif isinstance(left, bool) and isinstance(right, bool):
        if sign not in {"=", "<>"}:
            return False
    elif not (is_number(left) and is_number(right)):
        return False
    result: bool = OPERATORS[sign](left, right)
    return result


OPERATORS: Mapping[str, Any] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def calculated(sign: str, left: Any, right: Any) -> float | None:  # noqa: ANN401
    """Calculate with two values."""
    if not is_number(left) or not is_number(right) or (sign == "/" and right == 0):
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        found: float = left / right if sign == "/" else OPERATORS[sign](left, right)
        return found
    if sign == "/":
        quotient = abs(left) // abs(right)
        result = quotient if (left < 0) == (right < 0) else -quotient
    else:
        result = OPERATORS[sign](left, right)
    return result if LEAST <= result <= MOST else None


def both(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001
    """Return the AND of two truths."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def inverse(of: bool | None) -> bool | None:  # noqa: FBT001
    """Return the NOT of a truth."""
    return None if of is None else not of


@dataclass(frozen=True)
class Node:
    """A part of a selector."""

    binds = PRIMARY

    def text(self) -> str:
        """Return it as text."""
        raise NotImplementedError

    def value(self, headers: Headers) -> Any:  # noqa: ANN401
        """Return its value for a message with these headers."""
        raise NotImplementedError

    def within(self, binds: int) -> str:
        """Return its text as a part of an expression that binds so tightly."""
        return self.text() if self.binds >= binds else f"({self.text()})"


@dataclass(frozen=True)
class Name(Node):
    """A header; quoted if a plain name cannot be so, is a keyword, or is that of a property."""

    name: str

    def text(self) -> str:
        """Return the name."""
        plain = re.fullmatch(r"[a-z][\w.]*", self.name) and self.name not in {"not", "priority"}
        return self.name if plain else '"{}"'.format(self.name.replace('"', '""'))

    def value(self, headers: Headers) -> Any:  # noqa: ANN401
        """Return the header."""
        return seen(headers.get(self.name))


@dataclass(frozen=True)
class Literal(Node):
    """A literal."""

    is_: Any

    @property
    def binds(self) -> int:  # type: ignore[override]
        """Return how tightly it binds: a negative number has a sign."""
        return SIGN if is_number(self.is_) and math.copysign(1, self.is_) < 0 else PRIMARY

    def text(self) -> str:
        """Return it as SQL writes it."""
        if isinstance(self.is_, str):
            return "'{}'".format(self.is_.replace("'", "''"))
        return str(self.is_) if isinstance(self.is_, bool) else repr(self.is_)

    def value(self, headers: Headers) -> Any:  # noqa: ANN401, ARG002
        """Return it."""
        return self.is_


@dataclass(frozen=True)
class Calculation(Node):
    """Two numbers with a sign between them."""

    sign: str
    left: Node
    right: Node

    @property
    def binds(self) -> int:  # type: ignore[override]
        """Return how tightly it binds."""
        return SUM if self.sign in "+-" else PRODUCT

    def text(self) -> str:
        """Return it; operators of one kind are read from left to right."""
        return f"{self.left.within(self.binds)} {self.sign} {self.right.within(self.binds + 1)}"

    def value(self, headers: Headers) -> Any:  # noqa: ANN401
        """Calculate."""
        return calculated(self.sign, self.left.value(headers), self.right.value(headers))


@dataclass(frozen=True)
class Minus(Node):
    """A number with a minus sign."""

    of: Node
    binds = SIGN

    def text(self) -> str:
        """Return it."""
        return f"- {self.of.within(SIGN)}"

    def value(self, headers: Headers) -> Any:  # noqa: ANN401
        """Calculate; the sign of a zero of doubles changes, too."""
        value = self.of.value(headers)
        return -value if isinstance(value, float) else calculated("-", 0, value)


@dataclass(frozen=True)
class Comparison(Node):
    """Two operands with a comparison between them."""

    sign: str
    left: Node
    right: Node
    binds = PREDICATE

    def text(self) -> str:
        """Return it."""
        return f"{self.left.within(SUM)}{self.sign}{self.right.within(SUM)}"

    def value(self, headers: Headers) -> bool | None:
        """Compare."""
        return compared(self.sign, self.left.value(headers), self.right.value(headers))


@dataclass(frozen=True)
class Between(Node):
    """Whether an operand is between two others."""

    of: Node
    low: Node
    high: Node
    negated: bool
    binds = PREDICATE

    def text(self) -> str:
        """Return it."""
        parts = (self.of.within(SUM), "not" if self.negated else "", "between", self.low.within(SUM), "AND")
        return " ".join((*parts, self.high.within(SUM)))

    def value(self, headers: Headers) -> bool | None:
        """Compare twice."""
        of, low, high = (one.value(headers) for one in (self.of, self.low, self.high))
        found = both(compared(">=", of, low), compared("<=", of, high))
        return inverse(found) if self.negated else found


@dataclass(frozen=True)
class In(Node):
    """Whether an operand is in a list of literals."""

    of: Node
    literals: tuple[Literal, ...]
    negated: bool
    binds = PREDICATE

    def text(self) -> str:
        """Return it."""
        listed = ", ".join(one.text() for one in self.literals)
        return f"{self.of.within(SUM)} {'NOT IN' if self.negated else 'in'} ({listed})"

    def value(self, headers: Headers) -> bool | None:
        """Look for it."""
        of = self.of.value(headers)
        found = None if of is None else any(compared("=", of, one.is_) for one in self.literals)
        return inverse(found) if self.negated else found


@dataclass(frozen=True)
class Like(Node):
    """Whether a string has a pattern: literal parts, and None for `%` and an Ellipsis for `_` between them."""

    of: Node
    pattern: tuple[Any, ...]
    escape: str
    negated: bool
    binds = PREDICATE

    def text(self) -> str:
        """Return it; what would be special in a literal part is escaped."""
        wild = {None: "%", ...: "_"}
        escaped = [
            wild[part]
            if part in wild
            else "".join(self.escape + one if one in {"%", "_", self.escape} else one for one in part)
            for part in self.pattern
        ]
        pattern, escape = Literal("".join(escaped)).text(), Literal(self.escape).text()
        return f"{self.of.within(SUM)} {'Not Like' if self.negated else 'LIKE'} {pattern} ESCAPE {escape}"

    def value(self, headers: Headers) -> bool | None:
        """Match."""
        of = self.of.value(headers)
        wild = {None: ".*", ...: "."}
        expression = "".join(wild[part] if part in wild else re.escape(part) for part in self.pattern)
        matches = isinstance(of, str) and re.fullmatch(expression, of, re.DOTALL) is not None
        found = None if of is None else matches
        return inverse(found) if self.negated else found


@dataclass(frozen=True)
class IsNull(Node):
    """Whether an operand has no value."""

    of: Node
    negated: bool
    binds = PREDICATE

    def text(self) -> str:
        """Return it."""
        return f"{self.of.within(SUM)} is {'NOT NULL' if self.negated else 'null'}"

    def value(self, headers: Headers) -> bool:
        """Look."""
        return (self.of.value(headers) is None) != self.negated


@dataclass(frozen=True)
class Not(Node):
    """The opposite of a condition."""

    of: Node
    binds = NOT

    def text(self) -> str:
        """Return it."""
        return f"NOT {self.of.within(NOT)}"

    def value(self, headers: Headers) -> bool | None:
        """Invert."""
        return inverse(truth(self.of.value(headers)))


@dataclass(frozen=True)
class Both(Node):
    """Two conditions, with AND or OR between them."""

    left: Node
    right: Node
    either: bool

    @property
    def binds(self) -> int:  # type: ignore[override]
        """Return how tightly it binds."""
        return OR if self.either else AND

    def text(self) -> str:
        """Return it."""
        return f"{self.left.within(self.binds)} {'OR' if self.either else 'and'} {self.right.within(self.binds + 1)}"

    def value(self, headers: Headers) -> bool | None:
        """Combine."""
        left, right = truth(self.left.value(headers)), truth(self.right.value(headers))
        return inverse(both(inverse(left), inverse(right))) if self.either else both(left, right)
