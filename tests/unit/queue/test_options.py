# SPDX-License-Identifier: Apache-2.0
"""Options of put, get and consume: what is refused, and what cannot overflow."""

from __future__ import annotations

import math
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_counts, nothing_to_get, take

if TYPE_CHECKING:
    import shmbroker


@pytest.mark.parametrize("option", ["ttl", "delay"])
@pytest.mark.parametrize("value", [-1, -0.001, math.nan, -math.inf])
def test_a_bad_time_is_refused(queue: shmbroker.Queue, option: str, value: float) -> None:
    """A ttl or delay is a number of seconds that is not negative."""
    with pytest.raises(ValueError, match=option):
        queue.put(b"A", **{option: value})
    with pytest.raises(ValueError, match=option):
        queue.put_many([b"A"], **{option: value})
    assert_counts(queue, message_count=0, added=0)


@pytest.mark.parametrize("option", ["ttl", "delay", "timeout"])
@pytest.mark.parametrize("value", ["1", b"1", [1]])
def test_a_time_is_a_number(queue: shmbroker.Queue, option: str, value: object) -> None:
    """A time that is no number is a TypeError."""
    with pytest.raises((TypeError, ValueError)):
        queue.put(b"A", **{option: value})
    assert_counts(queue, message_count=0)


@pytest.mark.parametrize("ttl", [1e9, 1e12, 1e300])
def test_an_endless_ttl_does_not_wrap(queue: shmbroker.Queue, ttl: float) -> None:
    """A ttl beyond every clock is refused or saturates; it never is in the past."""
    try:
        queue.put(b"A", ttl=ttl)
    except (ValueError, OverflowError):
        assert_counts(queue, message_count=0)
    else:
        assert take(queue, 1) == ["A"]


@pytest.mark.parametrize("delay", [1e12, 1e300])
def test_an_endless_delay_does_not_wrap(queue: shmbroker.Queue, delay: float) -> None:
    """A delay beyond every clock is refused or saturates; it never is over."""
    try:
        queue.put(b"A", delay=delay)
    except (ValueError, OverflowError):
        assert_counts(queue, message_count=0)
    else:
        assert nothing_to_get(queue)
        assert_counts(queue, scheduled=1)


@pytest.mark.parametrize("priority", [-1, 256, 1.5, "high", 2**40])
def test_a_bad_priority_is_refused(queue: shmbroker.Queue, priority: object) -> None:
    """A message's priority is an octet."""
    with pytest.raises((ValueError, TypeError)):
        queue.put(b"A", priority=priority)
    assert_counts(queue, message_count=0)


def test_an_unknown_option_is_refused(queue: shmbroker.Queue) -> None:
    """A misspelt option is a TypeError."""
    with pytest.raises(TypeError):
        queue.put(b"A", prioritty=3)
    with pytest.raises(TypeError):
        queue.consume(prefetsch=3)


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_a_bad_timeout_does_not_hang(queue: shmbroker.Queue, timeout: float) -> None:
    """A negative or undefined timeout is refused, or means not to wait."""
    with pytest.raises((ValueError, Empty)):
        queue.get(timeout=timeout)


@pytest.mark.parametrize("count", [0, -1, 1.5, "x"])
def test_a_bad_number_of_messages_is_refused(queue: shmbroker.Queue, count: object) -> None:
    """get_many takes at least one message."""
    queue.put(b"A")
    with pytest.raises((ValueError, TypeError)):
        queue.get_many(count, timeout=0)
    assert take(queue, 1) == ["A"]
