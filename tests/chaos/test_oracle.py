# SPDX-License-Identifier: Apache-2.0
"""The oracle finds what is wrong in journals that were written by hand, and explains no more than it may."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.chaos import content
from tests.chaos.director import Facts
from tests.chaos.evidence import gather
from tests.chaos.oracle import GONE, NEVER, judge

if TYPE_CHECKING:
    from pathlib import Path

A, B, C, D = (f"{content.message_of(1, count):x}" for count in range(4))
PUT = f"10 connected\n11 put q {A} {B} {C}\n14 done 3\n15 leave\n16 bye"
TAKEN_B = f"60 take q 1 hold\n61 got q {B}:1:0\n62 ack {B}\n63 done"
TAKEN_C = f"64 take q 1 hold\n65 got q {C}:2:0\n66 ack {C}\n67 done"
OTHERS = f"{TAKEN_B}\n{TAKEN_C}"
SOUND = Facts(seed=0, seconds=0)


def found(folder: Path, director: str = "", facts: Facts = SOUND, child: str = "", **journals: str) -> list[str]:
    """What the oracle finds; `bye` ends each journal whose process is not killed. ``child`` is one of `three`."""
    if child:
        (folder / "three.1").write_text(f"{child}\n", encoding="utf-8")
    for name, text in {"director": director, **journals}.items():
        (folder / name).write_text(f"{text}\n" if text else "", encoding="utf-8")
    return judge(gather(folder), facts).findings


def taken(*lines: str, rest: str = OTHERS) -> str:
    """The journal of one who takes A as the lines say, then the others."""
    return "\n".join([*lines, rest, "99 bye"])


def test_a_sound_run_is_found_sound(tmp_path: Path) -> None:
    """Everything put was taken, in order, and acknowledged."""
    assert found(tmp_path, one=PUT, two=taken("20 take q 1 hold", f"21 got q {A}:0:0", f"22 ack {A}", "23 done")) == []


def test_a_lost_message(tmp_path: Path) -> None:
    """It was accepted, and never came."""
    assert found(tmp_path, one=PUT, two=taken()) == [f"lost: message {A} (put) never delivered"]


def test_a_message_lost_after_it_was_returned(tmp_path: Path) -> None:
    """It came, was given back, and never came again."""
    findings = found(tmp_path, one=PUT, two=taken(f"21 got q {A}:0:0", f"22 nack {A}", "23 done"))
    assert [finding.partition(":")[0] for finding in findings] == ["lost"]


@pytest.mark.parametrize(("messages", "expected"), [(A, 0), (f"{A} {B}", 2)])
def test_who_settles_as_he_takes_loses_what_he_was_taking(tmp_path: Path, messages: str, expected: int) -> None:
    """One message may go with him, since he was about to take one. Two may not."""
    rest = OTHERS if messages == A else TAKEN_C
    findings = found(tmp_path, "40 kill three", one=PUT, two=taken(rest=rest), three="30 take q 1 auto")
    assert len(findings) == expected


COMMIT = f"10 connected\n11 put q {A} {B}\n12 done 2\n13 commit q:{C} p:{D}"
TAKEN_A = ("20 take q 1 hold", f"21 got q {A}:0:0", f"22 ack {A}", "23 done")
TAKEN_D = f"70 take p 1 hold\n71 got p {D}:0:0\n72 ack {D}\n73 done"


@pytest.mark.parametrize(
    ("rest", "expected"), [(OTHERS, ["lost"]), (f"{OTHERS}\n{TAKEN_D}", []), (TAKEN_B, [])], ids=["half", "all", "none"]
)
def test_of_a_commit_all_is_there_or_nothing(tmp_path: Path, rest: str, expected: list[str]) -> None:
    """If a message of a commit that was cut short was seen, the other, in another queue, must come too."""
    findings = found(tmp_path, "14 kill one", one=COMMIT, two=taken(*TAKEN_A, rest=rest))
    assert [finding.partition(":")[0] for finding in findings] == expected


def test_an_ack_under_way_may_have_happened(tmp_path: Path) -> None:
    """Killed between the lines before and after the ack."""
    assert found(tmp_path, "40 kill three", one=PUT, two=taken(), three=f"30 got q {A}:0:0\n31 ack {A}") == []


def test_a_message_acked_twice(tmp_path: Path) -> None:
    """Two acks of one message returned."""
    once = (f"21 got q {A}:0:0", f"22 ack {A}", "23 done")
    again = (f"31 got q {A}:0:1", f"32 ack {A}", "33 done")
    findings = found(tmp_path, one=PUT, two=taken(*once, *again))
    assert {finding.partition(":")[0] for finding in findings} == {"settled twice", "delivered after it was settled"}


def test_a_delivery_after_the_ack(tmp_path: Path) -> None:
    """Somebody has it again, whose ack had returned."""
    three = f"30 got q {A}:0:1\n31 leave\n32 bye"
    findings = found(tmp_path, one=PUT, two=taken(f"21 got q {A}:0:0", f"22 ack {A}", "23 done"), three=three)
    assert [finding.partition(":")[0] for finding in findings] == ["delivered after it was settled"]


def test_a_delivery_while_somebody_has_it(tmp_path: Path) -> None:
    """The first holder had not begun to give it back."""
    three = f"20 got q {A}:0:0\n40 nack {A}\n41 done\n42 bye"
    findings = found(tmp_path, one=PUT, two=taken(f"30 got q {A}:0:1", f"31 ack {A}", "32 done"), three=three)
    assert [finding.partition(":")[0] for finding in findings] == ["delivered while somebody else had it"]


@pytest.mark.parametrize(("mark", "expected"), [(1, []), (0, ["delivered again without a mark"])])
def test_what_the_dead_had_comes_marked(tmp_path: Path, mark: int, expected: list[str]) -> None:
    """The holder was killed; the next delivery has to say that it was delivered before."""
    two = taken(f"50 got q {A}:0:{mark}", f"51 ack {A}", "52 done")
    findings = found(tmp_path, "40 kill three", one=PUT, two=two, three=f"30 take q 1 hold\n31 got q {A}:0:0")
    assert [finding.partition(":")[0] for finding in findings] == expected


@pytest.mark.parametrize(("killed_at", "expected"), [(40, 0), (60, 1)])
def test_a_mark_is_explained_by_a_death_before_it(tmp_path: Path, killed_at: int, expected: int) -> None:
    """Who died may have had it without writing it down; who dies later is no explanation."""
    two = taken(f"50 got q {A}:0:1", f"51 ack {A}", "52 done")
    assert len(found(tmp_path, f"{killed_at} kill three", one=PUT, two=two, three="30 take q 1 hold")) == expected


@pytest.mark.parametrize(("window", "expected"), [("take q 2 hold", 1), ("open 3 hold", 0), ("close 2", 1)])
def test_a_death_explains_no_more_marks_than_were_in_hand(tmp_path: Path, window: str, expected: int) -> None:
    """Three marked messages: one too many for a get of two, and for a row of two that was given back."""
    words = " ".join(f"{message}:{at}:1" for at, message in enumerate((A, B, C)))
    two = f"50 got q {words}\n51 ack {A} {B} {C}\n52 done\n53 bye"
    three = f"30 open 3 hold\n31 {window}" if window.startswith("close") else f"30 {window}"
    assert len(found(tmp_path, "40 kill three", one=PUT, two=two, three=three)) == expected


def test_messages_out_of_order(tmp_path: Path) -> None:
    """One consumer gets a producer's second message before its first."""
    two = taken(f"70 got q {A}:0:0", f"71 ack {A}", "72 done", rest="").replace("\n\n", "\n")
    findings = found(tmp_path, one=PUT, two=f"{OTHERS}\n{two}")
    assert [finding.partition(":")[0] for finding in findings] == ["out of order"]


