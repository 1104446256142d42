# SPDX-License-Identifier: Apache-2.0
"""The oracle: what the evidence says against what was promised (see docs/explanation/crash-recovery.md).

A process that dies may have had in hand what it had not written down. So some oddities have an explanation, and each
explanation is good for as many messages as that process could have had in hand, from its death on; not for more.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from tests.chaos.content import producer_of
from tests.chaos.director import LIST_OF_WAITERS
from tests.chaos.evidence import FINAL, REJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.chaos.director import Facts
    from tests.chaos.evidence import Allowance, Delivery, Evidence

GONE = ("acked", "expired", "killed", "replaced", "dropped", "dead_lettered", "moved", "message_count")
NEVER = ("expired", "killed", "replaced", "dead_lettered", "message_count", "consumers", "interested", "notified")


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What the oracle finds wrong, and how much of what looks odd was explained: (this many, of at most so many)."""

    findings: list[str]
    explained: dict[str, tuple[int, int]]


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
        *itertools.chain.from_iterable(twice(message, evidence) for message in evidence.deliveries),
        *marked_without_reason(evidence, explained),
        *_out_of_place(evidence, known, explained),
        *out_of_order(evidence, known, explained),
        *_miscounted(evidence, facts, known, may_exist),
        *repaired(evidence, facts, explained),
        *memory_kept(facts),
    ]
    return Judgement(findings, explained)


def existing(evidence: Evidence) -> tuple[dict[int, str], dict[int, str]]:
    """The messages that are known to have been put, and those that may have been, with their queues.

    Of a put that was cut short a beginning is there: whatever comes before one that was seen. A commit that was cut
    short is there as a whole, if anything of it was seen. If the memory was lost, what was seen before may be gone.
    """
    since = evidence.losses[-1] if evidence.losses else 0
    seen = {message for message, found in evidence.deliveries.items() if any(one.got_ns > since for one in found)}
    known, may_exist = dict(evidence.accepted), {}
    for queue, messages in evidence.unsure:
        there = max((at + 1 for at, message in enumerate(messages) if message in seen), default=0)
        known.update(dict.fromkeys(messages[:there], queue))
        may_exist.update(dict.fromkeys(messages[there:], queue))
    for commit in evidence.undecided:
        there = any(message in seen for message in commit)
        (known if there else may_exist).update(commit)
    return known, may_exist


def strangers(evidence: Evidence, known: dict[int, str], may_exist: dict[int, str]) -> Iterator[str]:
    """Messages that came, and that no process put."""
    for message in evidence.deliveries:
        if message not in known and message not in may_exist:
            why = "its put was refused" if message in evidence.refused else "nobody put it"
            yield f"delivered, though {why}: {history(message, evidence)}"


def lost(evidence: Evidence, known: dict[int, str], explained: dict[str, tuple[int, int]]) -> list[str]:
    """Every message was settled in the end: what was left, the director took."""
    missing = []
    for message in known:
        deliveries = evidence.deliveries.get(message, ())
        last = max(deliveries, key=got_at, default=None)
        begun = last is not None and last.end in FINAL  # the ack may have happened before its caller died
        if not begun and not any(delivery.end in FINAL and delivery.done for delivery in deliveries):
            missing.append(message)
    explained["gone with a process that settles as it takes"] = len(missing), evidence.settled_unwritten
    if len(missing) <= evidence.settled_unwritten:
        return []
    return [f"lost: {history(message, evidence)}" for message in missing]


def twice(message: int, evidence: Evidence) -> Iterator[str]:
    """One holder after the other, nobody after it was settled, and a mark each time but the first."""
    deliveries = sorted(evidence.deliveries[message], key=got_at)
    if sum(delivery.end in FINAL and delivery.done for delivery in deliveries) > 1:
        yield f"settled twice: {history(message, evidence)}"
    for before, after in itertools.pairwise(deliveries):
        yield from again(message, before, after, evidence)


