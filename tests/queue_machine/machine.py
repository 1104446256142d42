# SPDX-License-Identifier: Apache-2.0
"""The machine: chooses an operation, has a process carry it out, does the same to the reference, and compares."""

from __future__ import annotations

import itertools
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.queue_machine import choices
from tests.queue_machine.claims import Holder
from tests.queue_machine.reference import Disagreement, Queue, Settings
from tests.queue_machine.world import SELECTORS, Consumer, Handed, World

if TYPE_CHECKING:
    from tests.queue_machine.stage import Stage

WORKERS = 2
QUEUE, OTHER, DEAD, ARCHIVE = "q", "other", "dead", "archive"
NUMBERS = itertools.count(1)
WORKER = st.integers(0, WORKERS - 1)
NAMES = st.sampled_from([QUEUE, QUEUE, QUEUE, OTHER, DEAD])
KIND = st.integers(0, choices.KINDS_OF_MESSAGES - 1)
SELECTOR = st.sampled_from(list(SELECTORS))
ANY = st.integers(0, 2**16)
SECONDS_TO_FLOW = 60.0


def given_by(settings: Settings) -> dict[str, Any]:
    """The settings that are no defaults: what a declaration gives."""
    return {one.name: value for one in fields(settings) if (value := getattr(settings, one.name)) != one.default}


