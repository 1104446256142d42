# SPDX-License-Identifier: Apache-2.0
"""Bindings: from an exchange to a queue or to another exchange.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

from typing import Any, NamedTuple

from shmbroker._amqp import field_tables

ANY_INCARNATION = 0
"""Stands for the incarnation of whichever queue has the name now. Bindings have a real incarnation."""


class ToQueue(NamedTuple):
    """A queue as destination; a queue that is deleted and declared again is a different destination."""

    name: str
    incarnation: int


class ToExchange(NamedTuple):
    """An exchange as destination."""

    name: str


Destination = ToQueue | ToExchange


class Binding(NamedTuple):
    """A binding; two bindings are the same if all fields are equal.

    Attributes:
        source: The name of the exchange that the binding leads from.
        destination: The queue or exchange that it leads to.
        routing_key: The routing key or pattern, as given. Exchanges of type fanout or headers do not use it.
        table: The arguments as `shmbroker._amqp.field_tables` encodes them.
    """

    source: str
    destination: Destination
    routing_key: str = ""
    table: bytes = b""

    @property
    def arguments(self) -> dict[str, Any]:
        """The decoded arguments."""
        return field_tables.decode(self.table)
