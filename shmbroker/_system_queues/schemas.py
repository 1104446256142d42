# SPDX-License-Identifier: Apache-2.0
"""The schema of a queue, which describes its messages to their readers. See docs/adr/0017.

The schema is the value of a :mod:`register <shmbroker._system_queues.register>`. The register of a queue is named
``amq.schema.<birth>``, by the queue's birth: a random number that no other queue has, so a queue that is declared again
under the same name has no schema. A queue that is made again from the store keeps its birth, and its schema is stored
with it. When a queue is gone, its register is left over. The next process that registers a schema for any queue deletes
such registers.

Death (a process is killed after -> the state):
 making the register -> the queue has no schema.
 writing the version -> the queue has the schema.
 deleting some registers -> the next process that registers a schema deletes the others.
"""

from __future__ import annotations

import base64
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker._amqp.errors import no_queue
from shmbroker._amqp.names import SCHEMA
from shmbroker._session.queues import core_of
from shmbroker._system_queues import queues
from shmbroker._system_queues.register import Register
from shmbroker.queue import open_queue, session_of_queue

if TYPE_CHECKING:
    from shmbroker._session.session import Session
    from shmbroker.queue import Queue


class Registered(NamedTuple):
    """A registered schema.

    Attributes:
        encoded: the schema in the form that Arrow writes at the start of a stream.
        text: the schema as readable text.
    """

    encoded: bytes
    text: str


def registered(queue: Queue) -> Registered | None:
    """Returns the schema of a queue, ``None`` if it has none."""
    try:
        found = Register(open_queue(session_of_queue(queue), _name_of(queue), passive=True)).latest()
    except exceptions.NotFound:
        return None
    if found is None:
        return None
    return Registered(base64.b64decode(found.value["encoded"]), str(found.value["text"]))


def register(queue: Queue, schema: Registered) -> Registered:
    """Registers a schema for the life of a queue. If several processes do so, the schema of the first takes effect.

    Returns:
        The schema that the queue has now: the given one, or the earlier one.

    Raises:
        OutOfMemory: the broker has no memory for the schema.
        NotFound: the queue was deleted, and another process has deleted its register during the call.
        Timeout: the queue is stored, and its schema was not on the disk within ``operation_timeout``.
    """
    session = session_of_queue(queue)
    _clear_away(session)
    register_ = Register.made(session, _name_of(queue), durable=core_of(queue).lasts)
    encoded = base64.b64encode(schema.encoded).decode()
    value = {"queue": queue.name, "encoded": encoded, "text": schema.text}
    while register_.latest() is None:
        unique = {"token": f"{os.getpid()}-{secrets.token_hex(8)}"}
        register_.replace(value | unique, timeout=session.operation_timeout)
    register_.synced(session.operation_deadline())
    found = registered(queue)
    if found is None:
        raise no_queue(queue.name)
    return found


def _name_of(queue: Queue) -> str:
    return f"{SCHEMA}{core_of(queue).birth:x}"


def _clear_away(session: Session) -> None:
    """Deletes the schemas of queues that are gone.

    It lists the schemas first, and then all queues. So a queue that is missing in the second list is gone.
    """
    core = session.core
    listed = [name for name in core.queue_births() if name.startswith(SCHEMA)]
    if listed:
        there = {f"{SCHEMA}{birth:x}" for birth in core.queue_births().values()}
        for name in set(listed) - there:
            queues.delete(session, name)
