# SPDX-License-Identifier: Apache-2.0
"""Declaring exchanges, queues and bindings on a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._topology.administration import DeclareOk, clean_name
from shmbroker.channel.channel_state import ChannelState, synchronous, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmbroker._session.session import Session
    from shmbroker._topology.administration import Administration


class Declaring(ChannelState):
    """The declarations, bindings and deletions of a channel."""

    __slots__ = ("_last_queue",)

    def __init__(self, session: Session, number: int) -> None:
        super().__init__(session, number)
        self._last_queue = ""

    # ---- exchanges ----

    @synchronous
    def exchange_declare(  # noqa: PLR0917 - names and order are pika's
        self,
        exchange: str,
        exchange_type: str = "direct",
        passive: bool = False,  # noqa: FBT001, FBT002 - here and below: names and orders are pika's
        durable: bool = False,  # noqa: FBT001, FBT002
        auto_delete: bool = False,  # noqa: FBT001, FBT002
        internal: bool = False,  # noqa: FBT001, FBT002
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Makes an exchange, unless an equivalent one exists.

        Args:
            exchange: the name of the exchange.
            exchange_type: "direct", "fanout", "topic" or "headers".
            passive: only check that it exists.
            durable: stored as an attribute that declarations compare.
            auto_delete: the exchange ends with the last binding from it.
            internal: only other exchanges can publish to it.
            arguments: "alternate-exchange": the exchange that gets messages without a destination.

        Raises:
            NotFound: ``passive``, and the exchange does not exist.
            PreconditionFailed: the exchange exists and differs; the type is unknown; or "alternate-exchange" is no
                string.
            AccessRefused: the name is reserved.
        """
        name = clean_name(exchange, "exchange")
        if not isinstance(exchange_type, str):
            msg = f"exchange_type={exchange_type!r}: a string is needed"
            raise TypeError(msg)
        self._admin.exchange_declare(
            name, exchange_type, passive=bool(passive), durable=bool(durable), auto_delete=bool(auto_delete),
            internal=bool(internal), arguments=table(arguments),
        )  # fmt: skip

    @synchronous
    def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:  # noqa: FBT001, FBT002
        """Deletes an exchange and its bindings, if it exists."""
        self._admin.exchange_delete(clean_name(exchange, "exchange"), if_unused=if_unused)

    @synchronous
    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Binds an exchange to another exchange by a routing key."""
        to, key = clean_name(destination, "exchange"), clean_name(routing_key, "routing key")
        self._admin.exchange_bind(to, clean_name(source, "exchange"), key, table(arguments))

    @synchronous
    def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Removes a binding between two exchanges, if it exists."""
        to, key = clean_name(destination, "exchange"), clean_name(routing_key, "routing key")
        self._admin.exchange_unbind(to, clean_name(source, "exchange"), key, table(arguments))

    # ---- queues ----

    @synchronous
    def queue_declare(  # noqa: PLR0917 - names and order are pika's
        self,
        queue: str = "",
        passive: bool = False,  # noqa: FBT001, FBT002
        durable: bool = False,  # noqa: FBT001, FBT002
        exclusive: bool = False,  # noqa: FBT001, FBT002
        auto_delete: bool = False,  # noqa: FBT001, FBT002
        arguments: Mapping[str, Any] | None = None,
    ) -> DeclareOk:
        """Makes a queue, unless an equivalent one exists.

        Args:
            queue: the name of the queue; empty: the broker generates a name (not with ``passive``). In the other
                methods of this channel, an empty name means the queue that was declared last.
            passive: only check that it exists.
            durable: stored as an attribute that declarations compare.
            exclusive: only this connection uses the queue, which ends with it; other connections may publish to it.
            auto_delete: the queue ends with its last consumer.
            arguments: ``x-`` arguments, which set the fields of :class:`shmbroker.QueueSettings`.

        Raises:
            NotFound: ``passive``, and the queue does not exist.
            ResourceLocked: the queue is exclusive to another connection, or exists with another ``exclusive``.
            PreconditionFailed: the queue exists and differs otherwise, or an argument is not allowed.
            AccessRefused: the name is reserved.
        """
        found = self._admin.queue_declare(
            clean_name(queue, "queue"), passive=bool(passive), durable=bool(durable), exclusive=bool(exclusive),
            auto_delete=bool(auto_delete), arguments=table(arguments),
        )  # fmt: skip
        self._last_queue = found.queue
        return found

    @synchronous
    def queue_bind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Binds a queue to an exchange by a routing key; without a key, by the name of the queue."""
        name = self._named(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_bind(name, source, clean_name(key, "routing key"), table(arguments))

    @synchronous
    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Removes a binding of a queue, if it exists."""
        name = self._named(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_unbind(name, source, clean_name(key, "routing key"), table(arguments))

    @synchronous
    def queue_purge(self, queue: str) -> int:
        """Removes the ready messages; returns their number."""
        return self._admin.queue_purge(self._named(queue))

    @synchronous
    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,  # noqa: FBT001, FBT002
        if_empty: bool = False,  # noqa: FBT001, FBT002
    ) -> int:
        """Deletes a queue, if it exists; returns the number of ready and scheduled messages deleted with it.

        Raises:
            PreconditionFailed: the queue has consumers (``if_unused``), or ready or scheduled messages (``if_empty``).
        """
        return self._admin.queue_delete(self._named(queue), if_unused=if_unused, if_empty=if_empty)

    @property
    def _admin(self) -> Administration:
        return self._session.administration

    def _named(self, queue: str) -> str:
        """Returns the name of a queue; empty means the queue that was declared last."""
        name = clean_name(queue, "queue") or self._last_queue
        if not name:
            raise exceptions.NotFound(404, "NOT_FOUND - no previously declared queue")
        return name