def test_a_move_lets_nobody_be_overtaken(tmp_path: Path) -> None:
    """What came after it began it leaves alone, also when it finds fewer than it may move."""
    two = taken(f"70 got q {A}:0:0", f"71 ack {A}", "72 done", rest="").replace("\n\n", "\n")
    findings = found(tmp_path, one=PUT, two=f"{OTHERS}\n{two}", three="30 move q r 2\n31 moved 1\n32 bye")
    assert [finding.partition(":")[0] for finding in findings] == ["out of order"]


@pytest.mark.parametrize(("director", "expected"), [("", ["not at its place"]), ("40 kill three", [])])
def test_messages_that_lie_in_another_order(tmp_path: Path, director: str, expected: list[str]) -> None:
    """The first one lies behind the others: as if a mover had died with it in hand, but for that one has to die."""
    two = taken(f"50 got q {A}:3:0", f"51 ack {A}", "52 done")
    three = "30 move q r 1" if director else "30 move q r 1\n31 moved 1\n32 bye"
    findings = found(tmp_path, director, one=PUT, two=two, three=three)
    assert [finding.partition(":")[0] for finding in findings] == expected


def test_a_message_that_was_moved_comes_later(tmp_path: Path) -> None:
    """It went to another queue and back: another place, and no order to keep."""
    two = taken(f"70 got q {A}:3:0", f"71 ack {A}", "72 done", rest="").replace("\n\n", "\n")
    mover = f"30 move q r 1\n31 moved 1\n32 saw r {A}\n33 move r q 1\n34 moved 1\n35 bye"
    assert found(tmp_path, one=PUT, two=f"{OTHERS}\n{two}", three=mover) == []


