# SPDX-License-Identifier: Apache-2.0
"""Publishing on a channel, with confirms or in transactions."""

from __future__ import annotations

import concurrent.futures
import functools
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any, TypeVar

from shmbroker import exceptions
from shmbroker._core import native, syncing
from shmbroker._put_options import body_of
from shmbroker._topology.administration import clean_name
from shmbroker._topology.publisher import PLAIN, Content
from shmbroker.channel.channel_state import callable_of, deadline, never_known, refused, synchronous
from shmbroker.channel.confirms import Confirms
from shmbroker.channel.declaring import Declaring
from shmbroker.channel.deliveries import NO_ROUTE, Return
from shmbroker.channel.stored_confirms import StoredConfirms
from shmbroker.channel.transaction import Transaction
from shmbroker.properties import BasicProperties, is_transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._session.session import Session

T = TypeVar("T")
_LOOK_NS = 200_000_000  # the longest time until a waiting publish notices that its channel was closed


class Sending(Declaring):
    """The publishing side of a channel."""

    __slots__ = ("_return_callbacks",)

    def __init__(self, session: Session, number: int) -> None:
        super().__init__(session, number)
        self._return_callbacks: list[Callable[..., object]] = []

    # ---- publishing ----

    # `basic_publish` is compiled (`native.ChannelCalls`). It calls the next method.

    def _publish_slowly(  # noqa: PLR0917 (called by C)
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401 - anything bytes-like
        properties: BasicProperties | None,
        mandatory: bool,  # noqa: FBT001
        timeout: float | None,
    ) -> int | None:
        """Publishes a message that the compiled code did not publish; returns its number in confirm mode."""
        deadline(timeout)
        if properties is not None and self._publisher is not None:
            publishing = self._session.publishing
            if publishing.publish_described(exchange, routing_key, body, properties) == native.OK:
                number = self._number_of_transient if is_transient(properties) else self._number
                return None if number is None else number()
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
        """Publishes with confirm: the future returns the number of the message once the message is published.

        A full queue with overflow="drop" drops the message without an error.

        The exception of the future: :exc:`NackError` (a full queue with overflow="reject-publish" or
        "reject-publish-dlx" rejected the message; other queues may have it), :exc:`UnroutableError` (``mandatory``, the
        message is routed to no queue), :exc:`NotFound` (no such exchange: the channel is closed), or another error that
        closed the channel or the connection.

        Raises:
            TypeError: the body is not bytes-like, or a name is no string.
            queue.Full: there is no room in time; nothing was published.
            PreconditionFailed: the channel is transactional.
        """
        deadline(timeout)
        if self._confirms is None:
            self.confirm_delivery()
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        if self._publisher is not None:
            publishing = self._session.publishing
            if publishing.publish_described(exchange, routing_key, body, properties) == native.OK:
                self._confirmed(future, None, transient=is_transient(properties))
                return future
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
        until = deadline(timeout)
        if not self._may_go_on():
            if future is not None and self._error is not None:
                future.set_exception(self._error)
            return None
        try:
            if properties is not None or self._transaction is not None:
                self._session.publishing.check(exchange)
            content = PLAIN if properties is None else Content(properties)
            if self._transaction is not None:
                self._transaction.publish(exchange, routing_key, bytes(data), content, mandatory=bool(mandatory))
                return None
            publish = functools.partial(self._session.publishing.publish, exchange, routing_key, data, size, content)
            routed = self._while_open(publish, until)
        except exceptions.PublishRejected as error:
            return self._confirmed(future, exceptions.NackError(text=str(error)))
        except (exceptions.ChannelClosedByBroker, exceptions.ConnectionClosedByBroker) as error:
            number = self._confirmed(future, error)
            self._fail(error, reported=False)
            return number
        if routed or not mandatory:
            return self._confirmed(future, None, transient=is_transient(properties))
        return self._give_back(exchange, routing_key, bytes(data), properties, future)

    def _while_open(self, attempt: Callable[[int], T], until: int) -> T:
        """Calls ``attempt(deadline)``, which may wait for room, until it succeeds or ``until`` has passed.

        Each call waits for a short time only. Between two calls, this checks that the channel is open: a wait in the
        core would not notice that the channel was closed. A body that can never fit raises an error immediately.
        """
        with self._session.core.memory_waits:
            while True:
                look = min(until, time.monotonic_ns() + _LOOK_NS)
                try:
                    return attempt(look)
                except standard_queue.Full as full:
                    if look == until or isinstance(full, exceptions.FINAL):
                        raise
                self._check_open()

    def _confirmed(
        self, future: concurrent.futures.Future[int] | None, error: BaseException | None, *, transient: bool = False
    ) -> int | None:
        """Counts a message whose outcome is known; returns its number, or ``None`` if not in confirm mode."""
        return None if self._confirms is None else self._confirms.known(future, error, transient=transient)

    def _give_back(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: BasicProperties | None,
        future: concurrent.futures.Future[int] | None,
    ) -> int | None:
        """Returns an unroutable mandatory message to the application.

        In confirm mode, returns the number of the message; its outcome is UnroutableError. Otherwise returns ``None``.
        """
        text = f"NO_ROUTE - exchange '{exchange}' has no queue for key '{key}'"
        unroutable = exceptions.UnroutableError(NO_ROUTE, text)
        if not self._return_callbacks:
            return self._confirmed(future, unroutable)
        confirms, number = self._confirms, None

        def confirm() -> None:
            if confirms is not None and number is not None:
                confirms.end(number, unroutable)

        def tell() -> None:
            try:
                self._tell_returned(exchange, key, properties, body)
            finally:
                confirm()

        will_tell = False
        try:
            if confirms is not None:
                number = confirms.begin(future)
            self._happened(tell)
            will_tell = self._open
        finally:
            # `_happened` adds `tell` to the events of the channel, but `tell` does not always run. If another thread
            # closes the channel, the close discards the events. It may also have failed the pending futures before
            # `begin` made this one pending. If `_happened` raises (memory is missing, or a signal handler raised), the
            # dispatcher may not know of `tell`.
            if not will_tell:
                confirm()
        return number

    def _tell_returned(self, exchange: str, key: str, properties: BasicProperties | None, body: bytes) -> None:
        why = Return(NO_ROUTE, "NO_ROUTE", exchange, key)
        self._call_each(self._return_callbacks, self, why, properties or BasicProperties(), body)

    def add_on_return_callback(self, callback: Callable[..., object]) -> None:
        """Registers ``callback(channel, method, properties, body)`` for returned mandatory messages.

        ``method`` has ``reply_code``, ``reply_text``, ``exchange`` and ``routing_key``.
        """
        self._return_callbacks.append(callable_of(callback, "callback"))

    @synchronous
    def confirm_delivery(self) -> None:
        """Counts and confirms all messages published from now on: see :meth:`wait_for_confirms`.

        Raises:
            PreconditionFailed: the channel is transactional.
        """
        if self._transaction is not None:
            text = "cannot switch from tx to confirm mode"
            raise refused(text)
        if self._confirms is None:
            store_waits = self._session.store_waits
            self._confirms = Confirms() if store_waits is None else StoredConfirms(store_waits)
            self._number_of_transient = self._confirms.at_once_of_transient
            self._number = self._confirms.at_once  # counts a message that was just published

    def wait_for_confirms(self, timeout: float | None = None) -> bool:
        """Waits until all published messages are confirmed; ``True``: no queue rejected any since the last call.

        In a callback of this channel, it returns without a wait even if messages are unconfirmed: a returned message is
        confirmed only after its callback ended.

        Raises:
            Timeout: some messages were not confirmed in time.
            PreconditionFailed: the channel is not in confirm mode. This error closes the channel.
        """
        deadline(timeout)
        self._check_open()
        if self._confirms is None:
            error = refused("the channel is not in confirm mode")
            self._fail(error, reported=True)
            raise error
        return self._confirms.wait(timeout, inside=self._is_inside())

    def _is_inside(self) -> bool:
        return self._core is not None and bool(self._dispatcher.is_inside())

    # ---- transactions ----

    @synchronous
    def tx_select(self) -> None:
        """Defers publishes and acknowledgements from now on to :meth:`tx_commit`.

        Raises:
            PreconditionFailed: the channel is in confirm mode.
        """
        if self._confirms is not None:
            text = "cannot switch from confirm to tx mode"
            raise refused(text)
        if self._transaction is None:
            self._transaction = Transaction()
            self._publisher, self._settle_known = None, never_known
            if self._core is not None:
                self._taker = self._receiver_of(self._core)

    @synchronous
    def tx_commit(self, *, timeout: float | None = None) -> None:
        """Commits everything since the last commit in one atomic step, even if the process is killed during it.

        In a broker with a store, the call returns when all of it is in the store. With ``timeout=0`` it does not wait
        for that, nor if it has nothing but messages with ``delivery_mode=1``.

        Raises:
            Timeout: it is done, and was not in the store in time.
            PreconditionFailed: the channel is not transactional; or a queue rejected a message: nothing was done. This
                error closes the channel.
            queue.Full: a queue had no room in time: nothing was done, and the caller can try again.
            DuplicateId: a queue knows the id of a message, or the transaction has one id twice: nothing was done, and
                the caller rolls back.
        """
        transaction = self._in_transaction()
        commit = functools.partial(transaction.commit, self._session.publishing, self._core)
        until = deadline(timeout)
        try:
            self._while_open(commit, until)
        except exceptions.PublishRejected as error:
            text = f"transaction not committed: {error}"
            raise refused(text) from error
        finally:
            self._give_back_from(transaction)  # also if a signal handler raised after the commit
        if self._session.store_waits is not None and timeout != 0 and transaction.is_awaited:
            syncing.wait(self._session.core, syncing.ask(self._session.core), until)

    @synchronous
    def tx_rollback(self) -> None:
        """Discards everything since the last commit; messages acknowledged in the transaction are unacked again."""
        transaction = self._in_transaction()
        try:
            transaction.rollback()
        finally:
            self._give_back_from(transaction)  # those of a commit that was interrupted

    def _give_back_from(self, transaction: Transaction) -> None:
        """Returns the unroutable mandatory messages of commits to the application."""

        def tell() -> None:
            while self._open and transaction.returned:
                one = transaction.returned.popleft()
                self._tell_returned(one.exchange, one.routing_key, one.content.given, one.body)

        if not self._return_callbacks:
            transaction.returned.clear()
        elif transaction.returned:
            self._happened(tell)

    def _in_transaction(self) -> Transaction:
        if self._transaction is None:
            text = "channel is not transactional"
            raise refused(text)
        return self._transaction
