# SPDX-License-Identifier: Apache-2.0
"""Numbers that are given out: the lowest free one first."""

from __future__ import annotations

import pytest

from shmbroker._session.channel_numbers import ChannelNumbers
from shmbroker.exceptions import NoFreeChannels


def test_the_lowest_free_number_comes_first() -> None:
    """From 1; those that came back before those that were never used."""
    numbers = ChannelNumbers(10)
    assert [numbers.take() for _ in range(5)] == [1, 2, 3, 4, 5]
    for number in (4, 2, 3):
        numbers.give(number)
    assert [numbers.take() for _ in range(4)] == [2, 3, 4, 6]


def test_a_number_that_is_wanted() -> None:
    """It is given if it is free, and passed over by those who want any, until it comes back."""
    numbers = ChannelNumbers(10)
    assert numbers.take(3) == 3
    assert numbers.take(1) == 1
    assert [numbers.take() for _ in range(3)] == [2, 4, 5]
    numbers.give(3)
    assert numbers.take(3) == 3
    assert numbers.take() == 6
    numbers.give(3)
    assert numbers.take() == 3
    assert numbers.take() == 7


def test_numbers_that_come_back_before_they_are_reached() -> None:
    """A number above all that were given out in order does not come before them."""
    numbers = ChannelNumbers(10)
    assert numbers.take(3) == 3
    numbers.give(3)
    assert [numbers.take() for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_number_that_comes_back_twice_is_given_out_once() -> None:
    """Also where it was wanted in between."""
    numbers = ChannelNumbers(10)
    assert [numbers.take() for _ in range(3)] == [1, 2, 3]
    numbers.give(2)
    assert numbers.take(2) == 2
    numbers.give(2)
    assert [numbers.take() for _ in range(3)] == [2, 4, 5]


@pytest.mark.parametrize("wanted", [0, -1, 6, 65_536])
def test_a_number_that_there_is_not(wanted: int) -> None:
    """The error says which there are, and nothing is taken."""
    numbers = ChannelNumbers(10, 5)
    with pytest.raises(ValueError, match=f"channel number {wanted}: 1 to 5 are allowed"):
        numbers.take(wanted)
    assert [numbers.take(number) for number in (1, 5)] == [1, 5]
    assert numbers.take() == 2


def test_the_highest_number() -> None:
    """It is 65,535, as AMQP has it, unless another one is said."""
    assert ChannelNumbers(10).take(65_535) == 65_535
    with pytest.raises(ValueError, match="1 to 65535 are allowed"):
        ChannelNumbers(10).take(65_536)


def test_a_number_that_is_in_use() -> None:
    """It cannot be had a second time."""
    numbers = ChannelNumbers(10)
    numbers.take(2)
    with pytest.raises(ValueError, match="channel number 2: the connection has an open channel of this number"):
        numbers.take(2)
    assert [numbers.take(), numbers.take()] == [1, 3]


@pytest.mark.parametrize("wanted", [None, 3])
def test_all_are_in_use(wanted: int | None) -> None:
    """Another one is refused, in order or by its number, until one comes back."""
    numbers = ChannelNumbers(2)
    assert [numbers.take(), numbers.take()] == [1, 2]
    with pytest.raises(NoFreeChannels, match="NOT_ALLOWED - all 2 channels of the connection are open") as refusal:
        numbers.take(wanted)
    assert refusal.value.code == 530
    numbers.give(1)
    assert numbers.take(wanted) == (wanted or 1)
