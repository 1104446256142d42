# SPDX-License-Identifier: Apache-2.0
"""The journal of the topology: each change is a record of bytes.

A record is a head of fixed size, little endian, then three short strings, then a table that takes the remaining bytes:

    u32 length of the whole | u8 version | u8 kind | u8 flags | 3 x u8 lengths of the strings | u64 number

    kind          flags                                    strings                           number       table
    1 declared    1 durable, 2 auto_delete, 4 internal     name, type                                     arguments
    2 deleted                                              name
    3 bound       1 to a queue (else to an exchange)       source, destination, routing key  incarnation  arguments
    4 unbound     as bound
    5 queue gone                                           name                              incarnation
    6 address settings                                     match                                          settings
    7 address settings removed                             match

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from shmbroker._amqp import field_tables
from shmbroker._topology import address_rows
from shmbroker._topology.address_matching import check_match
from shmbroker._topology.binding import Binding, ToExchange, ToQueue
from shmbroker._topology.exchange import TYPES, Exchange
from shmbroker.exceptions import CorruptSegment

VERSION = 1
_HEAD = struct.Struct("<IBBBBBBQ")
_DECLARED, _DELETED, _BOUND, _UNBOUND, _QUEUE_GONE, _ADDRESS, _ADDRESS_GONE = range(1, 8)
_DURABLE, _AUTO_DELETE, _INTERNAL = 1, 2, 4
_TO_QUEUE = 1


class Declared(NamedTuple):
    """An exchange was declared."""

    exchange: Exchange


class Deleted(NamedTuple):
    """An exchange was deleted."""

    name: str


class Bound(NamedTuple):
    """A binding was made."""

    binding: Binding


class Unbound(NamedTuple):
    """A binding was removed."""

    binding: Binding


class QueueGone(NamedTuple):
    """A queue was deleted."""

    queue: ToQueue


class AddressSet(NamedTuple):
    """The settings that a match gives to addresses, in place of those that it gave before."""

    match: str
    settings: Mapping[str, Any]


class AddressRemoved(NamedTuple):
    """A match gives no settings any more."""

    match: str


Change = Declared | Deleted | Bound | Unbound | QueueGone | AddressSet | AddressRemoved


class _Fields(NamedTuple):
    """The fields of a decoded record."""

    kind: int
    flags: int
    number: int
    first: str
    second: str
    third: str
    table: bytes


def encode(change: Change) -> bytes:
    """Encodes a change as a record.

    Raises:
        TypeError: an argument has no AMQP form.
        ValueError: the arguments are too large.
    """
    match change:
        case Declared(exchange):
            flags = _DURABLE * exchange.durable | _AUTO_DELETE * exchange.auto_delete | _INTERNAL * exchange.internal
            table = field_tables.encode(exchange.arguments)
            return _joined(_DECLARED, flags, 0, exchange.name, exchange.type, table=table)
        case Deleted(name):
            return _joined(_DELETED, 0, 0, name)
        case Bound(binding):
            return _binding(_BOUND, binding)
        case Unbound(binding):
            return _binding(_UNBOUND, binding)
        case QueueGone(queue):
            return _joined(_QUEUE_GONE, 0, queue.incarnation, queue.name)
        case AddressSet() | AddressRemoved():
            return _encoded_address(change)


def _encoded_address(change: AddressSet | AddressRemoved) -> bytes:
    if isinstance(change, AddressSet):
        return _joined(_ADDRESS, 0, 0, change.match, table=field_tables.encode(dict(change.settings)))
    return _joined(_ADDRESS_GONE, 0, 0, change.match)


def _binding(kind: int, binding: Binding) -> bytes:
    source, to, routing_key, table = binding
    flags, number = (_TO_QUEUE, to.incarnation) if isinstance(to, ToQueue) else (0, 0)
    return _joined(kind, flags, number, source, to.name, routing_key, table=table)


def _joined(kind: int, flags: int, number: int, *strings: str, table: bytes = b"") -> bytes:
    encoded = [one.encode() for one in strings]
    lengths = [len(one) for one in encoded] + [0] * (3 - len(encoded))
    body = b"".join((*encoded, table))
    return _HEAD.pack(_HEAD.size + len(body), VERSION, kind, flags, *lengths, number) + body


def decode(data: bytes) -> Iterator[tuple[Change, int]]:
    """Decodes whole records: yields the change of each, and the length of the record in bytes.

    Raises:
        CorruptSegment: a record is invalid; the text says where, and why.
    """
    at = 0
    while at < len(data):
        try:
            fields, length = _taken_apart(data, at)
            yield _READERS[fields.kind](fields), length
        except ValueError as error:
            text = f"the topology's journal is damaged: record at byte {at} of {len(data)}: {error}"
            raise CorruptSegment(text=text) from error
        at += length


def _taken_apart(data: bytes, at: int) -> tuple[_Fields, int]:
    if at + _HEAD.size > len(data):
        msg = f"{len(data) - at} bytes are less than a header of {_HEAD.size}"
        raise ValueError(msg)
    length, version, kind, flags, first, second, third, number = _HEAD.unpack_from(data, at)
    if version != VERSION:
        msg = f"its version is {version}, not {VERSION}"
        raise ValueError(msg)
    if kind not in _READERS:
        msg = f"its kind {kind} is unknown"
        raise ValueError(msg)
    one = at + _HEAD.size
    two = one + first
    three = two + second
    rest = three + third
    end = at + length
    if not rest <= end <= len(data):
        msg = f"its length {length} is not that of what it holds ({rest - at} and a table) or ends after the data"
        raise ValueError(msg)
    strings = data[one:two].decode(), data[two:three].decode(), data[three:rest].decode()
    return _Fields(kind, flags, number, *strings, data[rest:end]), length


def _declared(fields: _Fields) -> Declared:
    if fields.second not in TYPES:
        msg = f"its type of exchange {fields.second!r} is unknown"
        raise ValueError(msg)
    return Declared(
        Exchange(
            fields.first,
            fields.second,
            durable=bool(fields.flags & _DURABLE),
            auto_delete=bool(fields.flags & _AUTO_DELETE),
            internal=bool(fields.flags & _INTERNAL),
            arguments=field_tables.decode(fields.table),
        )
    )


def _bound(fields: _Fields) -> Binding:
    _, flags, number, source, name, routing_key, table = fields
    field_tables.fields(table)  # raises now if the table is damaged, not when a caller reads it
    # Interning saves memory: every process has all bindings of the broker, and many of them have the same source.
    to = ToQueue(name, number) if flags & _TO_QUEUE else ToExchange(name)
    return Binding(sys.intern(source), to, routing_key, table)


def _address(fields: _Fields) -> AddressSet:
    try:
        settings = address_rows.validate(field_tables.decode(fields.table))
    except TypeError as error:
        raise ValueError(str(error)) from error
    return AddressSet(check_match(fields.first), settings)


_READERS: dict[int, Callable[[_Fields], Change]] = {
    _DECLARED: _declared,
    _DELETED: lambda fields: Deleted(fields.first),
    _BOUND: lambda fields: Bound(_bound(fields)),
    _UNBOUND: lambda fields: Unbound(_bound(fields)),
    _QUEUE_GONE: lambda fields: QueueGone(ToQueue(fields.first, fields.number)),
    _ADDRESS: _address,
    _ADDRESS_GONE: lambda fields: AddressRemoved(fields.first),
}
