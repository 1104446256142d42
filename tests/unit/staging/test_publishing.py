# SPDX-License-Identifier: Apache-2.0
"""Staged batches: nobody sees them until they are published, and each is published once."""

from __future__ import annotations

import json
import queue as standard_queue
import threading
import uuid
from typing import Any

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python
from scenario_support.staging import JOB, LARGE, bodies, internal, staged

import shmbroker
import shmbroker.testing
from shmbroker import staging
from shmbroker.staging import Stage, stages


@pytest.mark.parametrize("settings", LARGE)
def test_a_batch_is_published_in_order(
    connection: shmbroker.Connection, out: shmbroker.Queue, settings: dict[str, Any]
) -> None:
    """Nobody sees it before; then it is there in the order of its partitions, and nothing is left but the marker."""
    stage = Stage(connection, "query", **settings)
    second, first = staged(stage, 0, 1, b"c", b"d" * 9000), staged(stage, 0, 0, b"a", b"b")
    empty = staged(stage, 0, 2)
    assert bodies(out) == []
    assert connection.queue_names() == ["out"]
    assert stage.publish(0, [second, empty, first], "out") == 4
    assert bodies(out) == [b"a", b"b", b"c", b"d" * 9000]
    assert internal(connection) == ["amq.stage.marker.query"]
    assert stage.published == 0
    assert out.statistics().added == 4


@pytest.mark.parametrize("settings", LARGE)
@pytest.mark.parametrize("batch", [5, JOB])
def test_a_batch_is_published_once(
    connection: shmbroker.Connection, out: shmbroker.Queue, batch: staging.names.Batch, settings: dict[str, Any]
) -> None:
    """Again, with the same attempts or others, nothing is; what was staged for it is dropped."""
    stage = Stage(connection, "query", **settings)
    receipt = staged(stage, batch, 0, b"a", b"b")
    assert not stage.is_published(batch)
    assert stage.publish(batch, [receipt], "out") == 2
    assert stage.is_published(batch)
    assert stage.publish(batch, [receipt], "out") == 0
    again = staged(Stage(connection, "query"), batch, 0, b"a", b"b")
    assert stage.publish(batch, [again], "out") == 0
    assert bodies(out) == [b"a", b"b"]
    assert stages(connection) == []


@pytest.mark.parametrize("settings", LARGE)
def test_numbers_that_hold_for_a_target(
    connection: shmbroker.Connection, out: shmbroker.Queue, settings: dict[str, Any]
) -> None:
    """A queue that is deleted and made anew gets its batches from the first one on; others of the name did not."""
    stage, plain = Stage(connection, "query", **settings, per_target=True), Stage(connection, "plain", **settings)
    for life in range(2):
        for one in (stage, plain):
            for batch in (0, 1, 1, 0):
                one.publish(batch, [staged(one, batch, 0, b"%d" % batch)], "out")
        assert bodies(connection.queue("out", passive=True)) == [b"0", b"1"] * (2 - life)
        assert stages(connection) == []
        out.delete()
        with pytest.raises(shmbroker.NotFound, match="no queue 'out'"):
            stage.publish(1, [staged(stage, 1, 0, b"1")], "out")
        stage.drop(1)
        out = connection.queue("out")


def test_what_holds_for_a_queue_ends_with_it(connection: shmbroker.Connection, out: shmbroker.Queue) -> None:
    """The next publication of that kind deletes what says what was published to queues that are gone, and only that."""

    def publish(name: str, to: str, *, per_target: bool = True) -> None:
        one = Stage(connection, name, per_target=per_target)
        one.publish(one.published or 0, [staged(one, 0, 0, b"x")], to)

    def markers() -> set[str]:
        found = (name for name in internal(connection) if ".marker." in name)
        return {name.rpartition(".")[2] for name in found}

    connection.queue("stays")
    publish("first", "out")
    publish("second", "stays")
    publish("busy", "out")
    publish("any", "out", per_target=False)
    assert markers() == {"first", "second", "busy", "any"}
    out.delete()
    held = connection.queue("amq.stage.marker.busy", passive=True).get(timeout=0)
    publish("second", "stays")
    assert markers() == {"first", "second", "busy", "any"}  # not with each batch
    publish("third", "stays")
    assert markers() == {"second", "third", "busy", "any"}
    held.give_back()
    connection.queue("out")
    publish("second", "out")
    assert markers() == {"second", "third", "any"}
    assert Stage(connection, "third").published == 0


