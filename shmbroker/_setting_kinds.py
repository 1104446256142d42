# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that a setting can have: how each kind is checked, written, and stored in the core.

A row of :mod:`shmbroker.settings` names a kind. The row and the kind determine everything else about a setting: the
values of keywords and ``x-`` arguments, the option of the command line, the number in shared memory, and the line of
the reference.
"""

from __future__ import annotations

import abc
import re
from typing import TYPE_CHECKING, Any

from shmbroker._amqp import arguments
from shmbroker._amqp.utf8 import size_in_utf8
from shmbroker._checks import is_integer, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

UNBOUNDED = -1
"""The value of a count that has no limit, and what the core stores for `None`."""

_SIZE = re.compile(r"\s*(\d+)\s*([kKmMgG]?)(?:i?[bB])?\s*\Z")
_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MAX_COUNT = 1 << 56
_MAX_NAME = 255
_MAX_PRIORITY = 255
_MAX_MILLISECONDS = 315_360_000_000


def parse_size(value: object, name: str = "memory") -> int:
    """Returns the number of bytes that an integer, or a string such as ``"256M"``, means.

    Raises:
        ValueError: the value is neither, or is not positive.

    >>> parse_size("64K")
    65536
    """
    if is_integer(value) and value > 0:
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        msg = f"{name}={value!r}: a positive integer, or a string such as '256M', is allowed"
        raise ValueError(msg)
    return int(match[1]) * _FACTOR[match[2].lower()]


class Kind(abc.ABC):
    """A kind of values.

    The methods that are not abstract are for numbers that the core stores unchanged; other kinds override those that
    they need. `to_core` and `from_core` serve only the kinds that the core stores as numbers:
    :mod:`shmbroker._core.settings` itself encodes flags (`Switch`) and strings (`Name`).
    """

    __slots__ = ()
    option: type[int | float | str] = str
    """The type of the option of the command line."""
    metavar: str | None = None
    """What the command line's help shows in place of the value; `None` = the option is a switch."""
    allowed = ""
    """The allowed values, for the reference."""

    @abc.abstractmethod
    def check(self, name: str, value: object) -> Any:  # noqa: ANN401
        """Checks a value that a caller gave for a setting, and returns it in the form that the settings store.

        Raises:
            ValueError: the value is not allowed. The error's text names the setting, the value and what is allowed.
        """

    @abc.abstractmethod
    def from_argument(self, queue: str, argument: str, value: object) -> Any:  # noqa: ANN401
        """Checks the value of an ``x-`` argument, and returns it in the form that the settings store.

        Raises:
            PreconditionFailed: the value is not allowed.
        """

    def from_option(self, value: Any) -> Any:  # noqa: ANN401
        """Converts the value of an option of the command line to a form that `check` accepts."""
        return value

    def to_core(self, value: Any) -> int:  # noqa: ANN401
        """Returns the number that the core stores."""
        return int(value)

    def from_core(self, number: int) -> Any:  # noqa: ANN401
        """Converts a number that the core stores to the value of the setting."""
        return number

    def described(self, value: Any) -> str:  # noqa: ANN401
        """Returns a value as the text of an AMQP error shows it."""
        return f"'{value}'"


class Count(Kind):
    """A number of messages; -1 = no limit."""

    __slots__ = ()
    option: type[int | float | str] = int
    metavar = "N"
    allowed = "-1 or >= 1"

    def check(self, name: str, value: object) -> int:
        """Accepts -1 and integers from 1."""
        if is_integer(value) and (value == UNBOUNDED or 1 <= value < _MAX_COUNT):
            return value
        msg = f"{name}={value!r}: -1 (no limit) or an integer from 1 to {_MAX_COUNT - 1} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> int:
        """Accepts -1 and integers from 1."""
        return arguments.integer(queue, argument, value, UNBOUNDED, _MAX_COUNT - 1)

    def described(self, value: int) -> str:
        """Returns "none" for no limit."""
        return "none" if value == UNBOUNDED else f"'{value}'"


class Level(Kind):
    """The number of a priority."""

    __slots__ = ()
    option: type[int | float | str] = int
    metavar = "N"
    allowed = f"0 to {_MAX_PRIORITY}"

    def check(self, name: str, value: object) -> int:
        """Accepts the numbers of priorities."""
        if is_integer(value) and 0 <= value <= _MAX_PRIORITY:
            return value
        msg = f"{name}={value!r}: an integer from 0 to {_MAX_PRIORITY} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> int:
        """Accepts the numbers of priorities."""
        return arguments.integer(queue, argument, value, 0, _MAX_PRIORITY)

    def from_core(self, number: int) -> int:
        """Returns 0 for a negative number, which means "none" in the core."""
        return max(number, 0)

    def described(self, value: int) -> str:
        """Returns "none" for no priorities."""
        return "none" if value == 0 else f"'{value}'"


