# SPDX-License-Identifier: Apache-2.0
"""Whether a coroutine lets other tasks run, and how long it pauses."""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

T = TypeVar("T")


def at_once(awaitable: Awaitable[T]) -> T:
    """Return what a coroutine returns that lets no other task run meanwhile.

    Raises:
        AssertionError: It waits.
    """
    waiting = awaitable.__await__()
    try:
        next(waiting)
    except StopIteration as done:
        result: T = done.value
        return result
    waiting.close()
    message = "the coroutine waits"
    raise AssertionError(message)


def waits(awaitable: Awaitable[object]) -> bool:
    """Tell whether a coroutine lets other tasks run before it does anything else; it goes no further."""
    try:
        at_once(awaitable)
    except AssertionError:
        return True
    return False


def noted_pauses() -> list[float]:
    """Make the pauses of the running loop's tasks take no time; return the list where their lengths are noted.

    Those of a second and more are the watchdogs'.
    """
    loop, noted = asyncio.get_running_loop(), list[float]()
    original = loop.call_later

    def call_later(delay: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> asyncio.Handle:  # noqa: ANN401
        if delay >= 1:
            return original(delay, callback, *arguments, **options)
        noted.append(delay)
        return loop.call_at(loop.time(), callback, *arguments, **options)

    loop.call_later = call_later  # type: ignore[method-assign,assignment]
    return noted


def stopped_clock(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Stop the monotonic clock that a module reads."""
    monkeypatch.setattr(f"{module}.time", types.SimpleNamespace(monotonic=lambda: 1000.0))


def noted_options(monkeypatch: pytest.MonkeyPatch, owner: Any, *names: str) -> list[tuple[str, dict[str, Any]]]:  # noqa: ANN401
    """Return the list where the calls of functions of a class or module are noted, each with its keywords."""
    noted: list[tuple[str, dict[str, Any]]] = []
    for name in names:

        def call(*given: Any, _name: str = name, _function: Any = getattr(owner, name), **options: Any) -> Any:  # noqa: ANN401, B008
            noted.append((_name, options))
            return _function(*given, **options)

        monkeypatch.setattr(owner, name, call)
    return noted
