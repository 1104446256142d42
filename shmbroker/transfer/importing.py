# SPDX-License-Identifier: Apache-2.0
"""Puts exported messages into a queue."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from shmbroker import exceptions
from shmbroker import properties as basic
from shmbroker._amqp.utf8 import SHORT_STRING
from shmbroker._core import native
from shmbroker._core.queue import PutOptions
from shmbroker._put_options import check_size
from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker._core.queue import CoreQueue
    from shmbroker.queue import Queue
    from shmbroker.transfer.exported import Exported

_MOST_MESSAGES = 512  # of a batch
_MOST_BYTES = 4 << 20
_MOST_PRIORITY = 255


class Imported(NamedTuple):
    """The result of :func:`put`.

    Attributes:
        put: how many messages were put.
        expired: how many were left out, because their life was over.
    """

    put: int
    expired: int


def put(
    queue: Queue,
    messages: Iterable[Exported],
    *,
    timeout: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Puts messages into a queue, in their order. After each batch, waits until it is on the disk, as a put does.

    Each message has the body, the properties, the exchange, the routing key and the priority of the exported one, and
    what is left of its life and its delay. If the call raises, the messages before it are in the queue.

    Args:
        queue: the queue.
        messages: the messages.
        timeout: seconds that a message waits for room, and a batch for the disk; ``None`` = for ever.
        progress: called with the number of messages put so far, after each batch, and before the call raises. At an
            interrupt one more may have been put.

    Raises:
        queue.Full: a message found no room in time. It is a :class:`PublishRejected` if the queue rejected it.
        OutOfMemory: there was no memory in time.
        Timeout: a batch is not on the disk in time. Its messages are in the queue.
        ValueError: the routing key, the exchange, the priority or a property of a message is not allowed.
        TypeError: a property cannot be encoded, see :func:`shmbroker.properties.encode`.
    """
    putting = _Putting(core_of(queue), timeout)
    told = progress or (lambda _count: None)
    try:
        for message in messages:
            putting.add(message)
            if putting.is_full:
                putting.await_store()
                told(putting.count)
        putting.await_store()
    except Exception:
        with contextlib.suppress(exceptions.BrokerError, exceptions.Timeout):
            putting.await_store()
        raise
    finally:
        told(putting.count)
    return Imported(putting.count, putting.expired)


class _Putting:
    """Puts messages, batch by batch.

    Attributes:
        count: how many were put.
        expired: how many were left out.
    """

    def __init__(self, core: CoreQueue, timeout: float | None) -> None:
        self._core, self._timeout = core, timeout
        self._messages = self._bytes = 0  # since the last wait
        self._awaited = False  # whether one of them is waited for
        self.count = self.expired = 0

    def add(self, message: Exported) -> None:
        """Puts a message."""
        options = _options(message, time.time_ns())
        if options is None:
            self.expired += 1
            return
        check_size(len(message.body))
        self._core.put_with(message.body, len(message.body), options, native.deadline(self._timeout))
        self.count += 1
        self._awaited = self._awaited or not basic.is_transient(message.properties)
        self._messages += 1
        self._bytes += len(message.body)

    @property
    def is_full(self) -> bool:
        """Whether it is time to wait."""
        return self._messages >= _MOST_MESSAGES or self._bytes >= _MOST_BYTES

    def await_store(self) -> None:
        """Waits until all messages are on the disk that survive, if the queue is stored."""
        self._messages = self._bytes = 0
        if self._awaited:
            self._awaited = False
            self._core.await_store(native.deadline(self._timeout))


def _options(message: Exported, now: int) -> PutOptions | None:
    """The options of a put; ``None``: the life of the message is over."""
    if not 0 <= message.priority <= _MOST_PRIORITY:
        msg = f"priority={message.priority!r}: an integer from 0 to {_MOST_PRIORITY} is allowed"
        raise ValueError(msg)
    life, properties = 0.0, message.properties
    if message.expires_ns is None and properties.expiration is not None:
        life = basic.seconds_of(properties.expiration)
    elif message.expires_ns:
        life = (message.expires_ns - now) / native.NANOSECONDS
        if life <= 0:
            return None
    delay = max(0, (message.due_ns or 0) - now) / native.NANOSECONDS
    encoded = b"" if properties == basic.NO_PROPERTIES else basic.encode(properties)
    key = _short("routing_key", message.routing_key or "")
    return PutOptions(life, delay, message.priority, key, encoded, _short("exchange", message.exchange))


def _short(name: str, text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > SHORT_STRING:
        msg = f"{name} of {len(encoded)} bytes: at most {SHORT_STRING} are allowed"
        raise ValueError(msg)
    return encoded
