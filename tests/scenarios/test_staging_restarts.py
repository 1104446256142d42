# SPDX-License-Identifier: Apache-2.0
"""Staged batches, after the loss of all processes and of the memory: each batch is published once."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import Lasting

from shmbroker import exceptions
from shmbroker._system_queues import schemas
from shmbroker.staging import Receipt, Stage, stages
from shmbroker.staging.publishing import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shmbroker.queue import Queue
    from shmbroker.staging.staged_attempt import StagedAttempt


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker with an empty store and a durable target."""
    with contextlib.closing(Lasting(broker_name, tmp_path)) as made:
        made.connection.queue("out", durable=True)
        yield made


def staged(stage: Stage, batch: int | uuid.UUID, *bodies: bytes, partition: int = 0) -> Receipt:
    """Stages an attempt."""
    with stage.attempt(batch, partition, 0) as writer:
        for body in bodies:
            writer.put(body)
    return writer.receipt


def out(lasting: Lasting) -> list[bytes]:
    """What was published."""
    return [bytes(message) for message in lasting.queue("out").browse()]


def test_a_staged_attempt_is_published(lasting: Lasting) -> None:
    """By its receipt, with the options that were given; a later call publishes nothing."""
    with Stage(lasting.connection, "query").attempt(0, 0, 0) as writer:
        writer.put(b"A", headers={"x": 1}, ttl=3600)
        writer.put_many([b"B", b"C"])
        with writer.reserve(1) as memory:
            memory[:] = b"D"
    lasting.restart()
    stage = Stage(lasting.connection, "query")
    assert [(one.batch, one.count, one.bytes) for one in stages(lasting.connection)] == [(0, 4, 4)]
    assert stage.publish(0, [writer.receipt], "out") == 4
    assert stage.publish(0, [writer.receipt], "out") == 0
    assert out(lasting) == [b"A", b"B", b"C", b"D"]
    first = lasting.queue("out").get()
    assert first.properties.headers == {"x": 1}
    assert first.expires_at is not None if hasattr(first, "expires_at") else True


def test_a_published_batch_is_not_published_again(lasting: Lasting) -> None:
    """The loss comes immediately after the publish returned; the batch is run again, as by a restarted query."""
    stage = Stage(lasting.connection, "query")
    assert stage.publish(7, [staged(stage, 7, b"A", b"B")], "out") == 2
    lasting.restart()
    stage = Stage(lasting.connection, "query")
    assert stage.published == 7
    again = staged(stage, 7, b"A", b"B")
    assert stage.publish(7, [again], "out") == 0
    assert stage.publish(8, [staged(stage, 8, b"C")], "out") == 1
    assert (out(lasting), stages(lasting.connection)) == ([b"A", b"B", b"C"], [])


def test_a_batch_that_was_staged_and_not_published(lasting: Lasting) -> None:
    """It is run again: the attempts of before are dropped."""
    staged(Stage(lasting.connection, "query"), 0, b"A", b"B")
    lasting.restart()
    stage = Stage(lasting.connection, "query")
    assert stage.publish(0, [staged(stage, 0, b"A", b"B")], "out") == 2
    assert (out(lasting), stages(lasting.connection)) == ([b"A", b"B"], [])


