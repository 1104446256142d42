# SPDX-License-Identifier: Apache-2.0
"""How a publisher gets a batch to its target: what it looks at before, what it keeps, copies and moves."""

from __future__ import annotations

import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.staging import bodies, internal, staged

import shmbroker
from shmbroker import exceptions
from shmbroker._core import native
from shmbroker.staging import Stage, fresh, stages
from shmbroker.staging import publishing as module
from shmbroker.staging.marker import Held, Marker
from shmbroker.staging.publication import Begun
from shmbroker.staging.publishing import Publisher
from shmbroker.staging.staged_attempt import StagedAttempt
from shmbroker.staging.transaction import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker.staging import Receipt


@pytest.fixture
def held(connection: shmbroker.Connection) -> Iterator[Held]:
    """The marker of publication "query"."""
    with Marker(connection, "query").held(native.deadline(None)) as mine:
        yield mine


@pytest.fixture
def small(connection: shmbroker.Connection) -> Stage:
    """A stage that moves what is more than one message."""
    return Stage(connection, "query", at_once=1)


def publisher(connection: shmbroker.Connection, messages: int = 100, timeout: float | None = 0) -> Publisher:
    """One that publishes so many at once."""
    return Publisher(connection, "query", Limits(messages, 10**6), native.deadline(timeout))


def attempt_queue(connection: shmbroker.Connection) -> shmbroker.Queue:
    """The queue of the one attempt that there is."""
    return connection.queue(next(name for name in internal(connection) if ".attempt." in name), passive=True)


