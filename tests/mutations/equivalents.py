# SPDX-License-Identifier: Apache-2.0
"""Faults that no evidence can find, since they change nothing but speed, each with the reason."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from tests.mutations.point import Point


def equivalents(points: Iterable[Point], path: Path, files: Container[str] | None = None) -> dict[str, str]:
    """The reason for each of them, by key.

    Args:
        points: All faults.
        path: The table of those that change nothing.
        files: Those that the points are of; all, if it is None.

    Raises:
        ValueError: An entry has no reason, or fits no fault of the source as it is; the message names it.
    """
    places = {(point.file, point.function, str(point)): point.key for point in points}
    found = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
        if files is not None and entry["file"] not in files:
            continue
        place = (entry["file"], entry["function"], entry["fault"])
        if place not in places:
            message = f"{path.name}: there is no fault {entry['fault']!r} in {entry['function']} of {entry['file']}"
            raise ValueError(message)
        if not entry["because"].strip():
            message = f"{path.name}: {entry['fault']!r} in {entry['function']} has no reason"
            raise ValueError(message)
        found[places[place]] = entry["because"]
    return found
