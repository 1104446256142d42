# SPDX-License-Identifier: Apache-2.0
"""Faults that no evidence can find, since they change nothing but speed, each with the reason."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutations.core.points import Point

TABLE = Path(__file__).with_name("equivalent.toml")


def equivalents(points: Iterable[Point], path: Path = TABLE) -> dict[str, str]:
    """The reason for each of them, by key.

    Raises:
        ValueError: An entry has no reason, or fits no fault of the core as it is; the message names it.
    """
    places = {(point.file, point.function, str(point)): point.key for point in points}
    found = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
        place = (entry["file"], entry["function"], entry["fault"])
        if place not in places:
            message = f"{path.name}: there is no fault {entry['fault']!r} in {entry['function']} of {entry['file']}"
            raise ValueError(message)
        if not entry["because"].strip():
            message = f"{path.name}: {entry['fault']!r} in {entry['function']} has no reason"
            raise ValueError(message)
        found[places[place]] = entry["because"]
    return found
