# SPDX-License-Identifier: Apache-2.0
"""What Spark noted in the checkpoint of a query: which micro-batches it planned, and which were done, and when.

It writes a file for each batch, named by its number, before it runs (`offsets`) and after it (`commits`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Noted:
    """The micro-batches of a query so far.

    Attributes:
        planned: When each was planned, in seconds since 1970.
        done: When each was done.
    """

    planned: dict[int, float]
    done: dict[int, float]

    @property
    def unfinished(self) -> set[int]:
        """Those that were planned and not done, or not noted as such: the next driver runs them again."""
        return self.planned.keys() - self.done.keys()


def noted(folder: Path) -> Noted:
    """Read the notes.

    Args:
        folder: Where the checkpoint lies.
    """
    return Noted(*(_times(folder / CHECKPOINT / log) for log in ("offsets", "commits")))


def _times(log: Path) -> dict[int, float]:
    """Return when the files of a log were written; before a query has begun there is none."""
    files = log.iterdir() if log.is_dir() else ()
    return {int(path.name): path.stat().st_mtime for path in files if path.name.isdecimal()}
