# SPDX-License-Identifier: Apache-2.0
"""Calls of the core in the place of which a test puts others: for statuses that nothing else brings about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import attachment, bodies, connection, growing, inspection, io_thread, native

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Replaced:
    """The calls of the core; in the place of some of them others."""

    def __init__(self, calls: Any, **others: Callable[..., object]) -> None:  # noqa: ANN401
        """Take the place of a native module's functions.

        Args:
            calls: The functions.
            others: What is called instead, by name.
        """
        self._calls = calls
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._calls, name)


def replace_in_connections(patch: pytest.MonkeyPatch, **others: Callable[..., object]) -> None:
    """Let connections call others than the core."""
    for module in (bodies, connection, growing, inspection, io_thread):
        patch.setattr(module, "slow", Replaced(native.slow, **others))


def connected(path: str) -> list[str]:
    """The names of all connections of a broker."""
    attached = attachment.acquire(path)
    try:
        return [one.name for one in attached.connections()]
    finally:
        attachment.release(attached)


def answering(call: Callable[..., Any], *answers: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Return a call that gives these answers, one each time, and then is the other one."""
    left = list(answers)

    def answered(*arguments: Any) -> Any:  # noqa: ANN401
        return left.pop(0) if left else call(*arguments)

    return answered


def telling(call: Callable[..., Any], *statuses: int, result: Any = None) -> Callable[..., Any]:  # noqa: ANN401
    """Return a call that tells these statuses through its last argument, one each time, and then is the other one.

    Args:
        call: The other one.
        statuses: What it tells.
        result: What it returns meanwhile.
    """
    left = list(statuses)

    def told(*arguments: Any) -> Any:  # noqa: ANN401
        if not left:
            return call(*arguments)
        arguments[-1][0] = left.pop(0)
        return result

    return told


class Noted:
    """A call that is made, and whose arguments are kept."""

    def __init__(self, call: Callable[..., Any]) -> None:
        """Note the calls of this one."""
        self._call = call
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Note the arguments, and make the call."""
        self.calls.append(arguments)
        return self._call(*arguments, **named)
