# SPDX-License-Identifier: Apache-2.0
"""The oracle of the dead letters finds what is wrong in journals that were written by hand."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos import content
from tests.chaos.dead_letters.actors import WrongDeliveryError, reason_of
from tests.chaos.dead_letters.oracle import DELAY_NS, NEVER, judge
from tests.chaos.dead_letters.plan import ATTEMPTS, QUEUES
from tests.chaos.director import Facts
from tests.chaos.evidence import gather
from tests.chaos.oracle import GONE

if TYPE_CHECKING:
    from pathlib import Path

A, B = (f"{content.message_of(1, count):x}" for count in range(2))
LATER = 10**9
SOUND = Facts(seed=0, seconds=0)
PUT = f"10 connected\n11 put jobs {A}\n12 done 1\n16 bye"
REJECTED = f"20 take jobs 1 hold\n21 got jobs {A}:0:0\n22 reject {A}\n23 done\n99 bye"


def found(folder: Path, director: str = "", facts: Facts = SOUND, **journals: str) -> list[str]:
    """What the oracle finds, up to the first colon."""
    for name, text in {"director": director, **journals}.items():
        (folder / name).write_text(f"{text}\n" if text else "", encoding="utf-8")
    return [finding.partition(":")[0] for finding in judge(gather(folder), facts).findings]


def collected(*places: int, queue: str = "dead", message: str = A, reason: str = "rejected") -> str:
    """The journal of a collector that takes a dead message at each of some places of the queue."""
    lines = []
    for at, place in enumerate(places, start=3):
        lines += [f"{at}0 take {queue} 1 hold", f"{at}1 got {queue} {message}:{place}:0"]
        lines += [f"{at}2 dead {message}:{reason}", f"{at}3 ack {message}", f"{at}4 done"]
    return "\n".join([*lines, "99 bye"])


def test_a_message_that_is_rejected_and_collected_is_sound(tmp_path: Path) -> None:
    """It ends as a dead letter; the copy for the archive is no second end."""
    archive = collected(7, queue="archive")
    assert found(tmp_path, one=PUT, two=REJECTED, three=collected(5), four=archive) == []


def test_a_dead_message_that_never_arrives_is_lost(tmp_path: Path) -> None:
    """A rejection is no end, and the copy in the archive does not replace the one that is missing."""
    assert found(tmp_path, one=PUT, two=REJECTED) == ["lost"]
    assert found(tmp_path, one=PUT, two=REJECTED, four=collected(7, queue="archive")) == ["lost"]


@pytest.mark.parametrize("queue", ["dead", "archive"])
def test_a_dead_message_that_arrives_twice(tmp_path: Path, queue: str) -> None:
    """Two places in one queue are two copies."""
    dead = collected(5) if queue == "archive" else "98 bye"
    findings = found(tmp_path, one=PUT, two=REJECTED, three=dead, four=collected(1, 2, queue=queue))
    assert "dead-lettered twice" in findings


def test_a_message_that_is_acknowledged_and_dead(tmp_path: Path) -> None:
    """It ended where it was put, and as a dead letter."""
    acked = f"20 take jobs 1 hold\n21 got jobs {A}:0:0\n22 ack {A}\n23 done\n99 bye"
    findings = found(tmp_path, one=PUT, two=acked, three=collected(5, reason="expired"))
    assert findings == ["ended twice"]


@pytest.mark.parametrize(("queue", "after", "expected"), [
    ("jobs", DELAY_NS - 1, True), ("jobs", DELAY_NS, False), ("ring", DELAY_NS - 1, False),
])  # fmt: skip
def test_a_message_that_does_not_wait(tmp_path: Path, queue: str, after: int, *, expected: bool) -> None:
    """A returned message comes again after the delay; in a ring, which may be full, it may come before."""
    returned = f"20 take {queue} 1 hold\n21 got {queue} {A}:0:0\n22 nack {A}\n23 done\n"
    again = f"{22 + after} got {queue} {A}:0:1\n{LATER} ack {A}\n{LATER} done\n{LATER} bye"
    findings = found(tmp_path, one=PUT.replace("jobs", queue), two=returned + again)
    assert findings == [f"delivered {after} ns after it was returned"] * expected


def test_a_message_dead_as_rejected_that_no_process_rejected(tmp_path: Path) -> None:
    """The reason is one that nothing explains."""
    assert found(tmp_path, one=PUT, three=collected(5)) == ["dead, and no process rejected it"]


@pytest.mark.parametrize(("director", "expected"), [("", 1), ("40 kill two", 0)])
def test_a_message_dead_after_too_few_deliveries(tmp_path: Path, director: str, expected: int) -> None:
    """The limit takes its attempts; those of a killed process may be in no journal."""
    two = f"20 take jobs {ATTEMPTS} hold" + ("" if director else "\n99 bye")
    findings = found(tmp_path, director, one=PUT, two=two, three=collected(5, reason="delivery_limit"))
    assert findings == ["dead after too few deliveries"] * expected


@pytest.mark.parametrize(("replaced", "expected"), [(1, []), (0, ["lost"])])
def test_a_ring_replaces_as_many_as_it_counts(tmp_path: Path, replaced: int, expected: list[str]) -> None:
    """A message of the ring that no process saw again was replaced, or is lost."""
    findings = found(tmp_path, facts=facts_of(ring={"added": 1, "replaced": replaced, "acked": 1 - replaced}),
                     one=PUT.replace("jobs", "ring"))  # fmt: skip
    assert [one for one in findings if one == "lost"] == expected


def facts_of(**queues: dict[str, int]) -> Facts:
    """Facts with these counters; the others are 0."""
    nothing = dict.fromkeys(("added", *GONE, *NEVER), 0)
    return dataclasses.replace(SOUND, queues={name: {**nothing, **queues.get(name, {})} for name in QUEUES})


RIGHT: dict[str, dict[str, int]] = {
    "jobs": {"added": 1, "dead_lettered": 1},
    "dead": {"added": 1, "acked": 1},
    "archive": {"added": 1, "replaced": 1},
}


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, 0),
        ({"jobs": {"added": 1, "dropped": 1}}, 3),  # dropped, and not dead-lettered as often as they arrived
        ({"archive": {"added": 2, "replaced": 2}}, 1),
        ({"dead": {"added": 1}}, 1),
        ({"jobs": {"added": 2, "dead_lettered": 1, "acked": 1}}, 2),
        ({"head": {"added": 1, "replaced": 1}}, 2),
    ],
)
def test_statistics_are_compared_with_the_journals(
    tmp_path: Path, wrong: dict[str, dict[str, int]], expected: int
) -> None:
    """They add up, they count what was seen, and what died in one queue arrived in the two others."""
    findings = found(tmp_path, facts=facts_of(**{**RIGHT, **wrong}), one=PUT, two=REJECTED, three=collected(5))
    assert len(findings) == expected, findings


def dead_letter(queue: str, reason: str, **headers: object) -> Any:  # noqa: ANN401 (what does for a message)
    """A dead letter whose headers say that."""
    deaths = [{"queue": queue, "reason": reason, "count": 1}]
    given = {"x-death": deaths, "x-first-death-queue": queue, "x-first-death-reason": reason, **headers}
    return SimpleNamespace(queue="dead", sequence=7, headers=given)


def test_a_collector_believes_what_can_be() -> None:
    """The reasons of messages that may have died so."""
    assert reason_of(dead_letter("jobs", "rejected")) == "rejected"
    assert reason_of(dead_letter("ranked", "expired", mortal=True)) == "expired"
    assert reason_of(dead_letter("head", "maxlen")) == "maxlen"


@pytest.mark.parametrize(
    "wrong",
    [
        dead_letter("jobs", "expired"),
        dead_letter("ranked", "maxlen"),
        dead_letter("dead", "rejected"),
        dead_letter("jobs", "rejected", **{"x-death": []}),
        dead_letter("jobs", "rejected", **{"x-death": [{"queue": "jobs", "reason": "rejected", "count": 2}]}),
        dead_letter("jobs", "rejected", **{"x-first-death-queue": "head"}),
    ],
    ids=["expires not", "no limit", "of no source", "no death", "twice", "another queue"],
)
def test_a_collector_refuses_what_cannot_be(wrong: Any) -> None:  # noqa: ANN401 (what does for a message)
    """A dead letter that tells of a death that cannot have been."""
    with pytest.raises(WrongDeliveryError):
        reason_of(wrong)
