# SPDX-License-Identifier: Apache-2.0
"""One queue, and a second one to move to, against a plain model of them.

The machine puts, gets, settles, purges, pauses, moves and reconfigures in any order;
after each step counters, listing and length must be those of the model.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from queue import Empty, Full
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scenario_support.observing import counts, texts
from scenario_support.waiting import becomes

if TYPE_CHECKING:
    import shmbroker

FAST = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    derandomize=False,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

UNBOUNDED = -1
SIZES = st.sampled_from([1, 2, 3, 5, 8])
NAMES = itertools.count()


@dataclass(order=True)
class Entry:
    """A message of the model: ordered by its place in the queue."""

    place: int
    body: str = field(compare=False)
    returns: int = field(default=0, compare=False)


@dataclass
class Model:
    """What a queue should be."""

    ring_size: int = UNBOUNDED
    max_length: int = UNBOUNDED
    overflow: str = "block"
    paused: bool = False
    bound: int = 0
    places: int = 0
    ready: list[Entry] = field(default_factory=list)
    held: list[Entry] = field(default_factory=list)
    added: int = 0
    acked: int = 0
    killed: int = 0
    replaced: int = 0
    dropped: int = 0
    moved: int = 0
    redelivered: int = 0

    def full(self) -> bool:
        """Tell whether a put would have to wait."""
        return self.overflow == "block" and self.max_length != UNBOUNDED and len(self.ready) >= self.max_length

    def put(self, body: str, returns: int = 0) -> None:
        """Add at the tail, or drop; then evict. What is moved keeps its history."""
        self.added += 1
        if self.overflow == "drop" and self.max_length != UNBOUNDED and len(self.ready) >= self.max_length:
            self.dropped += 1
            return
        self.ready.append(Entry(self.places, body, returns))
        self.places += 1
        self.evict()

    def take(self) -> Entry:
        """Acquire the oldest."""
        entry = self.ready.pop(0)
        self.held.append(entry)
        self.redelivered += entry.returns > 0
        self.lower()
        return entry

    def give_back(self, entry: Entry) -> None:
        """Return to its place; then evict."""
        self.held.remove(entry)
        entry.returns += 1
        self.ready.append(entry)
        self.ready.sort()
        self.evict()

    def evict(self) -> None:
        """Let go of the oldest pending: of a ring, or for overflow drop-head."""
        while self.ring_size != UNBOUNDED and len(self.ready) > max(self.ring_size, self.bound):
            del self.ready[0]
            self.replaced += 1
        while self.overflow == "drop-head" and self.max_length != UNBOUNDED and len(self.ready) > self.max_length:
            del self.ready[0]
            self.dropped += 1
        self.lower()

    def lower(self) -> None:
        """The bound of a ring that was shrunk falls with what is pending."""
        self.bound = min(self.bound, len(self.ready))

    def resize(self, ring_size: int, *, trim: bool) -> None:
        """Change the ring: lazily, or at once."""
        self.ring_size = ring_size
        self.bound = 0 if trim else len(self.ready)
        self.evict()

    def remove_ready(self, limit: int) -> list[Entry]:
        """Take the oldest away without delivery."""
        gone, self.ready = self.ready[:limit], self.ready[limit:]
        self.lower()
        return gone


class QueueMachine(RuleBasedStateMachine):
    """Does the same to a queue and to its model."""

    connection: shmbroker.Connection

    @initialize(
        kind=st.sampled_from(["plain", "ring", "block", "drop", "drop-head"]),
        size=SIZES,
    )
    def declare(self, kind: str, size: int) -> None:
        """Declare the queue and the one to move to."""
        self.names = [f"model-{next(NAMES)}" for _ in range(2)]
        given: dict[str, object] = {}
        if kind == "ring":
            given = {"ring_size": size}
        elif kind != "plain":
            given = {"max_length": size, "overflow": kind}
        self.queue = self.connection.queue(self.names[0], **given)
        self.other = self.connection.queue(self.names[1])
        self.model = Model(**given)
        self.target = Model()
        self.messages: list[tuple[Entry, shmbroker.Message]] = []
        self.bodies = itertools.count()

    def next_body(self) -> str:
        """Return a body that was not used before."""
        return f"b{next(self.bodies)}"

    @rule()
    def put(self) -> None:
        """Put one, unless the queue is full."""
        body = self.next_body()
        if self.model.full():
            with pytest.raises(Full):
                self.queue.put_nowait(body.encode())
        else:
            self.queue.put(body.encode(), timeout=0)
            self.model.put(body)

    @rule(count=st.integers(1, 12))
    def put_many(self, count: int) -> None:
        """Put several in one call: as many as there is room for."""
        bodies = [self.next_body() for _ in range(count)]
        encoded = [body.encode() for body in bodies]
        if self.model.full():
            with pytest.raises(Full):
                self.queue.put_many(encoded, timeout=0)
            return
        put = 0
        for body in bodies:
            if not self.model.full():
                self.model.put(body)
                put += 1
        assert self.queue.put_many(encoded, timeout=0) == put

    @rule()
    def get(self) -> None:
        """Get one, or find nothing."""
        if self.model.paused or not self.model.ready:
            with pytest.raises(Empty):
                self.queue.get_nowait()
            return
        message = self.queue.get_nowait()
        self.check(self.model.take(), message)

    @rule(count=st.integers(1, 12))
    def get_many(self, count: int) -> None:
        """Get what is there, up to a number."""
        if self.model.paused or not self.model.ready:
            with pytest.raises(Empty):
                self.queue.get_many(count, timeout=0)
            return
        batch = self.queue.get_many(count, timeout=0)
        assert len(batch) == min(count, len(self.model.ready))
        for message in batch:
            self.check(self.model.take(), message)

    def check(self, entry: Entry, message: shmbroker.Message) -> None:
        """Compare what was delivered, and keep it."""
        assert bytes(message).decode() == entry.body
        assert message.redelivered == (entry.returns > 0)
        assert message.delivery_count == entry.returns + 1
        self.messages.append((entry, message))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "reject"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        """Settle any of those held."""
        index = data.draw(st.integers(0, len(self.messages) - 1))
        entry, message = self.messages.pop(index)
        getattr(message, how)()
        if how == "nack":
            self.model.give_back(entry)
            return
        self.model.held.remove(entry)
        if how == "ack":
            self.model.acked += 1
        else:
            self.model.dropped += 1

    @rule()
    def get_with_auto_ack(self) -> None:
        """Get one that is acked at once."""
        if self.model.paused or not self.model.ready:
            with pytest.raises(Empty):
                self.queue.get_nowait(auto_ack=True)
            return
        message = self.queue.get_nowait(auto_ack=True)
        entry = self.model.take()
        assert bytes(message).decode() == entry.body
        self.model.held.remove(entry)
        self.model.acked += 1

    @rule(
        action=st.sampled_from(["purge", "pause", "resume", "resume", "move"]),
        limit=st.none() | st.integers(1, 5),
    )
    def administer(self, action: str, limit: int | None) -> None:
        """Do what empties or stops a queue: one rule, so that it is not too often."""
        if action == "purge":
            gone = self.model.remove_ready(len(self.model.ready))
            self.model.killed += len(gone)
            assert self.queue.purge() == len(gone)
        elif action == "move":
            gone = self.model.remove_ready(limit or len(self.model.ready))
            self.model.moved += len(gone)
            for entry in gone:
                self.target.put(entry.body, entry.returns)
            assert self.queue.move(self.names[1], limit=limit) == len(gone)
        elif action == "pause":
            self.queue.pause()
            self.model.paused = True
        else:
            self.queue.resume()
            self.model.paused = False

    @precondition(lambda self: self.target.ready)
    @rule()
    def get_from_the_other(self) -> None:
        """Get the oldest of those moved."""
        message = self.other.get_nowait(auto_ack=True)
        entry = self.target.take()
        assert bytes(message).decode() == entry.body
        self.target.held.remove(entry)
        self.target.acked += 1

    @rule()
    def put_to_the_other(self) -> None:
        """Put one where others are moved to."""
        body = self.next_body()
        self.other.put(body.encode())
        self.target.put(body)

    @precondition(lambda self: self.model.overflow == "block")
    @rule(size=st.just(UNBOUNDED) | SIZES, trim=st.booleans())
    def resize(self, size: int, *, trim: bool) -> None:
        """Make the ring smaller or wider, or make one, or none."""
        self.queue.configure(ring_size=size, trim=trim)
        self.model.resize(size, trim=trim)

    @invariant()
    def agree(self) -> None:
        """Counters, listing and length are those of the model."""
        for queue, model in ((self.queue, self.model), (self.other, self.target)):
            expected = {
                "message_count": len(model.ready) + len(model.held),
                "ready": len(model.ready),
                "delivering": len(model.held),
                "scheduled": 0,
                "added": model.added,
                "acked": model.acked,
                "expired": 0,
                "killed": model.killed,
                "replaced": model.replaced,
                "dropped": model.dropped,
                "dead_lettered": 0,
                "moved": model.moved,
                "redelivered": model.redelivered,
                "bytes": sum(len(e.body) for e in model.ready + model.held),
            }
            assert counts(queue, expected) == expected
            assert texts(queue.browse()) == [entry.body for entry in model.ready]
            assert len(queue) == len(model.ready)

    def teardown(self) -> None:
        """Delete the queues; everything must be healthy."""
        if hasattr(self, "queue"):
            becomes(self.connection.doctor, [])
            for _, message in self.messages:
                message.nack()
            self.queue.delete()
            self.other.delete()


def test_a_queue_is_its_model(connection: shmbroker.Connection) -> None:
    """Whatever is done to a queue, it does what its model does."""

    class Machine(QueueMachine):
        pass

    Machine.connection = connection
    run_state_machine_as_test(Machine, settings=FAST)
