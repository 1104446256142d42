# SPDX-License-Identifier: Apache-2.0
"""Objects, as long as somebody else holds them.

``weakref.WeakSet`` and ``WeakKeyDictionary`` run a callback when an object goes, between any two instructions of
whoever let go of it. Python prints what is raised in there and drops it: a Ctrl-C that arrives inside is lost. Here
nothing runs when an object goes; whoever adds another one removes what is gone.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

_Thing = TypeVar("_Thing")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_FEW = 32  # that may be gone and not be removed yet, besides as many as there are


class Living(Generic[_Thing]):
    """A set of objects that others hold. Threads, signal handlers and forked children use it without a lock."""

    def __init__(self) -> None:
        self._numbers = itertools.count()  # none is used twice: what was found gone can be removed at any time
        self._references: dict[int, weakref.ref[_Thing]] = {}
        self._most = _FEW

    def add(self, thing: _Thing) -> None:
        """Adds an object, once for each call."""
        self._references[next(self._numbers)] = weakref.ref(thing)
        if len(self._references) > self._most:
            for number, reference in self._references.copy().items():
                if reference() is None:
                    self._references.pop(number, None)
            self._most = 2 * len(self._references) + _FEW

    def __iter__(self) -> Iterator[_Thing]:
        """Those that are there now, the oldest first; one that is added meanwhile does not come."""
        for reference in self._references.copy().values():
            thing = reference()
            if thing is not None:
                yield thing


class Beside(Generic[_Key, _Value]):
    """What is known of objects that others hold. Its user holds a lock; two objects are the same if they are one.

    Nothing of a value refers to its key: neither would go.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[weakref.ref[_Key], _Value]] = {}
        self._most = _FEW

    def get(self, key: _Key) -> _Value | None:
        """What is known of that object."""
        pair = self._pairs.get(id(key))
        return pair[1] if pair is not None and pair[0]() is key else None

    def set(self, key: _Key, value: _Value) -> _Value:
        """Keeps what is known of an object; returns it."""
        self._pairs[id(key)] = weakref.ref(key), value
        if len(self._pairs) > self._most:
            self._pairs = {number: pair for number, pair in self._pairs.items() if pair[0]() is not None}
            self._most = 2 * len(self._pairs) + _FEW
        return value
