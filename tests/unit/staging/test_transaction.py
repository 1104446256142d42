# SPDX-License-Identifier: Apache-2.0
"""A part of a batch: how much of the stage it takes, and what goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.staging import staged

from shmbroker.exceptions import NotStaged
from shmbroker.staging import Stage
from shmbroker.staging.staged_attempt import StagedAttempt
from shmbroker.staging.transaction import Limits, PartTransaction

if TYPE_CHECKING:
    import shmbroker

MANY = Limits(100, 100)


@pytest.fixture
def source(connection: shmbroker.Connection) -> StagedAttempt:
    """An attempt with five messages of one to five bytes."""
    receipt = staged(Stage(connection, "query"), 0, 0, *(b"x" * length for length in range(1, 6)))
    return StagedAttempt(connection, "query", receipt)


def test_limits_hold_what_is_no_more() -> None:
    """Neither messages nor bytes."""
    assert [Limits(5, 7).hold(*some) for some in ((5, 7), (6, 7), (5, 8), (0, 0))] == [True, False, False, True]


def test_a_queue_that_blocks_limits_a_part(connection: shmbroker.Connection) -> None:
    """By what it may hold; one without limits, or that drops, does not."""
    kinds = {
        "free": {},
        "short": {"max_length": 1},
        "small": {"max_bytes": 1},
        "long": {"max_length": 101, "max_bytes": 101},
        "dropping": {"max_length": 1, "max_bytes": 1, "overflow": "drop-head"},
    }
    found = {name: MANY.within(connection.queue(name, **settings)) for name, settings in kinds.items()}  # type: ignore[arg-type]
    assert found == {
        "free": MANY,
        "short": Limits(1, 100),
        "small": Limits(100, 1),
        "long": MANY,
        "dropping": MANY,
    }


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (MANY, 5),
        (Limits(5, 15), 5),
        (Limits(4, 100), 4),
        (Limits(100, 14), 4),
        (Limits(100, 10), 4),
        (Limits(100, 9), 3),
        (Limits(100, 1), 1),
        (Limits(0, 0), 1),
    ],
)
def test_a_part_takes_what_its_limits_hold(
    out: shmbroker.Queue, source: StagedAttempt, limits: Limits, count: int
) -> None:
    """One message in any case; the others go back to the stage at once, and what it took when it is left."""
    with PartTransaction(out, limits) as part:
        part.take(source)
        assert [len(one.body) for one in part.publications] == list(range(1, count + 1))
        assert len(part.messages) == count
        assert source.queue.statistics().delivering == count
    assert part.publications == []
    assert (source.queue.statistics().ready, source.queue.statistics().delivering) == (5, 0)


def test_a_part_of_several_attempts(
    connection: shmbroker.Connection, out: shmbroker.Queue, source: StagedAttempt
) -> None:
    """It is full when the first message of one does not fit; all of them get their messages back."""
    receipt = staged(Stage(connection, "query"), 0, 1, b"yyy", b"z")
    other = StagedAttempt(connection, "query", receipt)
    for size, count in ((19, 7), (18, 6), (17, 5)):
        with PartTransaction(out, Limits(100, size)) as part:
            part.take(source)
            part.take(other)
            assert len(part.publications) == count
        assert (source.left(), other.left()) == (5, 2)


def test_an_attempt_that_goes_while_it_is_published(
    connection: shmbroker.Connection, out: shmbroker.Queue, source: StagedAttempt
) -> None:
    """The messages of the others go back."""
    other = StagedAttempt(connection, "query", staged(Stage(connection, "query"), 0, 1, b"yyy", b"z"))
    with PartTransaction(out, MANY) as part:
        part.take(source)
        part.take(other)
        source.queue.delete()
    assert (other.queue.statistics().ready, other.queue.statistics().delivering) == (2, 0)


def test_messages_that_somebody_else_has(
    out: shmbroker.Queue, source: StagedAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part cannot be published."""
    monkeypatch.setattr(source, "left", lambda: 6)
    with pytest.raises(NotStaged, match="another client has its messages"), PartTransaction(out, MANY) as part:
        part.take(source)
    assert source.queue.statistics().ready == 5
