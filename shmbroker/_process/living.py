# SPDX-License-Identifier: Apache-2.0
"""Collections of weakly held objects without callbacks.

``weakref.WeakSet`` and ``WeakKeyDictionary`` run a callback when an object is freed, between any two instructions of
the thread that frees it. Python prints and drops an exception raised there: a Ctrl-C that arrives in a callback is
lost. These collections run nothing when an object is freed. Adding an object removes the dead entries, once there are
many of them.
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
_FEW = 32  # dead entries are removed when there are more than 2 n + _FEW entries; n: those that the last removal left


class Living(Generic[_Thing]):
    """A set of weakly held objects. Threads, signal handlers and forked children use it without a lock."""

    def __init__(self) -> None:
        self._numbers = itertools.count()  # no number is used twice, so a dead entry can be removed at any time
        self._references: dict[int, weakref.ref[_Thing]] = {}
        self._most = _FEW

    def add(self, thing: _Thing) -> None:
        """Adds an object; each call adds an entry."""
        self._references[next(self._numbers)] = weakref.ref(thing)
        if len(self._references) > self._most:
            for number, reference in self._references.copy().items():
                if reference() is None:
                    self._references.pop(number, None)
            self._most = 2 * len(self._references) + _FEW

    def __iter__(self) -> Iterator[_Thing]:
        """Yields the live objects, the oldest first; objects added during the iteration are not included."""
        for reference in self._references.copy().values():
            thing = reference()
            if thing is not None:
                yield thing


class Named(Generic[_Thing]):
    """A mapping from names to weakly held objects. Its user must hold a lock, or use it in one thread only."""

    def __init__(self) -> None:
        self._references: dict[str, weakref.ref[_Thing]] = {}
        self._most = _FEW

    def get(self, name: str) -> _Thing | None:
        """Returns the live object of a name."""
        reference = self._references.get(name)
        return None if reference is None else reference()

    def set(self, name: str, thing: _Thing) -> None:
        """Sets the object of a name."""
        self._references[name] = weakref.ref(thing)
        if len(self._references) > self._most:
            self._references = {name: one for name, one in self._references.items() if one() is not None}
            self._most = 2 * len(self._references) + _FEW

    def remove(self, name: str) -> None:
        """Removes a name, if it is there."""
        self._references.pop(name, None)

    def __iter__(self) -> Iterator[_Thing]:
        """Yields the live objects."""
        for reference in self._references.copy().values():
            thing = reference()
            if thing is not None:
                yield thing


class Beside(Generic[_Key, _Value]):
    """A mapping from weakly held objects to values. It compares the objects by identity. Its user must hold a lock.

    A value must not refer to its key: if it did, neither would be freed.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[weakref.ref[_Key], _Value]] = {}
        self._most = _FEW

    def get(self, key: _Key) -> _Value | None:
        """Returns the value of an object."""
        pair = self._pairs.get(id(key))
        return pair[1] if pair is not None and pair[0]() is key else None

    def set(self, key: _Key, value: _Value) -> _Value:
        """Sets the value of an object; returns the value."""
        self._pairs[id(key)] = weakref.ref(key), value
        if len(self._pairs) > self._most:
            self._pairs = {number: pair for number, pair in self._pairs.items() if pair[0]() is not None}
            self._most = 2 * len(self._pairs) + _FEW
        return value
