# SPDX-License-Identifier: Apache-2.0
"""A queue setting is declared once: core, command line and reference have exactly what its row says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from shmbroker import settings
from shmbroker._amqp import field_tables
from shmbroker._core import native
from shmbroker._topology.address_rows import ADDRESS_ROWS
from shmbroker_cli import queues

ROOT = Path(__file__).parents[2]
CDEF = (ROOT / "cffi_src" / "include" / "shmbroker.cdef.h").read_text("utf-8")
PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
CREATE = inspect.signature(queues.create).parameters
CONFIGURE = inspect.signature(queues.configure).parameters
# The text of a default on the page, where it says more than the value in the row.
NOTES = {"overflow": '`"block"`; of a channel\'s declaration `"drop-head"`'}


def default_of(name: str) -> object:
    """Return the default of a setting."""
    return next(field.default for field in fields(settings.QueueSettings) if field.name == name)


def line_of(name: str, row: settings.Row) -> str:
    """Return the line that the table of the reference must have for a row."""
    option = f"`--{name.replace('_', '-')}`" if row.option else ""
    milliseconds = " (ms)" if row.core and row.core.endswith("_MS") else ""
    argument = f"`{row.argument}`{milliseconds}" if row.argument else f"`{name}=`"
    default = default_of(name)
    shown = NOTES.get(name, str(default) if isinstance(default, int) and default is not False else f"`{default}`")
    return f"| `{name}` | {option} | {argument} | {shown} | {row.kind.allowed} | {row.help} |".replace("|  |", "| |")


def test_the_reference_has_the_rows() -> None:
    """The table has one line for each row, in the order of the rows, and no other line."""
    table = PAGE.partition("|---|---|---|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert table == [line_of(name, row) for name, row in settings.ROWS.items()]


def test_the_reference_has_the_rows_of_addresses() -> None:
    """The second table has one line for each address setting that is no default of a queue setting."""
    table = PAGE.partition("\n|---|---|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    rows = {name: row for name, row in ADDRESS_ROWS.items() if row.queue_setting is None}
    assert table == [
        f"| `{name}` | `--{name.replace('_', '-')}` | `{row.default}` | {row.kind.allowed} | {row.help} |"
        for name, row in rows.items()
    ]


def test_the_core_has_a_number_for_each_row() -> None:
    """The rows name exactly the constants of settings in the header of the core, and no constant twice."""
    numbers = set(re.findall(r"\b(SB_SETTING_\w+)", CDEF))
    assert numbers == {row.core for row in settings.ROWS.values() if row.is_number}
    constants = [row.core for row in settings.ROWS.values() if row.core is not None]
    assert len(set(constants)) == len(constants)
    values = sorted(getattr(native.slow, name) for name in numbers)
    assert values == list(range(native.slow.SB_SETTINGS_GIVEN))  # the last two numbers are no settings
    assert native.slow.SB_SETTINGS_BIRTH == native.slow.SB_SETTINGS_GIVEN + 1
    assert native.slow.SB_SETTINGS == native.slow.SB_SETTINGS_GIVEN + 2


def test_texts_are_fixed_and_have_room() -> None:
    """A text cannot change after the declaration, and the longest texts of all settings fit into their room.

    Of `last_value_key` and `sort_key` a queue has one at most.
    """
    texts = {name: row for name, row in settings.ROWS.items() if row.core is None}
    assert all(row.fixed for row in texts.values())
    del texts["sort_key"]
    assert len(field_tables.encode(dict.fromkeys(texts, "x" * 255))) <= native.slow.SB_TEXTS_MAX


@pytest.mark.parametrize("name", settings.ROWS)
def test_a_default_survives_the_core(name: str) -> None:
    """The default of a setting is allowed, and is the same after the conversion to the core's number and back."""
    row, default = settings.ROWS[name], default_of(name)
    assert row.kind.check(name, default) == default
    assert row.core is None or row.kind.from_core(row.kind.to_core(default)) == default


def test_words_have_the_numbers_of_the_core() -> None:
    """The number of a word of `overflow` is that of the core's constant with its name."""
    words = settings.ROWS["overflow"].kind
    for word in words.words:
        constant = f"SB_OVERFLOW_{word.upper().replace('-', '_')}"
        assert words.to_core(word) == getattr(native.slow, constant)


def test_the_command_line_has_the_rows() -> None:
    """`queue create` has an option for each row with `option`, `queue set` for those that are not `fixed`."""
    options = {name: row for name, row in settings.ROWS.items() if row.option}
    assert [name for name in CREATE if name in settings.ROWS] == list(options)
    assert [name for name in CONFIGURE if name in settings.ROWS] == [
        name for name, row in options.items() if not row.fixed
    ]


def test_no_other_file_spells_the_constants() -> None:
    """In Python, only the row of a setting names its constant of the core."""
    spelt = re.compile(r"SB_SETTING_[A-Z]|SB_QUEUE_(DURABLE|AUTO_DELETE|SINGLE)")
    others = [path for path in (ROOT / "shmbroker").rglob("*.py") if path.name != "settings.py"]
    assert [path for path in others if spelt.search(path.read_text("utf-8"))] == []