class Whole(Kind):
    """A whole number within bounds."""

    __slots__ = ("_least", "_most")
    option: type[int | float | str] = int
    metavar = "N"

    def __init__(self, least: int, most: int) -> None:
        """Takes the bounds."""
        self._least, self._most = least, most

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The bounds, for the reference."""
        return f"{self._least} to {self._most}"

    def check(self, name: str, value: object) -> int:
        """Accepts integers within the bounds."""
        if is_integer(value) and self._least <= value <= self._most:
            return value
        msg = f"{name}={value!r}: an integer from {self._least} to {self._most} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> int:
        """Accepts integers within the bounds."""
        return arguments.integer(queue, argument, value, self._least, self._most)

    def from_core(self, number: int) -> int:
        """Returns the number; the upper bound for another number, which a queue of the core's tests may have."""
        return number if self._least <= number <= self._most else self._most


class Limit(Count):
    """A number of messages, where 0 allows none; -1 = no limit."""

    __slots__ = ()
    allowed = "-1 or >= 0"

    def check(self, name: str, value: object) -> int:
        """Accepts -1 and integers from 0."""
        if is_integer(value) and UNBOUNDED <= value < _MAX_COUNT:
            return value
        msg = f"{name}={value!r}: -1 (no limit) or an integer from 0 to {_MAX_COUNT - 1} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> int:
        """Accepts -1 and integers from 0."""
        if is_integer(value) and value == UNBOUNDED:
            return UNBOUNDED
        return arguments.integer(queue, argument, value, 0, _MAX_COUNT - 1)


class Seats(Limit):
    """A number of consumers, or -1 = no limit. The core stores the number plus one, and 0 for no limit."""

    __slots__ = ()

    def to_core(self, value: int) -> int:
        """Returns the number plus one."""
        return value + 1

    def from_core(self, number: int) -> int:
        """Returns the number minus one; -1 for a negative number, which means "none" in the core."""
        return max(number, 0) - 1


class Consumers(Kind):
    """A number of consumers, where 0 asks for none."""

    __slots__ = ()
    option: type[int | float | str] = int
    metavar = "N"
    allowed = ">= 0"

    def check(self, name: str, value: object) -> int:
        """Accepts integers from 0."""
        if is_integer(value) and 0 <= value < _MAX_COUNT:
            return value
        msg = f"{name}={value!r}: an integer from 0 to {_MAX_COUNT - 1} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> int:
        """Accepts integers from 0."""
        return arguments.integer(queue, argument, value, 0, _MAX_COUNT - 1)

    def from_core(self, number: int) -> int:
        """Returns 0 for a negative number, which means "none" in the core."""
        return max(number, 0)


class Size(Limit):
    """A number of bytes; -1 = no limit."""

    __slots__ = ()
    option = str
    metavar = "SIZE"
    allowed = '-1, >= 0, or a size such as `"64M"`'

    def check(self, name: str, value: object) -> int:
        """Accepts the numbers that `Limit` accepts, and strings such as ``"64M"`` or ``"1000"``."""
        if isinstance(value, str):
            try:
                value = parse_size(value, name)
            except ValueError:
                msg = f"{name}={value!r}: -1 (no limit), an integer >= 0, or a string such as '64M' is allowed"
                raise ValueError(msg) from None
        return super().check(name, value)

    def from_option(self, value: str) -> int | str:
        """Converts digits, with or without a leading minus sign, to a number; returns any other string unchanged."""
        return int(value) if value.removeprefix("-").isdecimal() else value


