# SPDX-License-Identifier: Apache-2.0
"""Draws the broker and one of its tables."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from shmbroker_cli.exchanges import called
from shmbroker_cli.output import byte_count, duration, printable, shown
from shmbroker_cli.top.view import FILTER_HELP, KEYS_HELP, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import shmbroker
    from shmbroker_cli.top.model import AnyRow, Snapshot

WIDE = 120  # columns of the terminal: from this width on, headings are written in full
PLAIN_RATE = 100.0  # from this value on, rates (1/s) and percentages are shown without decimals
GAP = 2  # blanks between two columns of the table
LONGEST_TEXT = 22  # characters: the greatest width of a column of text other than the first column
SHORTEST_NAME = 8  # characters: the least width to which the first column, of names, is cut to make room for others
OTHER_LINES = 6  # lines that are not rows of the table: two on top, two of headings, two below the rows


class Screen:
    """A picture of a snapshot, as large as the terminal is when it is drawn."""

    def __init__(self, snapshot: Snapshot, view: View) -> None:
        """Prepare to draw a snapshot; Rich draws it when it prints the screen.

        Args:
            snapshot: The rows of all tables.
            view: Says which rows to draw, and in what order.
        """
        self._snapshot = snapshot
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the screen with the rows that fit, from `view.offset` on.

        If `view.offset` lies past the last page, it is lowered to that page.
        """
        rows = self._view.arrange(self._snapshot.table(self._view.table))
        room = max(1, (options.height or console.size.height) - OTHER_LINES)
        self._view.offset = min(self._view.offset, max(0, len(rows) - room))
        first = self._view.offset
        yield Group(
            headline(self._snapshot),
            self._state(len(rows)),
            draw(rows[first : first + room], self._view, options.max_width),
            _below(len(rows), first, room),
            _line(FILTER_HELP if self._view.editing else KEYS_HELP, "dim"),
        )

    def _state(self, count: int) -> Text:
        view = self._view
        order = view.fields[view.sort].title + (" reversed" if view.reverse else "")
        total = len(self._snapshot.table(view.table))
        parts = [f"{count} of {total} {view.table}", f"sort: {order}"]
        if view.text or view.editing:
            parts.append(f"filter: {printable(view.text)}{'_' * view.editing}")
        if view.paused:
            parts.append("PAUSED")
        return _line("   ".join(parts), "bold" if view.paused else "")


def headline(snapshot: Snapshot) -> Text:
    """Return a line about the broker.

    Args:
        snapshot: What is known of it.
    """
    broker = snapshot.broker
    used, limit = byte_count(broker.memory_used), byte_count(broker.memory_limit)
    keeper = broker.housekeeper_pid or "none"
    state = "" if broker.memory_state == "normal" else f" ({broker.memory_state.upper()})"
    stalled = f"   STALLED {broker.stalled}" if broker.stalled else ""
    return _line(
        f"broker {printable(broker.name)}   memory {used} of {limit}{state}   "
        f"connections {broker.connection_count}   channels {snapshot.channel_count}   "
        f"exchanges {len(snapshot.exchanges)}   processes {broker.process_count}   "
        f"housekeeper {keeper}   rescues {broker.rescues}{stalled}{_store(broker.store)}",
        "bold",
    )


def _store(store: shmbroker.StoreStatistics | None) -> str:
    if store is None:
        return ""
    state = f"{store.state.upper() if store.state == 'damaged' else store.state}{' (FULL)' if store.is_full else ''}"
    return f"   store {state}   sync {store.sync_seconds * 1000:.1f} ms   storekeeper {store.storekeeper_pid or 'none'}"


def draw(rows: Sequence[AnyRow], view: View, width: int) -> Table:
    """Return the table that is shown.

    Args:
        rows: The rows to show, in order.
        view: Says which table it is, and which column to mark.
        width: Columns of the terminal.
    """
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    fields = view.fields
    titles = [field.title if width >= WIDE else field.short for field in fields]
    lines = [[_cell(row, field.name) for field in fields] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(titles, *lines, strict=True)]
    widths = [min(size, LONGEST_TEXT) if field.text else size for size, field in zip(widths, fields, strict=True)]
    others = sum(widths[1:]) + GAP * len(widths[1:])
    longest = max(len(cells[0]) for cells in (titles, *lines))
    widths[0] = max(SHORTEST_NAME, min(longest, width - others))
    for index, (title, field) in enumerate(zip(titles, fields, strict=True)):
        drawn.add_column(
            Text(title, "reverse" if index == view.sort else ""),
            justify="left" if field.text else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[index],
        )
    for line in lines:
        drawn.add_row(*map(Text, line))
    return drawn


def _cell(row: AnyRow, name: str) -> str:
    value = getattr(row, name)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(row)
    if isinstance(value, float) and value >= PLAIN_RATE:
        value = round(value)
    return shown(value)


def _size(count: int | None) -> str:
    return shown(None if count is None else byte_count(count))


def _size_of(name: str, row: Any) -> str:  # noqa: ANN401 (a MemoryRow)
    return _size(getattr(row, name))


def _channel(row: Any) -> str:  # noqa: ANN401 (a ChannelRow)
    return str(row.channel) if row.channel else f"{row.count} idle"


_SIZES = ("direct", "head", "pending", "acquired", "scheduled_bytes", "away")
_SPECIAL: dict[str, Callable[[Any], str]] = {
    "bytes": lambda row: byte_count(row.bytes),
    "exchange": lambda row: printable(called(row.exchange)),
    "pid": lambda row: str(row.pid),
    "channel": _channel,
    "memory": lambda row: _size(row.memory),
    "memory_shared": lambda row: _size(row.memory_shared),
    **{name: functools.partial(_size_of, name) for name in _SIZES},
    "stalled": lambda row: shown(None if row.stalled is None else duration(row.stalled)),
    "age": lambda row: shown(None if row.age is None else duration(row.age)),
}


def _below(count: int, first: int, room: int) -> Text:
    more = count - first - room
    return _line(f"{more} more below" if more > 0 else "", "dim")


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
