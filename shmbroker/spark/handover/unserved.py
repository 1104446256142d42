# SPDX-License-Identifier: Apache-2.0
"""A server moves each message that is not a request from its queue of requests to a separate queue.

Such messages come from a mistake in the name of a queue, so their owner must be able to find them unchanged. The server
puts a copy into the separate queue, then acknowledges the message. If it is killed in between, both queues have the
message.
"""

from __future__ import annotations

import logging
import queue as standard_queue
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shmbroker

_log = logging.getLogger(__name__)
_PREFIX = "unserved."
_MOST_BYTES = 255
_LEAST_SECONDS = 1e-9
ROOM_SECONDS = 0.2


def unserved(queue: str) -> str:
    """Returns the name of the queue to which servers of ``queue`` move the messages that are no requests.

    >>> unserved("score")
    'unserved.score'
    """
    return (_PREFIX + queue).encode()[:_MOST_BYTES].decode(errors="ignore")


def set_aside(connection: shmbroker.Connection, stray: shmbroker.Message) -> None:
    """Moves a message that is no request to its :func:`unserved` queue, and logs it.

    The moved message has the same body, key, properties and priority, and the rest of its time to live.

    Raises:
        queue.Full: there is no room for it, or (``OutOfMemory``) no memory; the message is requeued at its position.
    """
    to = unserved(stray.queue)
    text = f"queue {stray.queue!r}: message {stray.sequence} is not a request of exchange()"
    try:
        with connection.queue(to) as aside:
            aside.put(
                stray.body,
                timeout=ROOM_SECONDS,
                priority=stray.priority or None,
                ttl=None if stray.expires_at is None else max(stray.expires_at - time.time(), _LEAST_SECONDS),
                key=stray.key,
                properties=stray.properties,
            )
    except standard_queue.Full as full:
        stray.give_back()
        full.add_note(f"{text}, and cannot be moved to queue {to!r}: it is in its place again")
        raise
    except BaseException:
        stray.give_back()
        raise
    stray.ack()
    _log.warning("%s: it was moved to queue %r", text, to)
