# SPDX-License-Identifier: Apache-2.0
"""A comment of the core that names an invariant or an ordering pair says which header declares it.

The number alone is enough if the file, or its header, declares it, or says in its top comment where it is declared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.architecture.test_c_core import SOURCES, TOP_COMMENT, name
from tests.architecture.test_core_map import declared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBER = re.compile(r"\b[IP]\d+\b")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# "I31 and I32 of sb_notify.h", also across the end of a line
WITH_HEADER = re.compile(r"((?:[IP]\d+(?:\s|\*|,|and\b|or\b|to\b)*)+)of[\s*]+(sb_\w+\.h)")
DECLARED = {
    f"{letter}{number}": header
    for section, letter in (("Invariants", "I"), ("Ordering pairs", "P"))
    for number, header in declared(section, letter)
}


def told(comment: str) -> set[str]:
    """Return the numbers whose header the comment names."""
    return {number for numbers, _ in WITH_HEADER.findall(comment) for number in NUMBER.findall(numbers)}


def known(path: Path) -> set[str]:
    """Return the numbers that a reader of any comment of the file knows, or finds by the top comments."""
    tops = [p for p in (path, path.with_suffix(".h")) if p.exists()]
    numbers = {number for number, header in DECLARED.items() if header in {p.name for p in tops}}
    for top in tops:
        comment = TOP_COMMENT.search(top.read_text(encoding="utf-8"))
        numbers |= told(comment[0]) if comment else set()
    return numbers


def unexplained(path: Path) -> Iterator[str]:
    """Return the places where a comment names a number, and nothing says where it is declared."""
    text, by_file = path.read_text(encoding="utf-8"), known(path)
    for comment in COMMENT.finditer(text):
        here = told(comment[0]) | by_file
        for number in NUMBER.finditer(comment[0]):
            if number[0] not in here:
                yield f"line {text.count(chr(10), 0, comment.start() + number.start()) + 1}: {number[0]}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_number_says_where_it_is_declared(path: Path) -> None:
    """No reader has to search all headers for an invariant."""
    assert list(unexplained(path)) == []


def test_a_header_is_named_for_what_it_declares() -> None:
    """`I31 of sb_notify.h` is declared in sb_notify.h."""
    wrong = [
        f"{path.name}: {number} of {header}"
        for path in SOURCES
        for numbers, header in WITH_HEADER.findall(path.read_text(encoding="utf-8"))
        for number in NUMBER.findall(numbers)
        if DECLARED.get(number) != header
    ]
    assert wrong == []
