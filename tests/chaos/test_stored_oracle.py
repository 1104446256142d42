# SPDX-License-Identifier: Apache-2.0
"""The oracle of the chaos with a store knows what a loss may take away, in journals that were written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import content
from tests.chaos.director import Facts
from tests.chaos.evidence import gather
from tests.chaos.stored.oracle import judge

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = (f"{content.message_of(1, count):x}" for count in range(3))
X = f"{content.message_of(2, 0):x}"
LOSS = "300 kill one\n301 kill two\n302 kill three\n310 lost"
PUT = f"10 connected\n11 put q {A} {B}\n14 done 2"
TAKEN = f"20 take q 1 hold\n21 got q {A}:0:0\n22 ack {A}\n23 done"
SOUND = Facts(seed=0, seconds=0)


def found(folder: Path, director: str = LOSS, **journals: str) -> list[str]:
    """What the oracle finds, up to the first colon. `one`, `two` and `three` are killed in a loss."""
    for name, text in {"director": director, **journals}.items():
        (folder / name).write_text(f"{text}\n" if text else "", encoding="utf-8")
    return [finding.partition(":")[0] for finding in judge(gather(folder), SOUND).findings]


def rest(*deliveries: tuple[str, int, int]) -> str:
    """The journal of one who takes these after the loss: message, place, mark."""
    lines = []
    for at, (message, place, mark) in enumerate(deliveries):
        lines += [f"{400 + at} take q 1 hold", f"{400 + at} got q {message}:{place}:{mark}"]
        lines += [f"{400 + at} ack {message}", f"{400 + at} done"]
    return "\n".join([*lines, "999 bye"])


def test_what_was_confirmed_comes_after_the_loss(tmp_path: Path) -> None:
    """Without a mark, even if somebody held it."""
    held = f"20 take q 1 hold\n21 got q {A}:0:0"
    assert found(tmp_path, one=PUT, two=held, rest=rest((A, 0, 0), (B, 1, 0))) == []


@pytest.mark.parametrize("held", ["", f"20 take q 1 hold\n21 got q {A}:0:0"])
def test_what_does_not_come_is_lost(tmp_path: Path, held: str) -> None:
    """Held or not: it was confirmed, and no acknowledgement had begun."""
    assert found(tmp_path, one=PUT, two=held, rest=rest((B, 1, 0))) == ["lost"]


def test_an_acknowledgement_may_be_lost(tmp_path: Path) -> None:
    """Or it may not; no put was waited for that began after it."""
    put = f"30 connected\n21 put q {X}\n40 done 1"
    after = [(B, 1, 0), (X, 2, 0)]
    assert found(tmp_path, one=PUT, two=TAKEN, three=put, rest=rest(*after)) == []
    assert found(tmp_path, one=PUT, two=TAKEN, three=put, rest=rest((A, 0, 0), *after)) == []


@pytest.mark.parametrize("began", [f"30 put q {X}", f"30 commit q:{X}"])
def test_an_acknowledgement_on_the_disk_is_not_lost(tmp_path: Path, began: str) -> None:
    """A put of another process began after it, and has waited for the disk."""
    stored = f"29 connected\n{began}\n40 done 1"
    after = [(B, 1, 0), (X, 2, 0)]
    assert found(tmp_path, one=PUT, two=TAKEN, three=stored, rest=rest(*after)) == []
    came_back = ["came back, though its acknowledgement was on the disk"]
    assert found(tmp_path, one=PUT, two=TAKEN, three=stored, rest=rest((A, 0, 0), *after)) == came_back


@pytest.mark.parametrize("end", ["40 late", "40 done 0", ""])
def test_a_put_that_was_not_on_the_disk_says_nothing(tmp_path: Path, end: str) -> None:
    """Neither of itself nor of acknowledgements: it was late, refused, or cut short."""
    put = f"29 connected\n30 put q {X}\n{end}".strip()
    assert found(tmp_path, one=PUT, two=TAKEN, three=put, rest=rest((A, 0, 0), (B, 1, 0))) == []


def test_a_message_that_was_late_may_come(tmp_path: Path) -> None:
    """One that was refused may not."""
    came = rest((A, 0, 0), (B, 1, 0), (X, 2, 0))
    assert found(tmp_path, one=PUT, three=f"29 connected\n30 put q {X}\n40 late", rest=came) == []
    refused = f"29 connected\n30 put q {X}\n40 done 0"
    assert found(tmp_path, one=PUT, three=refused, rest=came) == ["delivered, though its put was refused"]


def test_an_unconfirmed_put_that_was_seen_before_the_loss_may_be_gone(tmp_path: Path) -> None:
    """After it, a beginning is there."""
    cut = f"29 connected\n30 put q {X} {C}"
    seen = f"31 take q 1 hold\n32 got q {C}:3:0"
    assert found(tmp_path, one=PUT, two=seen, three=cut, rest=rest((A, 0, 0), (B, 1, 0))) == []
    assert found(tmp_path, one=PUT, two=seen, three=cut, rest=rest((A, 0, 0), (B, 1, 0), (C, 3, 0))) == ["lost"]


def test_a_commit_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Also over a loss."""
    cut = f"29 connected\n30 commit q:{X} p:{C}"
    assert found(tmp_path, one=PUT, three=cut, rest=rest((A, 0, 0), (B, 1, 0))) == []
    assert found(tmp_path, one=PUT, three=cut, rest=rest((A, 0, 0), (B, 1, 0), (X, 2, 0))) == ["lost"]


def test_within_a_life_all_holds_that_holds_without_a_store(tmp_path: Path) -> None:
    """Nothing comes again after it was settled, nor without a mark."""
    again = rest((A, 0, 0), (B, 1, 0), (A, 0, 0))
    findings = found(tmp_path, one=PUT, rest=again)
    assert {"delivered after it was settled", "delivered again without a mark"} <= set(findings)


def test_a_message_keeps_its_place_over_a_loss(tmp_path: Path) -> None:
    """And those of a producer their order."""
    held = f"20 take q 1 hold\n21 got q {A}:0:0"
    assert found(tmp_path, one=PUT, two=held, rest=rest((B, 1, 0), (A, 2, 0)))[:1] == ["not at its place"]
    assert "out of the order of the puts" in found(tmp_path, one=PUT, two="", rest=rest((B, 0, 0), (A, 1, 0)))


def test_a_place_may_be_used_again_only_after_a_loss(tmp_path: Path) -> None:
    """A message that was not on the disk leaves its place to another."""
    cut, seen = f"29 connected\n30 put q {C}", f"31 take q 1 hold\n32 got q {C}:2:0"
    later = f"350 connected\n351 put q {X}\n352 done 1\n353 bye"
    after = [(A, 0, 0), (B, 1, 0), (X, 2, 0)]
    assert found(tmp_path, one=PUT, two=seen, three=cut, later=later, rest=rest(*after)) == []
    assert "two at one place" in found(tmp_path, one=PUT, later=later, rest=rest((A, 0, 0), (B, 2, 0), (X, 2, 0)))
