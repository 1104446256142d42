# SPDX-License-Identifier: Apache-2.0
"""Changes of the topology: each is checked against the current table, then becomes a record.

The caller holds the topology lock and has replayed the journal to its end. It appends and replays the returned record.
Empty bytes mean that the change is in effect already. Errors are RabbitMQ's.
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
    """Return the exchange of a passive declaration.

    Raises:
        NotFound: there is no such exchange.
        AccessRefused: the name is that of the default exchange.
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
    """Make an exchange, unless one of that name exists.

    Args:
        topology: the current topology.
        name: 1 to 255 bytes of UTF-8 without NUL.
        kind: "direct", "fanout", "topic" or "headers".
        durable: whether it should outlive the broker's memory.
        auto_delete: whether it ends with the last binding from it.
        internal: whether publishing to it is refused.
        arguments: only "alternate-exchange" has a meaning.

    Raises:
        PreconditionFailed: the type is unknown; the exchange exists and differs; an argument is not possible.
        AccessRefused: the name is that of the default exchange, or is reserved.
        TypeError: a name is no string, or an argument has no AMQP form.
        ValueError: the name breaks the rule, or the arguments are too large.
    """
    rules.check_type(kind)
    rules.check_not_default(rules.check_name(name))
    # Keep a decoded copy: the caller cannot change it later, and it equals what other processes read from the journal.
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
        AccessRefused: it is the default exchange or another predeclared one.
        PreconditionFailed: there are bindings from it, and `if_unused` is set.
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
        topology: the current topology.
        source: the exchange that messages come from.
        destination: the destination of messages; the caller checks that a queue exists and may be bound.
        routing_key: the key or pattern to match; unused for fanout and headers.
        arguments: the criteria to match, for headers.

    Raises:
        AccessRefused: source or destination is the default exchange.
        NotFound: an exchange does not exist.
        PreconditionFailed: an exchange of that type cannot have this binding.
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
    """Remove a binding, if it exists.

    Raises:
        AccessRefused: source or destination is the default exchange.
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
    for name in (destination.name, source):  # never refuses a queue: only the default exchange's name is empty
        rules.check_not_default(name)
    return Binding(source, destination, routing_key, field_tables.encode(arguments))
