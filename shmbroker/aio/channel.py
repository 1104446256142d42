# SPDX-License-Identifier: Apache-2.0
"""Channels for asyncio. Arguments and errors are those of :class:`shmbroker.Channel`, except in `consume`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._topology.administration import generated_name
from shmbroker.aio.waiters import Turn
from shmbroker.channel.channel_state import callable_of
from shmbroker.channel.deliveries import Delivery
from shmbroker.channel.receiving import Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from shmbroker._topology.administration import DeclareOk
    from shmbroker.aio.session import LoopSession
    from shmbroker.channel import Channel as SyncChannel
    from shmbroker.properties import BasicProperties

_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.02
# Why a publish is attempted again: there is no room; or a queue is to be made, and the topology lock is not free.
_AGAIN = (standard_queue.Full, exceptions.Timeout)


class Channel:
    """A channel of a connection. Callbacks run in the event loop, and may be coroutine functions."""

    def __init__(self, session: LoopSession, sync: SyncChannel) -> None:
        self._session, self._sync = session, sync
        self.number = sync.number
        self._loop = session.loop
        self._getting: set[Turn] = set()
        sync._on_end = self._ended  # noqa: SLF001

    def _ended(self) -> None:
        self._soon(self._end_waits)

    def _soon(self, call: Callable[[], object]) -> None:
        """Schedules a call that wakes tasks. Safe from any thread. Safe to call again, if a signal handler raised."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(call)

    def _end_waits(self) -> None:
        # Ends the waits with a ChannelClosed, not with the error that closed the channel: the sync channel gives that
        # error only once. The woken task looks at the sync channel again, which then raises that error.
        for turn in self._getting:
            turn.end(exceptions.ChannelClosed())

    async def _change(self, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return await self._session.change(functools.partial(operation, *arguments, **options))

    # ---- declaring ----

    async def exchange_declare(self, exchange: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Makes an exchange, unless an equivalent one exists."""
        await self._change(self._sync.exchange_declare, exchange, *arguments, **options)

    async def exchange_delete(self, exchange: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Deletes an exchange, if it exists."""
        await self._change(self._sync.exchange_delete, exchange, *arguments, **options)

    async def exchange_bind(self, destination: str, source: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Binds an exchange to another exchange by a routing key."""
        await self._change(self._sync.exchange_bind, destination, source, *arguments, **options)

    async def exchange_unbind(self, destination: str, source: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Removes a binding between two exchanges, if it exists."""
        await self._change(self._sync.exchange_unbind, destination, source, *arguments, **options)

    async def queue_declare(self, queue: str = "", *arguments: Any, **options: Any) -> DeclareOk:  # noqa: ANN401
        """Makes a queue, unless an equivalent one exists."""
        found: DeclareOk = await self._change(self._sync.queue_declare, queue, *arguments, **options)
        return found

    async def queue_bind(self, queue: str, exchange: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Binds a queue to an exchange by a routing key."""
        await self._change(self._sync.queue_bind, queue, exchange, *arguments, **options)

    async def queue_unbind(self, queue: str, exchange: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Removes a binding of a queue, if it exists."""
        await self._change(self._sync.queue_unbind, queue, exchange, *arguments, **options)

    async def queue_purge(self, queue: str) -> int:
        """Removes the ready messages; returns their number."""
        return self._sync.queue_purge(queue)

    async def queue_delete(self, queue: str, *arguments: Any, **options: Any) -> int:  # noqa: ANN401
        """Deletes a queue, if it exists; returns the number of ready and scheduled messages deleted with it."""
        removed: int = await self._change(self._sync.queue_delete, queue, *arguments, **options)
        return removed

    # ---- sending ----

    async def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        properties: BasicProperties | None = None,
        mandatory: bool = False,  # noqa: FBT001, FBT002 - as in pika
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> int | None:
        """Publishes a message; waits up to ``timeout`` seconds for memory, or room in queues with overflow="block"."""
        given = (exchange, routing_key, body, properties, mandatory)
        number: int | None = await _with_room(self._sync.basic_publish, given, timeout)
        return number

    async def publish_confirmed(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        properties: BasicProperties | None = None,
        mandatory: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> int:
        """Publishes as :meth:`basic_publish` does; returns the number of the message once it is published."""
        given = (exchange, routing_key, body, properties, mandatory)
        return await asyncio.wrap_future(await _with_room(self._sync.publish_confirmed, given, timeout))

    async def confirm_delivery(self) -> None:
        """Switches to confirm mode: messages published from now on are numbered and confirmed."""
        self._sync.confirm_delivery()

    async def wait_for_confirms(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Waits until all published messages are confirmed; ``True``: no queue rejected any since the last call."""
        good: bool = await _until(
            functools.partial(self._sync.wait_for_confirms, timeout=0), exceptions.Timeout, timeout
        )
        return good

    async def tx_select(self) -> None:
        """Defers publishes and acknowledgements from now on to :meth:`tx_commit`."""
        self._sync.tx_select()

    async def tx_commit(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Commits everything since the last commit in one atomic step."""
        await _until(functools.partial(self._sync.tx_commit, timeout=0), _AGAIN, timeout)
        transaction = self._sync._transaction  # noqa: SLF001
        if timeout != 0 and (transaction is None or transaction.is_awaited):
            await self._session.synced(timeout)

    async def tx_rollback(self) -> None:
        """Discards everything since the last commit."""
        self._sync.tx_rollback()

    # ---- receiving ----

    async def basic_get(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        *,
        timeout: float | None = 0,  # noqa: ASYNC109
    ) -> Delivery | None:
        """Takes the oldest ready message; ``None``: no message came within ``timeout`` seconds."""
        native.check_timeout(timeout)
        source = None
        while source is None:
            try:
                found = self._sync.basic_get(queue, auto_ack)
            except exceptions.Timeout:  # the queue is to be made, and another process holds the topology lock
                found = await self._change(self._sync.basic_get, queue, auto_ack)
            if found is not None or timeout == 0:
                return found
            name = self._sync._named(queue)  # noqa: SLF001 - "" means the queue declared last: that of now
            source = self._session.shared.queues.routed(name)  # None: deleted; the next round raises NotFound

        def attempt() -> Delivery:
            got = self._sync.basic_get(name, auto_ack)
            if got is None:
                raise standard_queue.Empty
            return got

        turn = Turn()
        self._getting.add(turn)
        try:
            waited: Delivery = await self._session.waits.wait(source, attempt, timeout, turn)
        except TimeoutError:
            return None
        except exceptions.ChannelClosed:
            self._sync._check_open()  # noqa: SLF001 - raises what closed the channel
            raise
        finally:
            self._getting.discard(turn)
        return waited

    async def basic_consume(
        self,
        queue: str,
        on_message_callback: Callable[..., Awaitable[object] | object],
        *arguments: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> str:
        """Calls a callback or coroutine function with each message: ``(channel, method, properties, body)``."""
        callback = callable_of(on_message_callback, "on_message_callback")
        called = self._called(lambda _channel, *delivery: callback(self, *delivery))
        tag: str = await self._change(self._sync.basic_consume, queue, called, *arguments, **options)
        return tag

    async def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a consumer."""
        self._sync.basic_cancel(consumer_tag)

    async def consume(
        self,
        queue: str,
        auto_ack: bool = False,  # noqa: FBT001, FBT002
        exclusive: bool = False,  # noqa: FBT001, FBT002
        **options: Any,  # noqa: ANN401
    ) -> AsyncIterator[tuple[Delivery, BasicProperties, bytes]]:
        """Iterates over the messages of a queue: ``(method, properties, body)``.

        Takes the options ``arguments``, ``consumer_tag`` and ``no_local``. There is no ``inactivity_timeout``.
        """
        waiting, came = Waiting(), asyncio.Event()
        tag = options["consumer_tag"] = options.get("consumer_tag") or generated_name("ctag")

        def put(*delivery: object) -> None:
            waiting.put(*delivery)
            came.set()

        def end() -> None:
            waiting.end()
            self._soon(came.set)

        try:
            tag = self._sync._consume_until(queue, put, end, exclusive=exclusive, **options)  # noqa: SLF001
            while (delivery := waiting.next(0)) is not None:
                if delivery[0] is None:  # no message is there
                    await came.wait()
                    came.clear()
                    continue
                if auto_ack:
                    Delivery.ack(delivery[0])  # only now: an unacked delivery can still be requeued
                waiting.taken = []  # no call from here to the `yield`, so no signal handler raises in between
                yield delivery
        finally:
            if self._sync.is_open:
                try:
                    self._sync.basic_cancel(tag)
                finally:
                    waiting.give_back()

    # ---- acknowledging, flow ----

    async def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:  # noqa: FBT001, FBT002
        """Acknowledges a delivery, or all up to it."""
        self._sync.basic_ack(delivery_tag, multiple)

    async def basic_nack(
        self,
        delivery_tag: int = 0,
        multiple: bool = False,  # noqa: FBT001, FBT002
        requeue: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Requeues deliveries at their positions, or rejects them."""
        self._sync.basic_nack(delivery_tag, multiple, requeue)

    async def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Requeues one delivery at its position, or rejects it."""
        self._sync.basic_reject(delivery_tag, requeue)

    async def basic_recover(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002
        """Requeues all unacked deliveries at their positions."""
        self._sync.basic_recover(requeue)

    async def basic_qos(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Sets how many messages may be unacked."""
        self._sync.basic_qos(*arguments, **options)

    def add_on_return_callback(self, callback: Callable[..., object]) -> None:
        """Registers ``callback(channel, method, properties, body)`` for returned mandatory messages."""
        callback = callable_of(callback, "callback")
        self._sync.add_on_return_callback(self._called(lambda _channel, *returned: callback(self, *returned)))

    def add_on_cancel_callback(self, callback: Callable[[str], object]) -> None:
        """Registers ``callback(consumer_tag)``, which is called for each consumer whose queue is deleted."""
        self._sync.add_on_cancel_callback(self._called(callable_of(callback, "callback")))

    def _called(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Wraps a callback for the sync channel. If it returns an awaitable, the next callback waits for that."""

        def called(*given: object) -> None:
            result = callback(*given)
            if inspect.isawaitable(result):
                self._sync._dispatcher.awaited.append(result)  # noqa: SLF001

        return called

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return self._sync.is_open

    def close(self, reply_code: int = 0, reply_text: str = "") -> None:
        """Closes the channel."""
        self._sync.close(reply_code, reply_text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


async def _with_room(publish: Callable[..., Any], given: tuple[Any, ...], timeout: float | None) -> Any:  # noqa: ANN401, ASYNC109
    return await _until(functools.partial(publish, *given, timeout=0), _AGAIN, timeout)


async def _until(
    attempt: Callable[[], Any],
    again: type[Exception] | tuple[type[Exception], ...],
    timeout: float | None,  # noqa: ASYNC109
) -> Any:  # noqa: ANN401
    """Repeats an attempt while it raises ``again``, and returns its result. Pauses between attempts grow to 20 ms.

    Raises the last ``again`` when the timeout has passed. :exc:`NeverFits` is raised at once, as waiting does not help.
    """
    native.check_timeout(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    pause = _PAUSE_SECONDS
    while True:
        try:
            return attempt()
        except again as error:
            if isinstance(error, exceptions.FINAL) or (until is not None and time.monotonic() >= until):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
