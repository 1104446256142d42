# SPDX-License-Identifier: Apache-2.0
"""Handles stand for messages on their way through Spark, while the bodies stay in shared memory.

A handle contains the broker, the slot, and the slot's generation, which distinguishes the message from later ones in
the slot. For error texts, it also contains the queue and the sequence. A handle is valid as long as its message exists.
The messages of a stream exist until their micro-batch is acknowledged.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from typing import TYPE_CHECKING

import shmbroker
from shmbroker import body_references
from shmbroker.body_references import Place
from shmbroker.spark.broker_identity import BrokerIdentity

if TYPE_CHECKING:
    from shmbroker import Connection

_HEADER = struct.Struct("<QQQI")  # sequence, generation, length, slot


@dataclasses.dataclass(frozen=True)
class Origin:
    """The part that all handles of one queue have in common.

    Attributes:
        broker_identity: the broker.
        queue: the name of the queue.
    """

    broker_identity: BrokerIdentity
    queue: str

    @functools.cached_property
    def written(self) -> bytes:
        """The encoded form, for a handle."""
        broker_identity = self.broker_identity
        facts = (
            broker_identity.broker,
            broker_identity.host,
            broker_identity.boot,
            broker_identity.created_at,
            self.queue,
        )
        return json.dumps(facts, separators=(",", ":")).encode()

    def handle_of(self, sequence: int, place: Place) -> bytes:
        """Makes a handle for a row."""
        return _HEADER.pack(sequence, place.generation, place.length, place.slot) + self.written

    @classmethod
    @functools.lru_cache(maxsize=64)
    def read(cls, written: bytes) -> Origin:
        """Decodes the common part of a handle.

        Raises:
            ValueError: the bytes are not the encoded common part.
            TypeError: likewise, if they are JSON in which a value has another type.
        """
        broker, host, boot, created_at, queue = json.loads(written)
        return cls(BrokerIdentity(str(broker), str(host), str(boot), float(created_at)), str(queue))


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """A handle of a message.

    Attributes:
        origin: the broker and queue of the message.
        sequence: the sequence of the message.
        place: the place of the body.
    """

    origin: Origin
    sequence: int
    place: Place

    @classmethod
    def read(cls, written: bytes) -> Handle:
        """Decodes the handle of a row.

        Raises:
            ValueError: the bytes are no handle.
        """
        try:
            sequence, generation, length, slot = _HEADER.unpack_from(written)
            found = cls(Origin.read(written[_HEADER.size :]), sequence, Place(slot, generation, length))
        except (struct.error, ValueError, TypeError):
            found = None
        if found is None or not body_references.is_possible(found.place):
            msg = f"{written[:80]!r} is not a handle: a read with payload=handle makes handles"
            raise ValueError(msg)
        return found

    def body(self, connection: Connection) -> memoryview:
        """Returns the body: in place, or a copy in the cases that :func:`body_references.body_at` lists.

        The slot of a body that is read in place is not freed while the memoryview exists.

        Args:
            connection: a connection to the handle's broker.

        Raises:
            StaleHandle: the message is gone.
        """
        found = body_references.body_at(connection, self.place)
        if found is None:
            text = (
                f"NOT_FOUND - message {self.sequence} of queue {self.origin.queue!r} is gone: "
                f"it was acknowledged, consumed or has expired since its handle was made"
            )
            raise shmbroker.StaleHandle(404, text)
        return found
