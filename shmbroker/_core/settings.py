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
_OTHERS: int = (
    slow.SB_QUEUE_PAUSED | slow.SB_QUEUE_KEEPS | slow.SB_QUEUE_NOTES | slow.SB_QUEUE_STAGE | slow.SB_QUEUE_AUTO_CREATED
)
_GIVEN: int = slow.SB_SETTINGS_GIVEN
_BIRTH: int = slow.SB_SETTINGS_BIRTH
_FLAG_SHIFT, _TEXT_SHIFT = 32, 56
PERSISTENT_PAUSE = "pause"
"""Stands among the names of the settings that were given for a queue: its pause was, so that it outlives the memory."""
# The bit of each setting in the word of the core that says which settings were given for a queue.
_BITS = {
    PERSISTENT_PAUSE: slow.SB_QUEUE_PAUSED << _FLAG_SHIFT,
    **{name: 1 << index for name, _, index in _NUMBERS},
    **{name: flag << _FLAG_SHIFT for name, flag in _FLAGS},
    **{name: 1 << _TEXT_SHIFT + index for index, name in enumerate(_TEXTS)},
}
ALL_GIVEN = frozenset(ROWS)
"""Stands for a queue all of whose settings were given, so that it takes none of the address settings."""


def decoded_settings(facts: QueueFacts, texts: bytes = b"") -> tuple[QueueSettings, int]:
    """Decodes the settings of a queue; returns also which of the flags of `CoreQueue.settings` the queue has.

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


def given_settings(facts: QueueFacts) -> frozenset[str]:
    """Returns the names of the settings that were given for a queue, and perhaps `PERSISTENT_PAUSE`.

    Address settings determine the other settings.
    """
    word = facts.settings.values[_GIVEN]
    return ALL_GIVEN if word < 0 else frozenset(name for name, bit in _BITS.items() if word & bit)


def _texts_in(encoded: bytes) -> dict[str, Any]:
    try:
        return {name: value for name, value in field_tables.decode(encoded).items() if name in _TEXTS}
    except ValueError as error:
        raise exceptions.CorruptSegment(text=f"the texts of a queue's settings are damaged: {error}") from error


def birth_of(facts: QueueFacts) -> int:
    """A random number that distinguishes a queue from all others; a start from the store gives the queue the same."""
    return facts.settings.values[_BIRTH]


def is_durable(facts: QueueFacts) -> bool:
    """Whether a queue is durable, and not exclusive: then the store keeps it, if the broker has one."""
    return bool(facts.settings.flags & (slow.SB_QUEUE_DURABLE | slow.SB_QUEUE_EXCLUSIVE) == slow.SB_QUEUE_DURABLE)


def encoded_settings(
    settings: QueueSettings, flags: int, given: frozenset[str] = ALL_GIVEN, birth: int = 0
) -> tuple[Any, object]:
    """Encodes settings; returns the structure, and an object that must live as long as the structure is used.

    Args:
        settings: the settings.
        flags: further flags of the queue, as `CoreQueue.settings` returns them.
        given: the names of the settings that were given for the queue.
        birth: the number that :func:`birth_of` returns for the queue.
    """
    pointer = ffi.new("sb_settings *")
    pointer.values[_GIVEN], pointer.values[_BIRTH] = sum(_BITS[name] for name in given), birth
    for name, kind, index in _NUMBERS:
        pointer.values[index] = kind.to_core(getattr(settings, name))
    for name, flag in _FLAGS:
        flags |= flag if getattr(settings, name) else 0
    if settings.dead_letter_exchange is not None:
        flags |= slow.SB_QUEUE_DEAD_LETTERS
    if settings.expiry_exchange is not None:
        flags |= slow.SB_QUEUE_EXPIRY_LETTERS
    if settings.last_value_key is not None:
        flags |= slow.SB_QUEUE_LAST_VALUE
    if settings.sort_key is not None:
        flags |= slow.SB_QUEUE_SORTED
    texts = {name: value for name in _TEXTS if (value := getattr(settings, name)) is not None}
    encoded = ffi.from_buffer(field_tables.encode(texts)) if texts else ffi.NULL
    pointer.flags, pointer.texts, pointer.texts_length = flags, encoded, len(encoded) if texts else 0
    return pointer, encoded
