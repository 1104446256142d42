# SPDX-License-Identifier: Apache-2.0
"""Changes of the topology: each is checked against the current table, then becomes a record.

A function that is named after a change checks it and returns its record: empty bytes if the change is in effect
already. It does not change the table. `Exchanges.change` (shared.py) holds the topology lock and has replayed the
journal when it calls such a function; it appends the record, and a replay then changes the table. A caller that wants
only the checks discards the record, and needs no lock. Errors are RabbitMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp import field_tables
from shmbroker._amqp.errors import amqp_error
from shmbroker._topology import address_rows, records
from shmbroker._topology import exchange as rules
from shmbroker._topology.address_matching import check_match
from shmbroker._topology.binding import Binding, Destination, ToExchange, ToQueue
from shmbroker._topology.exchange import Exchange
from shmbroker._topology.filters import check_filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmbroker._topology.state import Topology


def require(topology: Topology, name: str) -> Exchange:
    """Return the exchange that a passive declaration names.

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
    """Return the record that makes an exchange; empty: an equivalent exchange of that name exists.

    Args:
        topology: the current topology.
        name: 1 to 255 bytes of UTF-8 without NUL.
        kind: "direct", "fanout", "topic" or "headers".
        durable: declarations compare it, and nothing else: every exchange lives as long as the broker's memory.
        auto_delete: whether it ends with the last binding from it.
        internal: whether publishing to it is refused.
        arguments: only "alternate-exchange" has a meaning.

    Raises:
        PreconditionFailed: the type is unknown; the exchange exists and differs; "alternate-exchange" is no string.
        AccessRefused: the name is that of the default exchange, or is reserved.
        TypeError: a name is no string, or an argument has no AMQP form.
        ValueError: the name breaks the rule, or the arguments are too large.
    """
    rules.check_type(kind)
    rules.check_not_default(rules.check_name(name))
    # Encode and decode the arguments: the caller cannot change this copy, and other processes will decode an equal one.
    given = field_tables.decode(field_tables.encode(arguments))
    wanted = Exchange(name, kind, durable, auto_delete, internal, given)
    current = topology.exchanges.get(name)
    if current is not None:
        rules.check_equivalent(current, wanted)
        return b""
    rules.check_new(wanted)
    return records.encode(records.Declared(wanted))


def delete(topology: Topology, name: str, *, if_unused: bool = False) -> bytes:
    """Return the record that deletes an exchange, with the bindings from it and to it; empty: it does not exist.

    Raises:
        AccessRefused: the name is that of the default exchange, or is reserved, like those of predeclared exchanges.
        PreconditionFailed: there are bindings from it, and `if_unused` is set.
        TypeError: the name is no string.
        ValueError: the name breaks the rule.
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
    """Return the record that binds a queue or an exchange to an exchange; empty: the binding exists.

    Args:
        topology: the current topology.
        source: the exchange that messages come from.
        destination: the destination of messages; the caller checks that a queue exists and may be bound.
        routing_key: the key or pattern to match; unused for fanout and headers.
        arguments: the criteria to match, for headers; and the filter, see `filters.py`.

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
    check_filter(arguments or {})
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
    """Return the record that removes a binding; empty: there is no such binding.

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
    """Return the record that removes the bindings to a deleted queue; empty: there are no bindings to it."""
    return records.encode(records.QueueGone(queue)) if topology.bindings_to(queue) else b""


def set_address(topology: Topology, match: str, given: Mapping[str, Any]) -> bytes:
    """Return the record that gives addresses the settings `given`; what `match` gave before stays for all others.

    Args:
        topology: the current topology.
        match: the name of an address, or a pattern (:mod:`shmbroker._topology.address_matching`).
        given: address settings.

    Returns:
        The record; empty: the match gives these settings already.

    Raises:
        TypeError: the match is no string, or a name is not that of an address setting.
        ValueError: the match or a value is not allowed, two values of the match do not go together, or no setting is
            given.
    """
    check_match(match)
    checked = address_rows.validate(given)
    if not checked:
        msg = f"match={match!r}: give at least one setting; there are {', '.join(address_rows.ADDRESS_ROWS)}"
        raise ValueError(msg)
    current = topology.addresses.entries.get(match, {})
    wanted = {**current, **checked}
    address_rows.check_together(match, wanted)
    return b"" if wanted == current else records.encode(records.AddressSet(match, wanted))


def remove_address(topology: Topology, match: str, names: tuple[str, ...]) -> bytes:
    """Return the record that removes settings of a match; without names, all of them.

    Raises:
        TypeError: the match is no string, or a name is not that of an address setting.
        ValueError: the match is not allowed.
        NotFound: the match does not give these settings, or any.
    """
    check_match(match)
    address_rows.check_names(names)
    current = topology.addresses.entries.get(match)
    if current is None:
        raise amqp_error(exceptions.NotFound, f"no address settings for match '{match}'")
    for name in names:
        if name not in current:
            text = f"match '{match}' gives no {name}; it gives {', '.join(current)}"
            raise amqp_error(exceptions.NotFound, text)
    left = {name: value for name, value in current.items() if name not in names} if names else {}
    return records.encode(records.AddressSet(match, left) if left else records.AddressRemoved(match))


def _binding(source: str, destination: Destination, routing_key: str, arguments: dict[str, Any] | None) -> Binding:
    rules.check_name(source)
    rules.check_key(routing_key)
    for name in (destination.name, source):  # a queue's name is not empty, so a queue always passes
        rules.check_not_default(name)
    return Binding(source, destination, routing_key, field_tables.encode(arguments))
