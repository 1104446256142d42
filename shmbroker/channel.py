# SPDX-License-Identifier: Apache-2.0
"""Channels: the AMQP way to a broker, with pika's names and orders. Source: seed 003."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import queue as standard_queue
import threading
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from shmbroker import exceptions
from shmbroker import settings as queue_settings
from shmbroker._core import library
from shmbroker._core.channel import AUTO_ACK, EXCLUSIVE, NO_LOCAL, CoreChannel
from shmbroker.administration import DeclareOk, clean_name, generated_name
from shmbroker.confirms import Confirms
from shmbroker.deliveries import NO_ROUTE, Delivery, Return, Subscription
from shmbroker.dispatch import Dispatcher
from shmbroker.message import ACK, OPEN, REJECT, REQUEUE, MessageBatch
from shmbroker.properties import BasicProperties
from shmbroker.publishing import PLAIN, Content
from shmbroker.queue import body_of
from shmbroker.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection
    from shmbroker.administration import Administration
    from shmbroker.connection import Connection

DEFAULT_PREFETCH = 64
_MAX_PREFETCH = 65535
_MAX_PRIORITY = 2**31 - 1
P = ParamSpec("P")
R = TypeVar("R")


def _synchronous(method: Callable[Concatenate[Channel, P], R]) -> Callable[Concatenate[Channel, P], R]:
    """One at a time on a channel; a soft error closes the channel, a hard one the connection."""

    @functools.wraps(method)
    def call(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.check_open()
        with self._turn:
            self.check_open()
            try:
                return method(self, *args, **kwargs)
            except (exceptions.ChannelClosedByBroker, exceptions.ConnectionClosedByBroker) as error:
                self.fail(error, reported=True)
                raise

    return call


class Channel:
    """A channel of a connection. Safe to use from several threads, and inside its callbacks.

    Made by :meth:`Connection.channel`. Methods that AMQP answers are done one at a time; the others (publish,
    acknowledge) at once. An error of a method closes the channel, and what is unacknowledged goes back to its place.
    """

    __slots__ = (
        "__weakref__", "_cancel_callbacks", "_confirms", "_consumers_changed", "_core", "_dispatcher", "_error",
        "_events", "_in_confirm", "_last_queue", "_limit", "_prefetch", "_publish_known", "_registry", "_reported",
        "_return_callbacks", "_stopping", "_subscriptions", "_taker", "_transaction", "_turn", "connection",
        "core_connection", "is_open", "number", "settle", "taker",
    )  # fmt: skip

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self.core_connection: CoreConnection = connection.core
        self.is_open = True
        self._turn = threading.RLock()
        self._core: CoreChannel | None = None
        self._error: exceptions.BrokerError | None = None
        self._reported = False
        self._prefetch, self._limit = DEFAULT_PREFETCH, 0
        self._last_queue = ""
        self._publish_known: Callable[[str, str, Any], int] = connection.publishing.publish_known
        self._confirms: Confirms | None = None
        self._transaction: Transaction | None = None
        self._subscriptions: dict[int, Subscription] = {}
        self._return_callbacks: list[Callable[..., object]] = []
        self._cancel_callbacks: list[Callable[[str], object]] = []
        self._events: collections.deque[Callable[[], None]] = collections.deque()

    # ---- its core, made when it is first needed: most channels only publish ----

    @property
    def core(self) -> CoreChannel:
        """The channel in the core."""
        if self._core is None:
            with self._turn:
                if self._core is None:
                    self._registry = threading.RLock()
                    self._consumers_changed = threading.Condition()
                    self._stopping = False
                    self._dispatcher = Dispatcher(self.connection.executor_of_callbacks, self)
                    core = CoreChannel(self.core_connection, self.number)
                    self.taker = self._taker = library.Taker(core.address, core.KIND, Delivery, MessageBatch)
                    self.settle = core.settle_record
                    self._core = core
        return self._core

    # ---- open, closed, failed ----

    def check_open(self) -> None:
        """Raises what closed the channel, if it is closed."""
        if not self.is_open:
            raise self._closed_error()

    def _closed_error(self) -> exceptions.BrokerError:
        error = self._error
        if error is not None and not self._reported:
            self._reported = True
            return error
        self.connection.check_open()
        because = f": {error}" if error is not None else ""
        return exceptions.ChannelClosed(504, f"CHANNEL_ERROR - channel {self.number} is closed{because}")

    def fail(self, error: exceptions.BrokerError, *, reported: bool) -> None:
        """The broker closes the channel, or the whole connection.

        Args:
            error: why.
            reported: the caller is being told now; otherwise the next method that is answered tells it, and what is
                not answered is ignored until then, as by a broker that has closed a channel.
        """
        if self.is_open:
            self._reported = reported
            self._end(error)
        if isinstance(error, exceptions.ConnectionClosedByBroker):
            self.connection.fail(error)

    def close(self, reply_code: int = 0, reply_text: str = "") -> None:  # noqa: ARG002 - as pika has it
        """Closes the channel: its consumers end, and what is unacknowledged goes back to its place.

        Ends every wait of other threads on it. A transaction that is not committed is rolled back. Safe to call again.
        """
        self._end(None)

    def _end(self, error: exceptions.BrokerError | None) -> None:
        with self.connection.lock:
            if not self.is_open:
                return
            self._error, self.is_open = error, False
            self._publish_known = _never_known
        if self._core is not None:
            self._core.close()
            with self._consumers_changed:
                ended, self._subscriptions = self._subscriptions, {}
                self._consumers_changed.notify_all()
            for consumer in ended.values():
                consumer.ended()
        if self._confirms is not None:
            closed = exceptions.ChannelClosed(504, f"CHANNEL_ERROR - channel {self.number} is closed")
            self._confirms.close(error or closed)
        self._events.clear()
        self.connection.channel_closed(self)

    # ---- exchanges ----

    @_synchronous
    def exchange_declare(
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
        self._admin.exchange_declare(
            name, str(exchange_type), passive=passive, durable=durable, auto_delete=auto_delete, internal=internal,
            arguments=_table(arguments),
        )  # fmt: skip

    @_synchronous
    def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:  # noqa: FBT001, FBT002
        """Deletes an exchange and its bindings, if there is one."""
        self._admin.exchange_delete(clean_name(exchange, "exchange"), if_unused=if_unused)

    @_synchronous
    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Makes an exchange get what another one has for that key."""
        to, key = clean_name(destination, "exchange"), clean_name(routing_key, "routing key")
        self._admin.exchange_bind(to, clean_name(source, "exchange"), key, _table(arguments))

    @_synchronous
    def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Ends that, if it is so."""
        to, key = clean_name(destination, "exchange"), clean_name(routing_key, "routing key")
        self._admin.exchange_unbind(to, clean_name(source, "exchange"), key, _table(arguments))

    # ---- queues ----

    @_synchronous
    def queue_declare(
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
            clean_name(queue, "queue"), passive=passive, durable=durable, exclusive=exclusive, auto_delete=auto_delete,
            arguments=_table(arguments),
        )  # fmt: skip
        self._last_queue = found.queue
        return found

    @_synchronous
    def queue_bind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Makes a queue get what an exchange has for that key; without a key: for the name of the queue."""
        name = self._queue_name(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_bind(name, source, clean_name(key, "routing key"), _table(arguments))

    @_synchronous
    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Ends that, if it is so."""
        name = self._queue_name(queue)
        key = name if routing_key is None or (routing_key == "" and queue == "") else routing_key
        source = clean_name(exchange, "exchange")
        self._admin.queue_unbind(name, source, clean_name(key, "routing key"), _table(arguments))

    @_synchronous
    def queue_purge(self, queue: str) -> int:
        """Removes what is ready; returns how many messages that were."""
        return self._admin.queue_purge(self._queue_name(queue))

    @_synchronous
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
        return self._admin.queue_delete(self._queue_name(queue), if_unused=if_unused, if_empty=if_empty)

    @property
    def _admin(self) -> Administration:
        return self.connection.administration

    def _queue_name(self, queue: str) -> str:
        name = clean_name(queue, "queue") or self._last_queue
        if not name:
            raise exceptions.NotFound(404, "NOT_FOUND - no previously declared queue")
        return name

    # ---- publishing ----

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401 - anything bytes-like
        properties: BasicProperties | None = None,
        mandatory: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = None,
    ) -> int | None:
        """Publishes a message.

        It is not answered: an exchange that is not there closes the channel, and the next method that is answered
        tells of it.

        Args:
            exchange: where; empty: straight to the queue whose name is the key.
            routing_key: up to 255 bytes of UTF-8.
            body: bytes-like, up to 1 GiB.
            properties: AMQP properties.
            mandatory: if no queue gets it, it comes back (:meth:`add_on_return_callback`).
            timeout: seconds to wait for room in a queue that blocks.

        Returns:
            With confirms, the number of the message.

        Raises:
            TypeError: the body is not bytes-like, or a name is no string.
            queue.Full: no room in time; nothing was published.
        """
        if properties is None and not self._publish_known(exchange, routing_key, body):
            return None
        return self._publish(exchange, routing_key, body, properties, mandatory=mandatory, timeout=timeout)

    def publish_confirmed(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        properties: BasicProperties | None = None,
        mandatory: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[int]:
        """Publishes with confirm: the future has the number of the message once it is in all its queues.

        Its exception: :exc:`UnroutableError` (``mandatory``, no queue got it), :exc:`NackError` (a queue refused it),
        :exc:`NotFound` (no such exchange: the channel is closed) ...
        """
        if self._confirms is None:
            self.confirm_delivery()
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._publish(exchange, routing_key, body, properties, mandatory=mandatory, timeout=timeout, future=future)
        return future

    def _publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        properties: BasicProperties | None,
        *,
        mandatory: bool,
        timeout: float | None,
        future: concurrent.futures.Future[int] | None = None,
    ) -> int | None:
        exchange, routing_key = clean_name(exchange, "exchange"), clean_name(routing_key, "routing key")
        data, size = body_of(body)
        if properties is not None and not isinstance(properties, BasicProperties):
            msg = f"properties={properties!r}: BasicProperties are needed"
            raise TypeError(msg)
        until = library.deadline(timeout)
        if not self._may_go_on():
            if future is not None and self._error is not None:
                future.set_exception(self._error)
            return None
        number = self._confirms.begin(future) if self._confirms is not None else None
        try:
            content = PLAIN if properties is None else Content(properties)
            if self._transaction is not None:
                self._transaction.publish(exchange, routing_key, bytes(data), content, mandatory=bool(mandatory))
                return None
            routed = self.connection.publishing.publish(exchange, routing_key, data, size, content, until)
        except (exceptions.ChannelClosedByBroker, exceptions.ConnectionClosedByBroker) as error:
            self._confirmed(number, error)
            self.fail(error, reported=False)
            return number
        except BaseException as error:
            self._confirmed(number, error)
            raise
        if routed or not mandatory:
            self._confirmed(number, None)
        else:
            self._give_back(exchange, routing_key, bytes(data), properties, number)
        return number

    def _confirmed(self, number: int | None, error: BaseException | None) -> None:
        if number is not None and self._confirms is not None:
            self._confirms.end(number, error)

    def _give_back(
        self, exchange: str, key: str, body: bytes, properties: BasicProperties | None, number: int | None
    ) -> None:
        """A mandatory message comes back; its confirm comes after that."""
        why = Return(NO_ROUTE, "NO_ROUTE", exchange, key)

        def tell() -> None:
            try:
                for callback in tuple(self._return_callbacks):
                    callback(self, why, properties or BasicProperties(), body)
            finally:
                text = f"NO_ROUTE - exchange '{exchange}' has no queue for key '{key}'"
                self._confirmed(number, exceptions.UnroutableError(NO_ROUTE, text))

        if self._return_callbacks:
            self._happened(tell)
        else:
            tell()

    def _may_go_on(self) -> bool:
        """For what is not answered: ``False``: the channel has failed, and the application does not know yet."""
        if not self.is_open and self._error is not None and not self._reported:
            return False
        self.check_open()
        return True

    @_synchronous
    def confirm_delivery(self) -> None:
        """From now on published messages are counted, and confirmed: see :meth:`wait_for_confirms`.

        Raises:
            PreconditionFailed: the channel is transactional.
        """
        if self._transaction is not None:
            raise _refused("cannot switch from tx to confirm mode")
        if self._confirms is None:
            self._confirms = Confirms()
            self._publish_known = _never_known

    def wait_for_confirms(self, timeout: float | None = None) -> bool:
        """Waits until all that was published is confirmed; ``True``: no queue refused any since the last time.

        Raises:
            Timeout: it was not in time.
            PreconditionFailed: :meth:`confirm_delivery` was not called.
        """
        self.check_open()
        if self._confirms is None:
            error = _refused("the channel is not in confirm mode")
            self.fail(error, reported=True)
            raise error
        return self._confirms.wait(timeout, inside=self._is_inside())

    def _is_inside(self) -> bool:
        return self._core is not None and self._dispatcher.thread == threading.get_ident()

    # ---- transactions ----

    @_synchronous
    def tx_select(self) -> None:
        """From now on publishes and acknowledgements wait for :meth:`tx_commit`.

        Raises:
            PreconditionFailed: the channel is in confirm mode.
        """
        if self._confirms is not None:
            raise _refused("cannot switch from confirm to tx mode")
        if self._transaction is None:
            self._transaction = Transaction()
            self._publish_known = _never_known

    @_synchronous
    def tx_commit(self, *, timeout: float | None = None) -> None:
        """Does everything since the last commit, or, killed on the way, nothing of it.

        Raises:
            PreconditionFailed: the channel is not transactional.
            queue.Full: a queue had no room in time: nothing was done, and it can be tried again.
        """
        transaction = self._in_transaction()
        returned = transaction.commit(self.connection.publishing, self._core, library.deadline(timeout))
        for publish in returned:
            self._give_back(publish.exchange, publish.routing_key, publish.body, publish.content.given, None)

    @_synchronous
    def tx_rollback(self) -> None:
        """Forgets everything since the last commit; messages that were acknowledged in it are unacknowledged again."""
        self._in_transaction().rollback()

    def _in_transaction(self) -> Transaction:
        if self._transaction is None:
            raise _refused("channel is not transactional")
        return self._transaction

    # ---- consuming ----

    @_synchronous
    def basic_get(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = 0,
    ) -> Delivery | None:
        """The oldest ready message, whatever the prefetch; ``None``: there is none.

        Args:
            queue: its name; empty: the one that was declared last.
            auto_ack: settle it at once.
            timeout: seconds to wait for one; ``None`` = until the channel is closed.
        """
        source = self._admin.queue(self._queue_name(queue))
        until = library.deadline(timeout)
        message = self._get(source, auto_ack=bool(auto_ack), until=until)
        if message is not None:
            message.message_count = max(0, source.length())
        return message

    @_synchronous
    def basic_consume(
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
        """Has a callback called with each message of a queue; returns the tag of the consumer.

        ``on_message_callback(channel, method, properties, body)`` runs in the connection's executor, one at a time for
        a channel, in order. ``method`` has ``consumer_tag``, ``delivery_tag``, ``redelivered``, ``exchange`` and
        ``routing_key``; ``body`` is ``bytes``. If it raises, the connection's ``on_callback_error`` is told, and the
        message stays unacknowledged.

        Args:
            queue: its name; empty: the one that was declared last.
            on_message_callback: what is called.
            auto_ack: settle each message when it is handed out.
            exclusive: be the only consumer of the queue.
            consumer_tag: a name of its own on this channel; ``None``: one is made up.
            arguments: ``x-priority``: of two consumers that want a message the higher one gets it.
            no_local: not what this connection published.

        Raises:
            AccessRefused: the queue has an exclusive consumer, or others while this one is to be it.
            NotAllowed: the tag is in use; closes the connection.
        """
        if not callable(on_message_callback):
            msg = f"on_message_callback={on_message_callback!r}: a callable is needed"
            raise TypeError(msg)
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
        name = self._queue_name(queue)
        tag = generated_name("ctag") if consumer_tag is None else clean_name(consumer_tag, "consumer tag")
        tag = tag or generated_name("ctag")
        priority = _consumer_priority(name, arguments or {})
        flags = AUTO_ACK * bool(auto_ack) | EXCLUSIVE * bool(exclusive) | NO_LOCAL * bool(no_local)
        source, core = self._admin.queue(name), self.core
        with self._registry:  # a delivery waits until its consumer is known: consume-ok comes first
            if any(one.tag == tag for one in self._subscriptions.values()):
                raise exceptions.NotAllowed(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'")
            self.connection.start_io()
            subscription = core.consume(source, self._prefetch, priority, flags)
            self._subscriptions[subscription] = Subscription(tag, name, callback, on_end)
        self._dispatcher.wake()
        return tag

    @_synchronous
    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a consumer; its callback is not called again, and what it has not acknowledged can still be."""
        tag = clean_name(consumer_tag, "consumer tag")
        if self._core is not None:
            with self._registry:
                for subscription, one in list(self._subscriptions.items()):
                    if one.tag == tag:
                        del self._subscriptions[subscription]
                        self._core.cancel(subscription)
                        one.ended()
            self._consumer_ended()

    def _consumer_ended(self) -> None:
        with self._consumers_changed:
            self._consumers_changed.notify_all()

    def start_consuming(self) -> None:
        """Waits until there is no consumer left, :meth:`stop_consuming` is called, or the channel closes.

        Raises:
            ChannelClosed: the channel was closed by an error.
        """
        self.check_open()
        _ = self.core
        with self._consumers_changed:
            self._stopping = False
            self._consumers_changed.wait_for(lambda: self._stopping or not self._subscriptions or not self.is_open)
        if self._error is not None:
            self.check_open()

    def stop_consuming(self) -> None:
        """Ends :meth:`start_consuming`, and all consumers of the channel."""
        for tag in self.consumer_tags:
            self.basic_cancel(tag)
        if self._core is not None:
            with self._consumers_changed:
                self._stopping = True
                self._consumers_changed.notify_all()

    @property
    def consumer_tags(self) -> list[str]:
        """The tags of its consumers."""
        return [one.tag for one in list(self._subscriptions.values())]

    def consume(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        exclusive: bool = False,  # noqa: FBT001, FBT002
        arguments: Mapping[str, Any] | None = None,
        inactivity_timeout: float | None = None,
        *,
        no_local: bool = False,
    ) -> Iterator[tuple[Delivery | None, BasicProperties | None, bytes | None]]:
        """Iterates over the messages of a queue: ``(method, properties, body)``.

        With ``inactivity_timeout``, ``(None, None, None)`` whenever none came for so many seconds, as pika has it.
        It ends when its consumer or the channel does; what it was handed and has not passed on goes back.
        """
        waiting: standard_queue.SimpleQueue[Any] = standard_queue.SimpleQueue()
        library.deadline(inactivity_timeout)
        tag = self._consume(
            queue, lambda _channel, *delivery: waiting.put(delivery), auto_ack=auto_ack, exclusive=exclusive,
            consumer_tag=None, arguments=arguments, no_local=no_local, on_end=lambda: waiting.put(None),
        )  # fmt: skip
        return self._deliveries(tag, waiting, inactivity_timeout)

    def _deliveries(self, tag: str, waiting: standard_queue.SimpleQueue[Any], pause: float | None) -> Iterator[Any]:
        try:
            while True:
                try:
                    delivery = waiting.get(timeout=pause)
                except standard_queue.Empty:
                    delivery = (None, None, None)
                if delivery is None:
                    return
                yield delivery
        finally:
            if self.is_open:
                self.basic_cancel(tag)
                while (left := waiting.get()) is not None:
                    if not left[0].settled:
                        left[0].nack()

    # ---- the work of a channel, see dispatch.py ----

    def work(self) -> bool:
        """Calls one callback; ``False``: nothing is there."""
        if self._events:
            self._events.popleft()()
            return True
        delivery = self._taker.take(self, False)  # noqa: FBT003
        if delivery is not None:
            self._deliver(delivery)
            return True
        return self.is_open and self.core.take_failed(self._taker.status, self._was_cancelled)

    def _deliver(self, delivery: Any) -> None:  # noqa: ANN401 - a Delivery
        subscription = delivery.subscription
        consumer = self._subscriptions.get(subscription)
        if consumer is None:
            with self._registry:  # it is being registered
                consumer = self._subscriptions.get(subscription)
            if consumer is None:
                return  # it was cancelled just now: the message goes back
        if not delivery.settled:
            delivery._state = OPEN  # noqa: SLF001 - it has reached us
        consumer.callback(self, delivery, delivery.properties, bytes(delivery))

    def _was_cancelled(self, subscription: int) -> None:
        with self._registry:
            consumer = self._subscriptions.pop(subscription, None)
        if consumer is not None:
            consumer.ended()
            self._consumer_ended()
            for callback in tuple(self._cancel_callbacks):
                callback(consumer.tag)

    def rest(self) -> bool:
        """Asks to be woken by the IO thread; ``False``: something is there already."""
        return not self.is_open or (not self._events and not self.core.arm())

    def wake(self) -> None:
        """Something is there for the callbacks."""
        if self.is_open and self._core is not None:
            self._dispatcher.wake()

    def _happened(self, event: Callable[[], None]) -> None:
        _ = self.core
        self._events.append(event)
        self._dispatcher.wake()

    # ---- acknowledging ----

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:  # noqa: FBT001, FBT002
        """Acknowledges a delivery, or (``multiple``) all up to it; 0 with ``multiple``: all.

        Raises:
            PreconditionFailed: there is no such delivery that is unacknowledged.
        """
        self._settle(delivery_tag, ACK, multiple=multiple)

    def basic_nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,  # noqa: FBT001, FBT002
        requeue: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Puts deliveries back to their places, or drops them."""
        self._settle(delivery_tag, REQUEUE if requeue else REJECT, multiple=multiple)

    def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Puts one delivery back to its place, or drops it."""
        self._settle(delivery_tag, REQUEUE if requeue else REJECT, multiple=False)

    def _settle(self, delivery_tag: int, how: int, *, multiple: bool) -> None:
        if not isinstance(delivery_tag, int) or isinstance(delivery_tag, bool):
            msg = f"delivery_tag={delivery_tag!r}: an integer is needed"
            raise TypeError(msg)
        if not self._may_go_on():
            return
        if self._core is None or not 0 <= delivery_tag < 1 << 64:
            good = self._core is None and multiple and delivery_tag == 0
        elif self._transaction is not None:
            good = self._transaction.settle(self._core, delivery_tag, how, multiple=multiple)
        else:
            good = self._core.settle(delivery_tag, how, multiple=multiple)
        if not good:
            error = _refused(f"unknown delivery tag {delivery_tag}")
            self.fail(error, reported=True)
            raise error

    @_synchronous
    def basic_recover(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Puts all unacknowledged deliveries of the channel back to their places.

        Raises:
            NotImplementedByBroker: ``requeue`` is off; closes the connection.
        """
        if not requeue:
            raise exceptions.NotImplementedByBroker(540, "NOT_IMPLEMENTED - requeue=false")
        if self._core is not None:
            self._core.recover()

    # ---- flow ----

    @_synchronous
    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        global_qos: bool = False,  # noqa: FBT001, FBT002
        *,
        scope: str | None = None,
    ) -> None:
        """How many messages may be unacknowledged before no more are delivered; 0 = any number.

        Args:
            prefetch_size: nothing but 0 is supported.
            prefetch_count: 0 to 65,535.
            global_qos: for the channel as a whole, at once; otherwise for each consumer that is started from now on,
                and the limit of the channel ends.
            scope: "consumer", "channel" or "connection", in place of ``global_qos``.

        Raises:
            NotImplementedByBroker: a ``prefetch_size`` was given; closes the connection.
        """
        count = _prefetch(prefetch_count)
        if prefetch_size:
            text = f"NOT_IMPLEMENTED - prefetch_size!=0 ({prefetch_size})"
            raise exceptions.NotImplementedByBroker(540, text)
        scope = ("channel" if global_qos else "consumer") if scope is None else scope
        if scope == "connection":
            self.connection.limit(count)
        elif scope == "channel":
            self._limit = count
            self.core.limit(count)
        elif scope == "consumer":
            self._prefetch = count
            if self._limit:
                self._limit = 0
                self.core.limit(0)
        else:
            msg = f"scope={scope!r}: consumer, channel or connection is allowed"
            raise ValueError(msg)

    @_synchronous
    def flow(self, active: bool) -> bool:  # noqa: FBT001
        """Says that deliveries are welcome.

        Raises:
            NotImplementedByBroker: ``active`` is off: use :meth:`basic_qos`; closes the connection.
        """
        if not active:
            raise exceptions.NotImplementedByBroker(540, "NOT_IMPLEMENTED - active=false")
        return True

    # ---- being told ----

    def add_on_return_callback(self, callback: Callable[..., object]) -> None:
        """``callback(channel, method, properties, body)`` for mandatory messages that come back.

        ``method`` has ``reply_code``, ``reply_text``, ``exchange`` and ``routing_key``.
        """
        self._return_callbacks.append(callback)

    def add_on_cancel_callback(self, callback: Callable[[str], object]) -> None:
        """``callback(consumer_tag)`` for a consumer whose queue was deleted."""
        self._cancel_callbacks.append(callback)

    # ---- for its deliveries ----

    def queue_name(self, subscription: int) -> str:
        """The queue of a delivery."""
        found = self._subscriptions.get(subscription)
        return found.queue if found is not None else ""

    def consumer_tag(self, subscription: int) -> str:
        """The consumer of a delivery."""
        found = self._subscriptions.get(subscription)
        return found.tag if found is not None else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r}, {'open' if self.is_open else 'closed'}>"


def _never_known(_exchange: str, _routing_key: str, _body: object) -> int:
    return -1


def _refused(text: str) -> exceptions.PreconditionFailed:
    return exceptions.PreconditionFailed(406, f"PRECONDITION_FAILED - {text}")


def _table(arguments: object) -> Any:  # noqa: ANN401
    if arguments is None or isinstance(arguments, dict):
        return arguments
    msg = f"arguments={arguments!r}: a dict is needed"
    raise TypeError(msg)


def _prefetch(count: object) -> int:
    if isinstance(count, int) and not isinstance(count, bool):
        if 0 <= count <= _MAX_PREFETCH:
            return count
        msg = f"prefetch_count={count!r}: 0 to {_MAX_PREFETCH} is allowed"
        raise ValueError(msg)
    msg = f"prefetch_count={count!r}: an integer is needed"
    raise TypeError(msg)


def _consumer_priority(queue: str, arguments: Mapping[str, Any]) -> int:
    priority = arguments.get("x-priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > _MAX_PRIORITY:
        raise queue_settings.invalid_type(queue, "x-priority", priority)
    return priority
