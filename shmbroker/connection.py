# SPDX-License-Identifier: Apache-2.0
"""Connections: a client's access to a broker, its queues, channels, consumers and statistics."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self

from shmbroker._amqp.names import is_internal
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import native
from shmbroker._process import inherited as inherited  # noqa: PLC0414 - its hook changes the handles of a forked child
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker._topology.administration import clean_name
from shmbroker.address_settings import AddressSettings
from shmbroker.channel import Channel
from shmbroker.channel.channel_state import callable_of
from shmbroker.consumer import Consumer
from shmbroker.queue import Queue, open_queue, open_to_consume
from shmbroker.statistics import channel_infos

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from shmbroker._session.session import Session
    from shmbroker.statistics import (
        BindingInfo,
        ChannelInfo,
        ConnectionInfo,
        ConsumerInfo,
        ExchangeInfo,
        QueueStatistics,
    )

_LOW_ON_MEMORY = "low on memory"


class Connection:
    """A connection to a broker of this machine.

    :func:`shmbroker.connect` and :meth:`Broker.connect` open it. Safe to use from several threads. A forked child
    cannot use the connections of its parent.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def name(self) -> str:
        """The name that ``shmbroker connections`` shows."""
        return self._session.name

    @property
    def broker_name(self) -> str:
        """The name of the broker, as :func:`connect` takes it."""
        return self._session.broker_name

    @property
    def settings(self) -> AddressSettings:
        """The address settings of the broker: what the queues have whose names match a pattern."""
        return AddressSettings(self._session)

    # ---- channels ----

    def channel(self, number: int | None = None) -> Channel:
        """Opens a channel.

        Args:
            number: 1 to 65,535; ``None``: the lowest free number.

        Raises:
            NoFreeChannels: ``channel_max`` channels are open.
            ValueError: the channel of that number is open, or the number is out of range.
        """
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            msg = f"number={number!r}: an integer is needed"
            raise TypeError(msg)
        session = self._session
        return session.open_channel(number, functools.partial(Channel, session))

    # ---- queues ----

    def queue(self, name: str, *, passive: bool = False, **given: Any) -> Queue:  # noqa: ANN401
        """Declares a queue and opens it.

        Args:
            name: 1 to 255 bytes of UTF-8 without NUL.
            passive: only open an existing queue.
            given: settings (see :class:`QueueSettings`); they are compared with the settings of an existing queue.

        Raises:
            NotFound: ``passive``, and there is no such queue.
            PreconditionFailed: the queue exists with other settings.
            ResourceLocked: the queue is exclusive to another connection.
            AccessRefused: the queue does not exist, and its name begins with ``amq.``: reserved for the broker.
            ValueError: a setting's value is not allowed.
        """
        return open_queue(self._session, name, passive=passive, **given)

    def queue_names(self, *, all: bool = False) -> list[str]:  # noqa: A002 - as the option of the command line
        """Lists the names of the queues of the broker, sorted.

        Args:
            all: include the broker's internal queues, such as leases of groups.
        """
        return [statistics.name for statistics in self._queue_statistics(all=all, in_full=False)]

    def queue_statistics(self, *, all: bool = False) -> list[QueueStatistics]:  # noqa: A002
        """Returns snapshots of the queues of the broker, sorted by name.

        Args:
            all: include the broker's internal queues, such as leases of groups.
        """
        return self._queue_statistics(all=all, in_full=True)

    def _queue_statistics(self, *, all: bool, in_full: bool) -> list[QueueStatistics]:  # noqa: A002
        core = self._session.core
        found = [core.queue_statistics(slot, in_full=in_full) for slot in core.queue_slots()]
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
        prefetch_bytes: int | None = None,
        selector: str | None = None,
        exclusive: bool = False,
        no_local: bool = False,
    ) -> Consumer:
        """Opens one consumer of several queues, which it serves in fair rotation.

        Args:
            queues: queues of this connection, or their names. A queue that does not exist is made if its address
                setting ``auto_create_queues`` says so.
            prefetch: the most unacked messages, 1 to 1,048,576.
            priority: of two interested consumers, the one with the higher priority gets the message.
            auto_ack: settle each message when it is handed out.
            timeout: seconds without a message after which iteration ends; ``None`` = never.
            ack_batch: the number of acknowledgements that are sent together.
            ack_interval: seconds after which an incomplete batch of acknowledgements is sent.
            prefetch_bytes: the most bytes of bodies that are unacked, unless it is one message; ``None`` = any number.
            selector: a condition, as of :meth:`Queue.browse`; the consumer takes only messages for which it is true.
            exclusive: be the only consumer of the queues.
            no_local: skip messages that this connection put.

        Raises:
            AccessRefused: a queue has an exclusive consumer; or ``exclusive`` is set, and a queue has another consumer,
                or a single active one.
            ResourceLocked: a queue has as many consumers as its ``max_consumers`` allows.
            NotFound: a name is not that of a queue.
            TypeError: something is neither a queue nor a name.
            ValueError: an argument is not allowed, or a queue is one of another connection.
        """
        session = self._session
        opened = [open_to_consume(session, queue) if isinstance(queue, str) else queue for queue in queues]
        for queue in opened:
            if not isinstance(queue, Queue):
                msg = f"{queue!r} is no queue: queues of this connection, or names, are needed"
                raise TypeError(msg)
            if session_of(queue) is not session:
                msg = f"{queue!r} was opened by another connection: open it with this one"
                raise ValueError(msg)
        return Consumer(
            session, [core_of(queue) for queue in opened], prefetch=prefetch, priority=priority,
            auto_ack=auto_ack, timeout=timeout, ack_batch=ack_batch, ack_interval=ack_interval,
            prefetch_bytes=prefetch_bytes, selector=selector, exclusive=exclusive, no_local=no_local,
        )  # fmt: skip

    # ---- facts ----

    def connections(self) -> list[ConnectionInfo]:
        """Lists the connections of the broker."""
        return self._session.core.connections()

    def channels(self) -> list[ChannelInfo]:
        """Lists the channels of all connections of the broker.

        Each channel with consumers has an entry of its own. The other channels of a connection share one entry.
        """
        return channel_infos(self.connections(), self.consumers())

    def exchanges(self) -> list[ExchangeInfo]:
        """Lists the exchanges of the broker, sorted by name, including the predeclared ones."""
        return self._session.administration.exchange_infos()

    def bindings(self, exchange: str | None = None) -> list[BindingInfo]:
        """Lists the bindings of all exchanges, by source exchange, and the oldest of each source first.

        The default exchange also routes to every queue by its name. These routes are not listed.

        Args:
            exchange: list only the bindings from this exchange and to it.

        Raises:
            NotFound: there is no such exchange.
        """
        name = None if exchange is None else clean_name(exchange, "exchange")
        return self._session.administration.binding_infos(name)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        """Lists the consumers of one queue or of all queues, and the waiting calls of ``get``."""
        core = self._session.core
        if queue is not None:
            slot = core.queue_slot(check_queue_name(queue))
            if slot == 0:
                native.raise_for(native.NOT_FOUND, f"queue {queue!r}")
            return core.consumers(slot, queue)
        found = []
        for slot in core.queue_slots():
            statistics = core.queue_statistics(slot)
            if statistics is not None:
                found += core.consumers(slot, statistics.name)
        return found

    def doctor(self) -> list[str]:
        """Checks the structures of a broker at rest, and describes each defect. Empty = healthy.

        The exchanges are checked only if the other structures have no defect.
        """
        core = self._session.core
        return core.doctor() or self._session.administration.exchanges.problems(core)

    @property
    def is_open(self) -> bool:
        """Whether the connection is usable.

        It is not after :meth:`close`, after a purge of the broker or a loss of its memory, or in a forked child.
        """
        return self._session.is_open and not self._session.core.attachment.removed

    def fileno(self) -> int:
        """Returns a descriptor that is readable when the consumer of this connection has messages.

        It is for select and asyncio. The connection must have exactly one open :class:`Consumer`.
        """
        consumers = self._session.running_consumers()
        if len(consumers) != 1:
            has = f"this connection has {len(consumers)} consumers"
            msg = f"{has}, Connection.fileno() needs exactly 1: use Consumer.fileno()"
            raise ValueError(msg)
        return consumers[0].fileno()

    # ---- memory ----

    @property
    def is_blocked(self) -> bool:
        """Whether a publishing call of this connection waits for memory of the broker."""
        return self._session.core.memory_waits.any

    def add_on_connection_blocked_callback(self, callback: Callable[[Connection, str], object]) -> None:
        """Registers ``callback(connection, reason)``: a publishing call begins to wait for memory (connection.blocked).

        The thread of that call calls it, before it waits, so it must not publish. Further calls that wait meanwhile do
        not call it again. Calls with ``timeout=0`` do not wait, and those of :mod:`shmbroker.aio` do not call it.
        """
        known = callable_of(callback, "callback")
        self._session.add_blocked_callback(lambda blocked: known(self, _LOW_ON_MEMORY) if blocked else None)

    def add_on_connection_unblocked_callback(self, callback: Callable[[Connection], object]) -> None:
        """Registers ``callback(connection)``: no publishing call waits for memory any more (connection.unblocked).

        The thread of the last call that waited calls it, as the call ends: it published, or raised.
        """
        known = callable_of(callback, "callback")
        self._session.add_blocked_callback(lambda blocked: None if blocked else known(self))

    # ---- closing ----

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Registers a callable that is called once, when the connection is closed or the broker is purged.

        At a purge, the connection's IO thread calls it. The first consumer starts that thread; so does the first call
        that waits for a message or for room.
        """
        self._session.add_close_callback(callable_of(callback, "callback"))

    def close(self) -> None:
        """Ends the connection and its consumers, and returns unacked messages to their places. Safe to call again."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._session)
