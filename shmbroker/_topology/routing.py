# SPDX-License-Identifier: Apache-2.0
"""Routing: finds the queues that get a message published to an exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._topology import ordered
from shmbroker._topology.binding import ANY_INCARNATION, Binding, Destination, ToExchange, ToQueue
from shmbroker._topology.exchange import DEFAULT, Exchange, missing
from shmbroker._topology.filters import Filters, has_filter
from shmbroker._topology.matching import Matcher, matcher_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from shmbroker._topology.state import Topology


def selects_nothing(_selector: bytes) -> bool:
    """Answers for a message of which nothing is known: no filter of a binding selects it."""
    return False


class Router:
    """Finds routes in a topology. It follows each change of the topology at a cost that depends only on the change.

    Args:
        topology: the topology to route by, now and after each replay.
    """

    def __init__(self, topology: Topology) -> None:
        self._matchers: dict[str, Matcher] = {}
        self._filters: dict[str, Filters] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._alternates: dict[str, ToExchange] = {}
        topology.observe(self)

    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, Any] | None = None,
        keys: tuple[str, ...] = (),
        selects: Callable[[bytes], bool] = selects_nothing,
    ) -> tuple[ToQueue, ...]:
        """Find the queues that get a message.

        An exchange without a destination for the message passes it to its alternate exchange, if it has one. Exchanges
        that are bound in a circle, or are alternates of each other, are visited once.

        Args:
            exchange: the exchange of the publish; the caller checks that clients may publish to it.
            routing_key: the routing key of the message.
            headers: the headers of the message, as the publisher gave them or as they were decoded.
            keys: further routing keys (of the headers CC and BCC).
            selects: whether a compiled selector selects the message, for bindings with a filter. If it is not called,
                no filter has to do with the route.

        Returns:
            Names and incarnations, each queue once: first the queues bound to the exchange, oldest binding first, then
            the queues bound to exchanges that are bound to it, and so on. A queue reached only by the default exchange
            has `ANY_INCARNATION`, and need not exist.

        Raises:
            NotFound: there is no such exchange.
        """
        if exchange not in self._matchers:
            raise missing(exchange)
        wanted = (routing_key, *keys)
        queues: dict[ToQueue, None] = {}
        pending = [exchange]
        seen = {exchange}
        for name in pending:  # the loop extends the list
            for to in self._destinations(name, wanted, headers or {}, selects):
                if isinstance(to, ToQueue):
                    queues[to] = None
                elif to.name not in seen:
                    seen.add(to.name)
                    pending.append(to.name)
        return _each_once(queues) if DEFAULT in seen else tuple(queues)

    def _destinations(
        self, exchange: str, keys: tuple[str, ...], headers: Mapping[str, Any], selects: Callable[[bytes], bool]
    ) -> Collection[Destination]:
        if exchange == DEFAULT:
            return [ToQueue(key, ANY_INCARNATION) for key in keys]
        matcher = self._matchers.get(exchange)
        if matcher is None:
            return ()  # an alternate exchange need not exist
        leaves = matcher.leaves(keys, headers)
        if exchange in self._filters:
            leaves += self._filters[exchange].leaves(keys, headers, selects)
        found = ordered.things(leaves[0]) if len(leaves) == 1 else ordered.merged(leaves)
        alternate = self._alternates.get(exchange)
        return found if found or alternate is None else (alternate,)

    def declared(self, exchange: Exchange) -> None:
        """Adds a new exchange of the topology."""
        self._matchers[exchange.name] = matcher_for(exchange)
        self._exchanges[exchange.name] = exchange
        if exchange.alternate is not None:
            self._alternates[exchange.name] = ToExchange(exchange.alternate)

    def deleted(self, exchange: Exchange) -> None:
        """Removes a deleted exchange of the topology."""
        del self._matchers[exchange.name], self._exchanges[exchange.name]
        self._filters.pop(exchange.name, None)
        self._alternates.pop(exchange.name, None)

    def bound(self, binding: Binding, order: int) -> None:
        """Adds a new binding of the topology."""
        self._part(binding).add(binding, order)

    def unbound(self, binding: Binding, order: int) -> None:
        """Removes a binding that the topology lost."""
        self._part(binding).remove(binding, order)

    def _part(self, binding: Binding) -> Matcher | Filters:
        """Returns what has the bindings like this one: the matcher of the exchange, or its bindings with filters."""
        source = binding.source
        if not has_filter(binding):
            return self._matchers[source]
        if source not in self._filters:
            self._filters[source] = Filters(self._exchanges[source])
        return self._filters[source]


def _each_once(queues: Collection[ToQueue]) -> tuple[ToQueue, ...]:
    """Returns each queue once.

    The default exchange adds a queue by its name only, with ``ANY_INCARNATION``. If a binding also added a queue of
    that name, with its incarnation, the entry of the default exchange is left out.
    """
    bound = {queue.name for queue in queues if queue.incarnation != ANY_INCARNATION}
    return tuple(queue for queue in queues if queue.incarnation != ANY_INCARNATION or queue.name not in bound)