class Seconds(Kind):
    """A time in seconds; `None` = no limit. AMQP's arguments and the core count it in milliseconds."""

    __slots__ = ("_least",)
    option = float
    metavar = "S"

    def __init__(self, least_ms: int) -> None:
        """Takes the shortest allowed time, in milliseconds."""
        self._least = least_ms

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The bounds, for the reference."""
        return f"{self._least / 1000:g} to {_MAX_MILLISECONDS // 1000:,} seconds"

    def check(self, name: str, value: object) -> float | None:
        """Accepts `None`, and numbers within the bounds.

        Rounds to milliseconds, as the core stores them. So the value equals the one that is read back later.
        """
        if value is None:
            return None
        if is_number(value) and self._least / 1000 <= value <= _MAX_MILLISECONDS / 1000:
            return self.from_core(self.to_core(float(value)))
        msg = f"{name}={value!r}: {self._least / 1000:g} to {_MAX_MILLISECONDS // 1000} seconds, or None, are allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> float:
        """Accepts milliseconds within the bounds."""
        return arguments.integer(queue, argument, value, self._least, _MAX_MILLISECONDS) / 1000

    def from_option(self, value: float) -> float | None:
        """Converts -1 to `None`."""
        return None if value == UNBOUNDED else value

    def to_core(self, value: float | None) -> int:
        """Rounds to milliseconds, but never below the shortest allowed time; converts `None` to -1."""
        return UNBOUNDED if value is None else max(self._least, round(value * 1000))

    def from_core(self, number: int) -> float | None:
        """Returns seconds; `None` for a negative number."""
        return None if number < 0 else number / 1000

    def described(self, value: float | None) -> str:
        """Returns milliseconds, as in the argument, or "none"."""
        return "none" if value is None else f"'{round(value * 1000)}'"


class Choice(Kind):
    """One of a list of words. The core stores the index of the word in this list, from 0."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        """Takes the words, in the order of their numbers in the core."""
        self.words: Sequence[str] = words

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """The words, separated by bars, for the help of the command line."""
        return "|".join(self.words)

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The words, for the reference."""
        return ", ".join(f"`{word}`" for word in self.words)

    def check(self, name: str, value: object) -> str:
        """Accepts one of the words."""
        if isinstance(value, str) and value in self.words:
            return value
        msg = f"{name}={value!r}: one of {', '.join(self.words)} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> str:
        """Accepts one of the words."""
        if isinstance(value, str) and value in self.words:
            return value
        name = argument.removeprefix("x-").replace("-", "_")
        raise arguments.invalid(queue, argument, f'{{invalid_{name},<<"{value}">>}}')

    def to_core(self, value: str) -> int:
        """Returns the number of the word."""
        return self.words.index(value)

    def from_core(self, number: int) -> str:
        """Returns the word of a number; the first word for an unknown number, which only a damaged broker contains."""
        return self.words[number if 0 <= number < len(self.words) else 0]


class Factor(Kind):
    """A factor between two whole numbers. The core stores it in thousandths."""

    __slots__ = ("_least", "_most")
    option = float
    metavar = "X"

    def __init__(self, least: int, most: int) -> None:
        """Takes the least and the greatest allowed factor."""
        self._least, self._most = least, most

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The bounds, for the reference."""
        return f"{self._least:,} to {self._most:,}"

    def check(self, name: str, value: object) -> float:
        """Accepts numbers within the bounds, and rounds them to thousandths, as the core stores them."""
        if is_number(value) and self._least <= value <= self._most:
            return self.from_core(self.to_core(float(value)))
        msg = f"{name}={value!r}: a number from {self._least} to {self._most} is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> float:
        """Accepts numbers within the bounds."""
        if not is_number(value):
            raise arguments.invalid_type(queue, argument, value)
        try:
            return self.check(argument, value)
        except ValueError as error:
            raise arguments.invalid(queue, argument, f"{{value_out_of_range,{value}}}") from error

    def to_core(self, value: float) -> int:
        """Returns thousandths."""
        return round(value * 1000)

    def from_core(self, number: int) -> float:
        """Returns the factor; the least one for a number below that, which a queue of the core's tests may have."""
        return max(number, self._least * 1000) / 1000


class Name(Kind):
    """A name, such as that of an exchange, or `None`. The core stores it as a string beside the numbers of settings."""

    __slots__ = ("_least",)
    metavar = "NAME"

    def __init__(self, *, empty: bool = False) -> None:
        """Takes whether the name may be empty, as that of the default exchange is."""
        self._least = 0 if empty else 1

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The allowed lengths, for the reference."""
        return f"{self._least} to {_MAX_NAME} bytes of UTF-8 without NUL"

    def check(self, name: str, value: object) -> str | None:
        """Accepts `None`, and names."""
        if value is None:
            return None
        size = size_in_utf8(value) if isinstance(value, str) else None
        if isinstance(value, str) and "\0" not in value and size is not None and self._least <= size <= _MAX_NAME:
            return value
        msg = f"{name}={value!r}: {self.allowed}, or None, are allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> str:
        """Accepts names."""
        if not isinstance(value, str):
            raise arguments.invalid_type(queue, argument, value)
        try:
            return str(self.check(argument, value))
        except ValueError as error:
            raise arguments.invalid(queue, argument, f'{{invalid_name,<<"{value}">>}}') from error

    def described(self, value: str | None) -> str:
        """Returns "none" for no name."""
        return "none" if value is None else f"'{value}'"


class Switch(Kind):
    """True or False; the core stores a flag."""

    __slots__ = ()
    option = bool
    allowed = "`True`, `False`"

    def check(self, name: str, value: object) -> bool:
        """Accepts nothing but `True` and `False`."""
        if isinstance(value, bool):
            return value
        msg = f"{name}={value!r}: True or False is allowed"
        raise ValueError(msg)

    def from_argument(self, queue: str, argument: str, value: object) -> bool:
        """Accepts nothing but `True` and `False`."""
        if not isinstance(value, bool):
            raise arguments.invalid_type(queue, argument, value)
        return value

    def described(self, value: bool) -> str:  # noqa: FBT001 - the value of a setting
        """Returns the value as AMQP writes it."""
        return "'true'" if value else "'false'"