def again(message: int, before: Delivery, after: Delivery, evidence: Evidence) -> Iterator[str]:
    """What is wrong with a delivery that follows another one."""
    if before.end in FINAL and before.done:
        yield f"delivered after it was settled: {history(message, evidence)}"
    elif not before.end or before.began_ns > after.got_ns:
        yield f"delivered while somebody else had it: {history(message, evidence)}"
    if not after.marked:
        yield f"delivered again without a mark: {history(message, evidence)}"


def marked_without_reason(evidence: Evidence, explained: dict[str, tuple[int, int]]) -> list[str]:
    """Marked at the first delivery that is known: somebody had it before who died or returned it unwritten."""
    marked = []
    for message, deliveries in evidence.deliveries.items():
        first = min(deliveries, key=got_at)
        if first.marked:
            marked.append((first.got_ns, message))
    return [
        f"marked as delivered before, and it was not: {history(message, evidence)}"
        for message in _unexplained(marked, evidence.unwritten, "marked by one who did not write it down", explained)
    ]


def _out_of_place(evidence: Evidence, known: dict[int, str], explained: dict[str, tuple[int, int]]) -> list[str]:
    """A message keeps its place; nobody else gets it; and a producer's messages lie in the order they were put."""
    findings: list[str] = []
    odd: list[tuple[int, int]] = []
    places: dict[tuple[str, int], int] = {}
    mine: dict[tuple[str, int], list[tuple[int, Delivery]]] = {}
    for message, deliveries in evidence.deliveries.items():
        for delivery in deliveries:
            other = places.setdefault((delivery.queue, delivery.sequence), message)
            if other != message:
                findings.append(f"two at one place: {history(message, evidence)}; {history(other, evidence)}")
        if not _moved(message, evidence, known):
            if len({delivery.sequence for delivery in deliveries}) > 1:
                odd.append((deliveries[-1].got_ns, message))
            key = deliveries[0].queue, producer_of(message)
            mine.setdefault(key, []).append((message, deliveries[0]))
    for pairs in mine.values():
        odd += late(sorted(pairs, key=sequence_of))
    taken = [allowance for queue, allowance in evidence.unwritten_at if queue in evidence.looked_at]
    unexplained = _unexplained(
        odd, evidence.moves_cut_short + taken, "moved and not seen, since somebody died", explained
    )
    return findings + [f"not at its place: {history(message, evidence)}" for message in unexplained]


def out_of_order(evidence: Evidence, known: dict[int, str], explained: dict[str, tuple[int, int]]) -> list[str]:
    """Each holder sees the messages of a producer in order, as far as they were neither moved nor delivered before."""
    odd: list[tuple[int, int]] = []
    for pairs in evidence.by_holder.values():
        mine: dict[tuple[str, int], list[tuple[int, Delivery]]] = {}
        for message, delivery in pairs:
            if not delivery.marked and not _moved(message, evidence, known):
                mine.setdefault((delivery.queue, producer_of(message)), []).append((message, delivery))
        for came in mine.values():
            odd += late(came)
    late_ones = _unexplained(odd, evidence.moves_cut_short, "overtaken while a mover had it in hand", explained)
    return [f"out of order: {history(message, evidence)}" for message in late_ones]


