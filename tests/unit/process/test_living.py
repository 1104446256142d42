# SPDX-License-Identifier: Apache-2.0
"""What the package keeps of objects that others hold: it goes with them, and nothing runs when it does."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from scenario_support.inside import core_of

import shmbroker
from shmbroker._process import locks
from shmbroker._process.living import Beside, Living


class Thing:
    """Something that others hold."""


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


@pytest.mark.parametrize("kind", [Living, Beside])
def test_what_is_gone_takes_no_room(kind: type[Any]) -> None:
    """A program that makes and drops objects for ever keeps a few of their references at a time."""
    some = kind()
    held = [Thing() for _ in range(100)]

    def keep(thing: Thing) -> None:
        some.add(thing) if kind is Living else some.set(thing, 1)

    for thing in held:
        keep(thing)
    most = 0
    for _ in range(5000):
        keep(Thing())
        most = max(most, len(some._references if kind is Living else some._pairs))  # noqa: SLF001 - what it takes
    assert most <= 2 * 100 + 64
    found = list(some) if kind is Living else [thing for thing in held if some.get(thing) == 1]
    assert found == held


@pytest.mark.parametrize("kind", [Living, Beside])
@pytest.mark.parametrize("alive", [0, 1, 40])
def test_when_what_is_gone_is_removed(kind: type[Any], alive: int) -> None:
    """When there are 32 more than twice as many as were left the last time, and not before."""
    some = kind()
    held, gone = [Thing() for _ in range(200)], list[Thing]()

    def kept() -> int:
        return len(some._references if kind is Living else some._pairs)  # noqa: SLF001 - what it takes

    def keep(thing: Thing) -> None:
        some.add(thing) if kind is Living else some.set(thing, 1)

    for thing in held[:alive]:
        keep(thing)
    room = 2 * 33 + 32 if alive > 32 else 32  # 33 of those that live were left when there were 33
    for number in range(alive + 1, room + 1):
        gone.append(Thing())
        keep(gone[-1])
        assert kept() == number
    gone.clear()
    keep(held[100])
    assert kept() == alive + 1
    for number in range(alive + 2, 2 * (alive + 1) + 33):
        gone.append(Thing())
        keep(gone[-1])
        assert kept() == number
    gone.clear()
    keep(held[101])
    assert kept() == alive + 2


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
