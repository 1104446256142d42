# SPDX-License-Identifier: Apache-2.0
"""Attempts to stage a partition: what counts, what is dropped, and what has expired."""

from __future__ import annotations

import pickle
import threading

import pytest
from scenario_support.staging import JOB, bodies, internal, staged

import shmbroker
import shmbroker.testing
from shmbroker import staging
from shmbroker.staging import Stage, StageInfo, stages


def test_only_winners_are_published(stage: Stage, out: shmbroker.Queue, connection: shmbroker.Connection) -> None:
    """An attempt that lost is dropped, and who still writes it is told so."""
    with stage.attempt(0, 0, 1) as winner:
        winner.put(b"a")
    loser = stage.attempt(0, 0, 2)
    loser.__enter__()
    loser.put(b"zombie")
    assert stage.publish(0, [winner.receipt], "out") == 1
    with pytest.raises(shmbroker.NotStaged, match=r"attempt 2 at partition 0 of batch 0 of 'query'.*published"):
        loser.put(b"zombie")
    with pytest.raises(shmbroker.NotStaged):
        loser.__exit__(None, None, None)
    with stage.attempt(0, 0, 3) as late:
        late.put(b"late")
    assert stage.publish(0, [late.receipt], "out") == 0
    assert bodies(out) == [b"a"]
    assert stages(connection) == []


def test_completing_a_dropped_attempt_is_refused(stage: Stage) -> None:
    """Although nothing more is put."""
    writer = stage.attempt(0, 0, 2)
    with writer:
        writer.put(b"x")
    with pytest.raises(RuntimeError, match="already begun"):
        writer.__enter__()
    late = stage.attempt(0, 0, 3)
    late.__enter__()
    late.put(b"x")
    assert stage.drop(0) == 2
    with pytest.raises(shmbroker.NotStaged):
        late.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not complete"):
        late.receipt  # noqa: B018


def test_attempts_of_one_number_do_not_meet(stage: Stage, out: shmbroker.Queue) -> None:
    """A program that was started again counts its attempts from 0: earlier ones are neither mixed with it nor lost."""
    before = staged(stage, 0, 0, b"a", b"b")
    staged(stage, 0, 0, b"a")
    assert stage.publish(0, [before], "out") == 2
    assert bodies(out) == [b"a", b"b"]


def test_an_attempt_that_raises_is_dropped(stage: Stage, connection: shmbroker.Connection) -> None:
    """And has no receipt."""
    with pytest.raises(ZeroDivisionError), stage.attempt(0, 0, 0) as writer:  # noqa: PT012 - its block raises
        writer.put(b"x")
        raise ZeroDivisionError
    assert stages(connection) == []
    with pytest.raises(RuntimeError, match="not complete"):
        writer.receipt  # noqa: B018
    with pytest.raises(RuntimeError, match="`with` block"):
        writer.put(b"x")


def test_a_writer_counts(stage: Stage, connection: shmbroker.Connection, out: shmbroker.Queue) -> None:
    """Messages and bytes, however they were staged; receipt and list of stages say the same. A receipt pickles."""
    with stage.attempt(3, 1, 4) as writer:
        writer.put(b"abc")
        writer.put(memoryview(b"defg"), key="k")
        assert writer.put_many([b"h", b"ij"]) == 2
        assert writer.put_many([b"k"], ttl=60) == 1
        with writer.reserve(5, headers={"a": 1}) as memory:
            memory[:] = b"lmnop"
        with pytest.raises(ZeroDivisionError), writer.reserve(6):
            raise ZeroDivisionError
        with pytest.raises(TypeError):
            writer.put("text")
        assert (writer.count, writer.bytes) == (6, 16)
    receipt = pickle.loads(pickle.dumps(writer.receipt))  # noqa: S301 - our own
    assert (receipt.batch, receipt.partition, receipt.attempt, receipt.count, receipt.bytes) == (3, 1, 4, 6, 16)
    assert stages(connection) == [StageInfo("query", 3, 1, 4, 6, 16)]
    assert stages(connection, "other") == []
    assert stage.publish(3, [receipt], "out") == 6
    assert b"".join(bodies(out)) == b"abcdefghijklmnop"


def test_attempts_that_are_gone_are_not_published(
    stage: Stage, out: shmbroker.Queue, connection: shmbroker.Connection
) -> None:
    """Nothing is, not even the others of that batch."""
    here, gone = staged(stage, 0, 0, b"a"), staged(stage, 0, 1, b"b")
    connection.queue(next(name for name in internal(connection) if ".0.1." in name)).delete()
    with pytest.raises(
        shmbroker.NotStaged, match="partition 1 of batch 0 of 'query' cannot be published: it was dropped"
    ):
        stage.publish(0, [here, gone], "out")
    assert bodies(out) == []
    assert [one.partition for one in stages(connection)] == [0]
    assert stage.publish(0, [here], "out") == 1


def test_dropping(stage: Stage, connection: shmbroker.Connection, out: shmbroker.Queue) -> None:
    """All attempts at one batch go; `forget` leaves nothing of the publication. Nothing of another one is touched."""
    other = Stage(connection, "query.2")
    kept = staged(other, 0, 0, b"other")
    for partition in range(3):
        staged(stage, 0, partition, b"a")
    staged(stage, 1, 0, b"b")
    assert stage.drop(0) == 3
    assert stage.drop(0) == 0
    assert [(one.publication, one.batch) for one in stages(connection)] == [("query", 1), ("query.2", 0)]
    stage.forget()
    assert [one.publication for one in stages(connection)] == ["query.2"]
    assert other.publish(0, [kept], "out") == 1
    assert stage.published is None
    assert bodies(out) == [b"other"]


@pytest.mark.usefixtures("out")
def test_a_job_that_was_dropped_is_over(stage: Stage, connection: shmbroker.Connection) -> None:
    """Who stages for it later is told so and leaves nothing; the number of a batch may come again."""
    stage.drop(JOB)
    with pytest.raises(shmbroker.NotStaged, match="dropped meanwhile"):
        staged(stage, JOB, 1, b"late")
    assert stages(connection) == []
    stage.drop(0)
    assert stage.publish(0, [staged(stage, 0, 0, b"again")], "out") == 1
    assert not stage.is_published(JOB)


@pytest.mark.usefixtures("out")
def test_what_a_publisher_kept_from_being_looked_at_is_dropped_later(
    stage: Stage, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt at a dropped job that ends while somebody publishes completes; the next publish drops it."""
    monkeypatch.setattr(staging.marker, "_PATIENCE", 0.0)
    stage.drop(JOB)
    marker = connection.queue("amq.stage.marker.query", passive=True).get()
    staged(stage, JOB, 0, b"late")
    marker.give_back()
    assert len(stages(connection)) == 1
    stage.publish(0, [], "out")
    assert stages(connection) == []


def test_expiring_attempts(connection: shmbroker.Connection, out: shmbroker.Queue) -> None:
    """An attempt that nobody publishes goes by itself, if the stage says so; publishing what is gone is refused."""
    stage = Stage(connection, "query", expires=2.0)
    receipt = staged(stage, 0, 0, b"a")
    until = threading.Event()
    while stages(connection):
        until.wait(0.01)
    with pytest.raises(shmbroker.NotStaged):
        stage.publish(0, [receipt], "out")
    assert len(out) == 0
