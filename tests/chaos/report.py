# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.chaos.evidence import ACK, AUTO, FINAL, REJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.director import Facts
    from tests.chaos.evidence import Evidence
    from tests.chaos.oracle import Judgement

SHOWN = 20


def report(evidence: Evidence, facts: Facts, judgement: Judgement) -> str:
    """What happened, what looked odd and was explained, and what the oracle finds wrong."""
    rows = [*_rows(evidence, facts, judgement)]
    width = max(len(what) for what, _ in rows)
    lines = [f"{what:<{width}}  {value}" for what, value in rows]
    lines += [f"  {finding}" for finding in judgement.findings[:SHOWN]]
    if len(judgement.findings) > SHOWN:
        lines.append(f"  ... and {len(judgement.findings) - SHOWN} more")
    return "\n".join(lines)


def _rows(evidence: Evidence, facts: Facts, judgement: Judgement) -> Iterator[tuple[str, str]]:
    deliveries = [one for several in evidence.deliveries.values() for one in several]
    ends = [delivery.end for delivery in deliveries if delivery.end in FINAL and delivery.done]
    yield "messages accepted", f"{len(evidence.accepted):,}"
    yield "  delivered", f"{len(deliveries):,}"
    yield "  acknowledged", f"{ends.count(ACK) + ends.count(AUTO):,}, {ends.count(AUTO):,} of them when they were taken"
    yield "  rejected", f"{ends.count(REJECT):,}"
    yield "  redelivered", f"{sum(delivery.marked for delivery in deliveries):,}"
    yield "  moved", f"{evidence.moved:,}"
    yield "  browsed", f"{evidence.browsed:,}"
    for act in ("kill", "interrupt", "stop"):
        by_kind = {key.partition(" ")[2]: count for key, count in evidence.counts.items() if key.startswith(act)}
        by = ", ".join(f"{kind} {count}" for kind, count in sorted(by_kind.items()))
        yield f"{act}s", f"{sum(by_kind.values()):,} ({by})"
    if facts.losses:
        yield "losses of everything but the disk", f"{facts.losses}, with up to {facts.deepest:,} bytes in the queues"
    if evidence.full:
        yield "calls that found no memory", f"{evidence.full:,}"
    yield "connects", f"{evidence.connects:,}"
    yield "topology changes that timed out", f"{evidence.timeouts:,}"
    yield "connections reaped", f"{facts.reaped:,}"
    pause = f"{_longest_pause(evidence) / 1e9:.3f} s"
    yield "longest pause", f"{pause}; when the machine did not run the director, {facts.longest_sleep:.3f} s"
    yield "rescues", f"{facts.rescues} ({facts.stopped_rescues} for stopped processes)"
    for kind, number in facts.repairs.items():
        yield f"repairs, {kind}", f"{number}, and {facts.explained_repairs[kind]} explained by deaths and stops"
    yield "memory used before and after", f"{facts.memory_before:,} and {facts.memory_after:,} bytes"
    for why, (count, most) in judgement.explained.items():
        yield why, f"{count:,}, at most {most:,}"
    yield "findings", f"{len(judgement.findings)}"


def _longest_pause(evidence: Evidence) -> int:
    moments = sorted(ns for ns in evidence.settled_ns if ns < evidence.end_ns)
    return max((after - before for before, after in itertools.pairwise(moments)), default=0)
