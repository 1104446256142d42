# SPDX-License-Identifier: Apache-2.0
"""The operations of a connection on queues, exchanges and bindings. Codes and texts of errors are RabbitMQ's."""

from __future__ import annotations

import binascii
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import exceptions
from shmbroker import settings as queue_settings
from shmbroker._amqp.errors import amqp_error, no_queue
from shmbroker._amqp.names import RESERVED, check_not_reserved
from shmbroker._amqp.utf8 import SHORT_STRING, size_in_utf8
from shmbroker._core import journal
from shmbroker._topology import changes
from shmbroker._topology.binding import ToExchange, ToQueue
from shmbroker._topology.exchange import check_not_default, missing
from shmbroker._topology.shared import exchanges_of
from shmbroker.statistics import BindingInfo, ExchangeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._topology.addresses import Addresses
    from shmbroker._topology.shared import Exchanges


class DeclareOk(NamedTuple):
    """The result of :meth:`Channel.queue_declare`.

    Attributes:
        queue: the name of the queue.
        message_count: the number of ready messages.
        consumer_count: the number of consumers.
    """

    queue: str
    message_count: int
    consumer_count: int


def generated_name(kind: str) -> str:
    """Generates a random name: ``amq.<kind>-`` and 22 random characters. Does not check whether it is in use."""
    # As base64.urlsafe_b64encode, whose module takes twenty times as long to import as this one.
    drawn = binascii.b2a_base64(os.urandom(16), newline=False).rstrip(b"=").decode()
    return f"{RESERVED}{kind}-{drawn.replace('+', '-').replace('/', '_')}"


def clean_name(name: object, what: str) -> str:
    """Removes CR and LF from a name, checks it by AMQP's rule, and returns it.

    The rule: at most 255 bytes of UTF-8 without NUL. ``what`` says in the error what the name is for.

    Raises:
        TypeError: the name is no string.
        ValueError: the name is too long, contains a NUL, or cannot be encoded in UTF-8.
    """
    if not isinstance(name, str):
        msg = f"{what} {name!r}: a string is needed"
        raise TypeError(msg)
    cleaned = name.replace("\r", "").replace("\n", "")
    size = size_in_utf8(cleaned)
    if size is None or size > SHORT_STRING or "\0" in cleaned:
        msg = f"{what} {name!r}: at most {SHORT_STRING} bytes of UTF-8 without NUL are allowed"
        raise ValueError(msg)
    return cleaned


