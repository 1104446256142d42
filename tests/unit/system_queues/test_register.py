# SPDX-License-Identifier: Apache-2.0
"""Registers: of two who replace the same version, the first counts."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_support.inside import session_of

import shmbroker
from shmbroker import exceptions
from shmbroker._system_queues import register
from shmbroker._system_queues.register import Register

NAME = "amq.group.r"


def value_of(one: Register) -> dict[str, Any] | None:
    """What it says."""
    latest = one.latest()
    return None if latest is None else latest.value


def test_a_version_replaces_the_one_that_was_seen(connection: shmbroker.Connection) -> None:
    """Everybody reads it."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    assert value_of(one) is None
    assert one.replace({"n": 1}, timeout=0)
    assert value_of(other) == {"n": 1}
    assert other.replace({"n": 2}, timeout=0)
    assert value_of(one) == value_of(Register.made(session_of(connection), NAME)) == {"n": 2}


def test_whether_somebody_wrote_is_seen(connection: shmbroker.Connection) -> None:
    """Not one's own versions; also another one's that does not count."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    assert not one.has_moved()
    assert one.replace({"n": 1}, timeout=0)
    assert not one.has_moved()
    assert other.has_moved()
    other.latest()
    assert not other.has_moved()
    assert other.replace({"n": 2}, timeout=0)
    assert not one.replace({"n": 3}, timeout=0)
    assert other.has_moved()


def test_of_two_that_replace_the_same_one_the_first_counts(connection: shmbroker.Connection) -> None:
    """Also of the very first one; the second is told, and can go on from there."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    for number in range(3):
        one.latest()
        other.latest()
        assert one.replace({"one": number}, timeout=0)
        assert not other.replace({"other": number}, timeout=0)
        assert (
            value_of(one) == value_of(other) == value_of(Register.made(session_of(connection), NAME)) == {"one": number}
        )
    assert other.replace({"other": 9}, timeout=0)
    assert value_of(one) == {"other": 9}


def test_one_that_counted_counted_although_it_was_replaced_at_once(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer is told so, and that it is not the latest one when it goes on."""
    one, other = Register.made(session_of(connection), NAME), Register.made(session_of(connection), NAME)
    put = shmbroker.Queue.put

    def overtaken(queue: shmbroker.Queue, body: bytes, **options: Any) -> None:  # noqa: ANN401
        put(queue, body, **options)
        monkeypatch.undo()
        other.latest()
        assert other.replace({"n": 2}, timeout=0)

    monkeypatch.setattr(shmbroker.Queue, "put", overtaken)
    assert one.replace({"n": 1}, timeout=0)
    assert not one.replace({"n": 3}, timeout=0)
    assert value_of(one) == {"n": 2}


def test_the_latest_is_found_after_most_were_dropped(connection: shmbroker.Connection) -> None:
    """By one who reads for the first time, and by one who slept, among versions that do not count."""
    sleeper, stale, one = (Register.made(session_of(connection), NAME) for _ in range(3))
    assert one.replace({"n": -1}, timeout=0)
    sleeper.latest()
    stale.latest()
    for number in range(3 * register.KEPT):
        assert one.replace({"n": number}, timeout=0)
    for number in range(register.KEPT - 2):
        late = Register.made(session_of(connection), NAME)
        late._known = stale._known  # noqa: SLF001 - it saw what was latest long ago
        assert not late.replace({"late": number}, timeout=0)
    assert value_of(sleeper) == value_of(Register.made(session_of(connection), NAME)) == {"n": 3 * register.KEPT - 1}
    assert len(one.queue) == register.KEPT


def test_one_that_was_deleted_says_so(connection: shmbroker.Connection) -> None:
    """Also when another one took its place."""
    one = Register.made(session_of(connection), NAME)
    one.replace({"n": 1}, timeout=0)
    one.queue.delete()
    other = Register.made(session_of(connection), NAME)
    assert value_of(other) is None
    for call in (one.latest, lambda: one.replace({"n": 2}, timeout=0)):
        with pytest.raises(exceptions.NotFound):
            call()


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"{}", b'{"replaces": "x", "value": {}}'])
def test_foreign_messages_are_an_error(connection: shmbroker.Connection, body: bytes) -> None:
    """The text names the queue."""
    one = Register.made(session_of(connection), NAME)
    one.queue.put(body)
    with pytest.raises(exceptions.CorruptSegment, match=NAME):
        one.latest()
