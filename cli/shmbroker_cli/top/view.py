# SPDX-License-Identifier: Apache-2.0
"""What the person in front of the screen chose, and how keys change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker_cli.top.model import Row


@dataclass(frozen=True)
class Field:
    """A column of the screen.

    Attributes:
        title: Its heading.
        short: Its heading where there is little room.
        name: The attribute of a row that it shows.
    """

    title: str
    short: str
    name: str


FIELDS = (
    Field("queue", "queue", "queue"),
    Field("ready", "ready", "ready"),
    Field("delivering", "deliv", "delivering"),
    Field("scheduled", "sched", "scheduled"),
    Field("in/s", "in/s", "rate_in"),
    Field("out/s", "out/s", "rate_out"),
    Field("bytes", "bytes", "bytes"),
    Field("interested", "inter", "interested"),
    Field("notified", "notif", "notified"),
    Field("not interested", "not", "not_interested"),
    Field("browsers", "brow", "browsers"),
)
KEYS_HELP = "s/S sort  r reverse  / filter  p pause  up/down scroll  q quit"
FILTER_HELP = "type a part of the name, Enter keeps it, Esc drops it"


@dataclass
class View:
    """Order, filter and the like.

    Attributes:
        sort: Index of the column to sort by.
        reverse: Whether the usual order is turned round. Usual is: names upwards,
            numbers downwards.
        text: Part of the names of the queues to show.
        editing: Whether keys go into `text`.
        paused: Whether the picture stands still.
        offset: Rows that are scrolled away.
        ended: Whether to quit.
    """

    sort: int = 0
    reverse: bool = False
    text: str = ""
    editing: bool = False
    paused: bool = False
    offset: int = 0
    ended: bool = False

    def press(self, key: str) -> None:
        """Take a key.

        Args:
            key: A character, or a name that `keyboard` gives to a special key.
        """
        if self.editing:
            self._edit(key)
        elif (action := self._actions().get(key)) is not None:
            action()

    def arrange(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows to show, in the order to show them.

        Args:
            rows: All of them.
        """
        wanted = self.text.casefold()
        name = FIELDS[self.sort].name
        chosen = sorted(
            (row for row in rows if wanted in row.queue.casefold()),
            key=lambda row: row.queue,
        )
        if name == "queue":
            return chosen[::-1] if self.reverse else chosen
        return sorted(
            chosen,
            key=lambda row: getattr(row, name) or 0,
            reverse=not self.reverse,
        )

    def _actions(self) -> dict[str, Callable[[], None]]:
        return {
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

    def _sort_next(self, step: int) -> None:
        self.sort = (self.sort + step) % len(FIELDS)
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
