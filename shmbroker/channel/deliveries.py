# SPDX-License-Identifier: Apache-2.0
"""The objects that a channel hands out: deliveries, fetched messages, and returned messages.

This module has no ``from __future__ import annotations``: see :mod:`shmbroker._core.facts`.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker.message import ACK, OPEN, UNDELIVER, Message, Source

NO_ROUTE = 312


class Names(NamedTuple):
    """The tag and the queue of a channel's consumer. All deliveries of the consumer refer to this object."""

    tag: str
    queue: str


class ChannelSource(Source, Protocol):
    """The interface of a channel for its deliveries."""

    _settle_tag: Callable[[int, bool, int], int]

    def _check_open(self) -> None: ...


class TransactionalSource(ChannelSource, Protocol):
    """The interface of a channel with transactions."""

    def _settle_at_commit(self, delivery: "TransactionalDelivery", disposition: int) -> None: ...


class Delivery(Message):
    """A message of a channel: the ``method`` of a callback, and the result of :meth:`Channel.basic_get`.

    The application settles it directly (:meth:`ack`, :meth:`nack`, :meth:`reject`) or by its ``delivery_tag``.
    """

    __slots__ = ("_got_from", "message_count")
    _consumer: Names | None
    _got_from: str
    message_count: int
    """The number of ready messages left in the queue after basic_get took this one. Only such a message has it."""

    if TYPE_CHECKING:

        @property
        def delivery_tag(self) -> int:
            """The number of this delivery on its channel, from 1."""
    else:
        delivery_tag = native.Record._delivery_tag  # noqa: SLF001 - of the compiled base: read for each message

    @property
    def queue(self) -> str:
        """The queue that the message came from."""
        return getattr(self, "_got_from", "") if self._consumer is None else self._consumer.queue

    def _settling(self, disposition: int) -> tuple[Callable[..., int], tuple[object, ...]]:
        source = cast("ChannelSource", self._source)
        return source._settle_tag, (self._tag, False, disposition)  # noqa: SLF001 - for its messages

    def _failed(self, status: int) -> NoReturn:
        if status == native.CLOSED:
            self._state = OPEN  # the core settled nothing: the channel or the connection is closed
            source = cast("ChannelSource", self._source)
            source._check_open()  # noqa: SLF001 - if the channel is closed, this raises the reason
        super()._failed(status)

    def give_back(self) -> None:
        """Undoes the delivery: ``delivery_count`` does not count it. Does nothing if the message is settled already.

        If the consumer that got the message still exists, the channel delivers the message again as its next one.
        Otherwise the message is requeued at its position, marked redelivered.
        """
        with contextlib.suppress(exceptions.MessageSettled):
            super().give_back()

    @property
    def consumer_tag(self) -> str:
        """The tag of the consumer that got the message; empty for a message from basic_get."""
        return "" if self._consumer is None else self._consumer.tag


class TransactionalDelivery(Delivery):
    """A delivery of a transactional channel. Its methods, like ``Channel.basic_ack``, settle it only at the commit.

    Only :meth:`give_back` takes effect immediately.
    """

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledges the delivery at the commit."""
        self._end(ACK)

    def _end(self, disposition: int) -> None:
        if self._state == OPEN and disposition != UNDELIVER:
            cast("TransactionalSource", self._source)._settle_at_commit(self, disposition)  # noqa: SLF001
        else:
            super()._end(disposition)


class Return(NamedTuple):
    """The reason why a mandatory message was returned.

    Attributes:
        reply_code: 312.
        reply_text: "NO_ROUTE".
        exchange: the exchange of the publish.
        routing_key: the routing key of the message.
    """

    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str


class Subscription(NamedTuple):
    """A consumer of a channel."""

    names: Names
    callback: Callable[..., object]
    on_end: Callable[[], None] | None

    def ended(self) -> None:
        """Reports the end of the consumer."""
        if self.on_end is not None:
            self.on_end()
