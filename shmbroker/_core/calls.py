# SPDX-License-Identifier: Apache-2.0
"""Counts the calls of a connection that are in flight, so that closing it frees no memory they use."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Protocol, Self, TypeVar

from shmbroker._core import attachment, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R")


class _Connected(Protocol):
    @property
    def connection(self) -> Calls: ...


S = TypeVar("S", bound=_Connected)


def in_flight(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Counts each call of a method that drops the GIL. After close(), the last such call releases the connection."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = self.connection
        if connection.attachment.forked or connection.closed:
            connection.refuse()
        # No call from here to the `try`: neither a signal handler nor another thread can run in between.
        connection.calls += 1
        try:
            return method(self, *args, **kwargs)
        finally:
            connection.calls -= 1
            if connection.closed and not connection.calls:
                connection.forget()

    return call


class Calls(native.InFlight, attachment.User):
    """What every call of a connection needs: the handle, and the number of calls in flight.

    Attributes:
        handle: the core's handle of the connection; ``None`` until there is one.
        closed: whether the connection was closed. Later calls are refused, except those that end an object.
        calls: the number of calls in flight. A line that changes it makes no call, so no signal handler splits it. The
            compiled calls count here, too.
    """

    handle: Any = None

    if TYPE_CHECKING:

        def forget(self) -> None:
            """Releases the connection after the last call. ``CoreConnection`` implements this method."""

    @property
    def connection(self) -> Self:
        """Returns itself, for :func:`in_flight`."""
        return self

    def enter(self) -> None:
        """Counts a call that uses the handle; the caller must call :meth:`leave` afterwards."""
        if self.attachment.forked or self.closed:
            self.refuse()
        self.calls += 1

    def refuse(self) -> NoReturn:
        """Raises the reason why no call is possible."""
        if self.attachment.forked:
            native.raise_for(native.FORKED)
        native.raise_for(native.CLOSED, "the connection")

    def leave(self) -> None:
        """Ends a counted call; the last one after a close releases the connection."""
        self.calls -= 1
        if self.closed and not self.calls:
            self.forget()

    def end(self, call: Callable[[Any], object], handle: Any) -> None:  # noqa: ANN401 - cffi has no types
        """Ends an object of the core; meanwhile the broker stays mapped, even if another thread closes the connection.

        Args:
            call: the core's function that ends the object. It must be safe after closing, and do nothing in a forked
                child.
            handle: the handle of the object.
        """
        self.calls += 1
        try:
            call(handle)
        finally:
            self.calls -= 1  # not by `leave`: a signal handler may raise when a call of it begins
            if self.closed and not self.calls:
                self.forget()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call of the core that drops the GIL, for code that is no method decorated with :func:`in_flight`."""
        if self.attachment.forked or self.closed:
            self.refuse()
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            if self.closed and not self.calls:
                self.forget()
