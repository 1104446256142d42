# SPDX-License-Identifier: Apache-2.0
"""Checks which messages of a queue a call is for: those of a selector, of some sequence numbers, at most so many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker._core import managing, native
from shmbroker._core.queue import KEEPS
from shmbroker._selectors.compiler import compile_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker._core.queue import CoreQueue

_MOST = 2**60  # sequence numbers have 60 bits


def at_most(given: object, argument: str) -> int:
    """Returns a limit; ``None`` is none.

    Raises:
        ValueError: it is no integer, or negative.
    """
    if given is None:
        return native.FOR_EVER
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        msg = f"{argument}={given!r}: an integer >= 0, or None for all, is allowed"
        raise ValueError(msg)
    return min(given, native.FOR_EVER)


def chosen(
    queue: CoreQueue,
    selector: object,
    ids: Iterable[int] | None,
    limit: object,
    progress: Callable[[int], object] | None = None,
) -> managing.Chosen:
    """Returns which messages of a queue are meant.

    Args:
        queue: the queue.
        selector: the text of a selector; ``None`` selects all.
        ids: sequence numbers, in any order; ``None`` means all.
        limit: the most messages; ``None`` means all.
        progress: called with the number of messages dealt with, now and then.

    Raises:
        TypeError: the selector is no string, or the ids are no integers, or ``progress`` cannot be called.
        InvalidSelector: the selector is no condition in the language of selectors.
        ValueError: the limit or an id is not allowed, or the messages of the queue are leased.
        NotFound: the queue was deleted.
    """
    program = b"" if selector is None else compile_selector(selector)
    most = at_most(limit, "limit")
    if progress is not None and not callable(progress):
        msg = f"progress={progress!r}: something that can be called with a number, or None, is needed"
        raise TypeError(msg)
    if ids is None:
        return managing.Chosen(program, limit=most, progress=progress)
    spans = _spans(ids)
    if queue.settings()[1] & KEEPS:
        msg = f"ids: the messages of {queue.what} are leased, and keep the ids of the queue that they come from"
        raise ValueError(msg)
    return managing.Chosen(program, spans, most, progress)


def _spans(ids: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Returns the ranges that consist of these ids, ascending."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__iter__"):
        msg = f"ids={ids!r}: sequence numbers of messages are needed, such as [3, 4], or None for all"
        raise TypeError(msg)
    wanted = set()
    for one in ids:
        if not isinstance(one, int) or isinstance(one, bool):
            msg = f"ids: {one!r} is no sequence number of a message: an integer is needed"
            raise TypeError(msg)
        if not 0 <= one < _MOST:
            msg = f"ids: {one!r} is no sequence number of a message: 0 to {_MOST - 1} is allowed"
            raise ValueError(msg)
        wanted.add(one)
    found: list[tuple[int, int]] = []
    for one in sorted(wanted):
        if found and found[-1][1] == one:
            found[-1] = found[-1][0], one + 1
        else:
            found.append((one, one + 1))
    return tuple(found)
