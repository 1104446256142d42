# SPDX-License-Identifier: Apache-2.0
"""What a marker says of a publication, and the names of attempts."""

from __future__ import annotations

import uuid

import pytest

from shmbroker.staging import names
from shmbroker.staging.publication import JOBS, Begun, PublicationState, Receipt, decode

JOB = uuid.UUID(int=7)
RECEIPTS = (Receipt(7, 0, 1, 2, 30, "aa", timed=True), Receipt(7, 1, 0, 3, 40, "bb", timed=False))
BEGUN = Begun(7, "out", RECEIPTS)
EVERYTHING = PublicationState(6, (JOB,), (uuid.UUID(int=8),), BEGUN, 77)


def test_what_has_begun() -> None:
    """As many messages and bytes as its winners have together."""
    assert (BEGUN.count, BEGUN.bytes) == (5, 70)


@pytest.mark.parametrize("state", [PublicationState(), EVERYTHING, PublicationState(begun=Begun(JOB, "out", ()))])
def test_a_marker_says_all_of_it(state: PublicationState) -> None:
    """Whoever reads it knows what its writer knew."""
    assert decode(state.encode()) == state


def test_a_batch_that_is_published_is_not_under_way_any_more() -> None:
    """A number is the last one then; a job is one of the last ones."""
    assert EVERYTHING.published(7) == PublicationState(7, (JOB,), (uuid.UUID(int=8),), None, 77)
    other = uuid.UUID(int=9)
    assert EVERYTHING.published(other) == PublicationState(6, (JOB, other), (uuid.UUID(int=8),), None, 77)
    assert PublicationState().beginning(BEGUN) == PublicationState(begun=BEGUN)


def test_the_last_jobs_are_known() -> None:
    """Of those that were published, and of those that were dropped, 256 each."""
    jobs = [uuid.UUID(int=number) for number in range(JOBS + 2)]
    state = PublicationState()
    for job in jobs:
        state = state.published(job).without(job)
    assert JOBS == 256
    assert (state.jobs, state.dropped) == (tuple(jobs[2:]), tuple(jobs[2:]))


def test_what_was_published() -> None:
    """Numbers up to the last one, and jobs that are known; of what was dropped nothing is wanted either."""
    dropped = EVERYTHING.dropped[0]
    assert [EVERYTHING.has(batch) for batch in (5, 6, 7, JOB, dropped)] == [True, True, False, True, False]
    assert [EVERYTHING.is_over(batch) for batch in (6, 7, JOB, dropped)] == [True, False, True, True]
    assert not PublicationState().has(0)


def test_what_holds_for_another_queue() -> None:
    """Nothing, but that it is for that one."""
    assert EVERYTHING.of(77) is EVERYTHING
    assert EVERYTHING.of(78) == PublicationState(target=78)


@pytest.mark.parametrize(
    "queue",
    [
        "amq.stage.attempt.7.0.3.1f",
        "amq.stage.marker.7.0.3.1f.a",
        "7.0.3.1f.a",
        "amq.stage.attempt.x.0.3.1f.a",
        "amq.stage.attempt.7.x.3.1f.a",
        "amq.stage.attempt.7.0.x.1f.a",
    ],
)
def test_a_queue_that_is_of_no_attempt(queue: str) -> None:
    """Its name begins in another way, has fewer fields, or says no numbers."""
    assert names.attempt_of(queue) is None


@pytest.mark.parametrize("batch", [7, JOB])
def test_the_queue_of_an_attempt(batch: names.Batch) -> None:
    """Its name says which, whatever the publication is called."""
    attempt = names.Attempt("a.b.c", batch, 1, 2, "1f")
    assert names.attempt_of(attempt.queue) == attempt
