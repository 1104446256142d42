# SPDX-License-Identifier: Apache-2.0
"""What the package keeps of objects that others hold: it goes with them, and nothing runs when it does."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from typing import Any

import pytest
from scenario_support.inside import core_of

import shmbroker
from shmbroker._process import locks
from shmbroker._process.living import Beside, Living, Named


class Thing:
    """Something that others hold."""


_names = itertools.count()


def keep(some: Any, thing: Thing) -> None:  # noqa: ANN401 - three kinds of collections
    """Add an object to a collection of one of the kinds."""
    if isinstance(some, Living):
        some.add(thing)
    elif isinstance(some, Named):
        some.set(f"name {next(_names)}", thing)
    else:
        some.set(thing, 1)


def kept(some: Any) -> int:  # noqa: ANN401
    """The number of objects, dead or alive, that it has."""
    return len(some._pairs if isinstance(some, Beside) else some._references)  # noqa: SLF001 - what it takes


def test_what_nobody_holds_is_not_there() -> None:
    """The others come in the order in which they were added, as often as they were."""
    living, kept = Living[Thing](), [Thing(), Thing()]
    for thing in (kept[0], Thing(), kept[1], kept[0]):
        living.add(thing)
    gc.collect()
    assert list(living) == [kept[0], kept[1], kept[0]]


def test_what_is_added_meanwhile_comes_next_time() -> None:
    """Somebody may add while somebody else looks."""
    living, kept = Living[Thing](), [Thing() for _ in range(100)]
    living.add(kept[0])
    seen = []
    for thing in living:
        seen.append(thing)
        for other in kept[1:]:
            living.add(other)
    assert seen == kept[:1]
    assert list(living) == kept


@pytest.mark.parametrize("kind", [Living, Named, Beside])
def test_what_is_gone_takes_no_room(kind: type[Any]) -> None:
    """A program that makes and drops objects for ever keeps a few of their references at a time."""
    some = kind()
    held = [Thing() for _ in range(100)]

    for thing in held:
        keep(some, thing)
    most = 0
    for _ in range(5000):
        keep(some, Thing())
        most = max(most, kept(some))
    assert most <= 2 * 100 + 64
    found = [thing for thing in held if some.get(thing) == 1] if kind is Beside else list(some)
    assert found == held


@pytest.mark.parametrize("kind", [Living, Named, Beside])
@pytest.mark.parametrize("alive", [0, 1, 40])
def test_when_what_is_gone_is_removed(kind: type[Any], alive: int) -> None:
    """When there are 32 more than twice as many as were left the last time, and not before."""
    some = kind()
    held, gone = [Thing() for _ in range(200)], list[Thing]()

    for thing in held[:alive]:
        keep(some, thing)
    room = 2 * 33 + 32 if alive > 32 else 32  # 33 of those that live were left when there were 33
    for number in range(alive + 1, room + 1):
        gone.append(Thing())
        keep(some, gone[-1])
        assert kept(some) == number
    gone.clear()
    keep(some, held[100])
    assert kept(some) == alive + 1
    for number in range(alive + 2, 2 * (alive + 1) + 33):
        gone.append(Thing())
        keep(some, gone[-1])
        assert kept(some) == number
    gone.clear()
    keep(some, held[101])
    assert kept(some) == alive + 2


def test_a_name_has_the_object_that_was_set_last() -> None:
    """It has none if that one is gone or the name was removed; a name may be removed that is not there."""
    named, first, second = Named[Thing](), Thing(), Thing()
    assert named.get("a") is None
    named.set("a", first)
    named.set("b", first)
    named.set("a", second)
    assert (named.get("a"), named.get("b"), list(named)) == (second, first, [second, first])
    named.remove("b")
    named.remove("b")
    assert (named.get("b"), list(named)) == (None, [second])
    del second
    gc.collect()
    assert (named.get("a"), list(named)) == (None, [])


def test_what_is_known_of_an_object_is_not_of_another_one() -> None:
    """Also not of one that has the place of one that is gone."""
    beside, thing = Beside[Thing, int](), Thing()
    assert beside.get(thing) is None
    assert beside.set(thing, 1) == 1
    assert beside.get(thing) == 1
    place = id(thing)
    del thing
    others = []
    for _ in range(100):
        others.append(Thing())
        if id(others[-1]) == place:
            break
    assert [beside.get(other) for other in others] == [None] * len(others)


def test_threads_add_at_the_same_time() -> None:
    """None of what they add is lost, whoever removes what is gone."""
    living, kept = Living[Thing](), [[Thing() for _ in range(500)] for _ in range(4)]

    def work(mine: list[Thing]) -> None:
        for thing in mine:
            living.add(thing)
            living.add(Thing())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in kept]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert {id(thing) for thing in living} == {id(thing) for mine in kept for thing in mine}


def test_nothing_runs_when_an_object_goes(broker_name: str) -> None:
    """A Ctrl-C that came in such a callback would be printed and lost."""
    with shmbroker.connect(broker_name) as connection:
        queue = connection.queue("jobs")
        channel, consumer, core = connection.channel(), queue.consume(), core_of(connection)
        channel.exchange_declare("events", "direct")
        objects = [connection, core, core.attachment, queue, channel, consumer, locks.lock()]
        callbacks = [one.__callback__ for thing in objects for one in weakref.getweakrefs(thing)]
        assert callbacks
        assert not any(callbacks)
