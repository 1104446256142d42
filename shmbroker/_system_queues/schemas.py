# SPDX-License-Identifier: Apache-2.0
"""The schema that a queue was given: what its messages are, for whoever reads them. See docs/adr/0017.

It is the value of a :mod:`register <shmbroker._system_queues.register>`, in the queue ``amq.schema.<incarnation>``. An
incarnation is never used again, so a queue that is made anew under the name has no schema. A register whose queue is
gone is deleted by whoever registers a schema next.

Death (after -> state): register made -> no schema.  version written -> the schema.  some deleted -> the next does it.
"""

from __future__ import annotations

import base64
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker._amqp.names import SCHEMA
from shmbroker._system_queues import queues
from shmbroker._system_queues.register import Register

if TYPE_CHECKING:
    from shmbroker.queue import Queue


class Registered(NamedTuple):
    """What is registered.

    Attributes:
        encoded: the schema as Arrow writes it in front of a stream.
        text: the same for people.
    """

    encoded: bytes
    text: str


def registered(queue: Queue) -> Registered | None:
    """The schema of a queue, ``None``: it has none."""
    try:
        found = Register(queue.connection.queue(_name_of(queue), passive=True)).latest()
    except exceptions.NotFound:
        return None
    if found is None:
        return None
    return Registered(base64.b64decode(found.value["encoded"]), str(found.value["text"]))


def register(queue: Queue, schema: Registered) -> Registered:
    """Gives a queue a schema, for its life. Of two who do so at a time, one comes first.

    Returns:
        The schema it has: that one, or the one that it had.

    Raises:
        OutOfMemory: the broker has none for it.
        NotFound: the queue was deleted.
    """
    connection = queue.connection
    _clear_away(queue)
    register_ = Register.made(connection, _name_of(queue))
    encoded = base64.b64encode(schema.encoded).decode()
    value = {"queue": queue.name, "encoded": encoded, "text": schema.text}
    while register_.latest() is None:
        unique = {"token": f"{os.getpid()}-{secrets.token_hex(8)}"}
        register_.replace(value | unique, timeout=connection.operation_timeout)
    found = registered(queue)
    if found is None:
        text = f"NOT_FOUND - no queue '{queue.name}' in vhost '/'"
        raise exceptions.NotFound(404, text)
    return found


def _name_of(queue: Queue) -> str:
    return f"{SCHEMA}{queue.core.incarnation:x}"


def _clear_away(queue: Queue) -> None:
    """Deletes those whose queue is gone. They are listed first: a queue that comes later is of none of them."""
    core = queue.connection.core
    listed = [name for name in core.queue_incarnations() if name.startswith(SCHEMA)]
    if listed:
        there = {f"{SCHEMA}{incarnation:x}" for incarnation in core.queue_incarnations().values()}
        for name in set(listed) - there:
            queues.delete(queue.connection, name)
