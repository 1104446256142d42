# SPDX-License-Identifier: Apache-2.0
"""The oracle of the chaos among all features: what holds among dead letters; the order in groups and priorities."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from tests.chaos.dead_letters import oracle as dead_letters
from tests.chaos.dead_letters.oracle import Scene
from tests.chaos.dead_letters.plan import RING
from tests.chaos.evidence import AUTO
from tests.chaos.features.plan import BOARD, CAST, DELAYED, GROUPED, RANKED, SOURCES, class_of, row_of
from tests.chaos.oracle import Judgement, got_at, history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.director import Facts
    from tests.chaos.evidence import Delivery, Evidence

SCENE = Scene(SOURCES, (RING,), DELAYED)


def judge(evidence: Evidence, facts: Facts) -> Judgement:
    """Looks at everything."""
    judgement = dead_letters.judge(evidence, facts, SCENE)
    groups = _groups(evidence)
    explained = dict(judgement.explained)
    findings = [
        *judgement.findings,
        *_shared_out_twice(groups, evidence),
        *_out_of_order(groups, evidence),
        *_passed(evidence, explained),
    ]
    passed = sum(1 for pairs in groups for _ in _handovers(pairs))
    explained["groups that went from one process to another"] = passed, sum(map(len, groups))
    return dataclasses.replace(judgement, findings=findings, explained=explained)


def _groups(evidence: Evidence) -> list[list[tuple[int, Delivery]]]:
    """The deliveries of each group of each queue, in the order in which they came."""
    found: dict[tuple[str, str], list[tuple[int, Delivery]]] = {}
    for pairs in evidence.by_holder.values():
        for message, one in pairs:
            if one.queue in GROUPED and one.end != AUTO:  # a message that was settled as it came was written down later
                found.setdefault((one.queue, class_of(message).group), []).append((message, one))
    # Those that came with one call have one time, and stay in their order.
    return [sorted(pairs, key=lambda pair: got_at(pair[1])) for pairs in found.values()]


def _handovers(pairs: list[tuple[int, Delivery]]) -> Iterator[tuple[int, Delivery]]:
    """The deliveries to another process than the one before."""
    for (_, before), (message, after) in itertools.pairwise(pairs):
        if before.holder != after.holder:
            yield message, after


def _shared_out_twice(groups: list[list[tuple[int, Delivery]]], evidence: Evidence) -> Iterator[str]:
    """A process gets a message of a group only when all others have settled or lost what they had of the group."""
    for pairs in groups:
        until: dict[str, tuple[int, int]] = {}  # of each holder: when it began to end its last message, and which
        for message, one in pairs:
            for holder, (began_ns, theirs) in until.items():
                if holder != one.holder and began_ns > one.got_ns:
                    both = f"{history(message, evidence)}; {history(theirs, evidence)}"
                    yield f"two processes had messages of a group: {both}"
            known = until.get(one.holder)
            if known is None or known[0] < one.began_ns:
                until[one.holder] = one.began_ns, message


def _out_of_order(groups: list[list[tuple[int, Delivery]]], evidence: Evidence) -> Iterator[str]:
    """Messages of one producer and row come in the order of their puts, but for those that were delivered before.

    In a queue with groups that holds for all processes together; in one with priorities for each process.
    """
    highest: dict[tuple[str | int, ...], int] = {}
    for pairs in groups:
        for message, one in pairs:
            if not one.marked:
                yield from _late(highest, row_of(message, one.queue), message, evidence)
    for holder, pairs in evidence.by_holder.items():
        for message, one in pairs:
            if one.queue == RANKED and not one.marked:
                yield from _late(highest, (holder, *row_of(message, one.queue)), message, evidence)


def _passed(evidence: Evidence, explained: dict[str, tuple[int, int]]) -> Iterator[str]:
    """A consumer passes a message whose owner is stopped (sb_following.h): at most one for each stop and each reader.

    A process that is killed is as one that is stopped, until its connection is reaped.
    """
    owners = {role.kind for role in CAST if BOARD in role.queues}
    acts = sum(evidence.counts[f"{act} {owner}"] for act in ("stop", "kill", "interrupt") for owner in owners)
    most = acts * sum(role.kind == "reader" for role in CAST)
    explained["passed, since its owner was stopped"] = len(evidence.passed), most
    if len(evidence.passed) > most:
        yield f"passed, and nobody had them: {evidence.passed}"


def _late(
    highest: dict[tuple[str | int, ...], int], row: tuple[str | int, ...], message: int, evidence: Evidence
) -> Iterator[str]:
    if message < highest.get(row, -1):
        yield f"out of order among {row}: {history(message, evidence)}"
    highest[row] = max(message, highest.get(row, -1))