def test_a_batch_that_was_begun_for_a_queue_that_is_gone(
    connection: shmbroker.Connection, out: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next queue of the name does not get the rest of it, where numbers hold for the target."""
    stage = Stage(connection, "query", at_once=1, per_target=True)
    receipt = staged(stage, 0, 0, b"a", b"b")
    with monkeypatch.context() as killed:
        killed.setattr(staging.publishing.Publisher, "finish", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            stage.publish(0, [receipt], "out")
    out.delete()
    out = connection.queue("out")
    assert stage.publish(0, [staged(stage, 0, 0, b"c", b"d")], "out") == 2
    assert bodies(out) == [b"c", b"d"]


def test_batches_of_a_stream_grow(stage: Stage, out: shmbroker.Queue, connection: shmbroker.Connection) -> None:
    """One that is not above the last one was published; what is left of it is dropped, later ones and jobs are not."""
    assert stage.published is None
    left = {batch: staged(stage, batch, 0, b"%d" % batch) for batch in (1, 2, 3)}
    job = staged(stage, JOB, 0, b"job")
    assert stage.publish(2, [left[2]], "out") == 1
    assert {one.batch for one in stages(connection)} == {3, JOB}
    assert stage.publish(1, [left[1]], "out") == 0
    assert stage.publish(JOB, [job], "out") == 1
    assert stage.publish(3, [left[3]], "out") == 1
    assert bodies(out) == [b"2", b"job", b"3"]
    assert stage.published == 3
    assert stage.is_published(JOB)


@pytest.mark.parametrize("settings", LARGE)
def test_options_survive(connection: shmbroker.Connection, out: shmbroker.Queue, settings: dict[str, Any]) -> None:
    """Key, headers, properties and priority, of short bodies and of long ones; they are not those of the neighbour."""
    stage = Stage(connection, "query", **settings)
    properties = shmbroker.BasicProperties(content_type="text/plain", message_id="7")
    with stage.attempt(0, 0, 0) as writer:
        writer.put(b"plain")
        writer.put(b"full", key="k", headers={"a": [1, "x"]}, priority=9, properties=properties)
        writer.put(b"long" * 2000, key="k2", headers={"b": 2})
        writer.put_many([b"same", b"same"], key="k3", priority=1)
        writer.put(b"last")
    assert stage.publish(0, [writer.receipt], "out") == 6
    found = [(one.key, one.headers, one.priority, one.properties.message_id, one.exchange) for one in out.browse()]
    assert found == [
        (None, {}, 0, None, ""),
        ("k", {"a": [1, "x"]}, 9, "7", ""),
        ("k2", {"b": 2}, 0, None, ""),
        ("k3", {}, 1, None, ""),
        ("k3", {}, 1, None, ""),
        (None, {}, 0, None, ""),
    ]


@pytest.mark.parametrize("settings", LARGE)
def test_times_count_from_publishing(
    connection: shmbroker.Connection, out: shmbroker.Queue, settings: dict[str, Any]
) -> None:
    """What is staged neither expires nor waits: time to live and delay begin when it is published."""
    stage = Stage(connection, "query", **settings)
    with stage.attempt(0, 0, 0) as writer:
        writer.put(b"short", ttl=1e-6)
        writer.put(b"late", delay=3600)
        writer.put_many([b"long"], ttl=3600, key="k")
        writer.put(b"expiration", properties=shmbroker.BasicProperties(expiration="3600000"))
        writer.put(b"plain")
    assert [one.count for one in stages(connection)] == [5]
    assert stage.publish(0, [writer.receipt], "out") == 5
    assert out.statistics().scheduled == 1
    found = {bytes(one): one for one in out.get_many(9)}
    assert found.keys() == {b"long", b"expiration", b"plain"}
    assert found[b"plain"].expires_at is None
    assert found[b"long"].key == "k"
    for body in (b"long", b"expiration"):
        assert found[body].expires_at is not None


def test_publishers_wait_for_each_other(stage: Stage, connection: shmbroker.Connection) -> None:
    """One publishes at a time; who waits too long is told so, and so is who asks what was published."""
    out = connection.queue("out", max_length=1)
    out.put(b"x")
    receipts = [staged(stage, batch, 0, b"%d" % batch) for batch in range(2)]
    first = threading.Thread(target=lambda: stage.publish(0, [receipts[0]], "out"))
    marker = "amq.stage.marker.query"
    first.start()
    while marker not in internal(connection) or connection.queue(marker).statistics().delivering == 0:
        pass
    with pytest.raises(shmbroker.Timeout, match="publication 'query': another client is publishing"):
        stage.publish(1, [receipts[1]], "out", timeout=0)
    with pytest.raises(shmbroker.Timeout):
        stage.drop(1, timeout=0)
    out.purge()
    first.join()
    assert bodies(out) == [b"0"]
    assert stage.published == 0


def test_an_interrupt_returns_what_was_taken(
    stage: Stage, connection: shmbroker.Connection, out: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit nothing happened; after it everything did, and nobody's messages are touched."""
    from shmbroker.staging import fresh  # noqa: PLC0415

    commit = fresh.commit_waiting
    receipt = staged(stage, 0, 0, b"a", b"b" * 9000)
    others = connection.queue("others")
    others.put_many([b"x"] * 9)
    held: list[shmbroker.MessageBatch] = []

    def before(*_: object) -> None:
        raise KeyboardInterrupt

    def after(*arguments: Any) -> None:  # noqa: ANN401
        commit(*arguments)
        held.append(others.get_many(9))  # under the numbers that have just become free
        raise KeyboardInterrupt

    monkeypatch.setattr(fresh, "commit_waiting", before)
    with pytest.raises(KeyboardInterrupt):
        stage.publish(0, [receipt], "out")
    assert stage.published is None
    assert [one.count for one in stages(connection)] == [2]
    monkeypatch.setattr(fresh, "commit_waiting", after)
    with pytest.raises(KeyboardInterrupt):
        stage.publish(0, [receipt], "out")
    assert stage.published == 0
    assert bodies(out) == [b"a", b"b" * 9000]
    assert others.statistics().delivering == 9
    monkeypatch.undo()
    assert stage.publish(0, [receipt], "out") == 0


@pytest.mark.parametrize(("at_once", "ttl"), [(100, None), (1, None), (1, 3600)], ids=["at once", "moved", "anew"])
def test_an_error_holds_nothing(connection: shmbroker.Connection, at_once: int, ttl: float | None) -> None:
    """What is staged and the marker are ready again while the error, with its traceback, lives on."""
    connection.queue("out", max_length=2).put(b"x")
    stage = Stage(connection, "query", at_once=at_once)
    receipt = staged(stage, 0, 0, b"a", bytes(5000), ttl=ttl)
    with pytest.raises(standard_queue.Full) as caught:
        stage.publish(0, [receipt], "out", timeout=0)
    assert [one.name for one in connection.queue_statistics(all=True) if one.delivering] == []
    assert caught.tb is not None


# Publishes to a queue that is full, interrupted wherever a signal's handler may raise. The program lives on.
REFUSED_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from queue import Full
    from shmbroker.staging import Stage

    def refused():
        try:
            stage.publish(0, [writer.receipt], "out", timeout=0)
        except Full:
            pass

    name, at_once, ttl = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    other, connection = shmbroker.connect(name, create=False), shmbroker.connect(name, create=False)
    other.queue("out", max_length=2).put(b"x")
    stage = Stage(connection, "query", at_once=at_once)
    with stage.attempt(0, 0, 0) as writer:
        writer.put_many([b"a", bytes(5000)], ttl=ttl or None)
    refused()
    number, more, held = 0, True, []
    while more and not held:
        more = signalled_at(number, refused)
        held = [one.name for one in other.queue_statistics(all=True) if one.delivering]
        number += 1
    other.queue("out").purge()
    print(json.dumps([number, held, held or stage.publish(0, [writer.receipt], "out", timeout=0)]))
"""


@pytest.mark.parametrize(
    ("at_once", "ttl", "left"), [(100, 0, 2), (1, 0, 1), (1, 3600, 1)], ids=["at once", "moved", "anew"]
)
def test_an_interrupted_publish_that_finds_no_room_holds_nothing(
    broker_name: str, at_once: int, ttl: float, left: int
) -> None:
    """Wherever a signal's handler raises: what is staged and the marker are ready, and the connection can go on."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(REFUSED_WHERE_SIGNALS_COME, broker.name, str(at_once), str(ttl))
    assert done.returncode == 0, done.stderr
    number, held, published = json.loads(done.stdout)
    assert number > 100
    assert (held, published) == ([], left)


def test_a_publication_is_founded_once(connection: shmbroker.Connection, broker_name: str) -> None:
    """Of several who ask for what was published first, one makes the marker."""
    start = threading.Barrier(3)

    def ask() -> None:
        with shmbroker.connect(broker_name, create=False) as mine:
            for number in range(50):
                start.wait()
                assert Stage(mine, f"query{number}").published is None

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    facts = connection.queue_statistics(all=True)
    assert [(one.added, one.ready) for one in facts] == [(1, 1)] * 50


def test_the_last_jobs_are_remembered(stage: Stage, out: shmbroker.Queue) -> None:
    """As many as the marker has room for; the others are gone, so they cannot be published a second time either."""
    receipts = []
    for number in range(staging.publication.JOBS + 1):
        receipts.append(staged(stage, uuid.UUID(int=number), 0, b"x"))
        assert stage.publish(uuid.UUID(int=number), receipts[-1:], "out") == 1
    assert stage.publish(uuid.UUID(int=1), [receipts[1]], "out") == 0
    with pytest.raises(shmbroker.NotStaged):
        stage.publish(uuid.UUID(int=0), [receipts[0]], "out")
    assert len(out) == staging.publication.JOBS + 1
