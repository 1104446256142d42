# SPDX-License-Identifier: Apache-2.0
"""The oracle of the chaos with a store: what holds without one, and what a loss of everything may take away.

Between two losses all holds that holds without a store. A loss may take away acknowledgements that were not on the
disk: their messages come again, at their old places. They may come without a mark, since a delivery alone is not
stored. An acknowledgement is on the disk when a put has waited for the disk that began after it.
"""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

from tests.chaos.content import producer_of
from tests.chaos.evidence import FINAL
from tests.chaos.oracle import (
    Judgement,
    again,
    existing,
    got_at,
    history,
    late,
    lost,
    marked_without_reason,
    memory_kept,
    out_of_order,
    repaired,
    sequence_of,
    strangers,
    unbalanced,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.director import Facts
    from tests.chaos.evidence import Delivery, Evidence


def judge(evidence: Evidence, facts: Facts) -> Judgement:
    """Looks at everything."""
    known, may_exist = existing(evidence)
    explained: dict[str, tuple[int, int]] = {}
    findings = [
        *facts.troubles,
        *evidence.troubles,
        *(f"the doctor: {words}" for words in facts.doctor),
        *strangers(evidence, known, may_exist),
        *(lost(evidence, known, explained) if facts.all_taken else ()),
        *_twice(evidence, explained),
        *marked_without_reason(evidence, explained),
        *_out_of_place(evidence),
        *out_of_order(evidence, known, explained),
        *unbalanced(facts),
        *repaired(evidence, facts, explained),
        *memory_kept(facts),
    ]
    return Judgement(findings, explained)


def _twice(evidence: Evidence, explained: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Again in the same life as without a store; after a loss, if no acknowledgement of it was on the disk."""
    stored = [_on_disk(evidence, ns) for ns in evidence.losses]
    returned = 0
    for message, found in evidence.deliveries.items():
        deliveries = sorted(found, key=got_at)
        for before, after in itertools.pairwise(deliveries):
            life = _life(evidence, before)
            if life == _life(evidence, after):
                yield from again(message, before, after, evidence)
            elif _is_settled(before):
                returned += 1
                if before.done_ns < stored[life]:
                    yield f"came back, though its acknowledgement was on the disk: {history(message, evidence)}"
    explained["came again after a loss, acknowledged and not on the disk"] = returned, returned


def _is_settled(delivery: Delivery) -> bool:
    return delivery.end in FINAL and delivery.done


def _life(evidence: Evidence, delivery: Delivery) -> int:
    """How many losses there were before a delivery."""
    return bisect.bisect(evidence.losses, delivery.got_ns)


def _on_disk(evidence: Evidence, ns: int) -> int:
    """Up to which time all acknowledgements were on the disk at another time."""
    return max((began for began, done in evidence.waits if done < ns), default=0)


def _out_of_place(evidence: Evidence) -> Iterator[str]:
    """A message keeps its place, also over a loss; a place that a loss has emptied may be used again."""
    places: dict[tuple[str, int, int], int] = {}
    mine: dict[tuple[str, int], list[tuple[int, Delivery]]] = {}
    for message, deliveries in evidence.deliveries.items():
        for one in deliveries:
            other = places.setdefault((one.queue, one.sequence, _life(evidence, one)), message)
            if other != message:
                yield f"two at one place: {history(message, evidence)}; {history(other, evidence)}"
        if len({(one.queue, one.sequence) for one in deliveries}) > 1:
            yield f"not at its place: {history(message, evidence)}"
        mine.setdefault((deliveries[0].queue, producer_of(message)), []).append((message, deliveries[0]))
    for pairs in mine.values():
        for _, message in late(sorted(pairs, key=sequence_of)):
            yield f"out of the order of the puts: {history(message, evidence)}"
