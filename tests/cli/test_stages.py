# SPDX-License-Identifier: Apache-2.0
"""`shmbroker stages ...`."""

from __future__ import annotations

import queue
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

from shmbroker.staging import Stage, stages

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

JOB = uuid.UUID("0123456789abcdef0123456789abcdef")


def write(stage: Stage, batch: int | uuid.UUID, *bodies: bytes, partition: int = 0) -> Any:  # noqa: ANN401 (a receipt)
    """Stage messages; their receipt."""
    with stage.attempt(batch, partition, 5) as writer:
        writer.put_many(bodies)
    return writer.receipt


@pytest.fixture
def staged(jobs: shmbroker.Queue) -> Stage:
    """Stage two batches of a query, the first in two partitions, and a job of another publication."""
    stage = Stage(connection_of(jobs), "query.q")
    write(stage, 7, b"AA", b"BB")
    write(stage, 7, b"CCC", partition=1)
    write(stage, 8, b"D")
    write(Stage(connection_of(jobs), "jobs.jobs"), JOB, b"E")
    return stage


def left(jobs: shmbroker.Queue) -> list[tuple[str, int | uuid.UUID]]:
    """What is staged still."""
    return [(one.publication, one.batch) for one in stages(connection_of(jobs))]


@pytest.mark.usefixtures("broker")
def test_without_stages(cli: Callable[..., Any]) -> None:
    """There is a line for people, and an empty list for programs."""
    assert cli("stages").lines == ["nothing is staged"]
    assert cli("stages", "--json").facts == []


@pytest.mark.usefixtures("staged")
def test_stages_are_listed(cli: Callable[..., Any]) -> None:
    """By publication, batch and partition; the batch of a job is its id."""
    facts = cli("stages", "--json").facts
    assert [tuple(one.values()) for one in facts] == [
        ("jobs.jobs", str(JOB), 0, 5, 1, 1),
        ("query.q", 7, 0, 5, 2, 4),
        ("query.q", 7, 1, 5, 1, 3),
        ("query.q", 8, 0, 5, 1, 1),
    ]
    assert list(facts[0]) == ["publication", "batch", "partition", "attempt", "count", "bytes"]
    table = cli("stages").lines
    assert table[0].split() == ["publication", "batch", "partition", "attempt", "messages", "bytes"]
    assert table[2].split() == ["jobs.jobs", str(JOB), "0", "5", "1", "1", "B"]


@pytest.mark.usefixtures("staged")
def test_drop_ends_all_that_a_publication_has_staged(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """And nothing of another one."""
    ran = cli("stages", "drop", "query.q", "--yes")
    assert (ran.code, ran.lines) == (0, ["query.q: 3 attempts dropped"])
    assert left(jobs) == [("jobs.jobs", JOB)]
    assert cli("stages", "drop", "query.q", "--yes").is_refused("nothing is staged", "query.q")


@pytest.mark.usefixtures("staged")
def test_drop_of_one_batch(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """By its number, or by the id of a job, however that is written."""
    ran = cli("--json", "stages", "drop", "query.q", "--batch", "8", "--yes")
    assert ran.facts == {"publication": "query.q", "batch": "8", "dropped": 1}
    assert left(jobs) == [("jobs.jobs", JOB), ("query.q", 7), ("query.q", 7)]
    assert cli("stages", "drop", "query.q", "--batch", "9", "--yes").is_refused("query.q", "batch 9")
    assert cli("stages", "drop", "jobs.jobs", "--batch", str(JOB).upper(), "--yes").code == 0
    assert left(jobs) == [("query.q", 7), ("query.q", 7)]


def test_what_was_published_stays_and_is_known(cli: Callable[..., Any], staged: Stage, jobs: shmbroker.Queue) -> None:
    """A query that is started again publishes neither the batch that it published nor anything that was dropped."""
    receipt = write(staged, 6, b"Z")
    assert staged.publish(6, [receipt], "jobs") == 1
    assert cli("stages", "drop", "query.q", "--yes").code == 0
    assert (staged.published, staged.publish(6, [receipt], "jobs")) == (6, 0)
    assert [bytes(message) for message in jobs.browse()] == [b"Z"]


def test_a_batch_that_is_published_in_part_is_not_dropped(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Else the rest of it would be lost: the next publish goes on with it."""
    full = connection_of(jobs).queue("full", max_length=1)
    stage = Stage(connection_of(jobs), "large", at_once=1)
    receipt = write(stage, 0, b"A", b"B", b"C")
    with pytest.raises(queue.Full):
        stage.publish(0, [receipt], "full", timeout=0)
    assert len(full) == 1
    assert cli("stages", "drop", "large", "--yes").is_refused("large", "batch 0", "published in part")
    full.configure(max_length=-1)
    assert stage.publish(0, [receipt], "full") == 2
    assert [bytes(message) for message in full.browse()] == [b"A", b"B", b"C"]


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize(("answer", "code", "count"), [("y\n", 0, 2), ("n\n", 1, 4), ("", 130, 4)])
def test_drop_asks(cli: Callable[..., Any], jobs: shmbroker.Queue, *, answer: str, code: int, count: int) -> None:
    """It says how much will be gone; without consent nothing is."""
    ran = cli("stages", "drop", "query.q", "--batch", "7", given=answer)
    assert ran.code == code
    assert "Drop 3 messages staged for 'query.q', batch 7, for good?" in ran.err
    assert len(left(jobs)) == count
