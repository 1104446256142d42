# SPDX-License-Identifier: Apache-2.0
"""Publishing to queues that limit, drop, are full or are deleted."""

from __future__ import annotations

import queue as standard_queue
import threading
from typing import Any

import pytest
from scenario_support.inside import core_of
from scenario_support.staging import LARGE, bodies, internal, staged

import shmbroker
import shmbroker.testing
from shmbroker.staging import Stage, stages


@pytest.mark.parametrize("settings", LARGE)
def test_the_target_limits_the_life_of_messages(connection: shmbroker.Connection, settings: dict[str, Any]) -> None:
    """As of those that are put into it."""
    out = connection.queue("out", message_ttl=3600)
    stage = Stage(connection, "query", **settings)
    with stage.attempt(0, 0, 0) as writer:
        writer.put_many([b"a", b"b"])
        writer.put(b"c", ttl=10)
    assert stage.publish(0, [writer.receipt], "out") == 3
    first, second, third = out.get_many(3)
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert third.expires_at is not None
    assert first.expires_at - third.expires_at > 3000


@pytest.mark.parametrize("overflow", ["drop", "drop-head"])
@pytest.mark.parametrize("settings", LARGE)
def test_a_target_that_drops(connection: shmbroker.Connection, overflow: str, settings: dict[str, Any]) -> None:
    """It drops what it would drop of messages that are put."""
    out = connection.queue("out", max_length=2, overflow=overflow)
    stage = Stage(connection, "query", **settings)
    assert stage.publish(0, [staged(stage, 0, 0, b"a", b"b", b"c")], "out") == 3
    assert bodies(out) == ([b"a", b"b"] if overflow == "drop" else [b"b", b"c"])
    assert stages(connection) == []


def test_a_full_target_leaves_all_staged(connection: shmbroker.Connection, stage: Stage) -> None:
    """Nothing happened; when there is room the same call goes."""
    out = connection.queue("out", max_length=2)
    out.put(b"x")
    receipt = staged(stage, 0, 0, b"a", b"b" * 5000)
    with pytest.raises(standard_queue.Full, match="queue 'out' is full"):
        stage.publish(0, [receipt], "out", timeout=0)
    assert bodies(out) == [b"x"]
    assert [one.count for one in stages(connection)] == [2]
    assert stage.published is None
    out.purge()
    assert stage.publish(0, [receipt], "out", timeout=0) == 2
    assert bodies(out) == [b"a", b"b" * 5000]


@pytest.mark.parametrize("options", [{}, {"ttl": 3600}])
def test_a_batch_larger_than_its_target_goes_through(connection: shmbroker.Connection, options: dict[str, Any]) -> None:
    """As room is made; where time is up the next call goes on, and the batch cannot be dropped in between."""
    out = connection.queue("out", max_length=2)
    stage = Stage(connection, "query")
    receipt = staged(stage, 0, 0, *(b"%d" % number for number in range(7)), **options)
    found = []
    for _ in range(3):
        with pytest.raises(standard_queue.Full):
            stage.publish(0, [receipt], "out", timeout=0)
        assert stage.drop(0) == 0
        found += [bytes(message) for message in out.get_many(9, timeout=0, auto_ack=True)]
    assert stage.published is None
    other = staged(stage, 0, 0, *(b"other %d" % number for number in range(7)))
    assert stage.publish(0, [other], "out", timeout=0) == 1
    assert stage.published == 0
    found += bodies(out)
    assert found == [b"%d" % number for number in range(7)]
    assert stages(connection) == []


@pytest.mark.parametrize("overflow", ["block", "drop"])
@pytest.mark.parametrize("settings", [{}, *LARGE])
def test_a_body_that_can_never_fit(connection: shmbroker.Connection, overflow: str, settings: dict[str, Any]) -> None:
    """Nothing of its batch is published, which can be dropped; the next batch goes."""
    out = connection.queue("out", max_bytes=1000, overflow=overflow)
    stage = Stage(connection, "query", **settings)
    receipt = staged(stage, 0, 0, b"a", b"b" * 1001, b"c")
    with pytest.raises(standard_queue.Full, match="queue 'out': a body of 1001 bytes can never fit max_bytes=1000"):
        stage.publish(0, [receipt], "out")
    assert bodies(out) == []
    assert stage.drop(0) == 1
    assert stage.publish(1, [staged(stage, 1, 0, b"d", b"e" * 900)], "out") == 2
    assert bodies(out) == [b"d", b"e" * 900]


def test_publishing_waits_for_room(connection: shmbroker.Connection, broker_name: str) -> None:
    """And goes on when somebody takes."""
    out = connection.queue("out", max_length=2)
    stage = Stage(connection, "query")
    receipt = staged(stage, 0, 0, *(b"%d" % number for number in range(20)))
    published: list[int] = []
    publisher = threading.Thread(target=lambda: published.append(stage.publish(0, [receipt], "out")))
    publisher.start()
    with shmbroker.connect(broker_name, create=False) as other:
        taken = [bytes(other.queue("out").get(auto_ack=True)) for _ in range(20)]
    publisher.join()
    assert taken == [b"%d" % number for number in range(20)]
    assert published == [20]
    assert len(out) == 0


def test_without_memory_for_copies_a_batch_is_moved(broker_name: str) -> None:
    """Bodies are there twice while they are published at once. What there is no memory for is moved."""
    with shmbroker.testing.broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        out = connection.queue("out")
        stage = Stage(connection, "query", bytes_at_once="1G")
        receipt = staged(stage, 0, 0, *(bytes(1_000_000) for _ in range(40)))
        used = core_of(connection).attachment.facts(in_full=True).memory_used
        assert stage.publish(0, [receipt], "out", timeout=0) == 40
        assert len(out) == 40
        assert core_of(connection).attachment.facts(in_full=True).memory_used <= used + 4_000_000
        with pytest.raises(shmbroker.OutOfMemory), stage.attempt(1, 0, 0) as writer:
            writer.put_many((bytes(1_000_000) for _ in range(40)), timeout=0)
        assert stages(connection) == []


def test_a_stage_that_is_deleted_meanwhile(
    stage: Stage, connection: shmbroker.Connection, out: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who knows no stages: all of it is published, or nothing is."""
    from shmbroker.staging import fresh  # noqa: PLC0415

    commit = fresh.commit_waiting
    receipt = staged(stage, 0, 0, b"a", b"b" * 9000)

    def deleted_before(*arguments: Any) -> None:  # noqa: ANN401
        connection.queue(next(name for name in internal(connection) if ".attempt." in name)).delete()
        commit(*arguments)

    monkeypatch.setattr(fresh, "commit_waiting", deleted_before)
    try:
        assert stage.publish(0, [receipt], "out") == 2
    except shmbroker.NotStaged:
        assert bodies(out) == []
        assert stage.published is None
    else:
        assert bodies(out) == [b"a", b"b" * 9000]
