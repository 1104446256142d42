# SPDX-License-Identifier: Apache-2.0
"""Staged batches: nobody sees them until they are published, and each is published once."""

from __future__ import annotations

import pickle
import queue as standard_queue
import threading
import uuid
from typing import Any

import pytest

import shmbroker
import shmbroker.testing
from shmbroker import staging
from shmbroker.staging import Receipt, Stage, StageInfo, stages

LARGE = [{"at_once": 100}, {"at_once": 1}, {"bytes_at_once": 1}]
"""Settings of stages that publish a batch at once, and message by message."""
JOB = uuid.UUID(int=7)


@pytest.fixture
def out(connection: shmbroker.Connection) -> shmbroker.Queue:
    """A target."""
    return connection.queue("out")


@pytest.fixture
def stage(connection: shmbroker.Connection) -> Stage:
    """A stage."""
    return Stage(connection, "query")


def staged(stage: Stage, batch: staging.names.Batch, partition: int, *bodies: bytes, **options: Any) -> Receipt:  # noqa: ANN401
    """A partition, staged."""
    with stage.attempt(batch, partition, 0) as writer:
        writer.put_many(bodies, **options)
    return writer.receipt


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """What is ready."""
    return [bytes(message) for message in queue.browse()]


def internal(connection: shmbroker.Connection) -> list[str]:
    """The broker's own queues."""
    return sorted(set(connection.queue_names(all=True)) - set(connection.queue_names()))


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
    with pytest.raises(RuntimeError, match="begun already"):
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


def test_without_memory_all_stays_staged(broker_name: str) -> None:
    """Bodies are there twice while they are published at once. What is too large for that is moved."""
    with shmbroker.testing.broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        out = connection.queue("out")
        stage = Stage(connection, "query", bytes_at_once="1G")
        receipt = staged(stage, 0, 0, *(bytes(1_000_000) for _ in range(40)))
        with pytest.raises(shmbroker.OutOfMemory):
            stage.publish(0, [receipt], "out", timeout=0)
        assert len(out) == 0
        assert [one.count for one in stages(connection)] == [40]
        used = connection.core.attachment.facts(with_memory=True).memory_used
        assert Stage(connection, "query").publish(0, [receipt], "out", timeout=0) == 40
        assert connection.core.attachment.facts(with_memory=True).memory_used <= used + 4_000_000
        with pytest.raises(shmbroker.OutOfMemory), stage.attempt(1, 0, 0) as writer:
            writer.put_many((bytes(1_000_000) for _ in range(40)), timeout=0)
        assert stages(connection) == []


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
    stage = Stage(connection, "query", expires=0.05)
    receipt = staged(stage, 0, 0, b"a")
    until = threading.Event()
    while stages(connection):
        until.wait(0.01)
    with pytest.raises(shmbroker.NotStaged):
        stage.publish(0, [receipt], "out")
    assert len(out) == 0


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
    with pytest.raises(shmbroker.Timeout, match="publication 'query': somebody else is publishing"):
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
    from shmbroker.staging import marker  # noqa: PLC0415

    commit = marker.commit_waiting
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

    monkeypatch.setattr(marker, "commit_waiting", before)
    with pytest.raises(KeyboardInterrupt):
        stage.publish(0, [receipt], "out")
    assert stage.published is None
    assert [one.count for one in stages(connection)] == [2]
    monkeypatch.setattr(marker, "commit_waiting", after)
    with pytest.raises(KeyboardInterrupt):
        stage.publish(0, [receipt], "out")
    assert stage.published == 0
    assert bodies(out) == [b"a", b"b" * 9000]
    assert others.statistics().delivering == 9
    monkeypatch.undo()
    assert stage.publish(0, [receipt], "out") == 0


