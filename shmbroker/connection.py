# SPDX-License-Identifier: Apache-2.0
"""Connections: a client's way into a broker."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shmbroker import exceptions
from shmbroker import settings as queue_settings
from shmbroker._amqp.names import check_not_reserved, is_internal
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import library, segments
from shmbroker._core import queue as core_queue
from shmbroker._core.connection import CoreConnection
from shmbroker._process import connections, locks
from shmbroker._process.living import Living
from shmbroker._topology.administration import Administration, clean_name, locked
from shmbroker._topology.publisher import Publishing
from shmbroker.channel import Channel
from shmbroker.channel.dispatch import Dispatcher, Executor
from shmbroker.channel.numbers import Numbers
from shmbroker.channel.state import callable_of
from shmbroker.consumer import Consumer
from shmbroker.queue import Queue
from shmbroker.statistics import channel_infos

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from shmbroker.channel.dispatch import Work
    from shmbroker.channel.state import ChannelState
    from shmbroker.settings import QueueSettings
    from shmbroker.statistics import (
        BindingInfo,
        ChannelInfo,
        ConnectionInfo,
        ConsumerInfo,
        ExchangeInfo,
        QueueStatistics,
    )


_FIRST_LOOK = 64  # so many handles are kept before those of deleted queues are looked for


class Connection:
    """A connection to a broker of this machine.

    Made by :func:`shmbroker.connect` or :meth:`Broker.connect`. Safe to use from several threads; not across a fork.
    """

    reopen: ClassVar[staticmethod[[str, str], Queue]]

    def __init__(
        self,
        path: str,
        *,
        name: str,
        executor: concurrent.futures.Executor | None = None,
        channel_max: int = 65535,
        operation_timeout: float = 10.0,
        on_callback_error: Callable[[BaseException], None] | None = None,
        on_housekeeper_missing: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.broker_name = segments.name_of(path)
        self.broker_full_name = segments.full_name_of(path)
        self.executor, self.channel_max, self.on_callback_error = executor, channel_max, on_callback_error
        self.operation_timeout = operation_timeout
        self.callbacks = Executor(executor, on_callback_error)
        self.make_dispatcher: Callable[[Work], Any] = lambda work: Dispatcher(self.callbacks, work)
        self._channels: dict[int, Channel] = {}
        self._numbers = Numbers(channel_max)
        self._routed: dict[str, core_queue.CoreQueue] = {}
        self._error: exceptions.BrokerError | None = None
        self._queues: dict[str, Queue] = {}
        self._kept: dict[str, core_queue.CoreQueue] = {}
        self._look_at = _FIRST_LOOK
        self._consumers: Living[Consumer] = Living()
        self.lock = locks.lock()
        self._close_callbacks: list[Callable[[], None]] = []
        self._over = False
        self._core = CoreConnection(path, name)
        self._core.on_stopping = self._broker_stops
        self._core.on_ready = self._channel_ready
        self.administration = Administration(self._core, self.routed_queue, self.operation_deadline)
        self.publishing = Publishing(self._core, self.routed_queue)
        if on_housekeeper_missing is not None:
            self._core.on_housekeeper_missing = on_housekeeper_missing
        connections.note(self)

    # ---- channels ----

    def channel(self, number: int | None = None) -> Channel:
        """Opens a channel.

        Args:
            number: 1 to 65,535; ``None``: the lowest that is free.

        Raises:
            NoFreeChannels: ``channel_max`` are open.
            ValueError: that one is open.
        """
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            msg = f"number={number!r}: an integer is needed"
            raise TypeError(msg)
        self.check_open()
        with self.lock:
            taken = self._numbers.take(number)
            opened = self._channels[taken] = Channel(self, taken)
            self._core.count_channels(len(self._channels))
            return opened

    def channel_closed(self, channel: ChannelState) -> None:
        """A channel was closed: its number is free."""
        with self.lock:
            if self._channels.get(channel.number) is channel:
                del self._channels[channel.number]
                self._numbers.give(channel.number)
                self._core.count_channels(len(self._channels))

    def _channel_ready(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            channel.wake()

    def limit(self, prefetch: int) -> None:
        """How many messages of its channels' consumers may be unacknowledged; 0 = any number."""
        self._core.limit(prefetch)

    def check_open(self) -> None:
        """Raises what closed the connection, if it is closed."""
        if self._core.attachment.forked:
            library.raise_for(library.FORKED)
        if self._core.closed:
            because = f": {self._error}" if self._error is not None else ""
            raise exceptions.ConnectionClosed(504, f"CHANNEL_ERROR - the connection is closed{because}")

    def fail(self, error: exceptions.BrokerError) -> None:
        """The broker closes the connection."""
        self._error = error
        self.close()

    @property
    def core(self) -> CoreConnection:
        """The connection in the core."""
        return self._core

    def routed_queue(self, name: str) -> core_queue.CoreQueue | None:
        """The handle of a queue for the channels; it stays open as long as the queue and the connection live."""
        known = self._routed.get(name)
        if known is not None and known.length() >= 0:
            return known
        with self.lock:
            self._routed.pop(name, None)
            while slot := self._core.queue_slot(name):
                opened = self._open(name, slot)
                if opened is not None:
                    self._routed[name] = opened.core
                    return opened.core
            return None

    # ---- queues ----

    def queue(self, name: str, *, passive: bool = False, **given: Any) -> Queue:  # noqa: ANN401
        """Declares a queue and opens it.

        Args:
            name: 1 to 255 bytes of UTF-8 without NUL.
            passive: only open it.
            given: settings (see :class:`QueueSettings`); on an existing queue those given are compared.

        Raises:
            NotFound: ``passive``, and there is no such queue.
            PreconditionFailed: it exists with other settings.
            AccessRefused: it would be a new one whose name begins with ``amq.``: those are the broker's own.
            ValueError: a setting's value is not allowed.
        """
        wanted = queue_settings.validate(given)
        check_queue_name(name)
        with self.lock:
            if self._core.closed:
                library.raise_for(library.CLOSED, "the connection")
            while True:
                slot = self._core.queue_slot(name)
                if slot == 0:
                    if passive:
                        library.raise_for(library.NOT_FOUND, f"queue {name!r}")
                    check_not_reserved(name)
                    settings = queue_settings.QueueSettings(**wanted)
                    core_queue.declare(self._core, name, settings, self.operation_deadline())
                    continue
                opened = self._open(name, slot)
                if opened is not None:
                    break
            if opened.core.exclusive and opened.core.facts().locked:
                raise locked(name)
            self._compare(opened, wanted)
            self._core.touch(opened.core.slot)
            return opened

    def _open(self, name: str, slot: int) -> Queue | None:
        known = self._queues.get(name)
        if known is not None:
            if known.core.length() >= 0:  # it is the one that has the name: there is no other as long as it is there
                return known
            self.forget_queue(known)
        kept = self._kept.pop(name, None)
        if kept is None or kept.length() < 0:
            try:
                kept = core_queue.CoreQueue(self._core, name, slot)
            except exceptions.NotFound:
                return None  # deleted in between
        if len(self._queues) + len(self._kept) >= self._look_at:
            self._forget_deleted()
        opened = self._queues[name] = Queue(self, kept)
        return opened

    def _forget_deleted(self) -> None:
        """Forgets the handles of deleted queues; what is held of them keeps itself alive.

        It is done when there are twice as many handles as queues were left the last time.
        """
        for name, queue in list(self._queues.items()):
            if queue.core.is_deleted():
                del self._queues[name]
        for known in (self._kept, self._routed):
            for name, core in list(known.items()):
                if core.is_deleted():
                    del known[name]
        self._look_at = max(_FIRST_LOOK, 2 * (len(self._queues) + len(self._kept)))

    def queue_closed(self, queue: Queue, core: core_queue.CoreQueue) -> None:
        """A handle was closed: it is left, unless messages of it are held; then the next one goes on with it."""
        with self.lock:
            if self._queues.get(queue.name) is queue:
                del self._queues[queue.name]
                if self._routed.get(queue.name) is core or (
                    not self._core.closed and not self._core.attachment.forked and not core.leave()
                ):
                    self._kept[queue.name] = core

    def handed_out(self) -> Iterator[Queue]:
        """The handles of queues that it has open; of a closed connection, none."""
        return iter(() if self._over else tuple(self._queues.values()))

    def _compare(self, queue: Queue, wanted: dict[str, Any]) -> None:
        if not wanted:
            return
        current = self.settings_of(queue.core)[0]
        for setting, value in wanted.items():
            found = getattr(current, setting)
            if found != value:
                raise queue_settings.inequivalent(queue.name, setting, value, found)

    def settings_of(self, core: core_queue.CoreQueue) -> tuple[QueueSettings, int]:
        """Settings and flags of an open queue."""
        return core.settings()

    def forget_queue(self, queue: Queue) -> None:
        """A queue was deleted: its handle goes as soon as nothing of it is held."""
        with self.lock:
            if self._queues.get(queue.name) is queue:
                del self._queues[queue.name]
        queue.core.leave()

    def queue_names(self, *, all: bool = False) -> list[str]:  # noqa: A002 - as the option of the command line
        """The names of the queues of the broker, sorted.

        Args:
            all: also those that the broker keeps for itself, such as leases of groups.
        """
        return [statistics.name for statistics in self.queue_statistics(all=all)]

    def queue_statistics(self, *, all: bool = False) -> list[QueueStatistics]:  # noqa: A002
        """Snapshots of the queues of the broker, by name.

        Args:
            all: also of those that the broker keeps for itself, such as leases of groups.
        """
        found = [self._core.queue_statistics(slot) for slot in self._core.queue_slots()]
        shown = (one for one in found if one is not None and (all or not is_internal(one.name)))
        return sorted(shown, key=lambda one: one.name)

    # ---- consumers ----

    def consumer(
        self,
        queues: Sequence[Queue | str],
        *,
        prefetch: int = 64,
        priority: int = 0,
        auto_ack: bool = False,
        timeout: float | None = None,
        ack_batch: int = 1,
        ack_interval: float = 0.001,
    ) -> Consumer:
        """One consumer over several queues, served in fair rotation.

        Args:
            queues: queues of this connection, or names.
            prefetch: at most so many messages unacked, 1 to 1,048,576.
            priority: of two interested consumers the higher one gets the message.
            auto_ack: settle each message when it is handed out.
            timeout: iteration ends when none came for so many seconds; ``None`` = never.
            ack_batch: send acknowledgements in batches of so many.
            ack_interval: ... or after so many seconds.
        """
        opened = [self.queue(queue, passive=True) if isinstance(queue, str) else queue for queue in queues]
        for queue in opened:
            if not isinstance(queue, Queue):
                msg = f"{queue!r} is no queue: queues of this connection, or names, are needed"
                raise TypeError(msg)
            if queue.core_connection is not self._core:
                msg = f"{queue!r} was opened by another connection: open it with this one"
                raise ValueError(msg)
        consumer = Consumer(
            self, opened, prefetch=prefetch, priority=priority, auto_ack=auto_ack, timeout=timeout, ack_batch=ack_batch,
            ack_interval=ack_interval,
        )  # fmt: skip
        self._consumers.add(consumer)
        self._core.start_io()
        return consumer

    def start_io(self) -> None:
        """Starts the IO thread if it does not run."""
        self._core.start_io()

    # ---- facts ----

    def connections(self) -> list[ConnectionInfo]:
        """The connections of the broker."""
        return self._core.connections()

    def channels(self) -> list[ChannelInfo]:
        """The channels of all connections of the broker: those with consumers, and for each connection the others."""
        return channel_infos(self.connections(), self.consumers())

    def exchanges(self) -> list[ExchangeInfo]:
        """The exchanges of the broker, by name; those that every broker has are among them."""
        return self.administration.exchange_infos()

    def bindings(self, exchange: str | None = None) -> list[BindingInfo]:
        """The bindings of all exchanges, by their source; the oldest of a source first.

        Every queue can also be reached by its name through the default exchange. That is no binding.

        Args:
            exchange: only those from this one and to it.

        Raises:
            NotFound: there is no such exchange.
        """
        name = None if exchange is None else clean_name(exchange, "exchange")
        return self.administration.binding_infos(name)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        """The consumers of one queue, or of all, and the calls that wait there."""
        if queue is not None:
            slot = self._core.queue_slot(check_queue_name(queue))
            if slot == 0:
                library.raise_for(library.NOT_FOUND, f"queue {queue!r}")
            return self._core.consumers(slot, queue)
        found = []
        for slot in self._core.queue_slots():
            statistics = self._core.queue_statistics(slot)
            if statistics is not None:
                found += self._core.consumers(slot, statistics.name)
        return found

    def doctor(self) -> list[str]:
        """Walks every structure of the broker; what is wrong, in words. Empty = healthy. For a broker at rest."""
        return self._core.doctor() or self.administration.exchanges.problems(self._core)

    @property
    def is_open(self) -> bool:
        """Can it be used? Not after :meth:`close`, in a forked child, or when the broker is being purged."""
        try:
            return self._core.is_usable()
        except (exceptions.ConnectionClosed, exceptions.ForkedConnectionError):
            return False

    def fileno(self) -> int:
        """A descriptor that is readable when a consumer of this connection has messages; for select and asyncio."""
        consumers = [consumer for consumer in self._consumers if not consumer.ended]
        if len(consumers) != 1:
            msg = f"this connection has {len(consumers)} consumers: use Consumer.fileno()"
            raise ValueError(msg)
        return consumers[0].fileno()

    def operation_deadline(self) -> int:
        """When a topology change that begins now has to be through."""
        return library.deadline(self.operation_timeout)

    # ---- closing ----

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Called once when the connection ends, for whatever reason."""
        self._close_callbacks.append(callable_of(callback, "callback"))

    def _ended(self) -> None:
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - of the application's callback: the others are called all the same
                self.callbacks.failed(error)

    def close(self) -> None:
        """Ends the connection: consumers end, unacked messages go back to their places. Safe to call again."""
        if self._over or self._core.attachment.forked:
            return  # or it belongs to the parent
        with self.lock:
            if self._over:
                return
            for consumer in self._consumers:
                consumer.close()
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()
        self._core.close()
        self.callbacks.close()
        self._queues.clear()
        self._kept.clear()
        self._routed.clear()
        self._over = True
        self._ended()

    def stop_callbacks(self) -> None:
        """The program ends: consumers with callbacks are cancelled, so that those in hand are the last ones."""
        if not self._over and not self._core.attachment.forked and self.callbacks.used:
            for channel in list(self._channels.values()):
                with contextlib.suppress(exceptions.BrokerError):  # it was closed meanwhile
                    channel.cancel_consumers()
            self.callbacks.finish()

    def _broker_stops(self) -> None:
        for channel in list(self._channels.values()):
            channel.end(exceptions.ConnectionClosedByBroker(320, library.CLOSED_BY_BROKER))
        self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.attachment.forked:
            core.close()

    def __repr__(self) -> str:
        return f"<Connection {self.name!r} to broker {self.broker_name!r}, {'open' if self.is_open else 'closed'}>"


_process_connections: dict[tuple[int, str], Connection] = {}
_process_lock = locks.lock()  # a signal handler may load a queue, too


def process_connection(broker: str) -> Connection:
    """The connection that unpickled queues of this process share."""
    with _process_lock:
        key = (os.getpid(), broker)
        found = _process_connections.get(key)
        if found is None or not found.is_open:
            found = _process_connections[key] = Connection(segments.path_of(broker), name=f"unpickled in {os.getpid()}")
        return found


def reopen_queue(broker: str, name: str) -> Queue:
    """What a pickled queue becomes: the same one, opened again in this process."""
    return process_connection(broker).queue(name, passive=True)


Connection.reopen = staticmethod(reopen_queue)