def _miscounted(evidence: Evidence, facts: Facts, known: dict[int, str], may_exist: dict[int, str]) -> Iterator[str]:
    """Counters are exact after a kill, as far as journals can tell."""
    yield from unbalanced(facts)
    if not facts.queues:
        return
    total = {counter: sum(found[counter] for found in facts.queues.values()) for counter in ("added", *GONE)}
    total["redelivered"] = sum(found["redelivered"] for found in facts.queues.values())
    ends = [delivery for deliveries in evidence.deliveries.values() for delivery in deliveries if delivery.end in FINAL]
    unwritten = evidence.settled_unwritten
    rejected = [delivery.done for delivery in ends if delivery.end == REJECT]
    acked = [delivery.done for delivery in ends if delivery.end != REJECT]
    marked = sum(delivery.marked for deliveries in evidence.deliveries.values() for delivery in deliveries)
    unseen = min(unwritten, len(may_exist))
    for what, found_in_all, least, most in (
        ("acked", total["acked"], sum(acked), len(acked) + unwritten),
        ("dropped", total["dropped"], sum(rejected), len(rejected)),
        ("moved", total["moved"], evidence.moved, evidence.moved + evidence.moves_unsure),
        ("put", total["added"] - total["moved"], len(known), len(known) + unseen),
        ("redelivered", total["redelivered"], marked, marked + sum(one.most for one in evidence.unwritten)),
    ):
        if not least <= found_in_all <= most:
            yield f"statistics: {found_in_all} messages {what}; the journals say {least} to {most}"


def unbalanced(facts: Facts) -> Iterator[str]:
    """Counters that contradict each other, or count what never happens."""
    for name, found in facts.queues.items():
        if found["added"] != sum(found[counter] for counter in GONE):
            yield f"statistics of {name} do not add up: {found}"
        yield from (f"statistics of {name}: {found[counter]} {counter}" for counter in NEVER if found[counter])


def memory_kept(facts: Facts) -> Iterator[str]:
    """The memory is as before, when the queues are gone."""
    if facts.queues and facts.memory_kept > LIST_OF_WAITERS:
        yield f"memory: {facts.memory_before} bytes used before, {facts.memory_after} after"


def repaired(evidence: Evidence, facts: Facts, explained: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Upkeep hides nothing that a death or a stop does not explain.

    The broker itself tells the repairs apart by what it sees of the processes. A rescue of one that was stopped, and
    that went on and fell asleep just before it was looked at, it cannot tell: there is at most one for each stop.
    """
    stops = sum(count for act, count in evidence.counts.items() if act.startswith("stop"))
    explained["rescues of those who went on"] = min(facts.rescues, stops), stops
    if facts.rescues > stops:
        yield f"{facts.rescues} rescues, and {stops} stops"
    yield from (f"repairs that nothing explains: {number} {kind}" for kind, number in facts.repairs.items() if number)


# ---- tools ----


def got_at(delivery: Delivery) -> int:
    """When its holder wrote down that it has it."""
    return delivery.got_ns


def sequence_of(pair: tuple[int, Delivery]) -> int:
    """The place of a message in its queue."""
    return pair[1].sequence


def late(pairs: Iterable[tuple[int, Delivery]]) -> Iterator[tuple[int, int]]:
    """When and which messages came after one that was put after them."""
    highest = -1
    for message, delivery in pairs:
        if message < highest:
            yield delivery.got_ns, message
        highest = max(highest, message)


def _moved(message: int, evidence: Evidence, known: dict[int, str]) -> bool:
    """Is it known to have been in another queue than the one it was put to?"""
    home = known.get(message)
    return message in evidence.seen_moved or any(one.queue != home for one in evidence.deliveries[message])


def _unexplained(
    odd: Iterable[tuple[int, int]], allowances: Sequence[Allowance], why: str, explained: dict[str, tuple[int, int]]
) -> list[int]:
    """The odd messages for which no allowance is left that began before they came."""
    events = sorted(
        [(ns, 1, message) for ns, message in odd] + [(allowance.ns, 0, allowance.most) for allowance in allowances]
    )
    left, unexplained, count = 0, [], 0
    for _, is_odd, value in events:
        if not is_odd:
            left += value
        elif left > 0:
            left, count = left - 1, count + 1
        else:
            unexplained.append(value)
    explained[why] = count, count + left
    return unexplained


def history(message: int, evidence: Evidence) -> str:
    """All that is known of a message."""
    came = "; ".join(map(str, sorted(evidence.deliveries.get(message, ()), key=got_at)))
    put = "put" if message in evidence.accepted else "not known to be put"
    return f"message {message:x} ({put}) {came or 'never delivered'}"
