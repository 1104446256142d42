# SPDX-License-Identifier: Apache-2.0
"""The figures on the pages are those of the newest results under version control."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import pages

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def newest(kind: str) -> dict[str, Any]:
    """Return the newest document, by the day in its name, of one of the kinds of runs."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*-*-*.json"))]
    return next(one for one in reversed(documents) if pages.kind_of(one) == kind)


def test_the_page_of_figures_shows_the_newest_results() -> None:
    """The page has every row of each kind of run, as `benchmarks.pages` writes it."""
    page = pages.FIGURES.read_text(encoding="utf-8")
    assert pages.table(newest("bench")) in page
    assert pages.feature_table(newest("features")) in page
    assert pages.spark_table(newest("spark")) in page


def test_the_readme_shows_the_newest_results() -> None:
    """The README has the ten rows of IN_SHORT."""
    table = pages.short_table(newest("bench"))
    assert table in pages.README.read_text(encoding="utf-8")
    assert len(pages.IN_SHORT) == 10
