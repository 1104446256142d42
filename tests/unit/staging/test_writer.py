# SPDX-License-Identifier: Apache-2.0
"""What a writer counts, refuses, keeps alive and closes."""

from __future__ import annotations

import array
import types
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.staging import bodies, internal

import shmbroker
import shmbroker.testing
from shmbroker._core import native
from shmbroker.columns import Columns
from shmbroker.staging import Receipt, Stage, stages, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.queue import CoreQueue


def attempts(connection: shmbroker.Connection) -> list[str]:
    """The queues of attempts."""
    return [name for name in internal(connection) if ".attempt." in name]


def columns_of(*texts: bytes) -> Columns:
    """A column of bodies."""
    ends, columns = array.array("i", [0]), Columns()
    for text in texts:
        ends.append(ends[-1] + len(text))
    columns.set_text("body", ends, b"".join(texts))
    return columns


# ---- the block ----


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"ttl": 60}, {"delay": 60}, {"ttl": 60, "delay": 60}])
@pytest.mark.parametrize("way", ["put", "put_many", "reserve"])
def test_the_receipt(stage: Stage, way: str, options: dict[str, Any]) -> None:
    """Names the attempt with its token, counts messages and bytes, and says whether one has a time."""
    with stage.attempt(3, 1, 4) as written:
        if way == "put":
            written.put(b"abc", **options)
        elif way == "put_many":
            written.put_many([b"abc"], **options)
        else:
            with written.reserve(3, **options) as memory:
                memory[:] = b"abc"
        written.put(b"d")
    token = written.receipt.token
    assert len(bytes.fromhex(token)) == 6
    assert written.receipt == Receipt(
        3, 1, 4, count=2, bytes=4, token=token, timed=bool({"ttl", "delay"} & set(options))
    )


def test_an_attempt_has_a_queue_of_its_token(connection: shmbroker.Connection) -> None:
    """The block makes it, with the life that the stage says; its handle closes with the block."""
    with Stage(connection, "query", expires=4.0).attempt(3, 1, 4) as written:
        (name,) = attempts(connection)
        queue = connection.queue(name, passive=True)
        assert queue.settings.expires == 4.0
    assert name == f"amq.stage.attempt.3.1.4.{written.receipt.token}.query"
    with pytest.raises(shmbroker.ConnectionClosed):
        len(queue)
    with Stage(connection, "query").attempt(0, 0, 0):
        assert connection.queue(attempts(connection)[0], passive=True).settings.expires is None


def test_a_block_that_raises_closes_its_handle(stage: Stage, connection: shmbroker.Connection) -> None:
    """Its error comes out, also where the queue of the attempt is gone by then."""
    handles = []
    for is_gone in (False, True):
        with pytest.raises(ZeroDivisionError), stage.attempt(0, 0, 0):  # noqa: PT012 - its block raises
            handles.append(connection.queue(attempts(connection)[0], passive=True))
            if is_gone:
                assert stage.drop(0) == 1
            raise ZeroDivisionError
    for handle in handles:
        with pytest.raises(shmbroker.ConnectionClosed):
            len(handle)


def test_a_block_begins_once(stage: Stage, connection: shmbroker.Connection) -> None:
    """Not within itself, and not again when it is complete."""
    written = stage.attempt(0, 0, 0)
    with (
        written,
        pytest.raises(
            RuntimeError,
            match="attempt 0 at partition 0 of batch 0 of 'query' has already begun: a writer has one `with` block",
        ),
    ):
        written.__enter__()
    with pytest.raises(RuntimeError, match="already begun"):
        written.__enter__()
    assert [one.count for one in stages(connection)] == [0]


