# SPDX-License-Identifier: Apache-2.0
"""Objects by their place in the order of arrival: mostly one object, sometimes very many.

A dictionary for each routing key and each queue would take most of the memory for bindings in a process. So one object
is stored as a pair, several objects as a dictionary, and none as None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

K = TypeVar("K")
T = TypeVar("T")
Places = tuple[int, T] | dict[int, T]


def add(places: Places[T] | None, place: int, thing: T) -> Places[T]:
    """Return the places with one more; the caller must not use the argument afterwards."""
    if places is None:
        return (place, thing)
    if isinstance(places, tuple):
        return dict((places, (place, thing)))
    places[place] = thing
    return places


def remove(places: Places[T] | None, place: int) -> Places[T] | None:
    """Return the places without an existing one; the caller must not use the argument afterwards."""
    if places is None or isinstance(places, tuple):
        return None
    del places[place]
    return places or None


def add_to(table: dict[K, Places[T]], key: K, place: int, thing: T) -> None:
    """Add an object to the places of a key."""
    table[key] = add(table.get(key), place, thing)


def remove_from(table: dict[K, Places[T]], key: K, place: int) -> None:
    """Remove an existing place from the places of a key, and the key with its last place."""
    left = remove(table[key], place)
    if left is None:
        del table[key]
    else:
        table[key] = left


def things(places: Places[T] | None) -> Collection[T]:
    """Return the objects, in the order of arrival."""
    if places is None:
        return ()
    return places[1:] if isinstance(places, tuple) else places.values()


def merged(several: Iterable[Places[T]]) -> list[T]:
    """Return the objects of several collections, in the order of arrival, each place once."""
    found: dict[int, T] = {}
    for places in several:
        found.update((places,) if isinstance(places, tuple) else places)
    return [found[place] for place in sorted(found)]
