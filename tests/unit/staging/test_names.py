# SPDX-License-Identifier: Apache-2.0
"""Names of publications, and batches, that are allowed."""

from __future__ import annotations

import pytest

from shmbroker.staging import names


@pytest.mark.parametrize("name", ["q", "q" * 100, "\u00e9" * 75, "\u20ac" * 50])
def test_the_shortest_and_the_longest_name(name: str) -> None:
    """Of one character, of 100, and of 150 bytes."""
    assert names.check_publication(name) == name


@pytest.mark.parametrize("name", ["", "q" * 101, "\u00e9" * 76, "\u20ac" * 51])
def test_a_name_that_is_too_short_or_too_long(name: str) -> None:
    """It is named with what is allowed."""
    with pytest.raises(
        ValueError, match=f"publication '{name}': 1 to 100 characters without NUL, in at most 150 bytes"
    ):
        names.check_publication(name)


@pytest.mark.parametrize("name", [7, None, b"query", ["query"]])
def test_a_name_that_is_no_string(name: object) -> None:
    """It is named."""
    with pytest.raises(TypeError) as caught:
        names.check_publication(name)
    assert str(caught.value) == f"publication {name!r}: a string is needed"
