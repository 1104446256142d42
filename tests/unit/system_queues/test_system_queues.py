# SPDX-License-Identifier: Apache-2.0
"""Queues of the broker's own: who can make them, who sees them, and what does not happen in them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of, session_of
from scenario_support.observing import listing
from scenario_support.waiting import becomes

from shmbroker import exceptions
from shmbroker._amqp.names import PREFIXES
from shmbroker._core import queue as core_queue
from shmbroker._system_queues import queues

if TYPE_CHECKING:
    import shmbroker

LEASE = "amq.lease.g.1.x"


@pytest.mark.parametrize("name", ["amq.x", LEASE])
def test_users_cannot_make_one(connection: shmbroker.Connection, name: str) -> None:
    """Names that begin with amq. are refused, as on channels; one that exists can be opened."""
    with pytest.raises(exceptions.AccessRefused, match="reserved prefix"):
        connection.queue(name)
    queues.ensure(session_of(connection), name)
    assert connection.queue(name) is connection.queue(name, passive=True)


def test_they_are_listed_only_if_asked_for(connection: shmbroker.Connection) -> None:
    """Leases, groups and stages are not; a queue whose name was generated for a user is."""
    generated = connection.channel().queue_declare("").queue
    connection.queue("q")
    made = [queues.ensure(session_of(connection), prefix + "x").name for prefix in PREFIXES]
    assert connection.queue_names() == [generated, "q"]
    assert connection.queue_names(all=True) == sorted([generated, "q", *made])
    assert [one.name for one in connection.queue_statistics()] == [generated, "q"]
    assert [one.name for one in connection.queue_statistics(all=True)] == connection.queue_names(all=True)


def test_making_one_that_exists_opens_it(connection: shmbroker.Connection) -> None:
    """With what is in it."""
    queues.ensure(session_of(connection), LEASE).put(b"x")
    assert len(queues.ensure(session_of(connection), LEASE)) == 1
    queues.delete(session_of(connection), LEASE)
    queues.delete(session_of(connection), LEASE)
    assert connection.queue_names(all=True) == []


def test_messages_do_not_expire_in_one_that_keeps(connection: shmbroker.Connection) -> None:
    """They can be browsed for as long as they are there, and expire when they are moved out."""
    queue, other = connection.queue("q"), connection.queue("other")
    keeps = queues.ensure(session_of(connection), LEASE, no_expiry=True)
    queue.put(b"A", ttl=3.0)
    queue.put(b"B")
    assert queue.move(keeps) == 2
    queue.put(b"sentinel", ttl=3.0)
    becomes(lambda: queue.statistics().expired, 1)  # so A is over its time, and the housekeeper was here
    assert listing(keeps) == ["A", "B"]
    keeps.pause()
    keeps.resume()
    assert listing(keeps) == ["A", "B"]
    keeps.move(other)
    assert listing(other) == ["B"]
    assert keeps.statistics().expired == 0
    assert other.statistics().expired == 1


def test_what_is_expired_already_is_not_kept(connection: shmbroker.Connection) -> None:
    """It ends on its way."""
    queue, keeps = connection.queue("q"), queues.ensure(session_of(connection), LEASE, no_expiry=True)
    queue.put(b"A", ttl=0.001)
    until = time.monotonic() + 0.002
    while time.monotonic() < until:
        pass
    queue.move(keeps)
    assert listing(keeps) == []


@pytest.mark.parametrize(("keeps", "expected"), [(True, core_queue.KEEPS), (False, core_queue.NOTES)])
def test_a_queue_is_for_messages_that_are_moved_or_for_notes(
    connection: shmbroker.Connection, *, keeps: bool, expected: int
) -> None:
    """The first are kept; the others may use the reserve of memory."""
    made = queues.ensure(session_of(connection), LEASE, no_expiry=keeps, ring_size=5)
    assert core_of(made).settings()[1] & (core_queue.KEEPS | core_queue.NOTES) == expected
    assert made.settings.ring_size == 5


def test_one_that_is_deleted_while_it_is_made_is_made_again(
    connection: shmbroker.Connection, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as that happens."""
    declare, made = core_queue.declare, []

    def beside_a_deletion(*arguments: Any) -> None:  # noqa: ANN401
        declare(*arguments)
        made.append(arguments[1])
        if len(made) < 3:
            other.queue(LEASE, passive=True).delete()

    monkeypatch.setattr(core_queue, "declare", beside_a_deletion)
    queue = queues.ensure(session_of(connection), LEASE, no_expiry=True)
    assert (made, len(queue)) == ([LEASE] * 3, 0)
    assert connection.queue_names(all=True) == [LEASE]
