# SPDX-License-Identifier: Apache-2.0
"""Options with a name and a value, such as `--argument x-match=any` and `--header colour=red`."""

import json
import math
from typing import Any, NoReturn

import typer


def named_values(given: list[str] | None, option: str) -> dict[str, Any]:
    """Return the values by their names.

    Args:
        given: Texts `NAME=VALUE`; VALUE is JSON if it parses as JSON, else text.
        option: What the option is called, for errors.

    Raises:
        typer.BadParameter: A text has no name, or a name is given twice.
    """
    values: dict[str, Any] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            message = f"{option}: '{one}' is not NAME=VALUE"
            raise typer.BadParameter(message)
        if name in values:
            message = f"{option}: '{name}' is given twice"
            raise typer.BadParameter(message)
        values[name] = value_of(value)
    return values


def value_of(text: str) -> Any:  # noqa: ANN401 (whatever JSON has)
    """Return the value that a text means: that of its JSON, or the text."""
    try:
        return json.loads(text, parse_constant=_not_json, parse_float=_finite)
    except (ValueError, RecursionError):  # JSON too deep for the parser is too deep for an AMQP table: it is text
        return text


def _not_json(text: str) -> NoReturn:
    """Refuse a constant that Python's JSON parser accepts and JSON does not have, such as NaN."""
    raise ValueError(text)


def _finite(text: str) -> float:
    """Refuse a number that is too large for a float: it would be infinite, which JSON cannot represent."""
    found = float(text)
    return found if math.isfinite(found) else _not_json(text)
