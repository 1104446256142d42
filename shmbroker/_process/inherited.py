# SPDX-License-Identifier: Apache-2.0
"""Handles of queues in a forked child of the process that opened them.

A connection does not survive a fork. When the child first uses a queue's handle, the handle is opened again over a
connection of the child, as a pickled handle is when it is loaded. So ``multiprocessing.Process(args=(queue,))`` behaves
the same with every start method. Messages taken before the fork stay with the parent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from shmbroker._process import connections
from shmbroker.queue import Queue, reopen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker.settings import QueueSettings


class InheritedQueue(Queue):
    """A parent's queue handle in a forked child. It behaves like any :class:`Queue`, and opens itself at its first use.

    The child changes the class of the inherited handle to this class, and makes no new object. So the messages that
    refer to the handle still refer to it.
    """

    __slots__ = ()

    def _here(self) -> Queue:
        """Returns the handle of this process, opened at the first use.

        Raises:
            NotFound: the queue was deleted.
            BrokerNotFound: the broker was purged.
        """
        if self._again is None:
            self._again = reopen(self._session.broker_full_name, self.name)
        return self._again

    @property
    def paused(self) -> bool:
        """Whether the queue is paused."""
        return self._here().paused

    @property
    def settings(self) -> QueueSettings:
        """The current settings."""
        return self._here().settings

    def close(self) -> None:
        """Closes the handle that this process opened, if there is one. The parent's handle stays open."""
        if self._again is not None:
            self._again.close()

    def __enter__(self) -> Self:
        self._here()
        return self

    def __len__(self) -> int:
        return len(self._here())


def _handed_on(name: str) -> Callable[..., Any]:
    def method(self: InheritedQueue, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the wrapped method's
        return getattr(self._here(), name)(*arguments, **options)

    method.__name__, method.__doc__ = name, getattr(Queue, name).__doc__
    return method


for _name in (
    "put", "put_nowait", "put_many", "reserve", "get", "get_nowait", "get_many", "consume", "browse", "count", "purge",
    "delete", "configure", "pause", "resume", "move", "copy", "retry", "expire", "change_priority",
    "deliver_scheduled", "statistics",
):  # fmt: skip
    setattr(InheritedQueue, _name, _handed_on(_name))


def inherit(queues: Iterator[Queue]) -> None:
    """Makes these handles of the parent open themselves again at their next use; called in a forked child."""
    for queue in queues:
        queue.__class__ = InheritedQueue  # a no-op if an earlier fork did it


def _after_fork() -> None:
    for connection in connections.noted():
        inherit(connection.handed_out())


os.register_at_fork(after_in_child=_after_fork)
