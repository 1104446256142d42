# SPDX-License-Identifier: Apache-2.0
"""Things by their place in the order of their coming: mostly one, sometimes very many.

A dictionary for each routing key and each queue would be most of the memory that bindings take in a process. So one
thing is a pair, several are a dictionary, and none is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

K = TypeVar("K")
T = TypeVar("T")
Places = tuple[int, T] | dict[int, T]


def add(places: Places[T] | None, place: int, thing: T) -> Places[T]:
    """Return the places with one more; what was given is not to be used any more."""
    if places is None:
        return (place, thing)
    if isinstance(places, tuple):
        return dict((places, (place, thing)))
    places[place] = thing
    return places


def remove(places: Places[T] | None, place: int) -> Places[T] | None:
    """Return the places without one that is there; what was given is not to be used any more."""
    if places is None or isinstance(places, tuple):
        return None
    del places[place]
    return places or None


def add_to(table: dict[K, Places[T]], key: K, place: int, thing: T) -> None:
    """Put one more into the places of a key."""
    table[key] = add(table.get(key), place, thing)


def remove_from(table: dict[K, Places[T]], key: K, place: int) -> None:
    """Take one that is there out of the places of a key, and the key with the last one."""
    left = remove(table[key], place)
    if left is None:
        del table[key]
    else:
        table[key] = left


def things(places: Places[T] | None) -> Collection[T]:
    """Return the things, in the order of their coming."""
    if places is None:
        return ()
    return places[1:] if isinstance(places, tuple) else places.values()


def merged(several: Iterable[Places[T]]) -> list[T]:
    """Return the things of several, in the order of their coming, each place once."""
    found: dict[int, T] = {}
    for places in several:
        found.update((places,) if isinstance(places, tuple) else places)
    return [found[place] for place in sorted(found)]
