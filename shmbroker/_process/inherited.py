# SPDX-License-Identifier: Apache-2.0
"""Handles of queues in a process that was forked from the one that opened them.

A connection does not survive a fork. A queue's handle is opened again when the child first uses it, over one connection
of the child, as a pickled one is when it is loaded. So ``multiprocessing.Process(args=(queue,))`` does the same with
every start method. What was taken before the fork stays the parent's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from shmbroker.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker.connection import Connection
    from shmbroker.settings import QueueSettings


class InheritedQueue(Queue):
    """The handle of a parent, in its child: a :class:`Queue` like any other, which opens itself again.

    The class of a handle that exists is changed to this one in the child. What its messages know of it stays as it is.
    """

    __slots__ = ()

    def opened(self) -> Queue:
        """The handle of this process, opened when it is first needed.

        Raises:
            NotFound: the queue was deleted.
            BrokerNotFound: the broker was purged.
        """
        if self._again is None:
            self._again = self._connection.reopen(self._connection.broker_full_name, self.name)
        return self._again

    @property
    def paused(self) -> bool:
        """Is it paused?"""
        return self.opened().paused

    @property
    def settings(self) -> QueueSettings:
        """The settings now."""
        return self.opened().settings

    @property
    def connection(self) -> Connection:
        """The connection of this process that has it open."""
        return self.opened().connection

    def close(self) -> None:
        """Gives the handle back, if it was opened in this process; the parent's stays."""
        if self._again is not None:
            self._again.close()

    def __enter__(self) -> Self:
        self.opened()
        return self

    def __len__(self) -> int:
        return len(self.opened())


def _handed_on(name: str) -> Callable[..., Any]:
    def method(self: InheritedQueue, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - those of the other one
        return getattr(self.opened(), name)(*arguments, **options)

    method.__name__, method.__doc__ = name, getattr(Queue, name).__doc__
    return method


for _name in (
    "put", "put_nowait", "put_many", "reserve", "get", "get_nowait", "get_many", "consume", "browse", "purge", "delete",
    "configure", "pause", "resume", "move", "statistics",
):  # fmt: skip
    setattr(InheritedQueue, _name, _handed_on(_name))


def inherit(queues: Iterator[Queue]) -> None:
    """To be called in a child: these handles of the parent open themselves again at their next use."""
    for queue in queues:
        queue.__class__ = InheritedQueue  # which it is already, if it was inherited once before
