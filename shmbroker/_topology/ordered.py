# SPDX-License-Identifier: Apache-2.0
"""Collections of objects in the order of arrival: most of them hold one object, some hold very many.

Each object has a number, which grows with the order of arrival. A dictionary for each routing key and each queue would
take most of the memory for bindings in a process. So a collection that never held more than one object is a pair of
number and object. One that has held more is a dictionary from numbers to objects. An empty one is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

K = TypeVar("K")
T = TypeVar("T")
Ordered = tuple[int, T] | dict[int, T]


def add(entries: Ordered[T] | None, order: int, thing: T) -> Ordered[T]:
    """Return a collection with one more object. The caller must use the result instead of `entries` from then on."""
    if entries is None:
        return (order, thing)
    if isinstance(entries, tuple):
        return dict((entries, (order, thing)))
    entries[order] = thing
    return entries


def remove(entries: Ordered[T] | None, order: int) -> Ordered[T] | None:
    """Return a collection without the object of number `order`, which must be there; None if no object is left.

    The caller must use the result instead of `entries` from then on.
    """
    if entries is None or isinstance(entries, tuple):
        return None
    del entries[order]
    return entries or None


def add_to(table: dict[K, Ordered[T]], key: K, order: int, thing: T) -> None:
    """Add an object to the collection that a table has for a key; make the collection if there is none."""
    table[key] = add(table.get(key), order, thing)


def remove_from(table: dict[K, Ordered[T]], key: K, order: int) -> None:
    """Remove an existing object from the collection of a key; remove the key if no object is left."""
    left = remove(table[key], order)
    if left is None:
        del table[key]
    else:
        table[key] = left


def things(entries: Ordered[T] | None) -> Collection[T]:
    """Return the objects, in the order of arrival."""
    if entries is None:
        return ()
    return entries[1:] if isinstance(entries, tuple) else entries.values()


def merged(several: Iterable[Ordered[T]]) -> list[T]:
    """Return the objects of several collections, in the order of arrival; of entries with the same number only one."""
    found: dict[int, T] = {}
    for entries in several:
        found.update((entries,) if isinstance(entries, tuple) else entries)
    return [found[order] for order in sorted(found)]