def test_a_queue_that_goes_before_it_is_open(
    stage: Stage, connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is not wanted; no other queue is made in its place."""
    monkeypatch.setattr(writer, "declare", lambda *_, **__: True)
    with pytest.raises(shmbroker.NotStaged, match="the batch was published or dropped meanwhile"):
        stage.attempt(0, 0, 0).__enter__()
    assert attempts(connection) == []


def test_an_attempt_of_which_messages_are_missing(stage: Stage, connection: shmbroker.Connection) -> None:
    """Is not complete: both numbers are named, there is no receipt, and the handle is closed."""
    written = stage.attempt(0, 2, 1)
    with (  # noqa: PT012 - its block raises
        pytest.raises(
            shmbroker.NotStaged,
            match="attempt 1 at partition 2 of batch 0 of 'query': 2 messages were staged, but 1 exist",
        ),
        written,
    ):
        written.put_many([b"a", b"b"])
        queue = connection.queue(attempts(connection)[0], passive=True)
        queue.get(timeout=0, auto_ack=True)
    with pytest.raises(RuntimeError, match="not complete"):
        written.receipt  # noqa: B018
    with pytest.raises(shmbroker.ConnectionClosed):
        len(queue)


def test_a_job_that_is_dropped_while_it_is_staged(stage: Stage, connection: shmbroker.Connection) -> None:
    """Its attempt that is made after the sweep is refused at its end, and its queue goes."""
    job = uuid.UUID(int=5)
    stage.drop(job)
    written = stage.attempt(job, 0, 0)
    with pytest.raises(shmbroker.NotStaged, match="published or dropped meanwhile"), written:
        written.put(b"x")
    assert attempts(connection) == []
    with pytest.raises(RuntimeError, match="not complete"):
        written.receipt  # noqa: B018


def test_what_a_writer_looks_like(stage: Stage) -> None:
    """Which attempt it is, how far it is, and how many messages it has staged."""
    written = stage.attempt(7, 1, 2)
    attempt = "<Writer of attempt 2 at partition 1 of batch 7 of 'query'"
    assert repr(written) == f"{attempt}, not begun, 0 messages>"
    with written:
        written.put_many([b"a", b"b"])
        assert repr(written) == f"{attempt}, open, 2 messages>"
    assert repr(written) == f"{attempt}, complete, 2 messages>"


@pytest.mark.parametrize(
    "use",
    [
        lambda one: one.put(b"x"),
        lambda one: one.put_many([b"x"]),
        lambda one: one.put_columns(columns_of(b"x"), 1),
        lambda one: one.reserve(1).__enter__(),
    ],
    ids=["put", "put_many", "put_columns", "reserve"],
)
def test_nothing_is_staged_outside_the_block(stage: Stage, use: Callable[[writer.Writer], object]) -> None:
    """Neither before nor after it; nor when the attempt was dropped in between, which has an error of its own."""
    written = stage.attempt(0, 0, 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="messages are staged in its `with` block"):
            use(written)
        if not written.count:
            with written:
                written.put(b"x")
    late = stage.attempt(1, 0, 0)
    with pytest.raises(shmbroker.NotStaged, match="meanwhile"), late:  # noqa: PT012 - its block raises
        stage.drop(1)
        use(late)
    assert (written.count, late.count, late.bytes) == (1, 0, 0)


# ---- staging ----


def test_bodies_in_columns(stage: Stage, out: shmbroker.Queue) -> None:
    """As many rows as are asked for are staged, and counted with their bodies."""
    with stage.attempt(0, 0, 0) as written:
        written.put(b"first")
        written.put_columns(columns_of(b"ab", b"", b"cde", b"f"), 3)
        assert (written.count, written.bytes) == (4, 10)
        written.put_columns(columns_of(b"ab"), 0)
        assert (written.count, written.bytes) == (4, 10)
    assert stage.publish(0, [written.receipt], "out") == 4
    assert bodies(out) == [b"first", b"ab", b"", b"cde"]


def test_columns_that_go_in_parts(stage: Stage, out: shmbroker.Queue) -> None:
    """Where not all rows find room together the next ones follow, until the same deadline."""
    asked = []

    class Slow(Columns):
        def _put(self, queue: CoreQueue, row: int, count: int, until: int) -> int:
            asked.append((row, count, until))
            return super()._put(queue, row, min(count, 2), until)

    ends, columns = array.array("i", [0, 1, 3, 6, 10, 15]), Slow()
    columns.set_text("body", ends, b"abbcccddddeeeee")
    with stage.attempt(0, 0, 0) as written:
        written.put_columns(columns, 5)
        assert (written.count, written.bytes) == (5, 15)
    assert asked == [(0, 5, native.FOR_EVER), (2, 3, native.FOR_EVER), (4, 1, native.FOR_EVER)]
    assert stage.publish(0, [written.receipt], "out") == 5
    assert bodies(out) == [b"a", b"bb", b"ccc", b"dddd", b"eeeee"]


def test_options_of_all_ways_arrive(stage: Stage, out: shmbroker.Queue) -> None:
    """Of a message alone, of many, and of one that is written in place."""
    with stage.attempt(0, 0, 0) as written:
        written.put(b"a", key="1", priority=3)
        written.put_many([b"b", b"c"], key="2", ttl=3600)
        with written.reserve(1, key="3") as memory:
            memory[:] = b"d"
    assert stage.publish(0, [written.receipt], "out") == 4
    found = [(bytes(one), one.key, one.priority, one.expires_at is not None) for one in out.browse()]
    assert found == [(b"a", "1", 3, False), (b"b", "2", 0, True), (b"c", "2", 0, True), (b"d", "3", 0, False)]


def test_many_that_are_refused_are_not_begun(stage: Stage) -> None:
    """One body that is none, or an option that is not allowed: nothing of the call is staged. None is nothing."""
    with stage.attempt(0, 0, 0) as written:
        with pytest.raises(TypeError, match="bytes-like"):
            written.put_many([b"a", "b"])
        with pytest.raises(ValueError, match="priority"):
            written.put_many([b"a"], priority=256)
        assert written.put_many([]) == 0
        assert written.put_many(iter([]), ttl=1) == 0
        assert (written.count, written.bytes) == (0, 0)


def test_a_reservation_that_raises_counts_nothing(stage: Stage) -> None:
    """Nor does one of a size that is not allowed. One of no bytes is a message."""
    with stage.attempt(0, 0, 0) as written:
        with pytest.raises(ZeroDivisionError), written.reserve(1_000):
            raise ZeroDivisionError
        with pytest.raises(ValueError, match="size=-1"), written.reserve(-1):
            pass
        assert (written.count, written.bytes) == (0, 0)
        with written.reserve(0):
            pass
        assert (written.count, written.bytes) == (1, 0)


def test_a_reservation_that_comes_too_late_ends(stage: Stage, connection: shmbroker.Connection) -> None:
    """The connection can close although the error lives on: the reservation is no call of it any more."""
    written = stage.attempt(0, 0, 0)
    written.__enter__()
    before = core_of(connection).calls
    with pytest.raises(shmbroker.NotStaged, match="meanwhile") as caught, written.reserve(1_000):
        stage.drop(0)
    assert caught.tb is not None
    assert core_of(connection).calls == before
    with pytest.raises(shmbroker.NotStaged):
        written.__exit__(None, None, None)


WAYS: list[Callable[[writer.Writer, bytes], object]] = [
    lambda one, body: one.put(body, timeout=0),
    lambda one, body: one.put(body, timeout=0, key="k"),
    lambda one, body: one.put_many([body], timeout=0),
    lambda one, body: one.put_many([body], timeout=0, ttl=60),
    lambda one, body: one.put_columns(columns_of(body), 1, timeout=0),
    lambda one, body: one.reserve(len(body), timeout=0).__enter__(),
]


@pytest.fixture(scope="module")
def body() -> bytes:
    """A body that fits three times into the smallest broker, and not often."""
    return bytes(4_000_000)


def test_without_memory_a_put_does_not_wait_longer_than_it_may(broker_name: str, body: bytes) -> None:
    """However it stages. What was staged before is counted, and that much is there."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        stage = Stage(connection, "jobs")
        with pytest.raises(shmbroker.OutOfMemory), stage.attempt(0, 0, 0) as written:  # noqa: PT012 - its block raises
            with pytest.raises(shmbroker.OutOfMemory):
                written.put_many([body] * 9, timeout=0)
            (found,) = stages(connection)
            assert (found.count, found.bytes) == (written.count, written.bytes)
            assert written.bytes == written.count * len(body) > 0
            for way in WAYS:
                with pytest.raises(shmbroker.OutOfMemory):
                    way(written, body)
            assert (found.count, found.bytes) == (written.count, written.bytes)
            written.put(body, timeout=0)
        assert stages(connection) == []


# ---- attempts that expire ----


def test_an_attempt_that_is_written_does_not_expire(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is used with the first message, and then with the first one after a quarter of the time each."""
    clock, touched = [0.25], list[int]()
    monkeypatch.setattr(writer, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(core_of(connection), "touch", touched.append)
    with Stage(connection, "query", expires=4.0).attempt(0, 0, 0) as written:
        slot, seen = core_of(connection.queue(attempts(connection)[0], passive=True)).slot, []
        touched.clear()  # to open a queue is to use it
        for now in (0.25, 1.25, 1.5, 1.75, 2.5, 3.0):
            clock[0] = now
            written.put(b"x")
            seen.append(len(touched))
    assert seen == [1, 1, 2, 2, 2, 3]
    assert touched == [slot] * 3
    with Stage(connection, "query").attempt(0, 0, 0) as for_ever:
        touched.clear()
        for_ever.put(b"x")
    assert touched == []
