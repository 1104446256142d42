# SPDX-License-Identifier: Apache-2.0
"""The oracle of the chaos among dead letters: a message ends once, in its queue or as a dead letter."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import TYPE_CHECKING

from tests.chaos.dead_letters.plan import ARCHIVE, ATTEMPTS, DEAD, DELAY, RING, SOURCES
from tests.chaos.director import LIST_OF_WAITERS
from tests.chaos.evidence import FINAL, REJECT
from tests.chaos.oracle import (
    GONE,
    Judgement,
    existing,
    got_at,
    history,
    marked_without_reason,
    repaired,
    strangers,
    twice,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.chaos.director import Facts
    from tests.chaos.evidence import Delivery, Evidence

DELAY_NS = round(DELAY * 1e9)
NEVER = ("expired", "killed", "dropped", "moved", "message_count", "consumers", "interested", "notified")


@dataclasses.dataclass(frozen=True)
class Scene:
    """The queues of a play.

    Attributes:
        sources: The queues in which messages die.
        rings: Those of them that replace messages.
        delayed: Those of them in which a returned message always waits for the delay.
    """

    sources: Collection[str]
    rings: Collection[str]
    delayed: Collection[str]


DEAD_LETTERS = Scene(SOURCES, (RING,), tuple(name for name in SOURCES if name != RING))


def judge(evidence: Evidence, facts: Facts, scene: Scene = DEAD_LETTERS) -> Judgement:
    """Looks at everything."""
    known, may_exist = existing(evidence)
    explained: dict[str, tuple[int, int]] = {}
    alive, dead, archived = (part_of(evidence, queues) for queues in (scene.sources, (DEAD,), (ARCHIVE,)))
    findings = [
        *facts.troubles,
        *evidence.troubles,
        *(f"the doctor: {words}" for words in facts.doctor),
        *strangers(evidence, known, may_exist),
        *(_lost(evidence, facts, known, explained, scene) if facts.all_taken else ()),
        *_ended_twice(evidence),
        *itertools.chain.from_iterable(
            twice(message, part) for part in (alive, dead, archived) for message in part.deliveries
        ),
        *itertools.chain.from_iterable(_copied_twice(part) for part in (dead, archived)),
        *marked_without_reason(alive, explained),
        *_too_early(alive, scene),
        *_died_without_reason(alive, evidence, explained),
        *_miscounted(evidence, facts, known, may_exist, scene),
        *repaired(evidence, facts, explained),
    ]
    for reason, number in sorted(collections.Counter(evidence.reasons.values()).items()):
        explained[f"dead letters, {reason}"] = number, len(evidence.reasons)
    if facts.queues and facts.memory_kept > LIST_OF_WAITERS:
        findings.append(f"memory: {facts.memory_before} bytes used before, {facts.memory_after} after")
    return Judgement(findings, explained)


def part_of(evidence: Evidence, queues: Collection[str]) -> Evidence:
    """The evidence with those deliveries alone that are from some of the queues."""
    of_these = {
        message: [one for one in deliveries if one.queue in queues]
        for message, deliveries in evidence.deliveries.items()
    }
    return dataclasses.replace(evidence, deliveries={message: ones for message, ones in of_these.items() if ones})


def _ends(message: int, evidence: Evidence) -> list[Delivery]:
    """The deliveries with which the message ended, or may have: acknowledged where it was put, or as a dead letter."""
    return [
        one
        for one in evidence.deliveries.get(message, ())
        if one.end in FINAL and one.queue != ARCHIVE and (one.end != REJECT or one.queue == DEAD)
    ]


def _lost(
    evidence: Evidence, facts: Facts, known: dict[int, str], explained: dict[str, tuple[int, int]], scene: Scene
) -> list[str]:
    """Every message ended: what was left, the director took. A ring may have replaced as many as it counted."""
    missing = [message for message in known if not _ends(message, evidence)]
    replaced = [message for message in missing if known[message] in scene.rings]
    gone = [message for message in missing if known[message] not in scene.rings]
    most = sum(facts.queues.get(ring, {}).get("replaced", 0) for ring in scene.rings) + evidence.settled_unwritten
    explained["gone with a process that settles as it takes"] = len(gone), evidence.settled_unwritten
    explained["replaced in the ring"] = len(replaced), most
    lost = gone if len(gone) > evidence.settled_unwritten else []
    return [f"lost: {history(one, evidence)}" for one in lost + (replaced if len(replaced) > most else [])]


def _ended_twice(evidence: Evidence) -> Iterator[str]:
    for message in evidence.deliveries:
        if sum(one.done for one in _ends(message, evidence)) > 1:
            yield f"ended twice: {history(message, evidence)}"


def _copied_twice(part: Evidence) -> Iterator[str]:
    """A dead message comes once to each queue: at one place."""
    for message, deliveries in part.deliveries.items():
        if len({one.sequence for one in deliveries}) > 1:
            yield f"dead-lettered twice: {history(message, part)}"


def _too_early(alive: Evidence, scene: Scene) -> Iterator[str]:
    """A message that was returned waits for the delay. In a ring that is full it does not."""
    for message, deliveries in alive.deliveries.items():
        for before, after in itertools.pairwise(sorted(deliveries, key=got_at)):
            waited = after.got_ns - before.began_ns
            if before.end == "nack" and before.done and before.queue in scene.delayed and waited < DELAY_NS:
                yield f"delivered {waited} ns after it was returned: {history(message, alive)}"


def _died_without_reason(alive: Evidence, evidence: Evidence, explained: dict[str, tuple[int, int]]) -> Iterator[str]:
    """What is dead as rejected was rejected; what is dead after its last attempt was delivered as often.

    A process that was killed may have had messages that it had not written down, each of which is an attempt.
    """
    short = 0
    for message, reason in evidence.reasons.items():
        deliveries = alive.deliveries.get(message, [])
        if reason == "rejected" and not any(one.end == REJECT for one in deliveries):
            yield f"dead, and no process rejected it: {history(message, evidence)}"
        if reason == "delivery_limit":
            short += max(0, ATTEMPTS - len(deliveries))
    most = sum(allowance.most for allowance in evidence.unwritten)
    explained["attempts that were not written down"] = short, most
    if short > most:
        yield f"dead after too few deliveries: {short} are missing, at most {most} were not written down"


def _miscounted(
    evidence: Evidence, facts: Facts, known: dict[int, str], may_exist: dict[int, str], scene: Scene
) -> Iterator[str]:
    """Counters are exact after a kill, and each dead message that was counted arrived in both queues."""
    if not facts.queues:
        return
    for name, found in facts.queues.items():
        if found["added"] != sum(found[counter] for counter in GONE):
            yield f"statistics of {name} do not add up: {found}"
        never = (*NEVER, *(("replaced",) if name not in {*scene.rings, ARCHIVE} else ()))
        yield from (f"statistics of {name}: {found[counter]} {counter}" for counter in never if found[counter])
    sources = [facts.queues[name] for name in scene.sources]
    ends = [
        one for ones in evidence.deliveries.values() for one in ones if one.end in FINAL and one.queue in scene.sources
    ]
    acked = [one.done for one in ends if one.end != REJECT]
    dead = sum(found["dead_lettered"] for found in sources)
    arrived = [facts.queues[name]["added"] for name in (DEAD, ARCHIVE)]
    unwritten = evidence.settled_unwritten
    if arrived != [dead, dead]:
        yield f"statistics: {dead} messages were dead-lettered; {arrived} arrived"
    for what, number, least, most in (
        ("acked", sum(found["acked"] for found in sources), sum(acked), len(acked) + unwritten),
        ("put", sum(found["added"] for found in sources), len(known), len(known) + len(may_exist)),
        ("dead-lettered", dead, len(evidence.reasons), len(evidence.reasons) + len(known)),
    ):
        if not least <= number <= most:
            yield f"statistics: {number} messages {what}; the journals say {least} to {most}"