def kill_at_finish(monkeypatch: pytest.MonkeyPatch, stage: Stage, receipt: Receipt) -> None:
    """A publisher is killed when it has begun its batch."""
    with monkeypatch.context() as killed:
        killed.setattr(Publisher, "finish", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            stage.publish(receipt.batch, [receipt], "out")


@pytest.mark.usefixtures("out")
@pytest.mark.parametrize("at_once", [1, 100])
def test_an_attempt_that_lacks_a_message(connection: shmbroker.Connection, at_once: int) -> None:
    """Nothing of its batch is published."""
    stage = Stage(connection, "query", at_once=at_once)
    receipt = staged(stage, 0, 0, b"a", b"b", b"c")
    attempt_queue(connection).get(auto_ack=True)
    with pytest.raises(exceptions.NotStaged, match="3 messages were staged, but 2 exist"):
        stage.publish(0, [receipt], "out")
    assert bodies(connection.queue("out")) == []
    assert stage.published is None


@pytest.mark.usefixtures("out")
def test_an_empty_attempt_is_not_needed(connection: shmbroker.Connection, stage: Stage) -> None:
    """It may be gone."""
    empty = staged(stage, 0, 0)
    attempt_queue(connection).delete()
    assert stage.publish(0, [empty, staged(stage, 0, 1, b"a")], "out") == 1


@pytest.mark.usefixtures("out")
def test_what_has_begun_does_not_expire(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it is needed."""
    stage = Stage(connection, "query", expires=3600, at_once=1)
    receipt = staged(stage, 0, 0, b"a", b"b")
    assert attempt_queue(connection).settings.expires == 3600
    kill_at_finish(monkeypatch, stage, receipt)
    assert attempt_queue(connection).settings.expires is None


def test_a_target_that_was_made_anew_gets_nothing(
    connection: shmbroker.Connection, out: shmbroker.Queue, held: Held, stage: Stage
) -> None:
    """The marker holds for the queue that it was asked about."""
    wanted = Begun(0, "out", (staged(stage, 0, 0, b"a", b"b"),))
    out.delete()
    connection.queue("out")
    for run in (publisher(connection).publish_or_begin, publisher(connection).finish):
        with pytest.raises(exceptions.NotFound, match="'out'"):
            run(held, wanted, out)
    assert bodies(connection.queue("out")) == []
    assert [one.count for one in stages(connection)] == [2]


def test_a_target_that_is_gone_is_not_made(
    connection: shmbroker.Connection, out: shmbroker.Queue, small: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when a batch begins, nor when it is finished."""
    receipt = staged(small, 0, 0, b"a", b"b")
    kill_at_finish(monkeypatch, small, receipt)
    out.delete()
    for stage in (small, Stage(connection, "another")):
        with pytest.raises(exceptions.NotFound, match="no queue 'out'"):
            stage.publish(0, [receipt] if stage is small else [staged(stage, 0, 0, b"x")], "out")
    assert connection.queue_names() == []


@pytest.mark.parametrize(
    ("settings", "length", "fits"),
    [
        ({"max_bytes": 5}, 5, True),
        ({"max_bytes": 5}, 6, False),
        ({"max_bytes": 5, "overflow": "drop"}, 6, False),
        ({"max_bytes": 5, "overflow": "drop-head"}, 6, True),
        ({}, 9000, True),
    ],
)
def test_bodies_that_can_never_fit(
    connection: shmbroker.Connection, stage: Stage, settings: dict[str, Any], length: int, *, fits: bool
) -> None:
    """They are refused before their batch begins; a queue that drops from its head takes any."""
    target = connection.queue("limited", **settings)
    receipt = staged(stage, 0, 0, b"", bytes(length))
    source = StagedAttempt(connection, "query", receipt)
    if fits:
        publisher(connection)._check_bodies([source], target)  # noqa: SLF001 - what follows would wait for room
    else:
        with pytest.raises(standard_queue.Full, match=f"'limited': a body of {length} bytes can never fit"):
            publisher(connection)._check_bodies([source], target)  # noqa: SLF001


@pytest.mark.parametrize("settings", [{}, {"max_bytes": 5}, {"max_bytes": 5, "overflow": "drop"}])
def test_a_batch_without_messages_waits_for_memory_for_its_marker(
    connection: shmbroker.Connection, stage: Stage, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Whatever the target limits: no body has to fit. Once there is memory, the batch is published."""
    connection.queue("limited", **settings)
    receipt = staged(stage, 0, 0)

    def fail(*_: object) -> None:
        raise exceptions.OutOfMemory

    with monkeypatch.context() as full:
        full.setattr(fresh, "commit_waiting", fail)
        with pytest.raises(exceptions.OutOfMemory):
            stage.publish(0, [receipt], "limited", timeout=0)
    assert stage.published is None
    assert stage.publish(0, [receipt], "limited", timeout=0) == 0
    assert stage.published == 0


@pytest.mark.parametrize(("timeout", "most"), [(None, 1.0), (3600, 1.0), (0, 0.0)])
def test_memory_is_waited_for_a_second(
    connection: shmbroker.Connection,
    out: shmbroker.Queue,
    held: Held,
    stage: Stage,
    *,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float | None,
    most: float,
) -> None:
    """To publish a batch at once, and no longer than for all: without memory it is moved. For room the time is all."""
    seen: list[tuple[int, int | None]] = []

    def commit(*arguments: Any) -> None:  # noqa: ANN401
        seen.append(arguments[3:5])

    monkeypatch.setattr(fresh, "commit_waiting", commit)
    begun = time.monotonic_ns()
    one = publisher(connection, timeout=timeout)
    one.publish_or_begin(held, Begun(0, "out", (staged(stage, 0, 0, b"a"),)), out)
    [(until, memory_until)] = seen
    assert until == one._until  # noqa: SLF001 - as the first call set it
    assert memory_until is not None
    assert begun <= memory_until <= time.monotonic_ns() + most * 1e9


def test_a_stage_that_is_dropped_while_it_is_published(
    connection: shmbroker.Connection, out: shmbroker.Queue, held: Held, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who publishes is told so, of which publication."""
    wanted = Begun(0, "out", (staged(stage, 0, 0, b"a"),))

    def settled(*_: object) -> None:
        raise exceptions.MessageSettled

    monkeypatch.setattr(fresh, "commit_waiting", settled)
    with pytest.raises(
        exceptions.NotStaged, match="404 what was staged of 'query' was dropped while it was being publish"
    ):
        publisher(connection).publish_or_begin(held, wanted, out)


@pytest.mark.parametrize(
    ("settings", "options", "anew"),
    [
        ({}, {}, False),
        ({"overflow": "block", "max_length": 9}, {}, False),
        ({"message_ttl": 3600}, {}, True),
        ({"overflow": "drop", "max_length": 9}, {}, True),
        ({}, {"ttl": 3600}, True),
    ],
)
def test_what_is_moved_and_what_is_published_anew(
    connection: shmbroker.Connection,
    held: Held,
    small: Stage,
    settings: dict[str, Any],
    options: dict[str, Any],
    *,
    monkeypatch: pytest.MonkeyPatch,
    anew: bool,
) -> None:
    """Bodies are copied only where they get times, or where a move would wait for room that a put does not need."""
    target = connection.queue("target", **settings)
    wanted = Begun(0, "target", (staged(small, 0, 0, b"a", b"b", **options),))
    parts: list[object] = []
    part = module.PartTransaction

    def counted(*arguments: Any) -> Any:  # noqa: ANN401
        parts.append(arguments)
        return part(*arguments)

    monkeypatch.setattr(module, "PartTransaction", counted)
    assert publisher(connection, 1).finish(held, wanted, None)[1] == 2
    assert len(parts) == (2 if anew else 0)
    assert bodies(target) == [b"a", b"b"]
    times = [message.expires_at for message in target.browse()]
    assert all(at is not None for at in times) == bool(options or "message_ttl" in settings)


def test_a_move_that_finds_no_room_waits_for_it(connection: shmbroker.Connection, small: Stage) -> None:
    """As long as it was told, for the next body, which stays in its place."""
    target = connection.queue("target", max_bytes=5)
    source = StagedAttempt(connection, "query", staged(small, 0, 0, b"abc", b"def"))
    with pytest.raises(standard_queue.Full, match="'target' is full"):
        publisher(connection)._empty(source, target)  # noqa: SLF001 - it is not to be waited for
    assert bodies(target) == [b"abc"]
    assert bodies(source.queue) == [b"def"]
