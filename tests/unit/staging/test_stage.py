# SPDX-License-Identifier: Apache-2.0
"""What a stage publishes at once, drops, and forgets; and batches that somebody has begun before."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.staging import JOB, bodies, internal, staged

from shmbroker.staging import Stage, marker, stages
from shmbroker.staging import stage as module
from shmbroker.staging.publishing import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker
    from shmbroker.staging import Receipt

MARKER = "amq.stage.marker.query"


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a publisher killed when it has begun a batch, and moved nothing of it."""

    def run(stage: Stage, batch: int, *receipts: Receipt, to: str = "out") -> None:
        with monkeypatch.context() as killed:
            killed.setattr(Publisher, "finish", lambda *_: pytest.fail("killed"))
            with pytest.raises(pytest.fail.Exception):
                stage.publish(batch, receipts, to)

    return run


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, (10_000, None)),
        ({"at_once": 3, "bytes_at_once": 5}, (3, 5)),
        ({"bytes_at_once": "2K"}, (10_000, 2048)),
    ],
)
def test_what_is_published_at_once(
    connection: shmbroker.Connection, options: dict[str, Any], limits: tuple[int, int | None]
) -> None:
    """So many messages, and so many bytes: a fourth of the broker's memory, unless the stage is told otherwise."""
    memory = core_of(connection).attachment.facts().memory_limit
    messages, size = limits
    assert Stage(connection, "query", **options)._limits == (messages, memory // 4 if size is None else size)  # noqa: SLF001


@pytest.mark.usefixtures("out")
def test_a_batch_that_the_next_one_finds_begun(
    connection: shmbroker.Connection, stage: Stage, begin: Callable[..., None]
) -> None:
    """It is finished first, and not counted; nor if the one that is wanted is over with it."""
    small = Stage(connection, "query", at_once=1)
    begin(small, 1, staged(small, 1, 0, b"a", b"b"))
    assert stage.publish(0, [staged(stage, 0, 0, b"x")], "out") == 0
    assert stage.published == 1
    begin(small, 2, staged(small, 2, 0, b"c", b"d", b"e"))
    assert stage.publish(3, [staged(stage, 3, 0, b"f")], "out") == 1
    assert bodies(connection.queue("out")) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_who_finds_a_batch_published_counts_nothing(
    connection: shmbroker.Connection,
    out: shmbroker.Queue,
    stage: Stage,
    begin: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another publisher was faster, while this one finished what came before."""
    small = Stage(connection, "query", at_once=1)
    begin(small, 0, staged(small, 0, 0, b"a", b"b"))
    ours, theirs = staged(stage, 1, 0, b"c"), staged(stage, 1, 0, b"c")
    finish = Publisher.finish

    def beside(publisher: Publisher, held: marker.Held, *arguments: Any) -> Any:  # noqa: ANN401
        state, count = finish(publisher, held, *arguments)
        monkeypatch.undo()
        Stage(connection, "query").publish(1, [theirs], "out")
        return state, count

    monkeypatch.setattr(Publisher, "finish", beside)
    assert stage.publish(1, [ours], "out") == 0
    assert bodies(out) == [b"a", b"b", b"c"]
    assert stages(connection) == []


def test_the_first_batch_for_a_target_looks_for_markers_that_are_over(
    connection: shmbroker.Connection, out: shmbroker.Queue, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it finds another one begun; later ones do not, nor those that hold for any target."""
    looked: list[object] = []
    monkeypatch.setattr(module, "forget_gone", looked.append)
    stage = Stage(connection, "query", at_once=1, per_target=True)
    begin(stage, 0, staged(stage, 0, 0, b"a", b"b"))
    for batch in (1, 2):  # before the first of them nothing had been published
        assert stage.publish(batch, [staged(stage, batch, 0, b"c")], "out") == 1
        assert looked == [connection]
    looked.clear()
    out.delete()
    connection.queue("out")
    for batch in range(2):
        stage.publish(batch, [staged(stage, batch, 0, b"a", b"b")], "out")
        assert looked == [connection]
    for batch in range(2):
        plain = Stage(connection, "plain")
        plain.publish(batch, [staged(plain, batch, 0, b"a")], "out")
    assert looked == [connection]


@pytest.mark.parametrize(("batch", "error"), [("7", TypeError), (-1, ValueError), (True, TypeError)])
def test_a_batch_that_cannot_be_dropped(stage: Stage, batch: Any, error: type[Exception]) -> None:  # noqa: ANN401
    """It is no batch."""
    with pytest.raises(error, match=f"batch={batch!r}: "):
        stage.drop(batch)


@pytest.mark.usefixtures("out")
def test_a_batch_that_has_begun_is_not_dropped(connection: shmbroker.Connection, begin: Callable[..., None]) -> None:
    """Others are meanwhile."""
    stage = Stage(connection, "query", at_once=1)
    begin(stage, 0, staged(stage, 0, 0, b"a", b"b"))
    staged(stage, 3, 0, b"c")
    assert [stage.drop(batch) for batch in (0, 3)] == [0, 1]
    assert [one.batch for one in stages(connection)] == [0]


def test_a_job_is_dropped_once(connection: shmbroker.Connection, stage: Stage) -> None:
    """That it was is noted once; who staged for it while that was noted is dropped, too."""
    assert stage.drop(JOB) == 0
    added = connection.queue(MARKER, passive=True).statistics().added
    assert stage.drop(JOB) == 0
    assert connection.queue(MARKER, passive=True).statistics().added == added


def test_what_is_staged_while_a_job_is_dropped(
    connection: shmbroker.Connection, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped with it, and nothing else is."""
    other = uuid.UUID(int=8)
    staged(stage, JOB, 0, b"early")
    replace = marker.Held.replace

    def beside(held: marker.Held, *arguments: Any) -> Any:  # noqa: ANN401
        monkeypatch.setattr(marker.Marker, "is_dropped", lambda *_: False)
        staged(stage, JOB, 1, b"late")
        staged(stage, other, 0, b"other")
        return replace(held, *arguments)

    monkeypatch.setattr(marker.Held, "replace", beside)
    assert stage.drop(JOB) == 2
    assert [one.batch for one in stages(connection)] == [other]


def test_an_attempt_that_goes_while_others_are_dropped(
    connection: shmbroker.Connection, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not counted, and not made anew."""
    staged(stage, 0, 0, b"a")
    there = connection.queue_names(all=True)
    gone = next(name for name in there if ".attempt." in name)
    connection.queue(gone, passive=True).delete()
    monkeypatch.setattr(type(connection), "queue_names", lambda _connection, **_: there)
    assert stage.drop(0) == 0
    monkeypatch.undo()
    assert internal(connection) == [MARKER]


def test_a_publication_is_forgotten(connection: shmbroker.Connection, stage: Stage, out: shmbroker.Queue) -> None:
    """Nothing of it is left, and its batches may come again; there may be nothing to forget."""
    stage.publish(3, [staged(stage, 3, 0, b"a")], "out")
    staged(stage, 4, 0, b"b")
    for _ in range(2):
        stage.forget()
        assert internal(connection) == []
    assert stage.publish(0, [staged(stage, 0, 0, b"c")], "out") == 1
    assert bodies(out) == [b"a", b"c"]


def test_a_list_of_what_is_staged(connection: shmbroker.Connection, stage: Stage) -> None:
    """Of one publication, or of all; of queues that are no attempts nothing."""
    staged(stage, 10, 0, b"a")
    staged(stage, 9, 1, b"b")
    staged(Stage(connection, "another"), 11, 0, b"c")
    connection.queue("plain").put(b"x")
    assert [(one.publication, one.batch) for one in stages(connection)] == [
        ("another", 11),
        ("query", 9),
        ("query", 10),
    ]
    assert [one.batch for one in stages(connection, "query")] == [9, 10]
    assert stages(connection, "nobody") == []
