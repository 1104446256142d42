# SPDX-License-Identifier: Apache-2.0
"""How facts are written, and what `publish` and `consume` ask of a queue."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.table import Table
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli import consume as module
from shmbroker_cli import output
from shmbroker_cli.consume import _print, _print_facts
from shmbroker_cli.output import (
    Column,
    byte_count,
    console,
    print_facts,
    print_json,
    print_rows,
    print_table,
    printable,
    report,
    say,
    shown,
)
from shmbroker_cli.publish import _lines_as_they_come

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_values() -> None:
    """Numbers with separators, truths as words, nothing as a dash."""
    assert [shown(value) for value in (None, True, False, 1234567, 1234.56, "a\n", 0)] == [
        "-", "yes", "no", "1,234,567", "1,234.6", "a\\n", "0",
    ]  # fmt: skip


def test_text_that_would_steer_a_terminal() -> None:
    """It is escaped; all that can be shown stays."""
    assert printable("a b\u00e9\u4e2d") == "a b\u00e9\u4e2d"
    assert printable("\x1b[1m\t\udc80\u202e") == r"\x1b[1m\t\udc80\u202e"


def test_counts_of_bytes() -> None:
    """In the unit that leaves less than 1,024 of them."""
    sizes = (0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 20, 1 << 30, 1 << 40, 5 << 50)
    assert [byte_count(size) for size in sizes] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1024.0 KiB", "1.0 MiB", "1.0 GiB", "1.0 TiB", "5120.0 TiB",
    ]  # fmt: skip


@dataclasses.dataclass
class Fact:
    """Has a value."""

    value: object


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """On one line, as UTF-8; what JSON does not have is text."""
    found = uuid.UUID(int=5)
    values = [Decimal("1.5"), datetime(2026, 1, 2, tzinfo=UTC), found, b"\xff\x41", bytearray(b"b"), "\u00e9", None]
    print_json(Fact([Fact(value) for value in values]))
    out = capsys.readouterr().out
    assert out.endswith("}\n")
    assert out.count("\n") == 1
    assert "\u00e9" in out
    assert [one["value"] for one in json.loads(out)["value"]] == [
        "1.5", "2026-01-02 00:00:00+00:00", str(found), "\\xffA", "b", "\u00e9", None,
    ]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), [(object(), "object"), (Fact, "type"), ({1}, "set")])
def test_what_is_no_fact(value: object, kind: str) -> None:
    """It is an error of ours: nothing is made up for it."""
    with pytest.raises(TypeError, match=rf"^{kind} cannot be printed as JSON$"):
        print_json(value)


def test_where_facts_go(capsys: pytest.CaptureFixture[str]) -> None:
    """To programs or to people."""
    say("a\x1b")
    report([1], "line", as_json=True)
    report([1], "line", as_json=False)
    columns: list[Column[int]] = [Column("n", lambda one: one)]
    print_rows([], columns, empty="nothing", as_json=True)
    print_rows([], columns, empty="nothing", as_json=False)
    print_rows([7], columns, empty="nothing", as_json=True)
    print_rows([7], columns, empty="nothing", as_json=False)
    assert capsys.readouterr().out.splitlines() == ["a\\x1b", "[1]", "line", "[]", "nothing", "[7]", "n", "\u2500", "7"]


def test_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    """One below the other, with two blanks between them."""
    print_facts({"a_name": 1234, "b": "[red]x", "none": None})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "a name  1,234",
        "b       [red]x",
        "none    -",
    ]


ROWS = [("caf\u00e9", 1), ("x", 1234567)]
COLUMNS: list[Column[tuple[str, int]]] = [Column("name", lambda row: row[0]), Column("n", lambda row: row[1])]
TABLE = ["name           n", "\u2500" * 16, "caf\u00e9           1", "x      1,234,567"]


@pytest.mark.parametrize(("many", "width"), [(500, 400), (2, 16), (1, 15), (1, 16), (0, 400)])
def test_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, many: int, width: int) -> None:
    """Text to the left and numbers to the right, however many rows there are, and however wide it is."""
    monkeypatch.setattr(output, "MANY", many)
    monkeypatch.setattr(output, "PIPE_WIDTH", width)
    print_table(ROWS, COLUMNS, empty="")
    assert capsys.readouterr().out.splitlines() == TABLE


@pytest.mark.parametrize(("many", "width", "rich"), [(2, 400, True), (1, 400, False), (2, 15, True), (1, 15, False)])
def test_which_tables_are_made_by_rich(monkeypatch: pytest.MonkeyPatch, many: int, width: int, *, rich: bool) -> None:
    """Those of few rows. Many are not folded, however narrow the terminal is: that takes half a minute."""
    made: list[int] = []

    def table(**options: Any) -> Table:  # noqa: ANN401 (of any option)
        made.append(1)
        return Table(**options)

    monkeypatch.setattr(output, "Table", table)
    monkeypatch.setattr(output, "MANY", many)
    monkeypatch.setattr(output, "PIPE_WIDTH", width)
    print_table(ROWS, COLUMNS, empty="")
    assert bool(made) is rich


def test_numbers_are_never_folded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they alone are wider than the terminal."""
    monkeypatch.setattr(output, "PIPE_WIDTH", 5)
    print_table([10**15], [Column[int]("n", lambda one: one), Column[int]("m", lambda one: one)], empty="")
    assert capsys.readouterr().out.splitlines()[2].split() == ["1,000,000,000,000,000"] * 2


