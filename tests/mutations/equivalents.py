# SPDX-License-Identifier: Apache-2.0
"""Faults that no evidence can find, since they change nothing but speed, each with the reason.

They stand in tables: one file, whose entries name the file that is mutated, or a folder with a table for each mutated
file, named after it. An entry names its function, its faults as the runner prints them (`fault`, or `faults` for
several of one reason), and says why: a proof, or "pure speed: ...".
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

    from tests.mutations.point import Point


def equivalents(points: Iterable[Point], path: Path, files: Container[str] | None = None) -> dict[str, str]:
    """The reason for each of them, by key.

    Args:
        points: All faults.
        path: The table of those that change nothing, or a folder of tables.
        files: Those that the points are of; all, if it is None.

    Raises:
        ValueError: An entry has no reason, or fits no fault of the source as it is; the message names it.
    """
    places = {(point.file, point.function, str(point)): point.key for point in points}
    found = {}
    for file, function, fault, because in _entries(path):
        if files is not None and file not in files:
            continue
        place = (file, function, fault)
        if place not in places:
            message = f"{path.name}: there is no fault {fault!r} in {function} of {file}"
            raise ValueError(message)
        if not because.strip():
            message = f"{path.name}: {fault!r} in {function} of {file} has no reason"
            raise ValueError(message)
        found[places[place]] = because
    return found


def _entries(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """File, function, fault and reason of each."""
    for table in sorted(path.glob("*.toml")) if path.is_dir() else [path]:
        entries: list[dict[str, Any]] = tomllib.loads(table.read_text(encoding="utf-8")).get("equivalent", [])
        for entry in entries:
            for fault in entry["faults"] if "faults" in entry else [entry["fault"]]:
                yield entry.get("file", table.stem), entry["function"], fault, entry["because"]
