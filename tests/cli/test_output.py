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