def test_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the stream as it is now; one that is no terminal is wide, and nothing is coloured by what it looks like."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert (console().file, console().width) == (out, 400)
    assert console(stderr=True).file is err
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setenv("TERM", "xterm")
    assert console().width == 77
    console().print("12 'text' True")
    assert out.getvalue() == "12 'text' True\n"
    console().print("word " * 20)
    assert all(len(line) <= 77 for line in out.getvalue().splitlines())


class Slow:
    """A stream that gives its bytes in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        """Have them."""
        self.pieces = [*pieces, b""]

    def read1(self, size: int) -> bytes:
        """Give one."""
        assert size > 1
        return self.pieces.pop(0)


@pytest.mark.parametrize(
    ("pieces", "batches"),
    [
        ((), []),
        ((b"\n",), [[b""]]),
        ((b"a\r\nb\n", b"c"), [[b"a", b"b"], [b"c"]]),
        ((b"a", b"b", b"c\nd", b"e\n"), [[b"abc"], [b"de"]]),
        ((b"a\n", b"\rb\r"), [[b"a"], [b"\rb"]]),
        ((b"\ra\r", b"\n"), [[b"\ra"]]),
        ((b"a\r\r\n", b"b\r\r"), [[b"a\r"], [b"b\r"]]),
    ],
)
def test_lines_as_they_come(pieces: tuple[bytes, ...], batches: list[list[bytes]]) -> None:
    """Those that are whole, each time; the rest at the end, if there is one."""
    stream: Any = Slow(*pieces)
    assert list(_lines_as_they_come(stream)) == batches


def test_lines_have_properties_too(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Those that were given, and none that were not."""
    assert cli("publish", "jobs", "--lines", "-", "--content-type", "a/b", given="1\n2\n").code == 0
    assert cli("publish", "jobs", "x", "--message-id", "7").code == 0
    assert cli("publish", "jobs", "y").code == 0
    found = [(one.properties.content_type, one.properties.message_id) for one in jobs.browse()]
    assert found == [("a/b", None), ("a/b", None), (None, "7"), (None, None)]


def test_closed_input_is_refused(
    cli: Callable[..., Any], jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a message is to come from it."""
    monkeypatch.setattr("shmbroker_cli.publish.sys", SimpleNamespace(stdin=None))
    assert cli("publish", "jobs", "-").is_refused("standard input is closed")
    assert cli("publish", "jobs", "--lines", "-").is_refused("standard input is closed")
    assert len(jobs) == 0


@pytest.mark.usefixtures("jobs")
def test_mandatory_is_for_an_exchange(cli: Callable[..., Any]) -> None:
    """Alone as well as with a key."""
    assert cli("publish", "jobs", "x", "--mandatory").is_refused("--key and --mandatory need --exchange", code=2)
    assert cli("publish", "jobs", "x", "--key", "").is_refused("--key and --mandatory need --exchange", code=2)


def test_what_is_printed_is_there_at_once(
    jobs: shmbroker.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what was printed before: who reads it waits for no other message."""
    jobs.put(b"\xff")
    with (tmp_path / "out").open("w", encoding="utf-8") as stream, jobs.get(timeout=0) as message:
        monkeypatch.setattr(sys, "stdout", stream)
        stream.write("before ")
        _print(message)
        assert (tmp_path / "out").read_bytes() == b"before \xff\n"
        _print_facts(message)
        assert json.loads((tmp_path / "out").read_bytes().splitlines()[1])["body_base64"] == "/w=="


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Return with what messages are asked for."""
    seen: list[dict[str, object]] = []
    for name in ("consume", "get"):
        true = getattr(shmbroker.Queue, name)

        def asked(queue: shmbroker.Queue, *, true: Any = true, **options: object) -> Any:  # noqa: ANN401
            seen.append(options)
            return true(queue, **options)

        monkeypatch.setattr(shmbroker.Queue, name, asked)
    return seen


def test_how_messages_are_asked_for(
    cli: Callable[..., Any], jobs: shmbroker.Queue, taken: list[dict[str, object]]
) -> None:
    """Many ahead, but with a count none that is not wanted."""
    assert cli("consume", "jobs", "--timeout", "0").code == 0
    jobs.put(b"1")
    assert cli("consume", "jobs", "--timeout", "0", "--count", "1").lines == ["1"]
    assert cli("consume", "jobs", "--timeout", "0", "--auto-ack").out == ""
    assert taken == [
        {"prefetch": 64, "timeout": 0.0},
        {"prefetch": 1, "timeout": 0.0},
        {"timeout": 0.0, "auto_ack": True},
    ]


def test_what_a_crew_is_asked_for(
    cli: Callable[..., Any], jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is there, of so many processes; without a number of them there is no crew."""
    seen: list[tuple[object, ...]] = []

    def run(call: str, connection: shmbroker.Connection, name: str, workers: int, **options: object) -> None:
        seen.append((call, connection.broker_name, name, workers, options))

    monkeypatch.setattr(module, "run_workers", run)
    name = connection_of(jobs).broker_name
    assert cli("consume", "jobs", "--call", "json:dumps", "--workers", "3", "--count", "5", "--timeout", "7").code == 0
    assert seen == [("json:dumps", name, "jobs", 3, {"count": 5, "idle": 7.0})]
    assert cli("consume", "jobs", "--call", "json:no", "--workers", "3").is_refused("json:no")
    assert cli("consume", "jobs", "--call", "json:dumps", "--timeout", "0").code == 0
    assert len(seen) == 1
    assert cli("consume", "jobs", "--workers", "1").is_refused("--workers needs --call", code=2)
    both = ("--call", "json:dumps", "--workers", "1", "--auto-ack")
    assert cli("consume", "jobs", *both).is_refused("--workers and --auto-ack exclude each other", code=2)
