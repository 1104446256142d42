# SPDX-License-Identifier: Apache-2.0
"""The private side of connections, queues, consumers and channels, for the tests that look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker.channel import Channel
from shmbroker.connection import Connection
from shmbroker.queue import Queue, session_of_queue

if TYPE_CHECKING:
    from shmbroker._session.session import Session


def session_of(thing: Any) -> Session:  # noqa: ANN401
    """The session of a connection, consumer or channel; of a queue, the one that this process uses."""
    found: Session = session_of_queue(thing) if isinstance(thing, Queue) else thing._session  # noqa: SLF001
    return found


def connection_of(thing: Any) -> Connection:  # noqa: ANN401
    """Another connection object of the session."""
    return Connection(session_of(thing))


def core_of(thing: Any) -> Any:  # noqa: ANN401
    """What it is in the core; of a channel, made if it is not used yet."""
    if isinstance(thing, Connection):
        return session_of(thing).core
    return thing._core_channel if isinstance(thing, Channel) else thing._core  # noqa: SLF001


def wakes_of(connection: Connection) -> int:
    """How often the consumers of the first queue were notified."""
    core = session_of(connection).core
    facts = native.ffi.new("sb_consumer_facts[]", 8)
    (slot,) = core.queue_slots()
    count = native.slow.sb_queue_consumers(core.handle, slot, facts, len(facts))
    return sum(fact.wakes for fact in facts[0:count])
