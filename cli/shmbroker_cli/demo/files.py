# SPDX-License-Identifier: Apache-2.0
"""The input: the source files of Python's own standard library, and the texts beside them."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

NOT_STANDARD = {"site-packages", "dist-packages", "__pycache__"}


URGENT = "__init__.py"
SOURCES = (".py",)
WITH_TEXTS = (".py", ".rst")
"""With the texts, which are no Python. A library without Python's own tests has no other input that is bad."""


def library() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(root: Path, suffixes: Container[str] = SOURCES) -> list[str]:
    """Return the paths of all files of a library that have one of the suffixes, sorted.

    What was installed beside the library, in `site-packages`, is left out.

    Args:
        root: Folder of the library; the paths are relative to it.
        suffixes: With their points.
    """
    found = []
    for path in root.rglob("*.*"):
        relative = path.relative_to(root)
        if path.suffix in suffixes and NOT_STANDARD.isdisjoint(relative.parts) and path.is_file():
            found.append(relative.as_posix())
    return sorted(found)


def is_urgent(path: str) -> bool:
    """Return whether a file is to be analysed before others: it is the first of a package.

    Args:
        path: Its path in the library.
    """
    return path.rpartition("/")[2] == URGENT


def urgent_last(paths: Iterable[str]) -> list[str]:
    """Return the paths in the order in which they are sent: the urgent ones behind all others.

    Args:
        paths: Paths in the library.
    """
    return sorted(paths, key=is_urgent)
