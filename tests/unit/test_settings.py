# SPDX-License-Identifier: Apache-2.0
"""Queue settings: what is refused, how, and what another declaration may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_counts, listing, put_each

from shmbroker.exceptions import PreconditionFailed

if TYPE_CHECKING:
    import shmbroker

NOT_A_COUNT = [0, -2, 1.5, "x", True, None, [], 2**80]


@pytest.mark.parametrize("name", ["ring_size", "max_length"])
@pytest.mark.parametrize("value", NOT_A_COUNT)
def test_a_bad_count_is_refused(connection: shmbroker.Connection, name: str, value: object) -> None:
    """A count is -1 or at least 1; the error names setting, value, what is allowed."""
    with pytest.raises(ValueError, match=name) as refusal:
        connection.queue("q", **{name: value})
    assert repr(value) in str(refusal.value)
    assert "-1" in str(refusal.value)
    assert ">= 1" in str(refusal.value)


@pytest.mark.parametrize("value", [0, -2, 1.5, "x", "12X", "", "-5", 2**80])
def test_a_bad_size_is_refused(connection: shmbroker.Connection, value: object) -> None:
    """A size is -1, a number of bytes, or a string such as "64K"."""
    with pytest.raises(ValueError, match="max_bytes") as refusal:
        connection.queue("q", max_bytes=value)
    assert repr(value) in str(refusal.value)


def test_a_size_beyond_all_counts_is_refused(connection: shmbroker.Connection) -> None:
    """In words as in digits."""
    with pytest.raises(ValueError, match="max_bytes"):
        connection.queue("q", max_bytes=f"{2**50}G")


@pytest.mark.parametrize("value", ["", "BLOCK", "drop_head", "nonsense", None, 1])
def test_a_bad_overflow_is_refused(connection: shmbroker.Connection, value: object) -> None:
    """An overflow is one of the known words, and the error lists them."""
    with pytest.raises(ValueError, match="overflow") as refusal:
        connection.queue("q", overflow=value)
    assert repr(value) in str(refusal.value)
    for word in ("block", "drop", "drop-head"):
        assert word in str(refusal.value)


def test_an_unknown_setting_is_refused(connection: shmbroker.Connection) -> None:
    """A setting nobody knows is an error, not ignored."""
    with pytest.raises((TypeError, ValueError), match="ring_sice"):
        connection.queue("q", ring_sice=3)
    with pytest.raises((TypeError, ValueError), match="ring_sice"):
        connection.queue("q").configure(ring_sice=3)


def test_a_refused_declaration_leaves_no_queue(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A declaration that is refused has no effect."""
    with pytest.raises(ValueError, match="ring_size"):
        connection.queue("q", ring_size=0)
    assert broker.statistics().queue_count == 0


def test_sizes_may_be_written_with_a_unit(connection: shmbroker.Connection) -> None:
    """A size of "1K" is 1024 bytes: it takes as much and no more."""
    queue = connection.queue("q", max_bytes="1K", overflow="drop")
    for _ in range(5):
        queue.put(b"x" * 256)
    assert_counts(queue, ready=4, bytes=1024, dropped=1)


def test_only_given_settings_are_compared(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A second declaration must agree in what it says; what it omits it leaves."""
    queue = connection.queue("q", ring_size=3)
    with broker.connect() as other:
        other.queue("q")
        other.queue("q", ring_size=3)
        other.queue("q", passive=True)
        with pytest.raises(PreconditionFailed) as refusal:
            other.queue("q", ring_size=4)
        assert refusal.value.code == 406
        assert "PRECONDITION_FAILED" in str(refusal.value)
        assert "q" in str(refusal.value)
        with pytest.raises(PreconditionFailed):
            other.queue("q", ring_size=3, max_length=10)
    put_each(queue, "ABCD")
    assert listing(queue) == list("BCD")


def test_configure_changes_only_what_is_given(connection: shmbroker.Connection) -> None:
    """An omitted setting stays as it was."""
    queue = connection.queue("q", ring_size=2, max_length=50)
    queue.configure(max_length=60)
    put_each(queue, "ABC")
    assert listing(queue) == ["B", "C"]
    connection.queue("q", ring_size=2, max_length=60)


def test_what_was_configured_counts_for_the_next_declaration(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A declaration is compared with the settings of now."""
    connection.queue("q", ring_size=2).configure(ring_size=5)
    with broker.connect() as other:
        other.queue("q", ring_size=5)
        with pytest.raises(PreconditionFailed):
            other.queue("q", ring_size=2)
