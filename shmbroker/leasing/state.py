# SPDX-License-Identifier: Apache-2.0
"""What is known of a consumer group, as it is written down. See :mod:`shmbroker.leasing`."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shmbroker import exceptions
from shmbroker._amqp.names import GROUP, LEASE
from shmbroker._system_queues.register import Register
from shmbroker.statistics import GroupInfo

if TYPE_CHECKING:
    from shmbroker.connection import Connection

_TOKEN = re.compile(r"(\d+)-(\d+)-[0-9a-f]+\Z")


class Lease(NamedTuple):
    """A lease that is complete: nobody changes it any more.

    Attributes:
        queue: The queue that is it.
        length: How many messages.
        size: Bytes of their bodies.
        dense: Whether they are at the places 0 to ``length`` - 1 of the queue.
    """

    queue: str
    length: int
    size: int
    dense: bool


@dataclasses.dataclass(frozen=True)
class State:
    """A group.

    Attributes:
        queue: The queue whose messages it leases.
        acked: Number of the last lease that was acknowledged.
        leases: Those after it, in order.
        owner: Token of the user who has it; empty: released.
        filling: The queue that this user fills; it becomes the next lease.
        strays: Queues that earlier users were filling, or whose leases were released: their messages are next.
        past: Tokens of earlier users who may still be in the middle of a move.
        done: Queues of acknowledged leases; to be deleted.
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
        """Number of the last lease."""
        return self.acked + len(self.leases)

    @classmethod
    def read(cls, value: dict[str, Any]) -> Self:
        """Of what :meth:`written` made."""
        lists = {name: tuple(value[name]) for name in ("strays", "past", "done")}
        return cls(**(value | lists | {"leases": tuple(Lease(*lease) for lease in value["leases"])}))

    def written(self) -> dict[str, Any]:
        """In a form that JSON can hold."""
        return dataclasses.asdict(self)

    def changed(self, **fields: Any) -> Self:  # noqa: ANN401
        """With other values of some fields."""
        return dataclasses.replace(self, **fields)


def register_of(name: str) -> str:
    """The queue of a group's register."""
    return GROUP + name


def lease_of(name: str, number: int, token: str) -> str:
    """The queue of a lease, as that user makes it."""
    return f"{LEASE}{name}.{number}.{token}"


def state_of(register: Register) -> State | None:
    """What a register says; None: nothing yet."""
    version = register.latest()
    return None if version is None else State.read(version.value)


def opened(connection: Connection, name: str) -> Register | None:
    """The register of a group, if it is there."""
    try:
        return Register(connection.queue(register_of(name), passive=True))
    except exceptions.NotFound:
        return None


def look(connection: Connection, name: str) -> State | None:
    """What the register says, without making one."""
    register = opened(connection, name)
    try:
        return None if register is None else state_of(register)
    except exceptions.NotFound:
        return None


def process_of(connection: Connection, token: str) -> int:
    """The process of a user, 0 if it has ended and is cleared up after."""
    match = _TOKEN.match(token)
    if match is None:
        return 0
    return int(match[2]) if connection.core.is_there(int(match[1]), int(match[2])) else 0


def new_token(connection: Connection) -> str:
    """A user of its own, of which one can tell whether it is there."""
    return f"{connection.core.id}-{os.getpid()}-{secrets.token_hex(6)}"


def groups(connection: Connection) -> list[GroupInfo]:
    """The consumer groups of a broker, by name.

    One whose ``pid`` is 0 has lost its user: if that is not coming back, :meth:`Group.attach` and
    :meth:`Group.release` it, or use ``shmbroker groups release``.
    """
    names = [name for name in connection.queue_names(all=True) if name.startswith(GROUP)]
    found = (_info(connection, name.removeprefix(GROUP)) for name in names)
    return [one for one in found if one is not None]


def _info(connection: Connection, name: str) -> GroupInfo | None:
    register = opened(connection, name)
    try:
        version = None if register is None else register.latest()
    except exceptions.NotFound:
        version = None
    if version is None:
        return None
    state = State.read(version.value)
    others = [connection.core.queue_slot(queue) for queue in (*state.strays, state.filling)]
    facts = [found for slot in others if (found := connection.core.queue_statistics(slot)) is not None]
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
        pid=process_of(connection, state.owner),
    )