def test_a_message_that_comes_back_at_another_place(tmp_path: Path) -> None:
    """What was returned goes to its old place."""
    two = taken(f"20 got q {A}:0:0", f"21 nack {A}", "22 done", f"23 got q {A}:3:1", f"24 ack {A}", "25 done")
    findings = found(tmp_path, one=PUT, two=two)
    assert [finding.partition(":")[0] for finding in findings] == ["not at its place"]


def test_two_messages_at_one_place(tmp_path: Path) -> None:
    """A place in a queue is of one message for ever."""
    two = taken(f"20 got q {A}:1:0", f"21 ack {A}", "22 done")
    findings = found(tmp_path, one=PUT, two=two)
    assert [finding.partition(":")[0] for finding in findings] == ["two at one place"]


def test_a_message_whose_put_was_refused(tmp_path: Path) -> None:
    """Put said that there was no room for the last one; it is there."""
    findings = found(
        tmp_path, one=PUT.replace("done 3", "done 2"), two=taken(f"20 got q {A}:0:0", f"21 ack {A}", "22 done")
    )
    assert [finding.partition(":")[0] for finding in findings] == ["delivered, though its put was refused"]


def test_a_message_that_nobody_put(tmp_path: Path) -> None:
    """It comes from nowhere."""
    two = taken("20 got q 20000:7:0", "21 ack 20000", "22 done", f"23 got q {A}:0:0", f"24 ack {A}", "25 done")
    findings = found(tmp_path, one=PUT, two=two)
    assert [finding.partition(":")[0] for finding in findings] == ["delivered, though nobody put it"]


@pytest.mark.parametrize(("there", "expected"), [(OTHERS, ["lost"]), ("", [])])
def test_a_put_that_was_cut_short_left_a_beginning(tmp_path: Path, there: str, expected: list[str]) -> None:
    """None of three is there, or the first so many: not the second without the first."""
    one = "\n".join(PUT.split("\n")[:2])
    two = taken(rest=there).replace("\n\n", "\n").lstrip()
    findings = found(tmp_path, "15 kill one", one=one, two=two)
    assert [finding.partition(":")[0] for finding in findings] == expected


HAD_A = f"20 take q 1 hold\n21 got q {A}:0:0"
CAME_AGAIN = taken("50 take q 1 hold", f"51 got q {A}:0:1", f"52 ack {A}", "53 done")


def test_what_one_had_in_hand_who_was_interrupted_comes_again(tmp_path: Path) -> None:
    """It ended in order, wherever it was."""
    three = f"{HAD_A}\n31 interrupted"
    assert found(tmp_path, "30 interrupt three", one=PUT, two=CAME_AGAIN, three=three) == []


@pytest.mark.parametrize(
    ("director", "last"),
    [("", "30 exec"), ("30 kill three", "")],
    ids=["another program", "its parent is killed"],
)
def test_what_a_child_had_in_hand_comes_again(tmp_path: Path, director: str, last: str) -> None:
    """Another program in its place is an end, and the death of its parent."""
    assert found(tmp_path, director, one=PUT, two=CAME_AGAIN, child=f"{HAD_A}\n{last}".rstrip()) == []