def test_a_stage_that_is_deleted_meanwhile(
    stage: Stage, connection: shmbroker.Connection, out: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who knows no stages: all of it is published, or nothing is."""
    from shmbroker.staging import marker  # noqa: PLC0415

    commit = marker.commit_waiting
    receipt = staged(stage, 0, 0, b"a", b"b" * 9000)

    def deleted_before(*arguments: Any) -> None:  # noqa: ANN401
        connection.queue(next(name for name in internal(connection) if ".attempt." in name)).delete()
        commit(*arguments)

    monkeypatch.setattr(marker, "commit_waiting", deleted_before)
    try:
        assert stage.publish(0, [receipt], "out") == 2
    except shmbroker.NotStaged:
        assert bodies(out) == []
        assert stage.published is None
    else:
        assert bodies(out) == [b"a", b"b" * 9000]


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


@pytest.mark.parametrize("name", ["", "x" * 101, "\0", "\ud800", "\u20ac" * 60])
def test_names_that_are_refused(connection: shmbroker.Connection, name: str) -> None:
    """A publication has 1 to 100 characters."""
    with pytest.raises(ValueError, match="1 to 100 characters"):
        Stage(connection, name)


@pytest.mark.parametrize("name", ["x" * 100, "a.b/c", "é" * 75, "7.0.0.x.query"])
def test_names_that_are_taken(connection: shmbroker.Connection, name: str, out: shmbroker.Queue) -> None:
    """Whatever they look like, with the longest numbers."""
    stage = Stage(connection, name)
    jobs = [(2**63 - 1, 2**31 - 1, 2**63 - 1), (uuid.UUID(int=2**128 - 1), 2**31 - 1, 2**63 - 1)]
    for batch, partition, attempt in jobs:
        with stage.attempt(batch, partition, attempt) as writer:
            writer.put(b"x")
        assert stages(connection) == [StageInfo(name, batch, partition, attempt, 1, 1)]
        assert stage.publish(batch, [writer.receipt], "out") == 1
    assert len(out) == 2
    assert repr(name) in repr(stage)
    assert "complete, 1 messages" in repr(writer)


def test_bad_arguments(stage: Stage, out: shmbroker.Queue) -> None:
    """Are refused before anything happens, with their names."""
    receipt, same = staged(stage, 0, 0, b"x"), staged(stage, 0, 0, b"x")
    for batch, error in ((-1, ValueError), (2**63, ValueError), (True, TypeError), ("7", TypeError)):
        with pytest.raises(error, match="batch="):
            stage.attempt(batch, 0, 0)
    with pytest.raises(ValueError, match="partition=-1"):
        stage.attempt(0, -1, 0)
    with pytest.raises(TypeError, match=r"attempt=1\.0"):
        stage.attempt(0, 0, 1.0)
    with pytest.raises(ValueError, match="two of one partition"):
        stage.publish(0, [receipt, same], "out")
    with pytest.raises(ValueError, match="not of batch 1"):
        stage.publish(1, [receipt], "out")
    with pytest.raises(TypeError, match="no receipt"):
        stage.publish(0, [(0, 0)], "out")
    with pytest.raises(TypeError, match="name of a queue"):
        stage.publish(0, [receipt], out)
    with pytest.raises(ValueError, match="broker's own"):
        stage.publish(0, [receipt], "amq.stage.marker.query")
    with pytest.raises(shmbroker.NotFound):
        stage.publish(0, [receipt], "nowhere")
    with pytest.raises(TypeError):
        Stage(stage, 7)  # type: ignore[arg-type]
    assert stage.publish(0, [receipt], "out") == 1


def test_the_last_jobs_are_remembered(stage: Stage, out: shmbroker.Queue) -> None:
    """As many as the marker has room for; the others are gone, so they cannot be published a second time either."""
    receipts = []
    for number in range(staging.state.JOBS + 1):
        receipts.append(staged(stage, uuid.UUID(int=number), 0, b"x"))
        assert stage.publish(uuid.UUID(int=number), receipts[-1:], "out") == 1
    assert stage.publish(uuid.UUID(int=1), [receipts[1]], "out") == 0
    with pytest.raises(shmbroker.NotStaged):
        stage.publish(uuid.UUID(int=0), [receipts[0]], "out")
    assert len(out) == staging.state.JOBS + 1
