# SPDX-License-Identifier: Apache-2.0
"""Connections: a client's way into a broker."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self

from shmbroker._amqp.names import is_internal
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import library
from shmbroker._process import inherited as inherited  # noqa: PLC0414 - its hook changes the handles of a forked child
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker._topology.administration import clean_name
from shmbroker.channel import Channel
from shmbroker.channel.state import callable_of
from shmbroker.consumer import Consumer
from shmbroker.queue import Queue, open_queue
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


class Connection:
    """A connection to a broker of this machine.

    Made by :func:`shmbroker.connect` or :meth:`Broker.connect`. Safe to use from several threads; not across a fork.
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
        session = self._session
        return session.open_channel(number, functools.partial(Channel, session))

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
        return open_queue(self._session, name, passive=passive, **given)

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
        core = self._session.core
        found = [core.queue_statistics(slot) for slot in core.queue_slots()]
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
            if session_of(queue) is not self._session:
                msg = f"{queue!r} was opened by another connection: open it with this one"
                raise ValueError(msg)
        return Consumer(
            self._session, [core_of(queue) for queue in opened], prefetch=prefetch, priority=priority,
            auto_ack=auto_ack, timeout=timeout, ack_batch=ack_batch, ack_interval=ack_interval,
        )  # fmt: skip

    # ---- facts ----

    def connections(self) -> list[ConnectionInfo]:
        """The connections of the broker."""
        return self._session.core.connections()

    def channels(self) -> list[ChannelInfo]:
        """The channels of all connections of the broker: those with consumers, and for each connection the others."""
        return channel_infos(self.connections(), self.consumers())

    def exchanges(self) -> list[ExchangeInfo]:
        """The exchanges of the broker, by name; those that every broker has are among them."""
        return self._session.administration.exchange_infos()

    def bindings(self, exchange: str | None = None) -> list[BindingInfo]:
        """The bindings of all exchanges, by their source; the oldest of a source first.

        Every queue can also be reached by its name through the default exchange. That is no binding.

        Args:
            exchange: only those from this one and to it.

        Raises:
            NotFound: there is no such exchange.
        """
        name = None if exchange is None else clean_name(exchange, "exchange")
        return self._session.administration.binding_infos(name)

    def consumers(self, queue: str | None = None) -> list[ConsumerInfo]:
        """The consumers of one queue, or of all, and the calls that wait there."""
        core = self._session.core
        if queue is not None:
            slot = core.queue_slot(check_queue_name(queue))
            if slot == 0:
                library.raise_for(library.NOT_FOUND, f"queue {queue!r}")
            return core.consumers(slot, queue)
        found = []
        for slot in core.queue_slots():
            statistics = core.queue_statistics(slot)
            if statistics is not None:
                found += core.consumers(slot, statistics.name)
        return found

    def doctor(self) -> list[str]:
        """Walks every structure of the broker; what is wrong, in words. Empty = healthy. For a broker at rest."""
        core = self._session.core
        return core.doctor() or self._session.administration.exchanges.problems(core)

    @property
    def is_open(self) -> bool:
        """Can it be used? Not after :meth:`close`, in a forked child, or when the broker is being purged."""
        return self._session.is_open

    def fileno(self) -> int:
        """A descriptor that is readable when a consumer of this connection has messages; for select and asyncio."""
        consumers = self._session.running_consumers()
        if len(consumers) != 1:
            msg = f"this connection has {len(consumers)} consumers: use Consumer.fileno()"
            raise ValueError(msg)
        return consumers[0].fileno()

    # ---- closing ----

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Called once when the connection ends, for whatever reason."""
        self._session.add_close_callback(callable_of(callback, "callback"))

    def close(self) -> None:
        """Ends the connection: consumers end, unacked messages go back to their places. Safe to call again."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._session)
