# SPDX-License-Identifier: Apache-2.0
"""What Spark noted in the checkpoint of a query: which micro-batches it planned, and which were done, and when.

Spark writes two files for each batch, and both have the number of the batch as their name. It writes the file in the
folder `offsets` before the batch runs, and the file in `commits` after it.
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
        planned: When each batch was planned, by its number; in seconds since 1970.
        done: When each finished batch was done, by its number; in seconds since 1970.
    """

    planned: dict[int, float]
    done: dict[int, float]

    @property
    def unfinished(self) -> set[int]:
        """The batches that were planned and are not noted as done: the next driver runs them again."""
        return self.planned.keys() - self.done.keys()


def noted(folder: Path) -> Noted:
    """Read which micro-batches Spark noted as planned and as done.

    Args:
        folder: The folder of the run, which contains the folder of the checkpoint.
    """
    return Noted(*(_times(folder / CHECKPOINT / log) for log in ("offsets", "commits")))


def _times(log: Path) -> dict[int, float]:
    """Return when each file of a log was written, by the number of its batch; empty before the query has begun."""
    files = log.iterdir() if log.is_dir() else ()
    return {int(path.name): path.stat().st_mtime for path in files if path.name.isdecimal()}
