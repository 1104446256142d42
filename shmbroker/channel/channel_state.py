# SPDX-License-Identifier: Apache-2.0
"""The state of a channel: its parts, whether it is open, and its pending work."""

from __future__ import annotations

import collections
import contextlib
import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.channel import CoreChannel
from shmbroker._process import locks
from shmbroker.channel.deliveries import Delivery, Subscription, TransactionalDelivery
from shmbroker.message import FRESH, OPEN, MessageBatch
from shmbroker.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmbroker._core.connection import CoreConnection
    from shmbroker._session.session import Session
    from shmbroker.channel.confirms import Confirms
    from shmbroker.channel.transaction import Transaction

DEFAULT_PREFETCH = 64
_PAUSE_SECONDS = 0.02
_OVER = (exceptions.ConnectionClosed, exceptions.ConnectionClosedByBroker, exceptions.ForkedConnectionError)
# Statuses of a delivery that lacks something, such as memory or a file descriptor, and would lack it again at once.
_LACKING = frozenset({native.GROW, native.NO_MEMORY, native.SYSTEM, native.LIMIT})
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="ChannelState")


def synchronous(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Decorates a method: only one decorated method of a channel runs at a time.

    A soft error of AMQP that the method raises closes the channel, a hard error closes the connection.
    """

    @functools.wraps(method)
    def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_open()
        with self._turn:
            self._check_open()
            self._session.check_open()
            try:
                return method(self, *args, **kwargs)
            except exceptions.ChannelClosedByBroker as error:
                self._fail(error, reported=True)
                raise
            except exceptions.ConnectionClosedByBroker as error:
                hard = error
        self._fail(hard, reported=True)  # not in the turn: it waits for callbacks, which may wait for the turn
        raise hard

    return call


class ChannelState(native.ChannelCalls):
    """The state of a channel, and its pending work."""

    __slots__ = (
        "__weakref__",
        "_cancel_callbacks",
        "_confirms",
        "_consumers_changed",
        "_core",
        "_core_connection",
        "_dispatcher",
        "_ended",
        "_error",
        "_events",
        "_hindered",
        "_hindrance",
        "_on_end",
        "_open",
        "_over",
        "_registry",
        "_reported",
        "_session",
        "_settle_known",
        "_settle_tag",
        "_stopping",
        "_subscriptions",
        "_taker",
        "_transaction",
        "_turn",
        "number",
    )  # fmt: skip

    def __init__(self, session: Session, number: int) -> None:
        self._session, self.number = session, number
        self._core_connection: CoreConnection = session.core
        self._open, self._ended = True, False
        self._turn = locks.unnoted()  # a forked child never takes it: `_check_open` raises first
        self._core: CoreChannel | None = None
        self._error: exceptions.BrokerError | None = None
        self._reported = False
        self._publisher = session.publishing.compiled
        self._settle_known: Callable[[int, bool, int], int] = never_known
        self._confirms: Confirms | None = None
        self._transaction: Transaction | None = None
        self._subscriptions: dict[int, Subscription] = {}
        self._cancel_callbacks: list[Callable[..., object]] = []
        self._on_end: Callable[[], None] | None = None
        """Called when the channel is closed, from any thread."""

    # ---- the channel in the core: made at the first use, as most channels only publish and do not use it ----

    @property
    def _core_channel(self) -> CoreChannel:
        """The channel in the core."""
        if self._core is None:
            with self._turn:
                if self._core is None:
                    self._events: collections.deque[Callable[[], None]] = collections.deque()
                    self._registry = locks.unnoted()
                    self._consumers_changed = locks.condition(locks.unnoted())
                    self._stopping = self._over = self._hindered = False
                    self._hindrance: type[BaseException] | None = None
                    self._dispatcher = self._session.make_dispatcher(self)
                    core = CoreChannel(self._core_connection, self.number)
                    self._taker = self._receiver_of(core)
                    self._settle_tag = core.settle_tag
                    self._core = core
                    if self._transaction is None:  # after `_core`, which keeps the handle that `settle` uses alive
                        self._settle_known = self._taker.settle
        return self._core

    def _receiver_of(self, core: CoreChannel) -> native.Receiver:
        kind = Delivery if self._transaction is None else TransactionalDelivery
        return native.Receiver(core.address, native.OF_CHANNEL, kind, MessageBatch)

    # ---- open, closed, failed ----

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return self._open and self._session.is_open

    def _check_open(self) -> None:
        """Raises an error if the channel is closed, or if this process is a forked child.

        A closed channel raises the error that closed it, if no method has raised that error yet. Otherwise it raises
        the error of the closed connection, or ChannelClosed if the connection is open.
        """
        if not self._open:
            raise self._closed_error()
        if self._core_connection.attachment.forked:  # before we take a lock that no thread of the child releases
            native.raise_for(native.FORKED)

    def _closed_error(self) -> exceptions.BrokerError:
        error = self._error
        if error is not None and not self._reported:
            self._reported = True
            return error
        self._session.check_open()
        because = f": {error}" if error is not None else ""
        return exceptions.ChannelClosed(504, f"CHANNEL_ERROR - channel {self.number} is closed{because}")

    def _fail(self, error: exceptions.BrokerError, *, reported: bool) -> None:
        """Closes the channel, or the whole connection, for an error of the broker.

        Args:
            error: the reason.
            reported: ``True``: the caller raises the error now. ``False``: the next method that AMQP answers raises it;
                until then, methods without an answer do nothing, as with a broker that has closed the channel.
        """
        if self._open:
            self._reported = reported
            self._end(error)
        if isinstance(error, exceptions.ConnectionClosedByBroker):
            self._session.fail(error)

    def _may_go_on(self) -> bool:
        """Whether a method without an answer may run; raises an error as :meth:`_check_open` does.

        ``False``: an error closed the channel, and no method has raised that error yet. Then the method does nothing.
        """
        if not self._open and self._error is not None and not self._reported:
            return False
        self._check_open()
        return True

    def close(self, reply_code: int = 0, reply_text: str = "") -> None:
        """Closes the channel: its consumers end, and unacked messages are requeued at their positions.

        Ends every wait of other threads on it. An uncommitted transaction is rolled back. Safe to call again.
        """
        self._end(exceptions.ChannelClosed(reply_code, reply_text) if reply_code or reply_text else None)

    def _end(self, error: exceptions.BrokerError | None) -> None:
        """Ends the channel.

        Args:
            error: the error that ends the channel; ``None``: no error. The next method that AMQP answers raises it,
                once; until then methods without an answer do nothing. If `_reported` is set (see :meth:`_fail`), or
                ``error`` is itself a ChannelClosed, each method raises a new ChannelClosed instead.
        """
        if self._core_connection.attachment.forked:
            return
        with self._session.lock:
            if self._ended:
                return
            if self._open:
                reported = self._reported or isinstance(error, exceptions.ChannelClosed)
                self._publisher, self._settle_known = None, never_known
                # One line without a call: a signal handler that raises sees the channel open, or has a second close do
                # all of the rest, which may be done twice.
                self._error, self._reported, self._open = error, reported, False
        if self._core is not None:
            self._core.close()
            for consumer in list(self._subscriptions.values()):
                consumer.ended()
            with self._consumers_changed:
                self._subscriptions = {}
                self._consumers_changed.notify_all()
            self._events.clear()
        if self._confirms is not None:
            closed = exceptions.ChannelClosed(504, f"CHANNEL_ERROR - channel {self.number} is closed")
            self._confirms.close(error or closed)
        self._session.channel_closed(self.number, self)
        if self._on_end is not None:
            self._on_end()
        self._ended = True

    # ---- the work of a channel, see _session/dispatch.py ----

    def _work(self, most: int = 1) -> int:
        """Does the channel's next work: one event, up to ``most`` deliveries, one error, or one cancelled consumer.

        An event tells the application of a returned message. Returns how many of these it did; 0: there is no work, or
        an error keeps the channel from its next message.

        Such an error recurs at every attempt, because the message stays the next one. So it is raised or reported only
        if its type differs from that of the last such error, or if a whole call of this method has met none since.
        After it the channel does not look for messages until :meth:`_rest` was called.
        """
        if self._events:
            self._taker.delivered = 1
            self._events.popleft()()
            return 1
        if self._hindered:
            return 0
        try:
            done = self._taker.deliver(self, self._subscriptions, self._events, NO_PROPERTIES, most)
            done = done if done or not self._open else int(self._look_on())
        except Exception as error:
            if self._hindered and not self._is_news(error):
                return 0
            raise
        if not self._hindered:
            self._hindrance = None
        return done

    def _is_news(self, error: Exception) -> bool:
        """Whether an error that keeps the channel from its messages has another type than the last one; notes it."""
        known, self._hindrance = self._hindrance, type(error)
        return known is not self._hindrance

    def _look_on(self) -> bool:
        """Handles the reason why no message was delivered: makes room, or reports an error or a cancelled consumer.

        Returns:
            Whether the caller should look again: the reason is gone, or a cancelled consumer was reported.
        """
        status = self._taker.status
        if status != native.EMPTY and self._may_try_again(status):
            return True
        found, consumer = (False, None) if self._over else self._next_cancelled()
        if consumer is not None:
            self._was_cancelled(consumer)
        return found

    def _may_try_again(self, status: int) -> bool:
        """Handles the status of a delivery; ``False``: it would fail again at once, or the connection has ended."""
        try:
            self._core_channel.failed(status)
        except Exception as error:
            if _is_end(error):
                self._over = True  # not passed to `callbacks.failed`: the next method call raises this error
            elif status in _LACKING:
                self._hindered = True
                if self._is_news(error):
                    self._session.callbacks.failed(error)
            else:
                raise
            return False
        return True

    @property
    def _done(self) -> int:
        """The number of messages that the last `_work` delivered, or 1 for an event; includes the one that raised."""
        return self._taker.delivered

    def _not_handed_over(self, error: Exception) -> None:
        """Handles an error because of which a callback did not get its message: making, reading or settling it failed.

        Ignores the error if the message was settled meanwhile, or if the channel or the connection has ended: another
        thread can cause that at any time. Raises any other error.
        """
        if not isinstance(error, (exceptions.MessageSettled, exceptions.ChannelClosed)) and not _is_end(error):
            self._hindered = True  # the message stays the next one
            raise error

    def _deliver_late(self, delivery: Delivery) -> None:
        """Delivers a message that came before its consumer was registered, or after its consumer was cancelled.

        If the consumer is registered now, calls its callback. If it was cancelled, the message is requeued.
        """
        with self._registry:
            consumer = self._subscriptions.get(delivery._subscription)  # noqa: SLF001 - as below
            if consumer is None:
                # If the application has cancelled the consumer, this cancel does nothing. If two signal handlers have
                # interrupted the start of the consumer, the core has a consumer that is never registered: without this
                # cancel it would deliver the message to it again and again.
                with contextlib.suppress(*_OVER):
                    self._core_channel.cancel(delivery._subscription)  # noqa: SLF001
        if consumer is None:
            return  # the message is requeued
        delivery._consumer = consumer.names  # noqa: SLF001
        try:
            body = bytes(delivery)
        except Exception as error:  # noqa: BLE001 - raised, if it is no end: the message goes back then
            self._not_handed_over(error)
            return
        if delivery._state == FRESH:  # noqa: SLF001
            delivery._state = OPEN  # noqa: SLF001 - the application has it now
        consumer.callback(self, delivery, delivery.properties, body)

    def _next_cancelled(self) -> tuple[bool, Subscription | None]:
        """Returns whether the core reports a consumer that ended with its queue, and which one.

        ``None``: there is none, or the application has cancelled it in the meantime.
        """
        with self._registry:  # after its report, the core may give the number to a new consumer, which needs this lock
            number = self._core_channel.next_cancelled()
            return number is not None, None if number is None else self._subscriptions.pop(number, None)

    def _was_cancelled(self, consumer: Subscription) -> None:
        consumer.ended()
        self._consumer_ended()
        self._call_each(self._cancel_callbacks, consumer.names.tag)

    def _call_each(self, callbacks: list[Callable[..., object]], *given: object) -> None:
        for callback in tuple(callbacks):
            try:
                callback(*given)
            except Exception as error:  # noqa: BLE001 - an application's callback raised; the others are still called
                self._session.callbacks.failed(error)

    def _rest(self) -> bool:
        """Whether the dispatcher may rest, because the channel has no work.

        If ``True``, the IO thread wakes the dispatcher when there is work, unless the channel has ended. If an error
        kept the channel from a message that it has, the dispatcher is woken after a pause.
        """
        if not self._open or self._over:
            return True
        if self._events:
            return False
        hindered, self._hindered = self._hindered, False
        return not self._core_channel.arm() or (hindered and self._dispatcher.wake_later(_PAUSE_SECONDS))

    def _wake(self) -> None:
        """Wakes the dispatcher of an open channel: the caller has found that there may be work for the callbacks."""
        if self._open and self._core is not None:
            self._dispatcher.wake()

    def _happened(self, event: Callable[[], None]) -> None:
        _ = self._core_channel
        self._events.append(event)
        self._dispatcher.wake()

    def add_on_cancel_callback(self, callback: Callable[[str], object]) -> None:
        """Registers ``callback(consumer_tag)``, which is called for each consumer whose queue is deleted."""
        self._cancel_callbacks.append(callable_of(callback, "callback"))

    def _consumer_ended(self) -> None:
        with self._consumers_changed:
            self._consumers_changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self._session!r}, {'open' if self._open else 'closed'}>"


def _is_end(error: Exception) -> bool:
    """Whether an error says that the connection has ended, or that this process must not use it."""
    # NotAllowed is a ConnectionClosedByBroker, but here it reports a limit.
    return isinstance(error, _OVER) and not isinstance(error, exceptions.NotAllowed)


def never_known(*_: object) -> int:
    """Stands in for a function of the fast path while the fast path may not be used. Returns -1: use the slow path."""
    return -1


def refused(text: str) -> exceptions.PreconditionFailed:
    """The error 406, PRECONDITION_FAILED."""
    return exceptions.PreconditionFailed(406, f"PRECONDITION_FAILED - {text}")


def table(arguments: object) -> Any:  # noqa: ANN401
    """Checks that arguments are None or a dict whose keys are strings, and returns them unchanged."""
    if arguments is None or (isinstance(arguments, dict) and all(isinstance(name, str) for name in arguments)):
        return arguments
    msg = f"arguments={arguments!r}: a dict whose keys are strings, or None, is needed"
    raise TypeError(msg)


def deadline(timeout: float | None) -> int:
    """Converts a timeout to a deadline.

    Raises:
        TypeError: the timeout is no number.
        ValueError: the timeout is negative.
    """
    if timeout is not None and (not isinstance(timeout, (int, float)) or isinstance(timeout, bool)):
        msg = f"timeout={timeout!r}: seconds, or None to wait for ever, are needed"
        raise TypeError(msg)
    return native.deadline(timeout)


def callable_of(callback: object, what: str) -> Any:  # noqa: ANN401
    """Checks that a callback is callable and returns it unchanged."""
    if callable(callback):
        return callback
    msg = f"{what}={callback!r}: a callable is needed"
    raise TypeError(msg)
