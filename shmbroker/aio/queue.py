# SPDX-License-Identifier: Apache-2.0
"""Queues for asyncio."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._put_options import is_awaited
from shmbroker._session.queues import core_of
from shmbroker.aio.consumer import Consumer
from shmbroker.aio.waiters import Turn
from shmbroker.queue import open_queue as open_sync
from shmbroker.settings import REJECTING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from types import TracebackType

    from shmbroker._put_options import PutKeywords
    from shmbroker.aio.session import LoopSession
    from shmbroker.management import QueuedMessage, Retried
    from shmbroker.message import Message, MessageBatch
    from shmbroker.queue import Queue as SyncQueue
    from shmbroker.statistics import QueueStatistics


class Queue:
    """A queue of a connection. Arguments and errors are those of :class:`shmbroker.Queue`.

    Exception: the ``timeout`` of :meth:`put_many` applies to each message.
    """

    def __init__(self, session: LoopSession, sync: SyncQueue) -> None:
        self._session, self._sync = session, sync
        self.name = sync.name
        self._turns: set[Turn] = set()
        """For each task that waits in a method of this handle: what ends its wait when the handle is closed."""

    # ---- putting ----

    async def put(self, body: Any, *, timeout: float | None = None, **options: Any) -> None:  # noqa: ANN401, ASYNC109
        """Puts a message at the end, waiting up to ``timeout`` seconds for room."""
        native.check_timeout(timeout)
        try:
            self._sync.put(body, timeout=0, **options)
        except standard_queue.Full as full:
            if timeout == 0 or isinstance(full, exceptions.FINAL):
                raise
            size = memoryview(body).nbytes
            await self._wait_for_room(lambda: self._sync.put(body, timeout=0, **options), timeout, full, size)
        await self._synced(timeout, options)

    async def _synced(self, timeout: float | None, options: dict[str, Any]) -> None:  # noqa: ASYNC109
        """Waits until what was put into a stored queue is in the store; not with a timeout of 0."""
        if timeout != 0 and core_of(self._sync).waits_for_store and is_awaited(cast("PutKeywords", options)):
            await self._session.synced(timeout)

    async def _wait_for_room(
        self,
        attempt: Any,  # noqa: ANN401
        timeout: float | None,  # noqa: ASYNC109
        full: standard_queue.Full,
        size: int,
    ) -> Any:  # noqa: ANN401
        try:
            return await self._wait(attempt, timeout, room=True, size=size)
        except TimeoutError:
            raise full from None

    async def _wait(self, attempt: Any, timeout: float | None, **what: Any) -> Any:  # noqa: ANN401, ASYNC109
        turn = Turn()
        self._turns.add(turn)
        try:
            return await self._session.waits.wait(core_of(self._sync), attempt, timeout, turn, **what)
        finally:
            self._turns.discard(turn)

    def put_nowait(self, body: Any, **options: Any) -> None:  # noqa: ANN401
        """Puts a message at the end if there is room."""
        self._sync.put_nowait(body, **options)

    async def put_many(self, bodies: Iterable[Any], *, timeout: float | None = None, **options: Any) -> int:  # noqa: ANN401, ASYNC109
        """Puts messages in order; returns how many were put. Waits up to ``timeout`` seconds for room for each."""
        native.check_timeout(timeout)
        given = list(bodies)
        done = 0
        while done < len(given):
            try:
                done += self._sync.put_many(given[done:], timeout=0, **options)
                if done == len(given):
                    break
            except standard_queue.Full as full:
                if done == 0 and (timeout == 0 or isinstance(full, exceptions.FINAL)):
                    raise
            if timeout == 0 or (done > 0 and self._sync.settings.overflow in REJECTING):
                break
            try:
                await self.put(given[done], timeout=timeout, **options)
            except standard_queue.Full:
                if done == 0:
                    raise
                break
            done += 1
        await self._synced(timeout, options)
        return done

    # ---- getting ----

    async def get(self, *, timeout: float | None = None, auto_ack: bool = False) -> Message:  # noqa: ASYNC109
        """Takes the oldest ready message, waiting up to ``timeout`` seconds for one."""
        native.check_timeout(timeout)
        try:
            return self._sync.get_nowait(auto_ack=auto_ack)
        except standard_queue.Empty:
            if timeout == 0:
                raise
        found: Message = await self._wait_for_message(lambda: self._sync.get_nowait(auto_ack=auto_ack), timeout)
        return found

    async def _wait_for_message(self, attempt: Any, timeout: float | None) -> Any:  # noqa: ANN401, ASYNC109
        try:
            return await self._wait(attempt, timeout)
        except TimeoutError:
            raise standard_queue.Empty from None

    def get_nowait(self, *, auto_ack: bool = False) -> Message:
        """Takes the oldest ready message, without waiting.

        Raises:
            queue.Empty: no message is ready.
        """
        return self._sync.get_nowait(auto_ack=auto_ack)

    async def get_many(
        self,
        max_messages: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        auto_ack: bool = False,
    ) -> MessageBatch:
        """Waits for one message, then takes the ready messages, up to ``max_messages``."""
        native.check_timeout(timeout)
        try:
            return self._sync.get_many(max_messages, timeout=0, auto_ack=auto_ack)
        except standard_queue.Empty:
            if timeout == 0:
                raise
        found: MessageBatch = await self._wait_for_message(
            lambda: self._sync.get_many(max_messages, timeout=0, auto_ack=auto_ack), timeout
        )
        return found

    def consume(self, **options: Any) -> Consumer:  # noqa: ANN401
        """Starts a consumer of this queue, for ``async for``; options as :meth:`shmbroker.Queue.consume`."""
        return Consumer(self._session, self._sync.consume(**options))

    async def __aiter__(self) -> AsyncIterator[Message]:
        async with self.consume() as consumer:
            async for message in consumer:
                yield message

    # ---- the queue itself ----

    @overload
    def browse(
        self,
        selector: str | None = None,
        *,
        state: Literal["scheduled", "delivering", "dead"],
        **which: Any,  # noqa: ANN401
    ) -> Iterator[QueuedMessage]: ...
    @overload
    def browse(
        self,
        selector: str | None = None,
        *,
        state: str = "ready",
        **which: Any,  # noqa: ANN401
    ) -> Iterator[Message]: ...
    def browse(
        self,
        selector: str | None = None,
        *,
        state: str = "ready",
        **which: Any,
    ) -> Iterator[Any]:
        """Iterates over messages without taking them; see :meth:`shmbroker.Queue.browse`."""
        return self._sync.browse(selector, state=state, **which)

    @overload
    def count(self, *, selector: str | None = None, group_by: None = None) -> int: ...
    @overload
    def count(self, *, selector: str | None = None, group_by: str) -> dict[Any, int]: ...
    def count(self, *, selector: str | None = None, group_by: str | None = None) -> int | dict[Any, int]:
        """Counts the ready messages, or those that a selector selects; see :meth:`shmbroker.Queue.count`."""
        if group_by is None:
            return self._sync.count(selector=selector)
        return self._sync.count(selector=selector, group_by=group_by)

    def purge(self, **which: Any) -> int:  # noqa: ANN401
        """Removes ready messages; see :meth:`shmbroker.Queue.purge`."""
        return self._sync.purge(**which)

    async def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue; returns the number of ready and scheduled messages deleted with it."""
        removed: int = await self._session.change(lambda: self._sync.delete(if_unused, if_empty))
        return removed

    async def configure(self, *, trim: bool = False, **given: Any) -> None:  # noqa: ANN401
        """Changes settings while the queue is in use."""
        await self._session.change(lambda: self._sync.configure(trim=trim, **given))

    async def pause(self, *, persist: bool = False) -> None:
        """Pauses delivery until :meth:`resume`; with ``persist`` also after a restart, see `shmbroker.Queue.pause`."""
        await self._session.change(lambda: self._sync.pause(persist=persist))

    async def resume(self) -> None:
        """Ends :meth:`pause`."""
        await self._session.change(self._sync.resume)

    def move(self, to: Queue | str, **which: Any) -> int:  # noqa: ANN401
        """Moves ready messages to another queue; see :meth:`shmbroker.Queue.move`."""
        return self._sync.move(_sync_of(to), **which)

    def copy(self, to: Queue | str, **which: Any) -> int:  # noqa: ANN401
        """Puts copies of ready messages into another queue; see :meth:`shmbroker.Queue.copy`."""
        return self._sync.copy(_sync_of(to), **which)

    def retry(self, **which: Any) -> Retried:  # noqa: ANN401
        """Moves dead letters back to the queues that they died in; see :meth:`shmbroker.Queue.retry`."""
        return self._sync.retry(**which)

    def expire(self, **which: Any) -> int:  # noqa: ANN401
        """Ends ready messages as if their time were over; see :meth:`shmbroker.Queue.expire`."""
        return self._sync.expire(**which)

    def change_priority(self, priority: int, **which: Any) -> int:  # noqa: ANN401
        """Gives ready messages another priority; see :meth:`shmbroker.Queue.change_priority`."""
        return self._sync.change_priority(priority, **which)

    def deliver_scheduled(self, **which: Any) -> int:  # noqa: ANN401
        """Makes scheduled messages ready now; see :meth:`shmbroker.Queue.deliver_scheduled`."""
        return self._sync.deliver_scheduled(**which)

    def statistics(self) -> QueueStatistics:
        """A snapshot of the queue."""
        return self._sync.statistics()

    def __len__(self) -> int:
        return len(self._sync)

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """Closes the handle; tasks that wait in its methods get :exc:`ConnectionClosed`."""
        error = exceptions.ConnectionClosed(text=f"queue {self.name!r} is closed")
        for turn in self._turns:
            turn.end(error)
        self._session.waits.leave(core_of(self._sync))
        self._sync.close()
        if self._session.queues.get(self.name) is self:
            self._session.queues.remove(self.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


def _sync_of(queue: Queue | str) -> SyncQueue | str:
    return queue._sync if isinstance(queue, Queue) else queue  # noqa: SLF001


async def open_queue(session: LoopSession, name: str, /, *, passive: bool = False, **settings: Any) -> Queue:  # noqa: ANN401
    """Declares a queue and opens it; returns the handle that the application has already, or a new one."""
    opened = await session.change(lambda: open_sync(session.shared, name, passive=passive, **settings))
    known = session.queues.get(name)
    if not isinstance(known, Queue) or known._sync is not opened:  # noqa: SLF001
        known = Queue(session, opened)
        session.queues.set(name, known)
    return known
