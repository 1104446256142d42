# SPDX-License-Identifier: Apache-2.0
"""Getting, consuming and acknowledging on a channel, and its prefetch."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any, cast

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.channel import AUTO_ACK, EXCLUSIVE, NO_LOCAL, SubscriptionPlace
from shmbroker._topology.administration import clean_name, generated_name
from shmbroker.channel.channel_state import DEFAULT_PREFETCH, callable_of, deadline, refused, synchronous, table
from shmbroker.channel.consumer_arguments import priority_of, refuse_choice, selector_of
from shmbroker.channel.deliveries import Delivery, Names, Subscription, TransactionalDelivery
from shmbroker.channel.sending import Sending
from shmbroker.message import ACK, OPEN, REJECT, REQUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from shmbroker._session.session import Session
    from shmbroker.properties import BasicProperties

_MAX_PREFETCH = 65535


class Receiving(Sending):
    """The receiving side of a channel."""

    __slots__ = ("_limit", "_prefetch")

    def __init__(self, session: Session, number: int) -> None:
        super().__init__(session, number)
        self._prefetch, self._limit = DEFAULT_PREFETCH, 0

    # ---- consuming ----

    @synchronous
    def basic_get(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = 0,
    ) -> Delivery | None:
        """Takes the oldest ready message; ``None``: there is none. The prefetch does not limit this method.

        Args:
            queue: the name of the queue; empty: the queue that was declared last.
            auto_ack: settle the message immediately.
            timeout: seconds to wait for a message; ``None`` = until the channel is closed.
        """
        source = self._admin.queue_to_consume(self._named(queue))
        until = deadline(timeout)
        core, auto_ack = self._core_channel, bool(auto_ack)
        found: Any = self._taker.get(self, source.address, auto_ack)
        while isinstance(found, int):
            if found == native.EMPTY and until <= time.monotonic_ns():
                self._core_connection.polled()
                return None
            if found == native.CLOSED:
                self._check_open()  # raises the reason if the channel was closed
            if found == native.DELETED:
                native.raise_for(found, source.what)
            if found != native.EMPTY:
                core.failed(found)
            self._session.start_io()
            with self._core_connection.call():
                found = self._taker.get_wait(self, source.address, auto_ack, until)
            if found == native.TIMEOUT:
                found = native.EMPTY
        if not auto_ack:
            found._state = OPEN  # noqa: SLF001 - the application has it; after an earlier interrupt, it is requeued
        found.message_count, found._got_from = max(0, source.length()), source.name  # noqa: SLF001
        return cast("Delivery", found)

    @synchronous
    def basic_consume(  # noqa: PLR0917 - names and order are pika's
        self,
        queue: str,
        on_message_callback: Callable[..., object],
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        exclusive: bool = False,  # noqa: FBT001, FBT002
        consumer_tag: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        no_local: bool = False,
    ) -> str:
        """Calls a callback with each message of a queue; returns the tag of the consumer.

        ``on_message_callback(channel, method, properties, body)`` runs in the connection's executor, one at a time for
        a channel, in order. ``method`` has ``consumer_tag``, ``delivery_tag``, ``redelivered``, ``exchange`` and
        ``routing_key``; ``body`` is ``bytes``. If the callback raises, the connection's ``on_callback_error`` gets the
        exception. The message then stays unacked, unless ``auto_ack`` or the callback has settled it.

        Args:
            queue: the name of the queue; empty: the queue that was declared last.
            on_message_callback: the callback.
            auto_ack: settle each message when it is delivered.
            exclusive: be the only consumer of the queue.
            consumer_tag: a tag that is unique on this channel; ``None``: a generated tag.
            arguments: ``x-priority``: if two consumers can take a message, the one with the higher priority gets it.
                ``x-filter-jms-selector``: a selector; the consumer gets only the messages for which it is true.
            no_local: skip messages that this connection published.

        Raises:
            AccessRefused: the queue has an exclusive consumer; or ``exclusive`` is set, and the queue has other
                consumers or the setting ``single_active_consumer``.
            ResourceLocked: the queue has as many consumers as its ``max_consumers`` allows.
            NotAllowed: the tag is in use; closes the connection.
        """
        callable_of(on_message_callback, "on_message_callback")
        return self._consume(
            queue, on_message_callback, auto_ack=auto_ack, exclusive=exclusive, consumer_tag=consumer_tag,
            arguments=arguments, no_local=no_local, on_end=None,
        )  # fmt: skip

    def _consume(
        self,
        queue: str,
        callback: Callable[..., object],
        *,
        auto_ack: bool,
        exclusive: bool,
        consumer_tag: str | None,
        arguments: Mapping[str, Any] | None,
        no_local: bool,
        on_end: Callable[[], None] | None,
    ) -> str:
        name = self._named(queue)
        tag = generated_name("ctag") if consumer_tag is None else clean_name(consumer_tag, "consumer tag")
        tag = tag or generated_name("ctag")
        given = table(arguments) or {}
        priority, selector = priority_of(name, given), selector_of(name, given)
        flags = AUTO_ACK * bool(auto_ack) | EXCLUSIVE * bool(exclusive) | NO_LOCAL * bool(no_local)
        source, core = self._admin.queue_to_consume(name), self._core_channel
        if source.has_groups:
            refuse_choice(name, selector=selector, no_local=no_local)
        consumer, place = Subscription(Names(tag, name), callback, on_end), SubscriptionPlace()
        with self._registry:  # `_deliver_late` waits for this lock if a message comes before the consumer is registered
            if any(one.names.tag == tag for one in self._subscriptions.values()):
                raise exceptions.NotAllowed(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'")
            self._session.start_io()
            try:
                until = self._session.operation_deadline()
                subscription = core.consume(
                    source, self._prefetch, priority, flags, place, selector=selector, until=until
                )
                self._subscriptions[subscription] = consumer
                # A close that began before the line above may have told all other consumers of the end, but not this
                # one.
                self._check_open()
                self._dispatcher.wake()
            except exceptions.AccessRefused:
                text = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
                raise exceptions.AccessRefused(403, text) from None
            except BaseException:  # a signal handler raised, or the channel was closed; the core may have the consumer
                if place.number is not None:
                    with contextlib.suppress(exceptions.BrokerError):  # the connection was closed meanwhile
                        core.cancel(place.number)
                    self._subscriptions.pop(place.number, None)
                raise
        return tag

    @synchronous
    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a consumer; the application can still acknowledge its deliveries.

        Its callback is not called again, except for a message that another thread is delivering at that moment.
        """
        self._cancel(clean_name(consumer_tag, "consumer tag"))

    def _cancel(self, tag: str) -> None:
        if self._core is not None:
            with self._registry:
                for subscription, one in list(self._subscriptions.items()):
                    if one.names.tag == tag:
                        self._core.cancel(subscription)
                        one.ended()
                        # Last: if a signal handler raises before, the application can cancel the consumer again.
                        self._subscriptions.pop(subscription, None)
            self._consumer_ended()

    def start_consuming(self) -> None:
        """Waits until no consumer is left, :meth:`stop_consuming` is called, or the channel closes.

        Returns without an error if the application closes the channel or the connection during the wait.

        Raises:
            ChannelClosed: the channel was closed before this call; or an error closed it, and a method has raised that
                error already.
            BrokerError: the error that closed the channel, if no method has raised it yet; or the connection was closed
                before this call.
        """
        self._check_open()
        _ = self._core_channel
        with self._consumers_changed:
            self._stopping = False
            self._consumers_changed.wait_for(lambda: self._stopping or not self._subscriptions or not self._open)
        if self._error is not None:
            self._check_open()

    def stop_consuming(self) -> None:
        """Ends :meth:`start_consuming`, and all consumers of the channel."""
        self._cancel_consumers()
        if self._core is not None and not self._core_connection.attachment.forked:
            with self._consumers_changed:
                self._stopping = True
                self._consumers_changed.notify_all()

    def _cancel_consumers(self) -> None:
        """Cancels each consumer of the channel, even while a method in another thread waits, perhaps for ever.

        Such a method holds ``_turn`` while it waits. Cancelling does not need ``_turn``. It changes only what the lock
        ``_registry`` guards, and no thread waits while it holds ``_registry``.
        """
        for tag in self.consumer_tags:
            self._check_open()
            self._cancel(tag)

    @property
    def consumer_tags(self) -> list[str]:
        """The tags of the channel's consumers."""
        return [one.names.tag for one in list(self._subscriptions.values())]

    def consume(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        exclusive: bool = False,  # noqa: FBT001, FBT002
        arguments: Mapping[str, Any] | None = None,
        inactivity_timeout: float | None = None,
        *,
        no_local: bool = False,
    ) -> Generator[tuple[Delivery | None, BasicProperties | None, bytes | None], None, None]:
        """Iterates over the messages of a queue: ``(method, properties, body)``.

        With ``inactivity_timeout``, the iterator yields ``(None, None, None)`` whenever no message came for that many
        seconds, as pika does. When the consumer or the channel ends, the iterator first yields the messages that it has
        received, then ends. When the application closes the iterator, these messages are requeued.
        """
        waiting, tag = Waiting(), generated_name("ctag")
        deadline(inactivity_timeout)
        start = functools.partial(
            self._consume_until, queue, waiting.put, waiting.end,
            exclusive=exclusive, consumer_tag=tag, arguments=arguments, no_local=no_local,
        )  # fmt: skip
        deliveries = self._deliveries(start, tag, waiting, inactivity_timeout, auto_ack=auto_ack)
        try:
            next(deliveries)  # starts the consumer, in the generator's `try`: closing the generator cancels it
        except BaseException:
            deliveries.close()
            raise
        return deliveries

    @synchronous
    def _consume_until(
        self,
        /,
        queue: str,
        callback: Callable[..., object],
        on_end: Callable[[], None],
        **options: Any,  # noqa: ANN401
    ) -> str:
        """Starts a consumer for an iterator, and calls ``on_end`` when the consumer ends."""
        given: dict[str, Any] = {
            "auto_ack": False, "exclusive": False, "consumer_tag": None, "arguments": None, "no_local": False,
        }  # fmt: skip
        return self._consume(queue, callback, on_end=on_end, **(given | options))

    def _deliveries(
        self, start: Callable[[], str], tag: str, waiting: Waiting, pause: float | None, *, auto_ack: bool
    ) -> Generator[Any, None, None]:
        delivery: Any = (None, None, None)
        try:
            start()
            while delivery is not None:
                # No call from here to the `yield`: no signal handler can run in between. So each message is in `taken`
                # until it is yielded.
                waiting.taken = []
                yield delivery
                delivery = waiting.next(pause)
                if auto_ack and delivery is not None and delivery[0] is not None:
                    Delivery.ack(delivery[0])  # only now: an unacked delivery can still be requeued
        finally:
            if self._open:
                try:
                    self.basic_cancel(tag)
                finally:
                    waiting.give_back()

    # ---- acknowledging ----

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:  # noqa: FBT001, FBT002
        """Acknowledges a delivery; with ``multiple``, also all earlier ones. Tag 0 with ``multiple``: all deliveries.

        Raises:
            PreconditionFailed: the tag has no unacked delivery.
        """
        # In two steps: a call of the form `self._settle_known(...)` would first look for a method in each class.
        settle_known = self._settle_known
        status = settle_known(delivery_tag, multiple, ACK)
        if status:
            self._settle(delivery_tag, ACK, status, multiple=multiple)

    def basic_nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,  # noqa: FBT001, FBT002
        requeue: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Requeues deliveries at their positions, or rejects them."""
        self._settle(delivery_tag, REQUEUE if requeue else REJECT, -1, multiple=multiple)

    def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Requeues one delivery at its position, or rejects it."""
        self._settle(delivery_tag, REQUEUE if requeue else REJECT, -1, multiple=False)

    def _settle(
        self,
        delivery_tag: int,
        disposition: int,
        status: int,
        *,
        multiple: bool,
        delivery: TransactionalDelivery | None = None,
    ) -> None:
        """Settles deliveries on the slow path.

        Args:
            delivery_tag: the tag of the delivery, or with ``multiple`` of the last one; 0 with ``multiple``: all.
            disposition: ACK, REQUEUE or REJECT.
            status: the status that the fast path returned; -1: the fast path was not used.
            multiple: whether to settle all deliveries up to the tag.
            delivery: the delivery, if one of its own methods settles it with the transaction. The transaction marks it
                as settled.
        """
        if not isinstance(delivery_tag, int) or isinstance(delivery_tag, bool):
            msg = f"delivery_tag={delivery_tag!r}: an integer is needed"
            raise TypeError(msg)
        if not self._may_go_on():
            return
        if self._core is None or not 0 <= delivery_tag < 1 << 64:
            good = self._core is None and multiple and delivery_tag == 0
        elif self._transaction is not None:
            good = self._transaction.settle(self._core, delivery_tag, disposition, multiple=multiple, delivery=delivery)
        else:
            if status < 0:
                status = self._core.settle_tag(delivery_tag, multiple, disposition)
            good = status == native.OK
            if status not in {native.OK, native.SETTLED}:
                native.raise_for(status, "the channel")
        if not good:
            error = refused(f"unknown delivery tag {delivery_tag}")
            self._fail(error, reported=True)
            raise error

    def _settle_at_commit(self, delivery: TransactionalDelivery, disposition: int) -> None:
        """Settles a delivery with the transaction."""
        self._settle(delivery.delivery_tag, disposition, -1, multiple=False, delivery=delivery)

    @synchronous
    def basic_recover(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Requeues all unacked deliveries of the channel at their positions.

        Takes effect immediately, also in a transaction. Deliveries that the transaction settled are not requeued: they
        wait for its commit or rollback.

        Raises:
            NotImplementedByBroker: ``requeue`` is False; closes the connection.
        """
        if not requeue:
            raise exceptions.NotImplementedByBroker(540, "NOT_IMPLEMENTED - requeue=false")
        if self._core is not None and self._transaction is not None:
            self._transaction.recover(self._core)
        elif self._core is not None:
            self._core.settle_multiple(0, REQUEUE)

    # ---- flow ----

    @synchronous
    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        global_qos: bool = False,  # noqa: FBT001, FBT002
        *,
        scope: str | None = None,
    ) -> None:
        """Sets how many messages may be unacked before delivery pauses (the prefetch); 0 = no limit.

        Args:
            prefetch_size: only 0 is supported.
            prefetch_count: 0 to 65,535.
            global_qos: apply to the channel as a whole, immediately; otherwise apply to each consumer started later,
                and remove the limit of the channel.
            scope: "consumer", "channel" or "connection", instead of ``global_qos``.

        Raises:
            NotImplementedByBroker: ``prefetch_size`` is not 0; closes the connection.
        """
        count = _prefetch(prefetch_count)
        if not isinstance(prefetch_size, int):
            msg = f"prefetch_size={prefetch_size!r}: an integer is needed"
            raise TypeError(msg)
        if prefetch_size:
            text = f"NOT_IMPLEMENTED - prefetch_size!=0 ({prefetch_size})"
            raise exceptions.NotImplementedByBroker(540, text)
        scope = ("channel" if global_qos else "consumer") if scope is None else scope
        if scope == "connection":
            self._session.limit(count)
        elif scope == "channel":
            self._limit = count
            self._core_channel.limit(count)
        elif scope == "consumer":
            self._prefetch = count
            if self._limit:
                self._limit = 0
                self._core_channel.limit(0)
        else:
            msg = f"scope={scope!r}: consumer, channel or connection is allowed"
            raise ValueError(msg)

    @synchronous
    def flow(self, active: bool) -> bool:  # noqa: FBT001
        """Does nothing if ``active`` is True, and returns True. :meth:`basic_qos` limits deliveries.

        Raises:
            NotImplementedByBroker: ``active`` is False; closes the connection.
        """
        if not active:
            raise exceptions.NotImplementedByBroker(540, "NOT_IMPLEMENTED - active=false")
        return True


class Waiting:
    """Messages on the way from a consumer to the loop of :meth:`Channel.consume`: delivered, but not yielded yet.

    Attributes:
        taken: the message that :meth:`next` took last, or empty. The loop empties this list just before it yields the
            message.
    """

    def __init__(self) -> None:
        self._queue: standard_queue.SimpleQueue[Any] = standard_queue.SimpleQueue()
        self._over = False
        self.taken: list[Any] = []

    def put(self, _channel: object, *delivery: object) -> None:
        """Adds a message. Requeues it if the loop has ended since the consumer took the message from its queue."""
        self._queue.put(delivery)
        if self._over:
            self._give_back_rest()

    def end(self) -> None:
        """Marks the end of the consumer."""
        self._queue.put(None)

    def next(self, pause: float | None) -> Any:  # noqa: ANN401
        """Waits for the next message and returns it.

        Args:
            pause: the most seconds to wait; ``None`` = for ever.

        Returns:
            The message; ``(None, None, None)``: none came in time; ``None``: the consumer has ended.
        """
        self.taken = []
        try:
            # One call of C waits, takes the message and stores it. A signal handler that raises ends the wait before a
            # message was taken, or runs after the message was stored.
            self.taken.extend(itertools.starmap(self._queue.get, [(True, pause)]))
        except standard_queue.Empty:
            return (None, None, None)
        return self.taken[0]

    def give_back(self) -> None:
        """Requeues the messages that the loop, which has ended, did not yield. Later :meth:`put` requeues every one."""
        self._over = True
        for delivery in self.taken:
            if delivery is not None:
                delivery[0].give_back()
        self._give_back_rest()

    def _give_back_rest(self) -> None:
        # A BrokerError means that the channel has ended: its end, for whatever reason, has requeued the messages.
        with contextlib.suppress(standard_queue.Empty, exceptions.BrokerError):
            while True:
                left = self._queue.get_nowait()
                if left is not None:
                    left[0].give_back()


def _prefetch(count: object) -> int:
    if isinstance(count, int) and not isinstance(count, bool):
        if 0 <= count <= _MAX_PREFETCH:
            return count
        msg = f"prefetch_count={count!r}: 0 to {_MAX_PREFETCH} is allowed"
        raise ValueError(msg)
    msg = f"prefetch_count={count!r}: an integer is needed"
    raise TypeError(msg)
