# SPDX-License-Identifier: Apache-2.0
"""The settings of a queue in the core's form: numbers in an array, flags in a word, strings in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp import field_tables
from shmbroker._core import native
from shmbroker.settings import ROWS, QueueSettings

if TYPE_CHECKING:
    from shmbroker._core.facts import QueueFacts

ffi, slow = native.ffi, native.slow
_NUMBERS = [(name, row.kind, getattr(slow, str(row.core))) for name, row in ROWS.items() if row.is_number]
_FLAGS = [(name, getattr(slow, str(row.core))) for name, row in ROWS.items() if row.is_flag]
_TEXTS = [name for name, row in ROWS.items() if row.core is None]
_OTHERS: int = slow.SB_QUEUE_PAUSED | slow.SB_QUEUE_KEEPS | slow.SB_QUEUE_NOTES | slow.SB_QUEUE_STAGE


def decoded_settings(facts: QueueFacts, texts: bytes = b"") -> tuple[QueueSettings, int]:
    """Decodes the settings of a queue; returns also which of the flags PAUSED, KEEPS, NOTES and STAGE the queue has.

    Args:
        facts: the core's facts of the queue.
        texts: the encoded table of the settings whose values are strings; empty: there are none.
    """
    found = facts.settings
    values: dict[str, Any] = {name: kind.from_core(found.values[index]) for name, kind, index in _NUMBERS}
    values.update((name, bool(found.flags & flag)) for name, flag in _FLAGS)
    if texts:
        values.update(_texts_in(texts))
    return QueueSettings(**values), int(found.flags) & _OTHERS


def _texts_in(encoded: bytes) -> dict[str, Any]:
    try:
        return {name: value for name, value in field_tables.decode(encoded).items() if name in _TEXTS}
    except ValueError as error:
        raise exceptions.CorruptSegment(text=f"the texts of a queue's settings are damaged: {error}") from error


def encoded_settings(settings: QueueSettings, flags: int) -> tuple[Any, object]:
    """Encodes settings; returns the structure, and an object that must live as long as the structure is used."""
    pointer = ffi.new("sb_settings *")
    for name, kind, index in _NUMBERS:
        pointer.values[index] = kind.to_core(getattr(settings, name))
    for name, flag in _FLAGS:
        flags |= flag if getattr(settings, name) else 0
    if settings.dead_letter_exchange is not None:
        flags |= slow.SB_QUEUE_DEAD_LETTERS
    texts = {name: value for name in _TEXTS if (value := getattr(settings, name)) is not None}
    encoded = ffi.from_buffer(field_tables.encode(texts)) if texts else ffi.NULL
    pointer.flags, pointer.texts, pointer.texts_length = flags, encoded, len(encoded) if texts else 0
    return pointer, encoded