def test_a_child_that_ends_without_a_reason_is_a_finding(tmp_path: Path) -> None:
    """Nobody killed its parent, and it neither left nor ran another program."""
    findings = found(tmp_path, one=PUT, two=CAME_AGAIN, child=HAD_A)
    assert any("three.1 ended, and nobody killed it" in finding for finding in findings)


def test_a_torn_body() -> None:
    """A byte that differs, a piece that is missing, and another message's end are seen, whatever the size."""
    by_size = {len(content.body_of(message)): message for message in range(4000)}
    assert sorted(by_size) == sorted(size for _, size in content.SIZES)
    for message in by_size.values():
        body = content.body_of(message)
        assert content.message_in(body) == message
        another_end = content.body_of(message + 1)[:7]
        for torn in (body[:-1], body + body, body[:-7] + another_end, body[:-1] + bytes([body[-1] ^ 1]), b""):
            with pytest.raises(content.TornError):
                content.message_in(torn)


def test_troubles_of_the_processes_are_findings(tmp_path: Path) -> None:
    """A torn body, an error, and an end that nobody brought about."""
    two = taken(f"20 got q {A}:0:0", f"21 ack {A}", "22 done", "23 torn q 8 bytes", "24 error Timeout")
    findings = found(tmp_path, one=PUT, two=two, three="30 connected")
    assert len(findings) == 3


def test_a_line_cut_short_is_no_line(tmp_path: Path) -> None:
    """A kill in the middle of a write: what the line would have said did not happen as far as we know."""
    (tmp_path / "three").write_text(f"30 take q 1 hold\n31 got q {A}:0:0", encoding="utf-8")
    (tmp_path / "director").write_text("40 kill three\n", encoding="utf-8")
    assert gather(tmp_path).deliveries == {}


NONE = dict.fromkeys(("added", "redelivered", *GONE, *NEVER), 0)
RIGHT = {**NONE, "added": 3, "acked": 3}


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (RIGHT, 0),
        ({**RIGHT, "added": 4}, 2),  # does not add up, and more than was put
        ({**RIGHT, "acked": 2, "dropped": 1}, 2),  # adds up; not what the journals say of either
        ({**RIGHT, "acked": 2, "message_count": 1}, 2),
        ({**RIGHT, "redelivered": 1}, 1),
    ],
)
def test_statistics_are_compared_with_the_journals(tmp_path: Path, counters: dict[str, int], expected: int) -> None:
    """They add up, nothing is left, and they count what was seen."""
    facts = dataclasses.replace(SOUND, queues={"q": counters})
    two = taken(f"20 got q {A}:0:0", f"21 ack {A}", "22 done")
    assert len(found(tmp_path, facts=facts, one=PUT, two=two)) == expected


def test_facts_of_the_director_are_findings(tmp_path: Path) -> None:
    """A stall, what the doctor says, and memory that did not come back."""
    facts = dataclasses.replace(SOUND, troubles=["stall"], doctor=["leak"], memory_after=8193, queues={"q": RIGHT})
    two = taken(f"20 got q {A}:0:0", f"21 ack {A}", "22 done")
    assert len(found(tmp_path, facts=facts, one=PUT, two=two)) == 3


def test_a_repair_that_nothing_explains(tmp_path: Path) -> None:
    """Upkeep has mended what no death and no stop left so, as far as the broker saw."""
    facts = dataclasses.replace(SOUND, repairs={"room": 0, "marks": 2}, explained_repairs={"room": 7, "marks": 0})
    one = taken("20 take q 1 hold", f"21 got q {A}:0:0", f"22 ack {A}", "23 done")
    assert found(tmp_path, facts=facts, one=PUT, two=one) == ["repairs that nothing explains: 2 marks"]


@pytest.mark.parametrize(("director", "expected"), [("40 stop two", []), ("", ["1 rescues, and 0 stops"])])
def test_a_rescue_is_explained_by_a_stop(tmp_path: Path, director: str, expected: list[str]) -> None:
    """Who was stopped, and went on just before it was looked at, cannot be told from one who forgot."""
    facts = dataclasses.replace(SOUND, rescues=1)
    one = taken("20 take q 1 hold", f"21 got q {A}:0:0", f"22 ack {A}", "23 done")
    assert found(tmp_path, director, facts, one=PUT, two=one) == expected
