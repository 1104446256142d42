# SPDX-License-Identifier: Apache-2.0
"""What the storekeeper writes of ids that are claimed: a core that a test scripts shows them at each step."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shmbroker._core.storing import IdNumbers
from shmbroker._storekeeper.remembering import Remembering

QUEUE = 7
CLAIMED = 0
A, B = b"a" * 16, b"b" * 16

Ids = dict[bytes, int]


class Core:
    """Ids with their numbers; 0: the id is claimed by a commit that is decided."""

    def __init__(self) -> None:
        self.known: Ids = {}
        self.latest, self.kept = 1, 100

    def knows(self, **ids: int) -> None:
        """Sets the ids by their first letters."""
        self.known = {name.encode() * 16: number for name, number in ids.items()}
        self.latest = max(self.latest, *self.known.values()) if self.known else self.latest

    def id_numbers(self, _: object) -> IdNumbers | None:
        """As of the core."""
        return IdNumbers(self.latest, max(0, self.latest - self.kept)) if self.known or self.latest > 1 else None

    def ids(self, _: object, start: int) -> list[tuple[bytes, int]]:
        """As of the core."""
        return [one for one in self.known.items() if one[1] >= start or one[1] == CLAIMED]

    def id_number(self, _: object, found: bytes) -> int | None:
        """As of the core."""
        return self.known.get(found)


class Table:
    """The ids of the queue in the store."""

    def __init__(self) -> None:
        self.has: set[tuple[bytes, int]] = set()
        self.writes = 0

    def ids(self, queue: int) -> list[tuple[bytes, int]]:
        """As of a batch."""
        assert queue == QUEUE
        return sorted(self.has, key=lambda one: one[1])

    def set_ids(self, queue: int, forgotten: int, added: Any, removed: Any) -> None:  # noqa: ANN401 - iterables
        """As of a batch."""
        assert queue == QUEUE
        self.writes += 1
        self.has -= set(removed)
        self.has |= set(added)
        self.has = {one for one in self.has if one[1] > forgotten}


class Play:
    """A storekeeper that takes turns."""

    def __init__(self) -> None:
        self.core, self.table = Core(), Table()
        self.restart()

    def restart(self) -> None:
        """Another storekeeper begins."""
        self.ids = Remembering(cast("Any", self.core), cast("Any", None), QUEUE)

    def begin(self, *, everything: bool = False) -> None:
        """Lists the ids."""
        self.ids.begin(everything=everything)

    def end(self, *came: bytes) -> None:
        """Gathers messages with these ids, and ends the turn."""
        self.ids.came(came)
        self.ids.write(cast("Any", self.table))
        self.ids.synced()

    def turn(self, *came: bytes, everything: bool = False) -> None:
        """Takes a turn in which nothing changes."""
        self.begin(everything=everything)
        self.end(*came)


@pytest.fixture
def play() -> Play:
    """Begins with a queue that has no id, and an empty store."""
    return Play()


def test_a_claim_whose_message_is_written(play: Play) -> None:
    """Its id gets the latest number, until it has one."""
    play.core.knows(b=5, a=CLAIMED)
    play.turn(A)
    assert play.table.has == {(A, 5), (B, 5)}
    assert play.ids.needs_turn
    play.turn()
    assert play.table.has == {(A, 5), (B, 5)}
    play.core.knows(b=5, a=6)
    play.turn()
    assert play.table.has == {(A, 6), (B, 5)}
    assert not play.ids.needs_turn


def test_a_claim_that_gets_the_number_that_the_store_has(play: Play) -> None:
    """As a reaper gives it: the id stays in the store."""
    play.core.knows(b=5, a=CLAIMED)
    play.turn(A)
    play.core.knows(b=5, a=5)
    play.turn()
    assert play.table.has == {(A, 5), (B, 5)}


def test_a_claim_whose_message_is_not_written(play: Play) -> None:
    """Its id is not written either, before it is known; then also if its number is lower than that of the last list."""
    play.core.knows(b=6, a=CLAIMED)
    play.turn(B)
    assert play.table.has == {(B, 6)}
    assert play.ids.needs_turn
    play.core.knows(b=6, a=5)
    play.turn()
    assert play.table.has == {(A, 5), (B, 6)}
    assert not play.ids.needs_turn


def test_an_id_that_becomes_known_between_the_list_and_the_messages(play: Play) -> None:
    """It waits for the next turn, unless its message is written."""
    play.core.knows(b=5)
    play.begin()
    play.core.knows(b=5, a=6)
    play.end(B)
    assert play.table.has == {(B, 5)}
    play.turn()
    assert play.table.has == {(A, 6), (B, 5)}


def test_a_claim_that_is_given_back(play: Play) -> None:
    """Nothing is written of it, and it needs no turn."""
    play.core.knows(b=5, a=CLAIMED)
    play.turn(B)
    play.core.knows(b=5)
    play.turn()
    assert play.table.has == {(B, 5)}
    assert not play.ids.needs_turn


def test_an_id_without_a_number_is_the_youngest(play: Play) -> None:
    """Also if others get their numbers while the turn writes."""
    play.core.knows(b=5)
    play.begin()
    play.core.knows(b=5, c=6, a=CLAIMED)
    play.end(A, b"c" * 16)
    assert play.table.has == {(B, 5), (b"c" * 16, 6), (A, 6)}


def test_another_storekeeper_keeps_the_id_of_a_claim(play: Play) -> None:
    """Its message is on the disk. The number changes when the id has one."""
    play.core.knows(b=5, a=CLAIMED)
    play.turn(A)
    play.restart()
    play.turn(everything=True)
    assert play.table.has == {(A, 5), (B, 5)}
    assert play.ids.needs_turn
    play.core.knows(b=5, a=6)
    play.turn()
    assert play.table.has == {(A, 6), (B, 5)}


def test_another_storekeeper_removes_what_the_queue_does_not_know(play: Play) -> None:
    """And what has got another number."""
    play.core.knows(b=5, a=6)
    play.table.has = {(A, 5), (B, 5), (b"c" * 16, 5)}
    play.turn(everything=True)
    assert play.table.has == {(A, 6), (B, 5)}


def test_a_message_whose_id_the_queue_does_not_know(play: Play) -> None:
    """One that was moved there: its id is not written."""
    play.core.knows(b=5)
    play.turn(A, B)
    assert play.table.has == {(B, 5)}


def test_nothing_new_is_not_written(play: Play) -> None:
    """Neither of a queue that has never had an id, nor of one whose ids the store has."""
    play.turn(A)
    assert play.table.writes == 0
    play.core.knows(b=5)
    play.turn(B)
    play.turn()
    assert play.table.writes == 1


def test_the_store_forgets_as_the_queue_does(play: Play) -> None:
    """Each new id trims the table."""
    play.core.kept = 2
    for number in range(3, 9):
        play.core.knows(**{chr(one): one for one in (number - 1, number)})
        play.turn(bytes([number]) * 16)
        assert {one for _, one in play.table.has} == {number - 1, number}
