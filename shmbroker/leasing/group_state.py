# SPDX-License-Identifier: Apache-2.0
"""The state of a consumer group, and its stored form. See :mod:`shmbroker.leasing`."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shmbroker import exceptions
from shmbroker._amqp.names import GROUP, LEASE
from shmbroker._session.session import session_of
from shmbroker._system_queues.register import Register
from shmbroker.queue import open_queue
from shmbroker.statistics import GroupInfo

if TYPE_CHECKING:
    from shmbroker._session.session import Session
    from shmbroker.connection import Connection
    from shmbroker.statistics import QueueStatistics

_TOKEN = re.compile(r"([0-9a-f]+)-(\d+)-(\d+)-[0-9a-f]+\Z")


class Lease(NamedTuple):
    """A complete lease, which does not change any more.

    Attributes:
        queue: The name of the queue that holds the lease's messages.
        length: The number of messages.
        size: The total bytes of their bodies.
        dense: Whether the messages are at the positions 0 to ``length`` - 1 of the queue.
    """

    queue: str
    length: int
    size: int
    dense: bool


@dataclasses.dataclass(frozen=True)
class GroupState:
    """The state of a group.

    Attributes:
        queue: The name of the queue that the group leases from.
        acked: The number of the last acknowledged lease.
        leases: The leases that are not acknowledged, by number; the first one has the number ``acked`` + 1.
        owner: The token of the user that has the group; empty: no user has it.
        filling: The name of the queue that the owner fills, and that becomes the next lease; empty: there is none yet.
        strays: The names of queues that earlier users were filling, or that were leases until a release. Their messages
            are leased before those of ``queue``.
        past: Tokens of earlier users that may still be moving messages into or out of strays.
        done: The names of the queues of acknowledged leases, which are still to be deleted.
    """

    queue: str
    acked: int = 0
    leases: tuple[Lease, ...] = ()
    owner: str = ""
    filling: str = ""
    strays: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    done: tuple[str, ...] = ()

    @property
    def leased(self) -> int:
        """The number of the last lease."""
        return self.acked + len(self.leases)

    @classmethod
    def read(cls, value: dict[str, Any]) -> Self:
        """Decodes what :meth:`written` returned."""
        lists = {name: tuple(value[name]) for name in ("strays", "past", "done")}
        return cls(**(value | lists | {"leases": tuple(Lease(*lease) for lease in value["leases"])}))

    def written(self) -> dict[str, Any]:
        """Returns the state in a form that JSON can represent."""
        return dataclasses.asdict(self)

    def changed(self, **fields: Any) -> Self:  # noqa: ANN401
        """Returns a copy of the state in which the given fields have the given values."""
        return dataclasses.replace(self, **fields)


def register_of(name: str) -> str:
    """Returns the name of the queue that is the register of a group."""
    return GROUP + name


def lease_of(name: str, number: int, token: str) -> str:
    """Returns the name of the queue that becomes lease ``number`` of a group; the user with the token fills it."""
    return f"{LEASE}{name}.{number}.{token}"


def state_of(register: Register) -> GroupState | None:
    """Returns the state in a register; None: nothing is written yet."""
    version = register.latest()
    return None if version is None else GroupState.read(version.value)


def opened(session: Session, name: str) -> Register | None:
    """Opens the register of a group; ``None``: it does not exist."""
    try:
        return Register(open_queue(session, register_of(name), passive=True))
    except exceptions.NotFound:
        return None


def look(session: Session, name: str) -> GroupState | None:
    """Returns the state in the register of a group; ``None``: there is no register, or it is empty."""
    register = opened(session, name)
    try:
        return None if register is None else state_of(register)
    except exceptions.NotFound:
        return None


def process_of(session: Session, token: str) -> int:
    """Returns the id of the process of a user.

    0: the user has closed its connection, or it died, and the broker has cleaned up after it. So it is if the broker
    was made again from its store since: then another process may have the same numbers.
    """
    match = _TOKEN.match(token)
    if match is None or int(match[1], 16) != session.core.attachment.instance:
        return 0
    return int(match[3]) if session.core.is_there(int(match[2]), int(match[3])) else 0


def new_token(session: Session) -> str:
    """Makes a unique token of a user, with the numbers of the memory, its connection and its process."""
    return f"{session.core.attachment.instance:x}-{session.core.id}-{os.getpid()}-{secrets.token_hex(6)}"


def groups(connection: Connection) -> list[GroupInfo]:
    """Lists the consumer groups of a broker, by name.

    A group whose ``pid`` is 0 has no user: its user has ended, or has released the group and left messages behind, for
    which the queue had no room. If no user comes back, call :meth:`Group.attach` and
    :meth:`Group.release`, or use ``shmbroker groups release``.
    """
    names = [name for name in connection.queue_names(all=True) if name.startswith(GROUP)]
    session = session_of(connection)
    found = (_info(session, name.removeprefix(GROUP)) for name in names)
    return [one for one in found if one is not None]


def _info(session: Session, name: str) -> GroupInfo | None:
    register = opened(session, name)
    try:
        version = None if register is None else register.latest()
    except exceptions.NotFound:
        version = None
    if version is None:
        return None
    state = GroupState.read(version.value)
    others = (_statistics(session, queue) for queue in (*state.strays, state.filling))
    facts = [found for found in others if found is not None]
    messages = sum(lease.length for lease in state.leases) + sum(one.message_count for one in facts)
    if not state.owner and messages == 0:
        return None
    return GroupInfo(
        name=name,
        queue=state.queue,
        acked=state.acked,
        leases=len(state.leases),
        messages=messages,
        bytes=sum(lease.size for lease in state.leases) + sum(one.bytes for one in facts),
        used_at=version.written_at,
        pid=process_of(session, state.owner),
    )


def _statistics(session: Session, queue: str) -> QueueStatistics | None:
    """Returns a snapshot of a queue; ``None``: there is no such queue, or another queue has got its slot meanwhile."""
    found = session.core.queue_statistics(session.core.queue_slot(queue))
    return found if found is not None and found.name == queue else None
