# SPDX-License-Identifier: Apache-2.0
"""Tables as they come out where there is little room."""

from __future__ import annotations

import pytest

from shmbroker_cli import output
from shmbroker_cli.output import Column, print_table


@pytest.mark.parametrize("width", [1, 20, 40])
def test_a_narrow_terminal_cuts_no_number_and_hides_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A name is folded, with 16 characters in a line, and numbers and headings stay whole, however long the lines."""
    monkeypatch.setattr(output, "PIPE_WIDTH", width)
    numbers = [Column[str](f"number {place}", lambda _: 1_234_567) for place in range(4)]
    print_table(["orders-of-the-east"], [Column("queue", lambda name: name), *numbers], empty="")
    heading, _, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading == ["queue", "number", "0", "number", "1", "number", "2", "number", "3"]
    assert first == ["orders-of-the-ea", *["1,234,567"] * 4]
    assert second == ["st"]


def test_many_rows_look_like_few(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long table is printed in another way, since rich takes half a minute for tens of thousands of rows."""
    rows = [("caf\u00e9", 1, "x"), ("\u4e2d\u6587", 1234567, None), ("a\x1b", None, "longer")]
    columns: list[Column[tuple[str, int | None, str | None]]] = [
        Column("name", lambda row: row[0]),
        Column("count of them", lambda row: row[1]),
        Column("text", lambda row: row[2]),
    ]
    print_table(rows, columns, empty="none")
    few = capsys.readouterr().out
    monkeypatch.setattr(output, "MANY", 2)
    monkeypatch.setattr(output, "Table", lambda **_: pytest.fail("a table of rich is made for many rows"))
    print_table(rows, columns, empty="none")
    assert capsys.readouterr().out == few
