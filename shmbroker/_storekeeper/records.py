# SPDX-License-Identifier: Apache-2.0
"""The record of a queue in the store: what is needed to declare it again, and which queue of the memory it is.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import json
from typing import Any, NamedTuple

from shmbroker.exceptions import StoreError
from shmbroker.settings import ROWS, QueueSettings


class QueueRecord(NamedTuple):
    """A queue of the store.

    Attributes:
        name: the name of the queue.
        instance: the number of the broker's memory that has the queue.
        incarnation: the number of the queue within that memory.
        settings: its settings.
        given: the names of the settings that were given for the queue; address settings determine the others.
        flags: further flags of the queue, as the core has them.
        birth: a number that distinguishes the queue from all others for ever; 0: an earlier version wrote the record.
    """

    name: str
    instance: int
    incarnation: int
    settings: QueueSettings
    given: frozenset[str]
    flags: int
    birth: int = 0


def encode(record: QueueRecord) -> bytes:
    """Encodes a record."""
    kept = {name: getattr(record.settings, name) for name in ROWS}
    fields = {**record._asdict(), "settings": kept, "given": sorted(record.given)}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(encoded: bytes) -> QueueRecord:
    """Decodes a record.

    Raises:
        StoreError: it has fields that this version does not know, or lacks some.
    """
    try:
        found: dict[str, Any] = json.loads(encoded)
        settings = QueueSettings(**found.pop("settings"))
        return QueueRecord(settings=settings, given=frozenset(found.pop("given")), **found)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(text=f"the record of a queue in the store cannot be read: {error}") from error
