# SPDX-License-Identifier: Apache-2.0
"""The run that all others are compared with: in one process, without a broker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Result = TypeVar("Result")


@dataclass(frozen=True)
class Serial(Generic[Result]):
    """The outcome of the serial run.

    Attributes:
        results: The result of each file, by path.
        seconds: How long it took.
    """

    results: dict[str, Result]
    seconds: float


def run_serially(
    root: Path, paths: Sequence[str], analyse: Callable[[bytes], Result], progress: Callable[[int], None]
) -> Serial[Result]:
    """Deal with all files in this process.

    Args:
        root: Folder of the files.
        paths: Their paths, relative to it.
        analyse: Computes the result of a file from its content.
        progress: Called with the number of files done so far.
    """
    results: dict[str, Result] = {}
    started = time.monotonic()
    for path in paths:
        results[path] = analyse((root / path).read_bytes())
        progress(len(results))
    return Serial(results, time.monotonic() - started)
