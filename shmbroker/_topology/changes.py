# SPDX-License-Identifier: Apache-2.0
"""Changes of the topology: each is checked against the table as it is, then becomes a record.

For whoever holds the topology lock and has replayed the journal to its end. What comes back is to be appended and
replayed; no bytes mean that nothing is to be done, since it is so already. Errors are RabbitMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._amqp import field_tables
from shmbroker._topology import exchange as rules
from shmbroker._topology import records
from shmbroker._topology.binding import Binding, Destination, ToExchange, ToQueue
from shmbroker._topology.exchange import Exchange

if TYPE_CHECKING:
    from shmbroker._topology.state import Topology


def require(topology: Topology, name: str) -> Exchange:
    """The exchange that a passive declaration asks for.

    Raises:
        NotFound: there is none.
        AccessRefused: it is the default exchange.
    """
    rules.check_not_default(rules.check_name(name))
    return topology.exchange(name)


def declare(
    topology: Topology,
    name: str,
    kind: str = "direct",
    *,
    durable: bool = False,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: dict[str, Any] | None = None,
) -> bytes:
    """Make an exchange, if there is none of that name.

    Args:
        topology: as it is.
        name: 1 to 255 bytes of UTF-8 without NUL.
        kind: "direct", "fanout", "topic" or "headers".
        durable: whether it is to outlive the broker's memory.
        auto_delete: whether it is to go with the last binding from it.
        internal: whether publishing to it is to be refused.
        arguments: only "alternate-exchange" has a meaning.

    Raises:
        PreconditionFailed: the type is unknown; the exchange exists and differs; an argument cannot be.
        AccessRefused: it is the default exchange, or the name is reserved.
        TypeError: a name is no string, or an argument has no AMQP form.
        ValueError: the name is no possible one, or the arguments are too large.
    """
    rules.check_type(kind)
    rules.check_not_default(rules.check_name(name))
    # Decoded again, they are what every other process will see, and nobody else holds them.
    given = field_tables.decode(field_tables.encode(arguments))
    wanted = Exchange(name, kind, durable, auto_delete, internal, given)
    current = topology.exchanges.get(name)
    if current is not None:
        rules.check_equivalent(current, wanted)
        return b""
    rules.check_new(wanted)
    return records.encode(records.Declared(wanted))


def delete(topology: Topology, name: str, *, if_unused: bool = False) -> bytes:
    """Delete an exchange, and the bindings from it and to it.

    Raises:
        AccessRefused: it is the default exchange or another of the broker's own.
        PreconditionFailed: there are bindings from it, and `if_unused` was given.
    """
    rules.check_deletion(rules.check_name(name))
    if name not in topology.exchanges:
        return b""
    if if_unused:
        rules.check_unused(name, len(topology.bindings_from(name)))
    return records.encode(records.Deleted(name))


def bind(
    topology: Topology,
    source: str,
    destination: Destination,
    routing_key: str = "",
    arguments: dict[str, Any] | None = None,
) -> bytes:
    """Bind a queue or an exchange to an exchange.

    Args:
        topology: as it is.
        source: where messages come from.
        destination: where they go; that a queue is there, and may be bound, is for the caller to see to.
        routing_key: what it matches: nothing for fanout and headers.
        arguments: what it matches, for headers.

    Raises:
        AccessRefused: one of them is the default exchange.
        NotFound: an exchange is not there.
        PreconditionFailed: no exchange of that type can have this binding.
        TypeError: a name is no string, or an argument has no AMQP form.
        ValueError: a name or key is too long, or the arguments are too large.
    """
    binding = _binding(source, destination, routing_key, arguments)
    exchange = topology.exchange(source)
    if isinstance(destination, ToExchange):
        topology.exchange(destination.name)
    rules.check_binding(exchange.type, routing_key, arguments or {})
    if binding in topology.bindings_from(source):
        return b""
    return records.encode(records.Bound(binding))


def unbind(
    topology: Topology,
    source: str,
    destination: Destination,
    routing_key: str = "",
    arguments: dict[str, Any] | None = None,
) -> bytes:
    """Remove a binding; it need not be there.

    Raises:
        AccessRefused: one of the exchanges is the default exchange.
        TypeError: a name is no string, or an argument has no AMQP form.
        ValueError: a name or key is too long, or the arguments are too large.
    """
    binding = _binding(source, destination, routing_key, arguments)
    if binding not in topology.bindings_from(source):
        return b""
    return records.encode(records.Unbound(binding))


def queue_gone(topology: Topology, queue: ToQueue) -> bytes:
    """Remove the bindings to a queue that was deleted."""
    return records.encode(records.QueueGone(queue)) if topology.bindings_to(queue) else b""


def _binding(source: str, destination: Destination, routing_key: str, arguments: dict[str, Any] | None) -> Binding:
    rules.check_name(source)
    rules.check_key(routing_key)
    for name in (destination.name, source):  # a queue has a name
        rules.check_not_default(name)
    return Binding(source, destination, routing_key, field_tables.encode(arguments))
