# SPDX-License-Identifier: Apache-2.0
"""The C functions that a model mirrors, by the comment at its top, with the lines where they stand today.

``python tests/models/mirrors.py [MODEL ...]`` prints them; it ends with exit code 1 if one is not there any more.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parents[1] / "cffi_src" / "src"
MIRRORS = re.compile(r"^ \* Mirrors: (.*?)^ \* Abstracted:", re.DOTALL | re.MULTILINE)


def mirrored(model: Path) -> list[tuple[str, str]]:
    """File and name of each function that the comment names."""
    section = MIRRORS.search(model.read_text(encoding="utf-8"))
    if section is None:
        return []
    text = re.sub(r"\([^)]*\)|\bWith [A-Z]+:|\n \*", " ", section[1])
    functions, file = [], ""
    for word in re.findall(r"[\w.]+", text):
        if re.fullmatch(r"sb_\w+\.[ch]", word):
            file = word
        elif word != ".":
            functions.append((file, word.rstrip(".")))
    return functions


def line_of(file: str, function: str) -> int | None:
    """Where the function is defined; a name that begins a line, behind its type."""
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.glob(f"*/{file}"))
    found = re.search(rf"^[A-Za-z][\w \*]*\b{function}\([^;]*?\)\s*\{{", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def main(names: list[str]) -> int:
    """Prints a line for each function of these models, or of all."""
    missing = 0
    for model in [Path(name) for name in names] or sorted(FOLDER.glob("*.pml")):
        for file, function in mirrored(model):
            line = line_of(file, function)
            missing += line is None
            sys.stdout.write(f"{model.name}: {file}:{line or 'not there'} {function}\n")
    return missing != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
