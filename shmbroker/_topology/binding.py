# SPDX-License-Identifier: Apache-2.0
"""Bindings: from an exchange to a queue or to another exchange."""

from __future__ import annotations

from typing import Any, NamedTuple

from shmbroker._amqp import field_tables

ANY_INCARNATION = 0
"""Of a queue that is meant by its name alone: whichever has it now. Bindings always name one incarnation."""


class ToQueue(NamedTuple):
    """A queue as destination: one that is deleted and declared anew is another one."""

    name: str
    incarnation: int


class ToExchange(NamedTuple):
    """An exchange as destination."""

    name: str


Destination = ToQueue | ToExchange


class Binding(NamedTuple):
    """A binding, which is the same as another one if all of it is.

    Attributes:
        source: The exchange it leads from.
        destination: Where it leads.
        routing_key: What it matches, if the type of the exchange looks at it.
        table: Its arguments as `shmbroker._amqp.field_tables` encodes them.
    """

    source: str
    destination: Destination
    routing_key: str = ""
    table: bytes = b""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments."""
        return field_tables.decode(self.table)
