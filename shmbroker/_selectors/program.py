# SPDX-License-Identifier: Apache-2.0
"""Parts of programs: the code of an operand, with its type and the room that it needs on the stack."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from shmbroker._core.opcodes import OPCODES

_INTEGER, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")


class Kind(enum.Enum):
    """What is known about the type of an operand before any message is seen."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    STRING = "a string"
    ANY = "a value of any type"
    """The value of a header, whose type each message decides."""


class Place(NamedTuple):
    """A place in the text of a selector; both numbers begin at 1."""

    line: int
    column: int


class Problem(Exception):  # noqa: N818 - internal: `compile_selector` replaces it by the error of the API
    """What is wrong with a selector, and where."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(place, text)
        self.place = place
        self.text = text


class Operand(NamedTuple):
    """The code that leaves one value on the stack.

    Attributes:
        place: where the operand begins.
        kind: the type of the value.
        code: the instructions.
        height: the most values that are on the stack meanwhile.
        literal: the number, if the operand is the literal of a number; else ``None``.
    """

    place: Place
    kind: Kind
    code: bytes
    height: int = 1
    literal: float | None = None


def number(place: Place, value: float) -> Operand:
    """Returns the operand for a literal. An integer that only a minus sign makes small enough has no code yet."""
    if isinstance(value, float):
        return Operand(place, Kind.NUMBER, OPCODES["DOUBLE_F64"] + _DOUBLE.pack(value), literal=value)
    code = OPCODES["INTEGER_I64"] + _INTEGER.pack(value) if value < 1 << 63 else b""
    return Operand(place, Kind.NUMBER, code, literal=value)


def text16(text: bytes) -> bytes:
    """Returns a text behind its length in two bytes."""
    return len(text).to_bytes(2, "little") + text


def text8(text: bytes) -> bytes:
    """Returns a text behind its length in one byte."""
    return bytes((len(text),)) + text


def together(instruction: str, *operands: Operand) -> tuple[bytes, int]:
    """Returns the code of an instruction on operands, and its height: while one is evaluated, those before it wait."""
    height = max(waiting + operand.height for waiting, operand in enumerate(operands))
    return b"".join(operand.code for operand in operands) + OPCODES[instruction], height
