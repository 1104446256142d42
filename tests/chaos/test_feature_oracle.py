# SPDX-License-Identifier: Apache-2.0
"""The oracle of all features finds groups that are out of order, or with two processes, in journals written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import content
from tests.chaos.director import Facts
from tests.chaos.evidence import gather
from tests.chaos.features.oracle import judge
from tests.chaos.features.plan import ALIKE, GROUPED, RANKED, class_of, row_of

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [content.message_of(1, count) for count in range(2)]
A, B = (f"{number:x}" for number in NUMBERS)
ORDERED = (*GROUPED, RANKED)
SOUND = Facts(seed=0, seconds=0)


def found(folder: Path, director: str = "", **journals: str) -> list[str]:
    """What the oracle finds, up to the first colon, without the row."""
    for name, text in {"director": director, **journals}.items():
        (folder / name).write_text(f"{text}\n" if text else "", encoding="utf-8")
    findings = judge(gather(folder), SOUND).findings
    return [finding.partition(":")[0].partition(" among ")[0] for finding in findings]


def put(queue: str) -> str:
    """The journal of a sender of both messages."""
    return f"10 connected\n11 put {queue} {A} {B}\n12 done 2\n16 bye"


def taken(queue: str, *deliveries: tuple[str, int, int, int], how: str = "hold", mark: int = 0) -> str:
    """The journal of a process that takes messages, each at a place and a time, and acknowledges it at another."""
    lines = []
    for message, place, at, until in deliveries:
        lines += [f"{at} take {queue} 1 {how}", f"{at} got {queue} {message}:{place}:{mark}"]
        lines += [f"{until} ack {message}", f"{until} done"] if how == "hold" else []
    return "\n".join([*lines, "999 bye"])


def test_messages_of_a_producer_in_a_row_are_of_one_class() -> None:
    """One call can put them; all classes come up."""
    assert class_of(NUMBERS[0]) == class_of(NUMBERS[1])
    classes = {class_of(content.message_of(1, count * ALIKE)) for count in range(2000)}
    assert len(classes) > 80
    assert row_of(NUMBERS[0], RANKED) != row_of(NUMBERS[0], GROUPED[0])


@pytest.mark.parametrize("queue", ORDERED)
def test_what_comes_in_order_is_sound(tmp_path: Path, queue: str) -> None:
    """Each message is settled before the next one comes to another process."""
    one, two = taken(queue, (A, 0, 20, 30)), taken(queue, (B, 1, 40, 50))
    assert found(tmp_path, sender=put(queue), one=one, two=two) == []


@pytest.mark.parametrize("queue", ORDERED)
def test_what_comes_to_one_process_in_another_order(tmp_path: Path, queue: str) -> None:
    """The second message comes before the first, which was not delivered before."""
    assert found(tmp_path, sender=put(queue), one=taken(queue, (B, 1, 20, 30), (A, 0, 40, 50))) == ["out of order"]


@pytest.mark.parametrize("queue", GROUPED)
def test_the_order_of_a_group_is_that_of_all_processes(tmp_path: Path, queue: str) -> None:
    """A second process gets the older message later."""
    one, two = taken(queue, (B, 1, 20, 30)), taken(queue, (A, 0, 40, 50))
    assert found(tmp_path, sender=put(queue), one=one, two=two) == ["out of order"]


@pytest.mark.parametrize("queue", GROUPED)
def test_a_group_is_with_one_process(tmp_path: Path, queue: str) -> None:
    """A second process gets a message while the first one has another of the same group."""
    one, two = taken(queue, (A, 0, 20, 60)), taken(queue, (B, 1, 40, 50))
    assert found(tmp_path, sender=put(queue), one=one, two=two) == ["two processes had messages of a group"]


def test_priorities_are_with_all_processes(tmp_path: Path) -> None:
    """That is allowed in a queue without groups."""
    one, two = taken(RANKED, (A, 0, 20, 60)), taken(RANKED, (B, 1, 40, 50))
    assert found(tmp_path, sender=put(RANKED), one=one, two=two) == []


def test_what_a_killed_process_had_of_a_group_is_free(tmp_path: Path) -> None:
    """The second process gets the rest of the group, and what the first one had, with a mark."""
    one = f"20 take sticky 1 hold\n20 got sticky {A}:0:0"
    two = "\n".join([f"60 take sticky 2 hold\n60 got sticky {A}:0:1 {B}:1:0", f"70 ack {A} {B}\n70 done\n99 bye"])
    assert found(tmp_path, "50 kill one", sender=put("sticky"), one=one, two=two) == []


def test_what_was_settled_as_it_came_says_nothing_of_the_order(tmp_path: Path) -> None:
    """It was written down after the group had gone to another process."""
    one, two = taken("shared", (A, 0, 60, 0), how="auto"), taken("shared", (B, 1, 40, 80))
    assert found(tmp_path, sender=put("shared"), one=one, two=two) == []


def test_what_was_passed_needs_a_stop(tmp_path: Path) -> None:
    """A reader may pass a message of a board for each stop of a process that may own it."""
    reader = f"10 connected\n11 passed {A}\n12 bye"
    assert found(tmp_path, reader=reader) == ["passed, and nobody had them"]
    assert found(tmp_path, director="5 stop publisher-1", reader=reader) == ["passed, and nobody had them"]
    assert found(tmp_path, director="5 stop reader-1", reader=reader) == []
