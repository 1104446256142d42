# SPDX-License-Identifier: Apache-2.0
"""When `shmbroker top` is live, and rows that do not fit its screen."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli.top import command
from shmbroker_cli.top.model import Row, Snapshot
from shmbroker_cli.top.screen import Screen
from shmbroker_cli.top.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMINAL, PIPE = SimpleNamespace(isatty=lambda: True), SimpleNamespace(isatty=lambda: False)


@pytest.mark.parametrize(
    ("given", "out", "dumb", "as_json", "live"),
    [
        (TERMINAL, TERMINAL, False, False, True),
        (PIPE, TERMINAL, False, False, False),
        (None, TERMINAL, False, False, False),
        (TERMINAL, PIPE, False, False, False),
        (TERMINAL, TERMINAL, True, False, False),
        (TERMINAL, TERMINAL, False, True, False),
    ],
)
def test_it_is_live_between_two_terminals(
    jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, *, given: object, out: object, dumb: bool, as_json: bool,
    live: bool,
) -> None:  # fmt: skip
    """Which can move the cursor; there is no picture beside JSON, and without standard input nobody to quit."""
    did: list[Any] = []
    monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=given, stdout=out))
    monkeypatch.setattr(command, "console", lambda: SimpleNamespace(is_dumb_terminal=dumb))
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=did.append))
    monkeypatch.setattr(command, "_watch", lambda *words: did.append(words[1:4]))
    monkeypatch.setattr(command, "_print", lambda *words, **options: did.append((words[1], options)))
    broker = connection_of(jobs).broker_name
    command.top(interval=3.0, broker=broker, as_json=as_json)
    view = View(table="queues", sort=0, reverse=False, text="")
    assert did == ([(broker, view, 3.0)] if live else [3.0, (view, {"as_json": as_json})])


FIELDS = {field.name: 0 for field in dataclasses.fields(shmbroker.BrokerStatistics)}
BROKER = shmbroker.BrokerStatistics(**{**FIELDS, "name": "b", "memory_state": "normal", "store": None})  # type: ignore[arg-type] # of any attribute


def lines_of(
    rows: Sequence[Row], view: View, *, height: int | None, width: int = 80, console_height: int = 50
) -> list[str]:
    """Return the lines of a screen that is given so much height on a console."""
    file = io.StringIO()
    Console(file=file, width=width, height=console_height, color_system=None).print(
        Screen(Snapshot(BROKER, tuple(rows)), view), height=height
    )
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def row(name: str, ready: int = 0) -> Row:
    """Return a row with zeros."""
    return Row(name, ready, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0)


def test_rows_below_the_height_that_a_screen_is_given() -> None:
    """That counts, not the height of the console; without one it is that of the console."""
    rows = [row(f"q{number}") for number in range(9)]
    assert lines_of(rows, View(), height=10)[8] == "5 more below"
    assert lines_of(rows, View(), height=None, console_height=11)[9] == "4 more below"


def test_a_screen_that_has_become_large_enough_shows_all_rows() -> None:
    """Also the first one, to which nobody scrolled back."""
    view = View(offset=1)
    lines = lines_of([row("a"), row("b")], view, height=20)
    assert (view.offset, lines[4].split()[0], lines[5].split()[0]) == (0, "a", "b")


def test_long_numbers_are_whole_and_long_names_are_cut() -> None:
    """A name keeps to one line, however many words it has."""
    (line,) = lines_of([row("a name of many words " * 9, 10**20)], View(), height=20, width=100)[4:5]
    assert "100,000,000,000,000,000,000" in line
    assert line.startswith("a name of")
    assert "\u2026" in line
    assert lines_of([row("a name of many words " * 9, 10**20)], View(), height=20, width=100)[5] == ""
