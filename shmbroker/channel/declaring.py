# SPDX-License-Identifier: Apache-2.0
"""Declaring: exchanges, queues and bindings, by a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._topology.administration import DeclareOk, clean_name
from shmbroker.channel.state import ChannelState, synchronous, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmbroker._topology.administration import Administration
    from shmbroker.connection import Connection


class Declaring(ChannelState):
    """What a channel declares, binds and deletes."""

    __slots__ = ("_last_queue",)

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__(connection, number)
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
        """Makes an exchange, unless there is an equal one.

        Args:
            exchange: its name.
            exchange_type: "direct", "fanout", "topic" or "headers".
            passive: only look whether it is there.
            durable: kept as an attribute that declarations compare.
            auto_delete: it ends with its last binding.
            internal: only other exchanges publish to it.
            arguments: "alternate-exchange": where goes what it has no destination for.

        Raises:
            NotFound: ``passive``, and there is none.
            PreconditionFailed: it exists and is different.
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
        """Deletes an exchange and its bindings, if there is one."""
        self._admin.exchange_delete(clean_name(exchange, "exchange"), if_unused=if_unused)

    @synchronous
    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Makes an exchange get what another one has for that key."""
        to, key = clean_name(destination, "exchange"), clean_name(routing_key, "routing key")
        self._admin.exchange_bind(to, clean_name(source, "exchange"), key, table(arguments))

    @synchronous
    def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Ends that, if it is so."""
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
        """Makes a queue, unless there is an equal one.

        Args:
            queue: its name; empty: one is made up, and is what ``""`` means on this channel from now on.
            passive: only look whether it is there.
            durable: kept as an attribute that declarations compare.
            exclusive: only this connection uses it, and it ends with the connection.
            auto_delete: it ends with its last consumer.
            arguments: ``x-`` arguments; see the settings of queues.

        Raises:
            NotFound: ``passive``, and there is none.
            ResourceLocked: it is another connection's.
            PreconditionFailed: it exists and is different, or an argument is not allowed.
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
        """Makes a queue get what an exchange has for that key; without a key: for the name of the queue."""
        name = self.named(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_bind(name, source, clean_name(key, "routing key"), table(arguments))

    @synchronous
    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Ends that, if it is so."""
        name = self.named(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_unbind(name, source, clean_name(key, "routing key"), table(arguments))

    @synchronous
    def queue_purge(self, queue: str) -> int:
        """Removes what is ready; returns how many messages that were."""
        return self._admin.queue_purge(self.named(queue))

    @synchronous
    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,  # noqa: FBT001, FBT002
        if_empty: bool = False,  # noqa: FBT001, FBT002
    ) -> int:
        """Deletes a queue, if there is one; returns how many messages went with it.

        Raises:
            PreconditionFailed: it has consumers (``if_unused``) or ready messages (``if_empty``).
        """
        return self._admin.queue_delete(self.named(queue), if_unused=if_unused, if_empty=if_empty)

    @property
    def _admin(self) -> Administration:
        return self.connection.administration

    def named(self, queue: str) -> str:
        """The name of a queue; empty: of the one that was declared last."""
        name = clean_name(queue, "queue") or self._last_queue
        if not name:
            raise exceptions.NotFound(404, "NOT_FOUND - no previously declared queue")
        return name