class Administration:
    """Declares, binds and deletes for one connection.

    Args:
        core: the connection.
        open_queue: takes the name of a queue and returns the core's handle of that queue; ``None``: there is no such
            queue. The connection keeps the handle open.
        deadline: returns the deadline of an operation that begins now.
        addresses: the address settings.
    """

    def __init__(
        self,
        core: CoreConnection,
        open_queue: Callable[[str], CoreQueue | None],
        deadline: Callable[[], int],
        addresses: Addresses,
    ) -> None:
        self._core, self._open, self._deadline, self._addresses = core, open_queue, deadline, addresses

    @property
    def exchanges(self) -> Exchanges:
        """The exchanges of the broker."""
        return exchanges_of(self._core)

    # ---- queues ----

    def queue(self, name: str) -> CoreQueue:
        """Returns an existing queue that this connection may use for operations other than publishing.

        Raises:
            NotFound: there is no such queue.
            ResourceLocked: the queue is exclusive to another connection.
        """
        found = self._open(name)
        if found is None:
            raise no_queue(name)
        if found.exclusive and found.facts().locked:
            raise resource_locked(name)
        return found

    def queue_to_consume(self, name: str) -> CoreQueue:
        """Returns a queue as `queue` does; makes it if there is none, and the settings of its address say so."""
        while True:
            try:
                return self.queue(name)
            except exceptions.NotFound:
                if not self._addresses.auto_create(name) and self._open(name) is None:
                    raise

    def queue_declare(
        self,
        name: str,
        *,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any] | None,
    ) -> DeclareOk:
        """Makes a queue unless an equivalent one exists."""
        given = {} if passive else queue_settings.from_arguments(name, arguments or {})
        flags = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete}
        while True:
            try:
                if not passive:
                    name = self._make_or_compare(name, given, flags)
                facts = self.queue(name).facts()
            except exceptions.NotFound:
                if passive:
                    raise
            else:
                self._core.touch(facts.slot)
                return DeclareOk(name, facts.ready, max(0, facts.consumers))

    def _make_or_compare(self, name: str, given: dict[str, Any], flags: dict[str, bool]) -> str:
        """Makes a queue if none has this name, and checks that the queue is as declared. Returns its name.

        If ``name`` is empty, makes a queue with a generated name, and returns that name.

        Raises:
            NotFound: the queue was deleted during the call.
        """
        if not name:
            return self._declare_new(given | flags)
        if self._open(name) is None:
            check_not_reserved(name)
            self._make(name, given | flags)
        self._compare(name, given, flags)
        return name

    def _declare_new(self, given: dict[str, Any]) -> str:
        while not self._make(name := generated_name("gen"), given):
            pass
        return name

    def _make(self, name: str, given: dict[str, Any]) -> bool:
        """Makes a queue with the given settings. ``True``: made; ``False``: a queue of that name exists already.

        If neither ``overflow`` nor a default for the address is given, a full queue drops its oldest messages.
        """
        try:
            return self._addresses.declare(name, given, otherwise={"overflow": "drop-head"})
        except ValueError as error:
            raise amqp_error(exceptions.PreconditionFailed, f"queue {name!r} in vhost '/': {error}") from error

    def _compare(self, name: str, given: dict[str, Any], flags: dict[str, bool]) -> None:
        """Checks that a queue is as a declaration requests.

        A declaration without ``overflow`` matches any overflow. A setting that is not given in the declaration, and was
        not given for the queue, matches as well: the address settings determine it.
        """
        queue = self.queue(name)
        current, _ = queue.settings()
        free = (queue_settings.ROWS.keys() - queue.given()) | {"overflow"}
        given = {setting: getattr(current, setting) for setting in free} | given
        wanted = queue_settings.QueueSettings(**(given | flags))
        if current.exclusive != wanted.exclusive:
            raise resource_locked(name)
        arguments = (setting for setting, row in queue_settings.ROWS.items() if row.argument is not None)
        for setting in (*flags, *arguments):
            received, found = getattr(wanted, setting), getattr(current, setting)
            if received != found:
                raise queue_settings.inequivalent(name, setting, received, found)

    def queue_delete(self, name: str, *, if_unused: bool, if_empty: bool) -> int:
        """Deletes a queue and the bindings to it; returns the number of messages deleted, 0 if there is no queue."""
        until = self._deadline()
        with journal.topology_lock(self._core, until, f"queue {name!r}"):
            if self._open(name) is None:
                return 0
            queue = self.queue(name)
            incarnation = queue.incarnation
            removed = queue.delete(if_unused=if_unused, if_empty=if_empty, until=until)
            self._change(lambda topology: changes.queue_gone(topology, ToQueue(name, incarnation)), until)
            journal.unbound(self._core)
        return removed

    def queue_purge(self, name: str) -> int:
        """Removes the ready messages and returns their number."""
        return self.queue(name).purge()

    # ---- exchanges and bindings ----

    def exchange_declare(
        self,
        name: str,
        kind: str,
        *,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any] | None,
    ) -> None:
        """Makes an exchange unless an equivalent one exists."""
        self.prune()
        if passive:
            changes.require(self.exchanges.refresh(self._core), name)
            return
        self._change(
            lambda topology: changes.declare(
                topology, name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
            )
        )

    def exchange_delete(self, name: str, *, if_unused: bool) -> None:
        """Deletes an exchange and its bindings, if it exists."""
        self.prune()
        self._change(lambda topology: changes.delete(topology, name, if_unused=if_unused))

    def exchange_bind(self, destination: str, source: str, key: str, arguments: dict[str, Any] | None) -> None:
        """Binds an exchange to an exchange."""
        self._change(lambda topology: changes.bind(topology, source, ToExchange(destination), key, arguments))

    def exchange_unbind(self, destination: str, source: str, key: str, arguments: dict[str, Any] | None) -> None:
        """Removes a binding between two exchanges, if it exists."""
        self._change(lambda topology: changes.unbind(topology, source, ToExchange(destination), key, arguments))

    def queue_bind(self, queue: str, exchange: str, key: str, arguments: dict[str, Any] | None) -> None:
        """Binds a queue to an exchange."""
        until = self._deadline()
        check_not_default(exchange)
        with journal.topology_lock(self._core, until, f"queue {queue!r}"):  # so that the queue is not replaced
            to = ToQueue(queue, self.queue(queue).incarnation)
            self._change(lambda topology: changes.bind(topology, exchange, to, key, arguments), until)

    def queue_unbind(self, queue: str, exchange: str, key: str, arguments: dict[str, Any] | None) -> None:
        """Removes a binding of a queue, if it exists."""
        if self._open(queue) is None:
            changes.unbind(self.exchanges.refresh(self._core), exchange, ToQueue(queue, 1), key, arguments)
            return
        to = ToQueue(queue, self.queue(queue).incarnation)
        self._change(lambda topology: changes.unbind(topology, exchange, to, key, arguments))

    def _change(self, make: Callable[[Any], bytes], until: int | None = None) -> None:
        self.exchanges.change(self._core, self._deadline() if until is None else until, make)

    def queue_gone(self, queue: CoreQueue) -> None:
        """Removes the bindings to a queue that the caller, which holds the topology lock, has deleted."""
        gone = ToQueue(queue.name, queue.incarnation)
        if self.exchanges.refresh(self._core).bindings_to(gone):
            self._change(lambda topology: changes.queue_gone(topology, gone))
        journal.unbound(self._core)

    def exchange_infos(self) -> list[ExchangeInfo]:
        """Describes all exchanges, by name."""
        self.prune()
        exchanges, bindings = self.exchanges.all(self._core)
        to = Counter(one.destination.name for one in bindings if isinstance(one.destination, ToExchange))
        out = Counter(one.source for one in bindings)
        return [
            ExchangeInfo(
                name=one.name,
                type=one.type,
                durable=one.durable,
                auto_delete=one.auto_delete,
                internal=one.internal,
                alternate=one.alternate,
                arguments=dict(one.arguments),
                bindings_in=to[one.name],
                bindings_out=out[one.name],
            )
            for one in exchanges
        ]

    def binding_infos(self, exchange: str | None) -> list[BindingInfo]:
        """Describes the bindings from and to an exchange (``None``: all bindings), sorted by the name of the source."""
        self.prune()
        exchanges, bindings = self.exchanges.all(self._core)
        if exchange is not None:
            if all(one.name != exchange for one in exchanges):
                raise missing(exchange)
            bindings = [one for one in bindings if one.source == exchange or one.destination == ToExchange(exchange)]
        return [
            BindingInfo(
                source=one.source,
                destination=one.destination.name,
                destination_type="exchange" if isinstance(one.destination, ToExchange) else "queue",
                routing_key=one.routing_key,
                arguments=one.arguments,
            )
            for one in bindings
        ]

    def prune(self) -> None:
        """Removes the bindings that were left when their queues ended, see `Exchanges.prune`."""
        self.exchanges.prune(self._core, self._deadline())


def resource_locked(name: str) -> exceptions.ResourceLocked:
    """The error of an operation on another connection's exclusive queue, or of a declaration with other exclusivity."""
    text = (
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value does not match that of "
        "the original declaration."
    )
    return amqp_error(exceptions.ResourceLocked, text)
