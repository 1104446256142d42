# SPDX-License-Identifier: Apache-2.0
"""The examples of README and documentation work for a reader who types in one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"^(`{3,})\{?(?:python|testcode|doctest)\}?\n(.*?)^\1", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(r"^(?:>>>|\.\.\.) ?", re.MULTILINE)
IMPORT = re.compile(r"^ *(?:import|from) .*\bshmbroker\b", re.MULTILINE)
USE = re.compile(r"(?<![\w./\"'-])shmbroker\.[a-zA-Z]")
MADE = re.compile(r"\bshmbroker\.connect\(\"([\w-]+)\"\)")
SERVED = re.compile(r"\bshmbroker serve ([\w-]+).* --memory\b")


def examples(page: Path) -> str:
    """Return the Python of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(PROMPT.sub("", example) for _, example in EXAMPLE.findall(text))


def test_there_are_examples() -> None:
    """The checks below look at examples that exist."""
    assert sum(bool(USE.search(examples(page))) for page in PAGES) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_imports_what_it_uses(page: Path) -> None:
    """The import is before the first use. `make docs` cannot find that: it imports the package for the examples."""
    code = examples(page)
    use, imported = USE.search(code), IMPORT.search(code)
    assert use is None or (imported is not None and imported.start() < use.start())


def test_no_example_makes_a_broker_that_another_serves_with_a_limit() -> None:
    """A broker that `connect` makes has the default limit; `serve` refuses the same name with another limit."""
    made = {name for page in PAGES for name in MADE.findall(examples(page))}
    served = {name for page in PAGES for name in SERVED.findall(page.read_text(encoding="utf-8"))}
    assert made
    assert served
    assert not made & served


def test_the_readme_is_short() -> None:
    """A newcomer can read it in one sitting: it has less than 200 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200
