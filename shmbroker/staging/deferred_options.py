# SPDX-License-Identifier: Apache-2.0
"""The options of staged messages. Time to live and delay count from publishing, so they are stored as text until then.

A staged message has no exchange name, so its field for that name holds the text. The message itself has no time to live
and no delay: while it is staged, it neither expires nor is delayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core import native, record
from shmbroker._core.queue import NO_OPTIONS, PutOptions

if TYPE_CHECKING:
    from shmbroker._core.record import Header
    from shmbroker.message import Message


def defer_times(options: PutOptions) -> PutOptions:
    """Converts the options of a put to their staged form."""
    if not is_timed(options):
        return options
    times = f"{options.ttl_ns} {options.delay_ns}".encode()
    return PutOptions(0, 0, options.priority, options.key, options.properties, times)


def is_timed(options: PutOptions) -> bool:
    """Whether the options have a time to live, or a delay."""
    return bool(options.ttl_ns or options.delay_ns)


def tag_of(message: Message) -> int:
    """Returns the tag by which the core identifies a message that this connection has taken and not settled."""
    return record.header(message._record).tag  # noqa: SLF001 - no other module needs it


class RestoredOptions:
    """Restores the original options of staged messages.

    It caches the last options that it restored: consecutive messages often have the same options.
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        self._options = NO_OPTIONS

    def of(self, data: bytes, header: Header) -> PutOptions:
        """Returns the original options of a record."""
        end = header.key_start + header.key_length + header.properties_length
        if end == record.SIZE and not header.priority:
            return NO_OPTIONS
        known = (data[record.SIZE : end], header.priority, header.exchange_length, header.key_length)
        if known != self._known:
            self._known, self._options = known, self._made(data, header, end)
        return self._options

    def _made(self, data: bytes, header: Header, end: int) -> PutOptions:
        middle = header.key_start + header.key_length
        ttl, delay = _times(data[record.SIZE : header.key_start])
        return PutOptions(ttl, delay, header.priority, data[header.key_start : middle], data[middle:end])


def _times(text: bytes) -> tuple[float, float]:
    ttl, delay = map(int, text.split() or (0, 0))
    return ttl / native.NANOSECONDS, delay / native.NANOSECONDS
