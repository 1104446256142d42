# SPDX-License-Identifier: Apache-2.0
"""Handles: what stands for a message on its way through Spark, while its body stays in shared memory.

A handle says which broker, which slot, and the slot's generation, which tells the message from those that have the slot
later; besides, for people, queue and sequence. It is valid as long as the message is there: of a stream until its
micro-batch is acknowledged.
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
from shmbroker.spark.home import Home

if TYPE_CHECKING:
    from shmbroker import Connection

_FRONT = struct.Struct("<QQQI")  # sequence, generation, length, slot


@dataclasses.dataclass(frozen=True)
class Origin:
    """What the messages of a queue have in common.

    Attributes:
        home: the broker.
        queue: its name.
    """

    home: Home
    queue: str

    @functools.cached_property
    def written(self) -> bytes:
        """For a handle."""
        home = self.home
        facts = (home.broker, home.host, home.boot, home.created_at, self.queue)
        return json.dumps(facts, separators=(",", ":")).encode()

    def handle_of(self, sequence: int, place: Place) -> bytes:
        """A handle for a row."""
        return _FRONT.pack(sequence, place.generation, place.length, place.slot) + self.written

    @classmethod
    @functools.lru_cache(maxsize=64)
    def read(cls, written: bytes) -> Origin:
        """Of what stands in a handle.

        Raises:
            ValueError: it is none.
        """
        broker, host, boot, created_at, queue = json.loads(written)
        return cls(Home(str(broker), str(host), str(boot), float(created_at)), str(queue))


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """A message.

    Attributes:
        origin: whose it is.
        sequence: of the message.
        place: where it lies.
    """

    origin: Origin
    sequence: int
    place: Place

    @classmethod
    def read(cls, written: bytes) -> Handle:
        """Of a row.

        Raises:
            ValueError: that is no handle.
        """
        try:
            sequence, generation, length, slot = _FRONT.unpack_from(written)
            found = cls(Origin.read(written[_FRONT.size :]), sequence, Place(slot, generation, length))
        except (struct.error, ValueError, TypeError):
            found = None
        if found is None or not body_references.is_possible(found.place):
            msg = f"{written[:80]!r} is no handle: those of a read with payload=handle are"
            raise ValueError(msg)
        return found

    def body(self, connection: Connection) -> memoryview:
        """The body, in place; its slot is kept as long as the memoryview is there.

        Args:
            connection: to the handle's broker.

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
