# SPDX-License-Identifier: Apache-2.0
"""The two ends of whatever carries messages from one process to another.

The same small vocabulary covers every peer and shmbroker itself, so that all of
them run in the same loops: an `Outlet` sends, an `Inlet` receives, and a `Link`
is what is handed to both worker processes so that each can open its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.payload import Body, touch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

DRY_SECONDS = 0.5


@dataclass(frozen=True)
class Outlet:
    """The sending end, in the producer's process.

    Attributes:
        send: Sends one body; blocks while there is no room.
        send_many: Sends the bodies of one window, in order.
    """

    send: Callable[[bytes], object]
    send_many: Callable[[Sequence[bytes]], object]


@dataclass(frozen=True)
class Inlet:
    """The receiving end, in the consumer's process.

    Attributes:
        receive: Waits for one body and returns it, settled.
        receive_many: Returns between one and `limit` bodies; nothing at all only
            on a link with several consumers, when the stream has dried up.
        mark_many: Like `receive_many`, but returns the mark of each body (a touch, unless the link says otherwise),
            read where it lies if the link can do that.
    """

    receive: Callable[[], Body]
    receive_many: Callable[[int], Sequence[Any]]
    mark_many: Callable[[int], Sequence[int]]


class Link(Protocol):
    """A way for messages between processes; made by the parent, pickled to workers."""

    def sending(self) -> AbstractContextManager[Outlet]:
        """Open the sending end in this process."""

    def receiving(self) -> AbstractContextManager[Inlet]:
        """Open the receiving end in this process."""

    def close(self) -> None:
        """Remove, in the parent, whatever the link made in the system."""


def outlet(send: Callable[[bytes], object]) -> Outlet:
    """Return an outlet that sends one message at a time.

    Args:
        send: Sends one body.
    """

    def send_many(bodies: Sequence[bytes]) -> None:
        for body in bodies:
            send(body)

    return Outlet(send, send_many)


def sharing_inlet(receive: Callable[[], Any], receive_soon: Callable[[float], Any], nothing: type[Exception]) -> Inlet:
    """Return an inlet of one of several consumers, which takes what is there.

    It waits only with empty hands, and returns them at the end. So the time after each
    window is the time of its last message, also at the end of the stream, which a
    competing consumer cannot foresee.

    Args:
        receive: Waits for one body and returns it.
        receive_soon: Waits so many seconds at most, 0 = not at all.
        nothing: What it raises if there is none.
    """

    def receive_many(limit: int) -> list[Any]:
        window: list[Any] = []
        try:
            for _ in range(limit):
                window.append(receive_soon(0 if window else DRY_SECONDS))
        except nothing:
            pass
        return window

    return Inlet(receive, receive_many, lambda limit: [touch(body) for body in receive_many(limit)])


def window_inlet(take: Callable[[int], Sequence[Body]]) -> Inlet:
    """Return an inlet that always receives as many messages as are wanted, and nothing in place.

    Args:
        take: Waits for so many bodies and returns them.
    """

    def mark_many(limit: int) -> list[int]:
        return [touch(body) for body in take(limit)]

    return Inlet(lambda: take(1)[0], take, mark_many)


def inlet(receive: Callable[[], Any], receive_in_place: Callable[[], Any] | None = None) -> Inlet:
    """Return an inlet that receives one message at a time.

    Args:
        receive: Waits for one body and returns it.
        receive_in_place: Cheaper form for a body that is only touched, if any.
    """
    look = receive_in_place or receive

    def receive_many(limit: int) -> list[Any]:
        return [receive() for _ in range(limit)]

    def mark_many(limit: int) -> list[int]:
        return [touch(look()) for _ in range(limit)]

    return Inlet(receive, receive_many, mark_many)
