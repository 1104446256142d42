# SPDX-License-Identifier: Apache-2.0
"""Counts the ready messages that a compiled selector selects, also by the value of a property or header."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shmbroker._amqp import wire
from shmbroker._core import native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker._core.queue import CoreQueue

ffi, slow = native.ffi, native.slow
_AT_ONCE = 65_536  # messages that a call looks at: between the calls, signals are handled
_ROOM = 256 << 10  # bytes of values; the longest value has fewer than SB_MAX_PREFIX
_SIZES = {b"V": 1, b"t": 2, b"l": 9, b"d": 9}  # bytes of an encoded value, with its type letter
_COUNTED = 5  # bytes in front of a text: its type letter and its length


class Selected:
    """Runs compiled selectors over the properties of a message that is not stored yet.

    Args:
        properties: the encoded properties.
        priority: the priority of the message.

    Attributes:
        asked: whether any selector was run.
    """

    def __init__(self, properties: bytes, priority: int) -> None:
        self._properties, self._priority = properties, priority
        self.asked = False

    def by(self, selector: bytes) -> bool:
        """Whether a selector selects the message. Of damaged properties, none does."""
        self.asked = True
        selected = native.fast.sb_selector_selects(
            selector, len(selector), self._properties, len(self._properties), self._priority, time.time_ns()
        )
        return bool(selected)


def count(queue: CoreQueue, selector: bytes) -> int:
    """Returns the number of ready messages that a program selects; ``b""`` selects all.

    Raises:
        NotFound: the queue is deleted.
        CorruptSegment: the properties of a message are damaged.
    """
    return sum(found for found, _ in _selected(queue, selector, b""))


def count_by(queue: CoreQueue, selector: bytes, group: bytes) -> dict[Any, int]:
    """Returns the number of selected messages for each value of a program, the most frequent value first.

    A value that is a list or a table counts as ``None``, like a missing one.

    Raises:
        NotFound: the queue is deleted.
        CorruptSegment: the properties of a message are damaged.
    """
    encoded: dict[bytes, int] = {}
    for _, values in _selected(queue, selector, group):
        at = 0
        while at < len(values):
            end = at + (_SIZES.get(values[at : at + 1]) or _COUNTED + int.from_bytes(values[at + 1 : at + 5], "big"))
            value = values[at:end]
            encoded[value] = encoded.get(value, 0) + 1
            at = end
    found: dict[Any, int] = {}
    for value, times in encoded.items():
        decoded = _decoded(value)
        found[decoded] = found.get(decoded, 0) + times
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _decoded(value: bytes) -> Any:  # noqa: ANN401 - any value of a header
    decoded = wire.decoder().embedded_value(value)[1]
    return bytes(decoded) if isinstance(decoded, bytearray) else decoded


def _selected(queue: CoreQueue, selector: bytes, group: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields, for some messages at a time, how many are selected, and the encoded values of the group."""
    at, status = ffi.new("uint64_t *"), ffi.new("sb_status *", native.OK)
    values, memory = ffi.new("char[]", _ROOM if group else 0), ffi.new("char[]", slow.SB_MAX_PREFIX)
    programs = ffi.from_buffer("char[]", selector), ffi.from_buffer("char[]", group)
    selection = ffi.new(
        "sb_selection *",
        {
            "selector": programs[0],
            "selector_length": len(selector),
            "group": programs[1],
            "group_length": len(group),
            "values": values,
            "room": len(values),
            "memory": memory,
        },
    )
    while status[0] in {native.OK, native.FULL, native.GROW}:
        if status[0] == native.GROW:
            queue.connection.attachment.grow()
        with queue.connection.call():
            found = int(slow.sb_queue_select(queue.handle, at, _AT_ONCE, selection, status))
        yield found, bytes(ffi.buffer(values, selection.used))
    if status[0] != native.EMPTY:
        native.raise_for(int(status[0]), queue.what)
