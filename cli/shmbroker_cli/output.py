# SPDX-License-Identifier: Apache-2.0
"""Facts on standard output: JSON for programs, tables for people."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Row = TypeVar("Row")

PIPE_WIDTH = 400  # characters: the width of a table in a pipe or a file, where rich would fold it at 80
LEAST_TEXT = 16  # characters: no column of text is folded to fewer on a narrow terminal; numbers are never folded
GAP = 3  # characters between two columns
MANY = 500  # rows; a longer table is printed without rich
KIB = 1024


@dataclasses.dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes:
        title: The heading.
        value: Returns what the column shows of a given row. Numbers are aligned to the right.
    """

    title: str
    value: Callable[[Row], str | int | float | None]


def console(*, stderr: bool = False) -> Console:
    """Return a console of rich that writes to the present `sys.stdout` or `sys.stderr`.

    Args:
        stderr: Whether it writes to `sys.stderr`.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """Print one line for people.

    Args:
        text: The line.
    """
    typer.echo(printable(text))


def print_json(facts: object) -> None:
    """Print facts as one JSON document on one line.

    Args:
        facts: Dataclasses, whatever JSON has, and values that `_plain` turns into text.
    """
    typer.echo(json.dumps(facts, default=_plain, ensure_ascii=False))


def _plain(value: object) -> object:
    """Turn a dataclass into a dictionary, and values that JSON does not have into text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (datetime, Decimal, UUID)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="backslashreplace")
    message = f"{type(value).__name__} cannot be printed as JSON"
    raise TypeError(message)


def print_table(rows: Iterable[Row], columns: Iterable[Column[Row]], *, empty: str) -> None:
    """Print a table. On a narrow terminal, a row with long text takes several lines.

    Args:
        rows: What to show.
        columns: What to show of each row.
        empty: The line that is printed if there are no rows.
    """
    columns = list(columns)
    values = [[column.value(row) for column in columns] for row in rows]
    if not values:
        say(empty)
        return
    cells = [[shown(value) for value in line] for line in values]
    numbers = [all(not isinstance(line[index], str) for line in values) for index in range(len(columns))]
    widths = [max(map(cell_len, (column.title, *(line[at] for line in cells)))) for at, column in enumerate(columns)]
    if len(cells) > MANY:
        _print_many([[column.title for column in columns], *cells], widths, numbers)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, right in zip(columns, numbers, strict=True):
        table.add_column(column.title, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for cell in cells:
        table.add_row(*map(Text, cell))
    pairs = zip(widths, numbers, strict=True)
    least = GAP * (len(columns) - 1) + sum(width if right else min(width, LEAST_TEXT) for width, right in pairs)
    out = console()
    out.width = max(out.width, least)  # rich then cuts nothing off; a narrower terminal wraps the lines itself
    out.print(table)


def _print_many(cells: list[list[str]], widths: list[int], numbers: list[bool]) -> None:
    """Print a long table without rich: rich takes half a minute for tens of thousands of rows, this function a second.

    The table looks like one of rich in which no cell is folded. A narrower terminal wraps the lines of the table.
    """
    lines = []
    for line in cells:
        padded = []
        for cell, width, right in zip(line, widths, numbers, strict=True):
            room = " " * (width - cell_len(cell))
            padded.append(room + cell if right else cell + room)
        lines.append((" " * GAP).join(padded))
    lines.insert(1, "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (sum(widths) + GAP * (len(widths) - 1)))
    typer.echo("\n".join(lines))


def print_rows(rows: Sequence[Row], columns: Iterable[Column[Row]], *, empty: str, as_json: bool) -> None:
    """Print what was found, as a JSON list or as a table.

    Args:
        rows: What was found.
        columns: What the table shows of each row.
        empty: The line that is printed instead of an empty table.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json(rows)
    else:
        print_table(rows, columns, empty=empty)


def report(facts: object, line: str, *, as_json: bool) -> None:
    """Print what was done.

    Args:
        facts: What is printed as JSON, for programs.
        line: What is printed otherwise, for people.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json(facts)
    else:
        say(line)


def print_facts(facts: Mapping[str, str | float | bool | None]) -> None:
    """Print names and values, one below the other.

    Args:
        facts: The values by name.
    """
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name.replace("_", " ")), Text(shown(value)))
    console().print(grid)


def shown(value: str | float | bool | None) -> str:  # noqa: FBT001 (a value, not a switch)
    """Return a value as people like to read it.

    Args:
        value: Text, a number, a bool or None.

    >>> shown(1234567), shown(None), shown(True), shown(0.5)
    ('1,234,567', '-', 'yes', '0.5')
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case _:
            return printable(value)


def printable(text: str) -> str:
    r"""Return text that cannot steer a terminal.

    Args:
        text: Text from anywhere, such as a queue's name or a message's body.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def byte_count(count: int) -> str:
    """Return a number of bytes as people like to read it.

    Args:
        count: Bytes.

    >>> byte_count(512), byte_count(1536), byte_count(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if count < KIB:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIB
        if size < KIB:
            return f"{size:.1f} {unit}"
    return f"{size / KIB:.1f} TiB"


def exact_seconds(seconds: float) -> str:
    """Return a time in seconds to the millisecond, with one decimal at least.

    Args:
        seconds: The time.

    >>> exact_seconds(0.04), exact_seconds(60.0), exact_seconds(3600.125)
    ('0.04', '60.0', '3,600.125')
    """
    text = f"{seconds:,.3f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


def duration(seconds: float) -> str:
    """Return a time as people like to read it, in at most two units.

    Args:
        seconds: The time.

    >>> duration(5.9), duration(65), duration(3725), duration(93784)
    ('5s', '1m05s', '1h02m', '1d02h')
    """
    whole = int(seconds)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02}h"
    if hours:
        return f"{hours}h{minute:02}m"
    return f"{minute}m{second:02}s" if minutes else f"{second}s"
