# SPDX-License-Identifier: Apache-2.0
"""What the journals of a run say, put together: each message with its deliveries, and what may be explained by whom."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from tests.chaos import journal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.journal import Line

ACK, REJECT, AUTO = "ack", "reject", "auto"
FINAL = frozenset({ACK, REJECT, AUTO})
DIED, RETURNED = "died", "returned"
DEADLY = frozenset({"kill", "interrupt"})  # of what was under way anything may be true
ENDS = frozenset({"bye", "exec", "interrupted"})
STORE = "store"  # the folder of a broker that has one
NOT_OF_ACTORS = frozenset({"director", "facts.json", STORE})


@dataclasses.dataclass(slots=True)
class Delivery:
    """A message in somebody's hands.

    ``end`` is how it left them, or was about to: "" while it has not; ``began_ns`` is before that, and ``done`` says
    that it is certain, since ``done_ns``. The holder may have had it some time before ``got_ns``, when it wrote that
    down.
    """

    holder: str
    queue: str
    sequence: int
    marked: bool
    got_ns: int
    end: str = ""
    began_ns: int = 0
    done: bool = False
    done_ns: int = 0

    def __str__(self) -> str:
        mark = " again" if self.marked else ""
        end = f"{self.end}{'' if self.done else ' begun'} {self.began_ns}" if self.end else "held"
        return f"{self.queue}[{self.sequence}]{mark} to {self.holder} at {self.got_ns}, {end}"


@dataclasses.dataclass(frozen=True, slots=True)
class Allowance:
    """From some moment on so many messages may look odd, and one reason explains them."""

    ns: int
    most: int


@dataclasses.dataclass
class Evidence:
    """All that was seen."""

    accepted: dict[int, str] = dataclasses.field(default_factory=dict)  # message -> the queue it was put to
    unsure: list[tuple[str, list[int]]] = dataclasses.field(
        default_factory=list
    )  # puts under way at the death of their process
    undecided: list[dict[int, str]] = dataclasses.field(
        default_factory=list
    )  # commits under way at the death of their process
    refused: dict[int, str] = dataclasses.field(default_factory=dict)  # the put came back without them
    deliveries: dict[int, list[Delivery]] = dataclasses.field(default_factory=dict)
    seen_moved: set[int] = dataclasses.field(default_factory=set)
    looked_at: set[str] = dataclasses.field(default_factory=set)  # by the mover, before it moves back what is there
    by_holder: dict[str, list[tuple[int, Delivery]]] = dataclasses.field(default_factory=dict)
    unwritten: list[Allowance] = dataclasses.field(default_factory=list)  # delivered, and in no journal
    unwritten_at: list[tuple[str, Allowance]] = dataclasses.field(
        default_factory=list
    )  # of these, taken by a get, where
    settled_unwritten: int = 0  # upper bound: settled as they were taken, by a process that died then
    moves_cut_short: list[Allowance] = dataclasses.field(default_factory=list)  # it moved, and no process saw it there
    reasons: dict[int, str] = dataclasses.field(default_factory=dict)  # dead messages that were collected: why
    moved: int = 0
    moves_unsure: int = 0
    browsed: int = 0
    passed: list[str] = dataclasses.field(default_factory=list)  # came after a newer one, where messages stay
    timeouts: int = 0
    connects: int = 0
    full: int = 0  # calls for which a broker that is full of messages had no memory
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # the director's acts
    killed: dict[str, int] = dataclasses.field(default_factory=dict)
    settled_ns: list[int] = dataclasses.field(default_factory=list)
    end_ns: int = 0
    losses: list[int] = dataclasses.field(default_factory=list)  # when the memory of a broker with a store was lost
    waits: list[tuple[int, int]] = dataclasses.field(
        default_factory=list
    )  # when a put or a commit that waits for the disk began, and was through
    troubles: list[str] = dataclasses.field(default_factory=list)

    def delivered(self) -> int:
        """How many deliveries were written down."""
        return sum(map(len, self.deliveries.values()))


def gather(folder: Path) -> Evidence:
    """The evidence of the journals in a folder."""
    evidence = Evidence()
    for line in journal.read(folder / "director"):
        if line.event == "end":
            evidence.end_ns = line.ns
        elif line.event == "lost":
            evidence.losses.append(line.ns)
        else:
            evidence.counts[f"{line.event} {line.words[0].partition('-')[0]}"] += 1
            if line.event in DEADLY:
                evidence.killed[line.words[0]] = line.ns
    for path in sorted(folder.iterdir()):
        if path.name not in NOT_OF_ACTORS:
            _Reader(evidence, path.name).read(path)
    return evidence


class _Reader:
    """Reads the journal of one process."""

    def __init__(self, evidence: Evidence, name: str) -> None:
        self._all, self._name = evidence, name
        self._mine: list[tuple[int, Delivery]] = []
        self._held: dict[int, Delivery] = {}
        self._settling: list[Delivery] = []
        self._putting: tuple[str, list[int]] | None = None
        self._committing: dict[int, str] = {}
        self._moving: tuple[int, int] | None = None
        self._waiting_ns = 0  # since it waits for the disk
        self._taking, self._taking_at, self._row, self._auto = 0, "", 0, False

    def read(self, path: Path) -> None:
        last = None
        for line in journal.read(path):
            last = line
            getattr(self, f"_{line.event}")(line)
        if self._mine:
            self._all.by_holder[self._name] = self._mine
        killed_ns = self._all.killed.get(self._name.partition(".")[0])  # no process outlives its parent
        if killed_ns is not None:
            self._died(killed_ns)
        elif last is None or last.event not in ENDS:
            self._all.troubles.append(f"{self._name} ended, and nobody killed it; its last line: {last}")

    def _died(self, ns: int) -> None:
        for delivery in self._held.values():
            delivery.end, delivery.began_ns = DIED, ns
        if self._taking + self._row:
            self._all.unwritten.append(Allowance(ns, self._taking + self._row))
        if self._taking:
            self._all.unwritten_at.append((self._taking_at, Allowance(ns, self._taking)))
        if self._auto:
            self._all.settled_unwritten += self._taking or 1
        if self._putting is not None:
            self._all.unsure.append(self._putting)
        if self._committing:
            self._all.undecided.append(self._committing)
        if self._moving is not None:
            began_ns, most = self._moving
            self._all.moves_unsure += most
            self._all.moves_cut_short.append(Allowance(began_ns, 1))
            self._all.unwritten.append(Allowance(ns, 1))  # what was on its way comes marked
        self._held, self._taking, self._row, self._auto = {}, 0, 0, False
        self._putting, self._committing, self._moving = None, {}, None

    # ---- connections ----

    def _connected(self, _line: Line) -> None:
        self._all.connects += 1

    def _leave(self, line: Line) -> None:
        self._returns(line.ns)

    def _bye(self, _line: Line) -> None:
        pass

    def _exec(self, line: Line) -> None:
        self._died(line.ns)

    def _full(self, line: Line) -> None:
        self._all.full += 1
        self._died(line.ns)

    def _interrupted(self, _line: Line) -> None:
        pass

    def _returns(self, ns: int) -> None:
        for delivery in self._held.values():
            delivery.end, delivery.began_ns = RETURNED, ns
        self._held = {}

    # ---- putting ----

    def _put(self, line: Line) -> None:
        self._waiting_ns = line.ns
        self._putting = line.words[0], [int(word, 16) for word in line.words[1:]]

    def _commit(self, line: Line) -> None:
        self._waiting_ns = line.ns
        pairs = (word.split(":") for word in line.words)
        self._committing = {int(message, 16): queue for queue, message in pairs}

    def _late(self, _line: Line) -> None:
        if self._putting is not None:
            self._all.unsure.append(self._putting)
        self._putting, self._waiting_ns = None, 0

    def _done(self, line: Line) -> None:
        if self._waiting_ns and line.words and int(line.words[0]):
            self._all.waits.append((self._waiting_ns, line.ns))
        self._waiting_ns = 0
        self._all.accepted.update(self._committing)
        self._committing = {}
        if self._putting is not None:
            queue, messages = self._putting
            done = int(line.words[0])
            self._all.accepted.update(dict.fromkeys(messages[:done], queue))
            self._all.refused.update(dict.fromkeys(messages[done:], queue))
            self._putting = None
        for delivery in self._settling:
            delivery.done, delivery.done_ns = True, line.ns
        if self._settling:
            self._all.settled_ns.append(line.ns)
        self._settling = []

    # ---- taking ----

    def _take(self, line: Line) -> None:
        self._taking_at, self._taking, self._auto = line.words[0], int(line.words[1]), line.words[2] == "auto"

    def _open(self, line: Line) -> None:
        self._row, self._auto, self._taking = int(line.words[0]), line.words[1] == "auto", 0

    def _close(self, line: Line) -> None:
        self._all.unwritten.append(Allowance(line.ns, int(line.words[0])))
        self._row, self._auto = 0, False
        self._returns(line.ns)

    def _got(self, line: Line) -> None:
        queue = line.words[0]
        for word in line.words[1:]:
            message, sequence, mark = word.split(":")
            delivery = Delivery(self._name, queue, int(sequence), mark == "1", line.ns)
            known = int(message, 16)
            self._all.deliveries.setdefault(known, []).append(delivery)
            self._mine.append((known, delivery))
            if self._auto:
                delivery.end, delivery.began_ns, delivery.done, delivery.done_ns = AUTO, line.ns, True, line.ns
            else:
                self._held[known] = delivery
        if self._auto:
            self._all.settled_ns.append(line.ns)
        self._taking = 0
        self._auto = self._auto and self._row > 0

    def _settle(self, line: Line) -> None:
        for word in line.words:
            delivery = self._held.pop(int(word, 16))
            delivery.end, delivery.began_ns = line.event, line.ns
            self._settling.append(delivery)

    _ack = _nack = _reject = _settle

    # ---- the others ----

    def _move(self, line: Line) -> None:
        self._moving = line.ns, int(line.words[2])

    def _moved(self, line: Line) -> None:
        assert self._moving is not None
        self._all.moved += int(line.words[0])
        self._moving = None

    def _saw(self, line: Line) -> None:
        self._all.looked_at.add(line.words[0])
        self._all.seen_moved.update(int(word, 16) for word in line.words[1:])

    def _dead(self, line: Line) -> None:
        for word in line.words:
            message, reason = word.split(":")
            self._all.reasons[int(message, 16)] = reason

    def _browsed(self, line: Line) -> None:
        self._all.browsed += int(line.words[0])

    def _passed(self, line: Line) -> None:
        self._all.passed += line.words

    def _timeout(self, _line: Line) -> None:
        self._all.timeouts += 1

    def _torn(self, line: Line) -> None:
        self._all.troubles.append(f"{self._name} found a torn body: {' '.join(line.words)}")

    def _error(self, line: Line) -> None:
        self._all.troubles.append(f"{self._name} failed: {' '.join(line.words)}")
