# SPDX-License-Identifier: Apache-2.0
"""Sessions: the state that the objects of one connection share.

These objects are the :class:`~shmbroker.Connection`, its queues, its consumers and its channels. They refer to the
:class:`Session` and not to each other. A session ends when it is closed. A session without an IO thread also ends when
the last of these objects is freed; an IO thread keeps the session.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shmbroker import exceptions
from shmbroker._core import native, segments
from shmbroker._core.connection import CoreConnection
from shmbroker._process import connections, locks
from shmbroker._process.living import Living
from shmbroker._session.channel_numbers import ChannelNumbers
from shmbroker._session.dispatch import Dispatcher, Executor
from shmbroker._session.queues import OpenQueues
from shmbroker._session.store_waits import StoreWaits
from shmbroker._topology.addresses import Addresses
from shmbroker._topology.administration import Administration
from shmbroker._topology.publisher import Publishing

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterator

    from shmbroker._core.queue import CoreQueue
    from shmbroker._session.dispatch import Work


class OpenChannel(Protocol):
    """A channel, as its session sees it."""

    def close(self) -> None:
        """Closes the channel."""
        ...

    def _end(self, error: exceptions.BrokerError | None) -> None: ...

    def _wake(self) -> None: ...

    def _cancel_consumers(self) -> None: ...


class OpenConsumer(Protocol):
    """A consumer, as its session sees it."""

    _ended: bool

    def close(self) -> None:
        """Ends the consumer."""
        ...

    def fileno(self) -> int:
        """Returns the descriptor that is readable when the consumer has messages."""
        ...


C = TypeVar("C", bound=OpenChannel)


class Session(native.Finalized):
    """One connection to a broker.

    Args:
        path: the path of the broker's memory.
        name: the name that ``shmbroker connections`` shows.
        executor: runs the callbacks of channels; ``None``: a pool of this session.
        channel_max: the most channels that can be open.
        operation_timeout: seconds that a topology change may wait for the topology lock; ``None`` = for ever.
        on_callback_error: called with an exception that a callback raised, or that kept callbacks from running;
            ``None``: the exception is logged.
        on_housekeeper_missing: called in the IO thread when a housekeeper, or a stand-in for a stopped one, must be
            started.

    Attributes:
        core: the connection in the core.
        lock: held to change which queues and channels are open; `consumers` needs no lock.
        callbacks: the executor of the channels' callbacks.
        make_dispatcher: makes the dispatcher of a channel; a front end may set another one.
        addresses: the address settings.
        queues: the open queues.
        consumers: the consumers.
        administration: the declarations, bindings and deletions.
        publishing: the publishing side.
        store_waits: tells when what was published is in the store; ``None``: publishers do not wait for that.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str,
        executor: concurrent.futures.Executor | None = None,
        channel_max: int = 65535,
        operation_timeout: float | None = 10.0,
        on_callback_error: Callable[[BaseException], None] | None = None,
        on_housekeeper_missing: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.broker_name = segments.name_of(path)
        self.broker_full_name = segments.full_name_of(path)
        self.operation_timeout = operation_timeout
        self.callbacks = Executor(executor, on_callback_error)
        self.make_dispatcher: Callable[[Work], Any] = lambda work: Dispatcher(self.callbacks, work)
        self._channels: dict[int, OpenChannel] = {}
        self._numbers = ChannelNumbers(channel_max)
        self._error: exceptions.BrokerError | None = None
        self.consumers: Living[OpenConsumer] = Living()
        self.lock = locks.lock()
        self._close_callbacks: list[Callable[[], None]] = []
        self._over = self._closing = False
        self.core = CoreConnection(path, name)
        self.store_waits = StoreWaits(self.core) if self.core.attachment.waits_for_store else None
        self.core.on_stopping = self._broker_stops
        self.core.on_ready = self._channel_ready
        self.addresses = Addresses(self.core, self._routed, self.operation_deadline)
        self.queues = OpenQueues(self.core, self.lock, self.addresses)
        self.administration = Administration(self.core, self.queues.routed, self.operation_deadline, self.addresses)
        self.publishing = Publishing(self.core, self.queues.routed, self.addresses.auto_create)
        self.core.memory_waits.changed = self._memory_waits_changed
        self._blocked_callbacks: list[Callable[[bool], None]] = []
        if on_housekeeper_missing is not None:
            self.core.on_housekeeper_missing = on_housekeeper_missing
        connections.note(self)

    def _routed(self, name: str) -> CoreQueue | None:
        return self.queues.routed(name)

    def operation_deadline(self) -> int:
        """Returns the deadline of a topology change that begins now."""
        return native.deadline(self.operation_timeout)

    def start_io(self) -> None:
        """Starts the IO thread if it does not run."""
        self.core.start_io()

    def limit(self, prefetch: int) -> None:
        """Limits how many unacked messages the consumers of all channels may have together; 0: no limit."""
        self.core.limit(prefetch)

    # ---- open, failed ----

    @property
    def is_open(self) -> bool:
        """Whether the session is usable: not after it is closed, after a purge of the broker, or in a forked child."""
        try:
            return self.core.is_usable()
        except (exceptions.ConnectionClosed, exceptions.ForkedConnectionError):
            return False

    def check_open(self) -> None:
        """Raises ConnectionClosed if the session is closed; its text has the error that closed the session, if any.

        In a forked child, raises ForkedConnectionError instead.
        """
        if self.core.attachment.forked:
            native.raise_for(native.FORKED)
        if self.core.closed:
            raise self._closed_error()

    def _closed_error(self) -> exceptions.ConnectionClosed:
        because = f": {self._error}" if self._error is not None else ""
        return exceptions.ConnectionClosed(504, f"CHANNEL_ERROR - the connection is closed{because}")

    def fail(self, error: exceptions.BrokerError) -> None:
        """Closes the session for an error of the broker."""
        self._error = error
        self.close()

    # ---- channels ----

    def open_channel(self, number: int | None, make: Callable[[int], C]) -> C:
        """Opens a channel.

        Args:
            number: the number of the channel; ``None``: the lowest free number.
            make: makes the channel of a number.

        Raises:
            NoFreeChannels: as many channels are open as the connection allows.
            ValueError: that channel is open, or the number is not from 1 to 65535.
            ConnectionClosed: the session is closed, or another thread is closing it.
        """
        self.check_open()
        taken = opened = None
        try:
            with self.lock:
                self._check_not_closing()
                taken = self._numbers.take(number)
                opened = self._channels[taken] = make(taken)
                self.core.count_channels(len(self._channels))
                return opened
        except BaseException:  # a signal handler raised: the caller does not get the channel, even if it was opened
            if opened is not None:
                opened.close()
            elif taken is not None:
                with self.lock:
                    self._numbers.give(taken)
            raise

    def _check_not_closing(self) -> None:
        if self._closing or self.core.closed:  # `close` would not end a channel that is opened now
            raise self._closed_error()

    def channel_closed(self, number: int, channel: object) -> None:
        """Frees the number of a closed channel."""
        with self.lock:
            if self._channels.get(number) is channel:
                self._numbers.give(number)
                self.core.count_channels(len(self._channels) - 1)
                # Last: if a signal handler raises before, a second close of the channel does all of this again.
                del self._channels[number]

    def _channel_ready(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            channel._wake()  # noqa: SLF001 - the session uses the private side of its channels

    def running_consumers(self) -> list[OpenConsumer]:
        """Returns the consumers that have not ended."""
        return [consumer for consumer in self.consumers if not consumer._ended]  # noqa: SLF001 - for its session

    # ---- closing ----

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Registers a callable that is called once: when the session is closed, or the broker is purged.

        The IO thread notices a purge; without one the callable is called when the session is closed.
        """
        self._close_callbacks.append(callback)

    def add_blocked_callback(self, callback: Callable[[bool], None]) -> None:
        """Registers a callable that gets whether a publishing call of the session waits for memory, when that changes.

        The thread of such a call calls it.
        """
        self._blocked_callbacks.append(callback)

    def _memory_waits_changed(self, blocked: bool) -> None:  # noqa: FBT001 - as the callbacks get it
        for callback in tuple(self._blocked_callbacks):
            try:
                callback(blocked)
            except Exception as error:  # noqa: BLE001 - an application's callback raised; the others are still called
                self.callbacks.failed(error)

    def _ended(self) -> None:
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - an application's callback raised; the others are still called
                self.callbacks.failed(error)

    def close(self) -> None:
        """Ends the consumers and channels, and requeues unacked messages. Safe to call again."""
        if self._over or self.core.attachment.forked:
            return  # closed already, or the parent process owns it
        try:
            with self.lock:
                if self._over:
                    return
                self._closing = True
                for consumer in self.consumers:
                    consumer.close()
                channels = list(self._channels.values())
            for channel in channels:
                channel.close()
            self.core.close()
        finally:
            self._closing = False  # closed, or interrupted and still open
        self.callbacks.close()
        self.queues.clear()
        self._over = True
        self._ended()

    def _broker_stops(self) -> None:
        for channel in list(self._channels.values()):
            channel._end(exceptions.ConnectionClosedByBroker(320, native.CLOSED_BY_BROKER))  # noqa: SLF001
        self._ended()

    def _finalize(self) -> None:
        core = getattr(self, "core", None)
        if core is not None and not core.attachment.forked:
            core.close()

    # ---- for the process ----

    def handed_out(self) -> Iterator[Any]:
        """Iterates over the application's handles of queues; a closed session has none."""
        return iter(() if self._over else self.queues.handed_out())

    def stop_callbacks(self) -> None:
        """Cancels the consumers with callbacks at the end of the program, so that no more messages are delivered.

        Another thread that is delivering a message at that moment still calls the callback.
        """
        if not self._over and not self.core.attachment.forked and self.callbacks.used:
            for channel in list(self._channels.values()):
                with contextlib.suppress(exceptions.BrokerError):  # another thread has closed the channel
                    channel._cancel_consumers()  # noqa: SLF001
            self.callbacks.finish()

    def __repr__(self) -> str:
        return f"<Connection {self.name!r} to broker {self.broker_name!r}, {'open' if self.is_open else 'closed'}>"


class OnSession(Protocol):
    """An object that refers to its session."""

    _session: Session


def session_of(thing: OnSession) -> Session:
    """Returns the session of a connection, queue, consumer or channel."""
    return thing._session  # noqa: SLF001 - for all layers above: applications do not see it
