# SPDX-License-Identifier: Apache-2.0
"""Registers: memory for versions, versions that are overtaken, and messages that are no versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import session_of

import shmbroker
from shmbroker import exceptions
from shmbroker._system_queues import register
from shmbroker._system_queues.register import Register, Version

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "amq.group.r"
FIRST = b'{"replaces":-1,"value":{"n":1}}'


def after_put(monkeypatch: pytest.MonkeyPatch, deed: Callable[[shmbroker.Queue], object]) -> None:
    """Let another user do something between the next put and the look at what it came to."""
    put = shmbroker.Queue.put

    def followed(queue: shmbroker.Queue, body: bytes, **options: Any) -> None:  # noqa: ANN401
        put(queue, body, **options)
        monkeypatch.undo()
        deed(queue)

    monkeypatch.setattr(shmbroker.Queue, "put", followed)


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float | None, int]]:
    """Return the timeouts of puts, with the ring sizes at that time; a put without a timeout finds no memory."""
    put, seen = shmbroker.Queue.put, []

    def narrow(queue: shmbroker.Queue, body: bytes, *, timeout: float | None = None) -> None:
        seen.append((timeout, queue.settings.ring_size))
        if timeout == 0:
            text = "none is left"
            raise exceptions.OutOfMemory(text)
        put(queue, body, timeout=timeout)

    monkeypatch.setattr(shmbroker.Queue, "put", narrow)
    return seen


def full(connection: shmbroker.Connection) -> Register:
    """A register with as many versions as it keeps."""
    one = Register.made(session_of(connection), NAME)
    for number in range(register.KEPT):
        assert one.replace({"n": number}, timeout=0)
    assert len(one.queue) == register.KEPT
    return one


def test_without_memory_older_versions_make_room(
    connection: shmbroker.Connection, request: pytest.FixtureRequest
) -> None:
    """All but 16 go, and the put is tried again for as long as was given; then the ring is as large as before."""
    one = full(connection)
    puts = request.getfixturevalue("puts")
    assert one.replace({"n": "last"}, timeout=7)
    assert puts == [(0, 64), (7, 16)]
    assert (len(one.queue), one.queue.settings.ring_size) == (16, 64)
    found = Register.made(session_of(connection), NAME).latest()
    assert found is not None
    assert (found.number, found.replaces, found.value) == (64, 63, {"n": "last"})


def test_without_memory_nothing_happens(connection: shmbroker.Connection, request: pytest.FixtureRequest) -> None:
    """The error is raised, the value is what it was, and the ring is as large as before."""
    one = full(connection)
    puts = request.getfixturevalue("puts")
    with pytest.raises(exceptions.OutOfMemory, match="none is left"):
        one.replace({"n": "last"}, timeout=0)
    assert puts == [(0, 64), (0, 16)]
    assert one.queue.settings.ring_size == 64
    found = one.latest()
    assert found is not None
    assert found.value == {"n": 63}


def test_memory_is_set_aside_once(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 24 messages of a version's size, which are no versions; none is put where there is something."""
    timeouts: list[float | None] = []
    put_many = shmbroker.Queue.put_many

    def noted(queue: shmbroker.Queue, bodies: list[bytes], *, timeout: float | None = None) -> int:
        timeouts.append(timeout)
        return put_many(queue, bodies, timeout=timeout)

    monkeypatch.setattr(shmbroker.Queue, "put_many", noted)
    one = Register.made(session_of(connection), NAME)
    for _ in range(2):
        one.set_aside()
        assert [bytes(message) for message in one.queue.browse()] == [b'{"replaces":-2,"value":{}}'.ljust(512)] * 24
        assert one.latest() is None
    assert timeouts == [0]
    assert one.replace({"n": 1}, timeout=0)
    assert Register.made(session_of(connection), NAME).latest() == one.latest()
    other = Register.made(session_of(connection), "amq.group.other")
    assert other.replace({"n": 1}, timeout=0)
    other.set_aside()
    assert len(other.queue) == 1


def test_a_version_has_its_place_and_its_time(connection: shmbroker.Connection) -> None:
    """Both are those of its message, whose size is a multiple of 512."""
    one = Register.made(session_of(connection), NAME)
    assert one.replace({"n": 1}, timeout=0)
    assert one.replace({"text": "x" * 500}, timeout=0)
    first, second = one.queue.browse()
    assert bytes(first) == FIRST.ljust(512)
    assert len(second) == 1024
    expected = Version(1, 0, {"text": "x" * 500}, pytest.approx(second.timestamp, abs=1))
    assert one.latest() == Register.made(session_of(connection), NAME).latest() == expected


def test_versions_that_are_longer_than_usual(connection: shmbroker.Connection) -> None:
    """All of them are read, however much memory they need."""
    one = Register.made(session_of(connection), NAME)
    for number in range(3):
        assert one.replace({"n": number, "text": "x" * 100_000 * number}, timeout=0)
    assert Register.made(session_of(connection), NAME).latest() == one.latest()


def test_one_that_was_not_fast_enough_knows_the_latest(connection: shmbroker.Connection) -> None:
    """The next time it replaces that one."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    assert one.replace({"one": 1}, timeout=0)
    assert not other.replace({"other": 1}, timeout=0)
    assert other.replace({"other": 2}, timeout=0)


def test_one_that_counted_in_front_of_spare_memory(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer is told so, although it was replaced meanwhile: what is no version is not one that was dropped."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    one.set_aside()

    def overtake(_: object) -> None:
        other.latest()
        assert other.replace({"n": 2}, timeout=0)

    after_put(monkeypatch, overtake)
    assert one.replace({"n": 1}, timeout=0)


def test_one_that_was_pushed_out_before_its_writer_looked(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer cannot know that it counted, and goes on from the latest one."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)

    def push(_: object) -> None:
        other.latest()
        for number in range(register.KEPT):
            assert other.replace({"n": number}, timeout=0)

    after_put(monkeypatch, push)
    assert not one.replace({"n": "mine"}, timeout=0)
    assert one.replace({"n": "mine"}, timeout=0)


def test_one_that_was_purged_before_its_writer_looked(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count."""
    one = Register.made(session_of(connection), NAME)
    after_put(monkeypatch, lambda queue: queue.purge())
    assert not one.replace({"n": 1}, timeout=0)
    assert one.latest() is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"replaces":-1',
        b'{"replaced":-1,"value":{}}',
        b'{"replaces":x,"value":{}}',
        b'{"replaces":0,"value":{}',
        b'{"replaces":0,"other":{}}',
        b'{"replaces":0,"value":5}',
    ],
)
def test_what_is_no_version_is_an_error(connection: shmbroker.Connection, body: bytes) -> None:
    """Also behind a version; the text names the queue and the message."""
    one = Register.made(session_of(connection), NAME)
    one.queue.put_many([FIRST, body])
    with pytest.raises(exceptions.CorruptSegment, match=r"'amq[.]group[.]r': message 1 was not written by"):
        one.latest()
