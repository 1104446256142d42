# SPDX-License-Identifier: Apache-2.0
"""What the person in front of the screen chose, and how keys change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from shmbroker_cli.top.fields import QUEUES, TABLES, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

R = TypeVar("R")

KEYS_HELP = "e table  s/S sort  r reverse  / filter  p pause  up/down scroll  q quit"
FILTER_HELP = "type a part of the name, Enter keeps it, Esc drops it"


@dataclass
class View:
    """What the person chose: the table, its order, the filter, and where it is scrolled to.

    Attributes:
        table: Name of the table that is shown, one of `fields.TABLES`.
        sort: Index of the column to sort by.
        reverse: Whether the order is the opposite of the usual one: ascending for text, descending for numbers.
        text: The filter: only rows with this text in their name are shown; empty: all rows.
        editing: Whether the person is typing the filter, so that keys go into `text`.
        paused: Whether the screen keeps its last snapshot: no new samples are taken.
        offset: Number of rows that are scrolled away at the top.
        ended: Whether the person has quit.
    """

    table: str = QUEUES
    sort: int = 0
    reverse: bool = False
    text: str = ""
    editing: bool = False
    paused: bool = False
    offset: int = 0
    ended: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of its table."""
        return TABLES[self.table]

    def press(self, key: str) -> None:
        """Change the view as a pressed key demands; ignore a key without a meaning.

        Args:
            key: A character, or a name that `keyboard` gives to a special key.
        """
        if self.editing:
            self._edit(key)
        elif (action := self._actions().get(key)) is not None:
            action()

    def arrange(self, rows: Iterable[R]) -> list[R]:
        """Return the rows to show, in the order to show them.

        Args:
            rows: All rows of the table that is shown.
        """
        wanted = self.text.casefold()
        first, field = self.fields[0].name, self.fields[self.sort]
        chosen = sorted(
            (row for row in rows if wanted in getattr(row, first).casefold()),
            key=lambda row: getattr(row, first),
        )
        if field.text:
            return sorted(chosen, key=lambda row: getattr(row, field.name), reverse=self.reverse)
        return sorted(
            chosen,
            key=lambda row: getattr(row, field.name) or 0,
            reverse=not self.reverse,
        )

    def _actions(self) -> dict[str, Callable[[], None]]:
        return {
            "e": self._next_table,
            "s": lambda: self._sort_next(1),
            "right": lambda: self._sort_next(1),
            "S": lambda: self._sort_next(-1),
            "left": lambda: self._sort_next(-1),
            "r": lambda: setattr(self, "reverse", not self.reverse),
            "/": lambda: setattr(self, "editing", True),
            "p": lambda: setattr(self, "paused", not self.paused),
            " ": lambda: setattr(self, "paused", not self.paused),
            "down": lambda: self._scroll(1),
            "up": lambda: self._scroll(-1),
            "escape": lambda: self._filter(""),
            "q": lambda: setattr(self, "ended", True),
        }

    def _next_table(self) -> None:
        names = list(TABLES)
        self.table = names[(names.index(self.table) + 1) % len(names)]
        self.sort, self.reverse, self.offset = 0, False, 0

    def _sort_next(self, step: int) -> None:
        self.sort = (self.sort + step) % len(self.fields)
        self.offset = 0

    def _scroll(self, step: int) -> None:
        self.offset = max(0, self.offset + step)

    def _filter(self, text: str) -> None:
        self.text, self.offset = text, 0

    def _edit(self, key: str) -> None:
        match key:
            case "enter":
                self.editing = False
            case "escape":
                self.editing = False
                self._filter("")
            case "backspace":
                self._filter(self.text[:-1])
            case character if len(character) == 1 and character.isprintable():
                self._filter(self.text + character)