def test_a_batch_that_was_being_moved_is_finished(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the publish of the batch that is run again, and once; the attempts of before win."""
    stage = Stage(lasting.connection, "query", at_once=2)
    bodies = [b"%d" % number for number in range(6)]

    class LostError(Exception):
        """Stands for the loss."""

    def move_some(_: Publisher, source: StagedAttempt, target: Queue, left: int) -> int:
        assert source.queue.move(target, limit=left // 2) == left // 2
        raise LostError

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "_move", move_some)
        with pytest.raises(LostError):
            stage.publish(3, [staged(stage, 3, *bodies)], "out")
    lasting.connection.queue("synced", durable=True).put(b"x")
    lasting.restart()
    assert out(lasting) == bodies[:3]
    stage = Stage(lasting.connection, "query", at_once=2)
    assert stage.publish(3, [staged(stage, 3, *bodies)], "out") == 3
    assert (out(lasting), stages(lasting.connection)) == (bodies, [])
    lasting.restart()
    assert Stage(lasting.connection, "query").is_published(3)


def test_a_job_is_published_once(lasting: Lasting) -> None:
    """A batch that is identified by a UUID; a dropped one stays dropped."""
    done, dropped = uuid.uuid4(), uuid.uuid4()
    stage = Stage(lasting.connection, "jobs.out")
    stage.drop(dropped)
    stage.publish(done, [staged(stage, done, b"A")], "out")
    lasting.restart()
    stage = Stage(lasting.connection, "jobs.out")
    assert stage.publish(done, [staged(stage, done, b"A")], "out") == 0
    with pytest.raises(exceptions.NotStaged):
        staged(stage, dropped, b"B")
    assert out(lasting) == [b"A"]


def test_the_last_number_holds_for_the_target(lasting: Lasting) -> None:
    """After a restart, too; a queue that is declared again under the name begins at the first number."""
    stage = Stage(lasting.connection, "txn", per_target=True)
    assert stage.publish(5, [staged(stage, 5, b"A")], "out") == 1
    lasting.restart()
    stage = Stage(lasting.connection, "txn", per_target=True)
    assert stage.publish(5, [staged(stage, 5, b"A")], "out") == 0
    lasting.queue("out").delete()
    lasting.connection.queue("out", durable=True)
    assert stage.publish(5, [staged(stage, 5, b"B")], "out") == 1
    lasting.restart()
    assert out(lasting) == [b"B"]


def test_a_writer_and_a_publish_wait_for_the_disk(lasting: Lasting) -> None:
    """Once each, however many messages there are; after a Timeout the publish is called again."""
    with lasting.broker.connect(operation_timeout=0.3) as connection:
        stage = Stage(connection, "query")
        receipt = staged(stage, 0, b"A")
        with lasting.keeper_stopped(), pytest.raises(exceptions.Timeout, match="has not synced"):
            staged(stage, 0, b"B", b"C", partition=1)
        with lasting.keeper_stopped():
            for _ in range(2):
                with pytest.raises(exceptions.Timeout, match="has not synced"):
                    stage.publish(0, [receipt], "out", timeout=0.3)
        assert stage.publish(0, [receipt], "out", timeout=60) == 0
        assert out(lasting) == [b"A"]


def test_what_is_staged_for_a_transient_target_waits_for_no_disk(lasting: Lasting) -> None:
    """It ends with the memory; which batches were published does not."""
    lasting.connection.queue("brief")
    stage = Stage(lasting.connection, "query", durable=False)
    staged(stage, 0)  # makes the marker
    with lasting.keeper_stopped():
        assert stage.publish(1, [staged(stage, 1, b"A")], "brief", timeout=60) == 1
        staged(stage, 2, b"B")
    lasting.connection.queue("synced", durable=True).put(b"x")
    lasting.restart()
    assert stages(lasting.connection) == []
    assert Stage(lasting.connection, "query").published == 1


def test_a_schema_stays_with_its_queue(lasting: Lasting) -> None:
    """Also the second restart finds it; a queue that is declared again under the name has none."""
    found = schemas.Registered(b"encoded", "text")
    lasting.connection.queue("before", durable=True)  # so that the queues get other slots in the next memory
    lasting.connection.queue("plain", durable=True)
    assert schemas.register(lasting.queue("out"), found) == found
    lasting.queue("before").delete()
    for _ in range(2):
        lasting.restart()
        assert schemas.registered(lasting.queue("out")) == found
        assert schemas.registered(lasting.queue("plain")) is None
    lasting.queue("out").delete()
    assert schemas.registered(lasting.connection.queue("out", durable=True)) is None


def test_settings_that_change_leave_a_queue_what_it_is(lasting: Lasting) -> None:
    """Its schema is that of before."""
    found = schemas.Registered(b"encoded", "text")
    schemas.register(lasting.queue("out"), found)
    lasting.queue("out").configure(max_length=7)
    with lasting.broker.connect() as other:
        assert schemas.registered(other.queue("out", passive=True)) == found
