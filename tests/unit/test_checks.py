# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers: what passes, and how the errors are worded."""

from __future__ import annotations

import pytest

from shmbroker._checks import integer, is_integer, is_number, seconds


@pytest.mark.parametrize(
    ("value", "an_integer", "a_number"),
    [(0, True, True), (-(2**70), True, True), (1.5, False, True), (True, False, False), ("1", False, False),
     (None, False, False), (1j, False, False)],
)  # fmt: skip
def test_kinds_of_numbers(value: object, *, an_integer: bool, a_number: bool) -> None:
    """A truth value is no number, although Python counts with it."""
    assert (is_integer(value), is_number(value)) == (an_integer, a_number)


@pytest.mark.parametrize("value", [3, 4, 7])
def test_an_integer_in_its_range(value: int) -> None:
    """Both bounds belong to it, and there need be no upper one."""
    assert integer("n", value, 3, 7) == integer("n", value, 3) == value


@pytest.mark.parametrize("value", [2, 8, 3.0, True, "3", None])
def test_an_integer_out_of_its_range(value: object) -> None:
    """The error has the name, the value, and what is allowed."""
    with pytest.raises(ValueError, match=rf"^n={value!r}: an integer from 3 to 7 is allowed$"):
        integer("n", value, 3, 7)


def test_an_integer_that_has_other_bounds() -> None:
    """Without an upper one, and where None has a meaning."""
    with pytest.raises(ValueError, match=r"^n=0: an integer >= 1 is allowed$"):
        integer("n", 0, 1)
    with pytest.raises(ValueError, match=r"^n=0: an integer from 1 to 2, or None for no limit, is allowed$"):
        integer("n", 0, 1, 2, none="for no limit")
    with pytest.raises(ValueError, match=r"^n=0: an integer >= 1, or None for no limit, is allowed$"):
        integer("n", 0, 1, none="for no limit")


@pytest.mark.parametrize("value", [1e-9, 1, 2.5, 10])
def test_seconds(value: float) -> None:
    """Integers and floats up to the longest time, as floats."""
    found = seconds("t", value, 10, zero=False)
    assert found == value
    assert isinstance(found, float)


def test_no_time() -> None:
    """Zero is allowed where the caller says so, and nothing below it."""
    assert seconds("t", 0, 10, zero=True) == 0
    with pytest.raises(ValueError, match=r"^t=-1: 0 to 10 seconds are allowed$"):
        seconds("t", -1, 10, zero=True)


@pytest.mark.parametrize("value", [0, 0.9e-9, 10.1, float("nan"), float("inf"), True, "1", None])
def test_seconds_out_of_range(value: object) -> None:
    """The error has the name, the value, and what is allowed."""
    with pytest.raises(ValueError, match=rf"^t={value!r}: more than 0 and at most 10 seconds are allowed$"):
        seconds("t", value, 10, zero=False)