class QueueMachine(RuleBasedStateMachine):
    """Does the same to queues of real processes and to the reference."""

    stage: Stage
    steps = 0

    # ---- the beginning ----

    @initialize(
        limits=st.sampled_from(choices.LIMITS), order=st.sampled_from(choices.ORDERS),
        deaths=st.sampled_from(choices.DEATHS), returns=st.sampled_from(choices.RETURNS),
        dead=st.sampled_from(choices.DEAD), other=st.sampled_from(choices.OTHER),
    )  # fmt: skip
    def declare(self, **chosen: dict[str, Any]) -> None:
        """Declare a queue with a choice of settings, and those to which its messages go."""
        settings = choices.combined(chosen["limits"], chosen["order"], chosen["deaths"], chosen["returns"])
        if settings is None:
            settings = choices.combined(chosen["order"], chosen["deaths"], chosen["returns"])
        assert settings is not None
        dead = Queue(DEAD, Settings(**chosen["dead"]))
        archive = Queue(ARCHIVE, Settings())
        targets = {None: None, "": [dead], "dying": [dead, archive], "nowhere": []}[settings.dead_letter_exchange]
        queue = Queue(QUEUE, settings, targets)
        other = Queue(OTHER, Settings(**chosen["other"]))
        self.world = World([queue, other, dead, archive], WORKERS)
        self.stage.declare({one.name: given_by(one.settings) for one in self.world.queues.values()})
        self.numbers = itertools.count(1)

    def do(self, worker: int, order: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        """Have a process carry out an order."""
        return self.stage.workers[worker].do(order, *arguments, **options)

    # ---- putting ----

    @rule(worker=WORKER, name=NAMES, kind=KIND)
    def put(self, worker: int, name: str, kind: int) -> None:
        """Put a message."""
        put = choices.put_of(next(self.numbers), kind)
        expected = self.world.queues[name].put(put.message)
        self.stage.delays(put.message.delayed)
        same(self.do(worker, "put", name, [put.body], **put.options), expected)

    @rule(worker=WORKER, name=NAMES, kind=KIND, count=st.integers(2, 5))
    def put_many(self, worker: int, name: str, kind: int, count: int) -> None:
        """Put several messages in one call, as far as there is room."""
        puts = [choices.put_of(next(self.numbers), kind) for _ in range(count)]
        queue, done, ended = self.world.queues[name], 0, "put"
        self.stage.delays(puts[0].message.delayed)
        for put in puts:
            # A queue that rejects makes a dead message only of the one that the call raises for.
            if done and queue.settings.overflow.startswith("reject") and not queue.fits(put.message):
                break
            ended = queue.put(put.message)
            if ended != "put":
                break
            done += 1
        same(self.do(worker, "put", name, [put.body for put in puts], **puts[0].options), done or ended)

    # ---- getting ----

    @rule(worker=WORKER, name=NAMES, count=st.integers(1, 3), auto_ack=st.booleans())
    def get(self, worker: int, name: str, count: int, *, auto_ack: bool) -> None:
        """Get messages, and settle them with the get or later."""
        received = self.do(worker, "get", name, count, auto_ack=auto_ack)
        self.world.got(self.world.queues[name], worker, received, count, auto_ack=auto_ack)

    @precondition(lambda self: len(self.world.consumers) < 4)
    @rule(
        worker=WORKER, name=NAMES, prefetch=st.sampled_from([1, 2, 3, 10]), priority=st.integers(0, 1),
        selector=SELECTOR, awake=st.booleans(),
    )  # fmt: skip
    def consume(self, worker: int, name: str, prefetch: int, priority: int, selector: str | None, *, awake: bool) -> None:
        """Open a consumer."""
        queue, number = self.world.queues[name], next(NUMBERS)
        chosen = selector if queue.claims.kind == "none" else None
        awake = awake and not queue.settings.is_limited()  # else a put would race with it for the room
        received = self.do(
            worker, "consume", number, name, prefetch=prefetch, priority=priority, selector=chosen, awake=awake
        )
        same(received is not None, self.world.may_consume(queue))
        if received is not None:
            holder = Holder(f"consumer {number}", worker, is_consumer=True)
            consumer = Consumer(number, holder, queue, prefetch, priority, chosen, awake)
            self.world.consumer_came(consumer)
            if not awake:
                self.world.pulled(consumer, received)

    @rule(worker=WORKER, name=NAMES, ends=st.booleans())
    def claim(self, worker: int, name: str, *, ends: bool) -> None:
        """Be the only consumer of a queue, or end that."""
        queue = self.world.queues[name]
        if ends:
            self.do(worker, "unclaim")
            self.world.exclusive.pop(worker, None)
        elif worker not in self.world.exclusive and choices.admits_claims(queue.settings):
            allowed = self.world.may_consume(queue, alone=True)
            same(self.do(worker, "claim", name), allowed)
            if allowed:
                self.world.exclusive[worker] = queue

    def a_consumer(self, which: int) -> Consumer:
        """One of the consumers."""
        consumers = list(self.world.consumers.values())
        return consumers[which % len(consumers)]

    @precondition(lambda self: self.world.consumers)
    @rule(which=ANY)
    def pull(self, which: int) -> None:
        """A consumer takes what it may have."""
        consumer = self.a_consumer(which)
        if not consumer.awake:
            self.world.pulled(consumer, self.do(consumer.holder.worker, "pull", consumer.number))

    @precondition(lambda self: self.world.consumers)
    @rule(which=ANY, everything=st.booleans())
    def end_consumer(self, which: int, *, everything: bool) -> None:
        """A consumer ends, and keeps or returns what it has."""
        consumer = self.a_consumer(which)
        self.do(consumer.holder.worker, "close" if everything else "cancel", consumer.number)
        self.world.consumer_ended(consumer, everything=everything)

    # ---- settling ----

    def some_of(self, worker: int, which: int, *, by_channel: bool) -> list[Handed]:
        """Up to three messages that a process has and may settle."""
        held = [
            one
            for one in self.world.handed_by(worker, by_channel=by_channel)
            if one.consumer is None or one.number not in one.consumer.row
        ]
        return held[which % len(held) :][: 1 + which % 3] if held else []

    @precondition(lambda self: self.world.handed)
    @rule(worker=WORKER, which=ANY, how=st.sampled_from(["ack", "ack", "nack", "nack", "reject", "give_back"]))
    def settle(self, worker: int, which: int, how: str) -> None:
        """Settle messages."""
        some = self.some_of(worker, which, by_channel=False)
        self.stage.delays(how == "nack")
        self.do(worker, "settle", [one.number for one in some], how)
        for one in some:
            self.world.settle(one, how)

    # ---- channels ----

    @rule(worker=WORKER, name=NAMES)
    def channel_get(self, worker: int, name: str) -> None:
        """Get a message over a channel."""
        received = self.do(worker, "channel_get", name)
        self.world.got(self.world.queues[name], worker, received, 1, by_channel=True)

    @rule(
        worker=WORKER, kinds=st.lists(st.tuples(NAMES, KIND), max_size=3), which=ANY,
        how=st.sampled_from(["ack", "nack", "reject"]), commits=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def transact(self, worker: int, kinds: list[tuple[str, int]], which: int, how: str, *, commits: bool) -> None:
        """Publish and settle in one transaction: all of it happens, or nothing."""
        puts = [(name, choices.put_of(next(self.numbers), kind)) for name, kind in kinds]
        for _, put in puts:
            put.message.delayed = False
        some = self.some_of(worker, which, by_channel=True)
        outcome = self.do(
            worker, "transact", [(f":{name}", put.body, put.properties) for name, put in puts],
            [(one.number, how) for one in some], commits=commits,
        )  # fmt: skip
        self.stage.delays(commits and how == "nack")
        expected, admitted = self.world.admit([(self.world.queues[name], put.message) for name, put in puts])
        same(outcome, expected if commits else "done")
        if outcome == "rejected":
            self.stage.delays(happens=True)
            self.world.channel_closed(worker)
        elif commits and outcome == "done":
            self.world.publish(admitted)
            for one in some:
                self.world.settle(one, how)

    @rule(worker=WORKER)
    def close_channel(self, worker: int) -> None:
        """Close the channel of a process."""
        self.stage.delays(happens=True)
        self.do(worker, "close_channel")
        self.world.channel_closed(worker)

    # ---- administration ----

    @rule(worker=WORKER, name=NAMES, selector=SELECTOR, action=st.sampled_from(["purge", "count", "count", "move", "move"]),
          to=st.sampled_from([QUEUE, OTHER]), limit=st.none() | st.integers(1, 4))  # fmt: skip
    def select(self, worker: int, name: str, selector: str | None, action: str, to: str, limit: int | None) -> None:
        """Count, purge or move what a selector selects."""
        queue, wants = self.world.queues[name], SELECTORS[selector]
        if action == "count":
            same(self.do(worker, "count", name, selector), sum(map(wants, queue.ready)))
        elif action == "purge":
            same(self.do(worker, "purge", name, selector), queue.purge(wants))
        elif to != name:
            target, wanted = self.world.queues[to], [message for message in queue.ready if wants(message)][:limit]
            moved = queue.move(target, wants, limit)
            stopped = wanted[moved] if moved < len(wanted) else None
            raises = stopped is not None and target.never_fits(stopped) and target.settings.overflow in {"block", "drop"}
            same(self.do(worker, "move", name, to, selector, limit), "never fits" if raises else moved)

    @rule(worker=WORKER, name=NAMES, paused=st.sampled_from([True, False, False]))
    def pause(self, worker: int, name: str, *, paused: bool) -> None:
        """Pause a queue, or resume it."""
        self.do(worker, "pause", name, paused=paused)
        self.world.queues[name].paused = paused

    @rule(worker=WORKER, changes=st.sampled_from(choices.CHANGES), trim=st.booleans())
    def configure(self, worker: int, changes: dict[str, Any], *, trim: bool) -> None:
        """Change a setting of the queue while it is in use."""
        queue = self.world.queues[QUEUE]
        changed = replace(queue.settings, **changes)
        wakes = any(one.awake and one.queue is queue for one in self.world.consumers.values())
        if choices.checked(changed) is not None and not (wakes and changed.is_limited()):
            # A limit of bytes that became smaller is enforced by a later put.
            trim = trim or (changed.overflow == "drop-head" and changed.max_bytes != -1)
            self.do(worker, "configure", QUEUE, trim=trim, changes=changes)
            queue.configure(trim=trim, **changes)

    # ---- processes ----

    @rule(worker=WORKER, how=st.sampled_from(["kill", "leave"]), really=st.integers(0, 3))
    def end_process(self, worker: int, how: str, really: int) -> None:
        """Kill a process, or close its connection; every fourth time."""
        if really != 3:
            return
        if how == "kill":
            self.stage.kill(worker)
            self.world.killed(worker)
        else:
            self.stage.delays(happens=True)
            self.do(worker, "leave")
            self.world.left(worker)

    @rule(really=st.integers(0, 3))
    def time_passes(self, really: int) -> None:
        """What is delayed becomes ready; every fourth time, since it takes as long as a delay."""
        if really == 3 and self.stage.has_delays:
            self.let_become_due()

    def let_become_due(self) -> None:
        """All delays are over."""
        self.stage.let_become_due()
        for queue in self.world.queues.values():
            queue.become_due()

    # ---- what is seen ----

    @invariant()
    def agree(self) -> None:
        """Statistics, listing and consumers are those of the reference."""
        if not hasattr(self, "world"):
            return
        type(self).steps += 1
        if not self.stage.keep_house():
            self.let_become_due()
        self.world.keep_house()
        self.let_flow()
        for queue in self.world.queues.values():
            expected = queue.statistics()
            seen = self.stage.statistics(queue.name)
            found = {name: getattr(seen, name) for name in expected}
            same(found, expected, queue.name)
            listed = [bytes(message).decode().rstrip(".") for message in self.stage.queues[queue.name].browse()]
            same(listed, [message.body for message in queue.ready], queue.name)

    def let_flow(self) -> None:
        """Wait until consumers that are awake have got what they must get."""
        until = time.monotonic() + SECONDS_TO_FLOW
        awake = [one for one in self.world.consumers.values() if one.awake]
        while awake:
            self.world.flowed(
                [(one, got) for one in awake for got in self.do(one.holder.worker, "take", one.number)]
            )
            if self.world.is_quiet():
                break
            if time.monotonic() > until:
                text = f"messages stay that consumers want: {[(one.number, one.queue.name) for one in awake]}"
                raise Disagreement(text)

    def teardown(self) -> None:
        """Consumers end, and everything is deleted; the doctor finds nothing."""
        if hasattr(self, "world"):
            self.stage.clear()


def same(found: object, expected: object, where: str = "") -> None:
    """Raise what tells both, unless they are the same."""
    if found != expected:
        text = f"{where} has {found}; expected: {expected}"
        raise Disagreement(text)
