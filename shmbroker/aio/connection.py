# SPDX-License-Identifier: Apache-2.0
"""Connections for asyncio."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self

from shmbroker import exceptions
from shmbroker._broker import connecting
from shmbroker._broker.making import check_name
from shmbroker._core import native
from shmbroker._session.session import session_of
from shmbroker.aio.address_settings import AddressSettings
from shmbroker.aio.channel import Channel
from shmbroker.aio.consumer import Consumer
from shmbroker.aio.queue import Queue, open_queue
from shmbroker.aio.session import LoopSession

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from shmbroker.connection import Connection as SyncConnection

_LOOK_SECONDS = 0.02


class Connection:
    """A connection to a broker of this machine, for one event loop. Made by :func:`connect`."""

    def __init__(self, sync: SyncConnection, operation_timeout: float | None) -> None:
        self._sync = sync
        self._session = LoopSession(session_of(sync), operation_timeout)

    async def queue(self, name: str, *, passive: bool = False, **settings: Any) -> Queue:  # noqa: ANN401
        """Declares a queue and opens it; see :meth:`shmbroker.Connection.queue`."""
        return await open_queue(self._session, name, passive=passive, **settings)

    def consumer(self, queues: Sequence[Queue], **options: Any) -> Consumer:  # noqa: ANN401
        """Starts one consumer of several queues; see :meth:`shmbroker.Connection.consumer`."""
        given = [queue._sync for queue in queues]  # noqa: SLF001
        return Consumer(self._session, self._sync.consumer(given, **options))

    async def channel(self, number: int | None = None) -> Channel:
        """Opens a channel; see :meth:`shmbroker.Connection.channel`. Callbacks run in the event loop."""
        sync = self._sync.channel(number)
        try:
            return Channel(self._session, sync)
        except BaseException:  # a signal handler raised: the caller does not get the channel
            sync.close()
            raise

    @property
    def settings(self) -> AddressSettings:
        """The address settings of the broker; see :attr:`shmbroker.Connection.settings`."""
        return AddressSettings(self._session, self._sync.settings)

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return self._sync.is_open

    @property
    def name(self) -> str:
        """The name that ``shmbroker connections`` shows."""
        return self._sync.name

    def close(self) -> None:
        """Closes the connection. Waiting calls end; unacked messages return to their positions. Safe to call again."""
        self._session.close()
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


class _Connecting:
    """A connection that is being opened: the caller awaits it, or uses it in ``async with``."""

    _opened: Connection

    def __init__(
        self, name: str, timeout: float | None, operation_timeout: float | None, options: dict[str, Any]
    ) -> None:
        self._name, self._timeout, self._options = name, timeout, options
        self._operation_timeout = operation_timeout

    async def _connect(self) -> Connection:
        connecting.check_options(operation_timeout=self._operation_timeout)
        native.deadline(self._timeout)  # raises if it is no timeout
        begun = time.monotonic()
        purge_seconds = connecting.patience_with_purge(self._timeout)
        while True:
            try:
                sync = connecting.connect(self._name, timeout=0, operation_timeout=0, **self._options)
                return Connection(sync, self._operation_timeout)
            except exceptions.BrokerNotFound:
                if time.monotonic() >= begun + (self._timeout or 0):
                    raise
            except exceptions.Timeout:  # a purge: with timeout=0 the call does not wait for its end
                if time.monotonic() >= begun + purge_seconds:
                    raise connecting.being_purged(check_name(self._name), purge_seconds) from None
            await asyncio.sleep(_LOOK_SECONDS)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def __aenter__(self) -> Connection:
        self._opened = await self._connect()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


def connect(
    name: str = "default",
    *,
    timeout: float | None = None,
    operation_timeout: float | None = 10.0,
    **options: Any,  # noqa: ANN401
) -> _Connecting:
    """Opens a connection; the caller awaits it, or uses it in ``async with``.

    Options as for :func:`shmbroker.connect`, without ``executor``: callbacks run in the event loop.
    """
    if "executor" in options:
        msg = (
            f"executor={options['executor']!r}: an asyncio connection takes no executor; its callbacks run in the "
            "event loop"
        )
        raise TypeError(msg)
    return _Connecting(name, timeout, operation_timeout, options)
