# SPDX-License-Identifier: Apache-2.0
"""What a channel hands out: deliveries, messages it got, and messages that came back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

from shmbroker import exceptions
from shmbroker._core import library
from shmbroker.message import ACK, OPEN, RETURN, SETTLED, Message, Source

if TYPE_CHECKING:
    from collections.abc import Callable

NO_ROUTE = 312


class Names(NamedTuple):
    """What a consumer of a channel is called, and its queue. Its deliveries keep them."""

    tag: str
    queue: str


class ChannelSource(Source, Protocol):
    """A channel, as its deliveries see it."""

    def check_open(self) -> None:
        """Raises what closed it, if it is closed."""
        ...


class TransactionalSource(ChannelSource, Protocol):
    """A channel with transactions."""

    def settle_at_commit(self, delivery: TransactionalDelivery, how: int) -> None:
        """Settles a delivery at the commit."""
        ...


class Delivery(Message):
    """A message of a channel: the ``method`` of a callback, and what :meth:`Channel.basic_get` returns.

    Settled by itself (:meth:`ack`, :meth:`nack`, :meth:`reject`) or by its ``delivery_tag`` on the channel.
    """

    __slots__ = ("got_from", "message_count")
    _consumer: Names | None
    got_from: str
    message_count: int
    """Of a message that was got: how many were ready in the queue then."""

    if TYPE_CHECKING:

        @property
        def delivery_tag(self) -> int:
            """The number of this delivery on its channel, from 1."""
    else:
        delivery_tag = library.Record._delivery_tag  # noqa: SLF001 - of the compiled base: it is asked for each message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return getattr(self, "got_from", "") if self._consumer is None else self._consumer.queue

    def _failed(self, status: int) -> NoReturn:
        if status == library.CLOSED:
            self._state = OPEN  # nothing happened
            cast("ChannelSource", self._source).check_open()  # if it is the channel that is closed, it says why
        super()._failed(status)

    def give_back(self) -> None:
        """Returns it as if nobody had taken it, unless it was settled by its tag."""
        with contextlib.suppress(exceptions.MessageSettled):
            super().give_back()

    @property
    def consumer_tag(self) -> str:
        """The consumer it was delivered to; empty for a message that was got."""
        return "" if self._consumer is None else self._consumer.tag


class TransactionalDelivery(Delivery):
    """A delivery of a channel with transactions: what settles it waits for the commit, as by its tag."""

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledges it at the commit."""
        self._end(ACK)

    def _end(self, how: int) -> None:
        if self._state == OPEN and how != RETURN:
            cast("TransactionalSource", self._source).settle_at_commit(self, how)
        else:
            super()._end(how)

    def mark(self, *, settled: bool) -> None:
        """Is it done with? A rollback takes that back."""
        self._state = SETTLED if settled else OPEN


class Return(NamedTuple):
    """Why a mandatory message came back.

    Attributes:
        reply_code: 312.
        reply_text: "NO_ROUTE".
        exchange: where it was published.
        routing_key: its routing key.
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
        """It gets nothing more."""
        if self.on_end is not None:
            self.on_end()
