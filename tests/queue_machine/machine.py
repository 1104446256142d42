# SPDX-License-Identifier: Apache-2.0
"""The machine: chooses an operation, has a process carry it out, does the same to the reference, and compares."""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.queue_machine import choices
from tests.queue_machine.claims import Holder
from tests.queue_machine.reference import Disagreement, Queue, Settings
from tests.queue_machine.world import SELECTORS, Consumer, Handed, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    import shmbroker
    from tests.queue_machine.stage import Stage

WORKERS = 2
QUEUE, OTHER, DEAD, ARCHIVE = "q", "other", "dead", "archive"
NUMBERS = itertools.count(1)
WORKER = range(WORKERS)
NAMES = (QUEUE, QUEUE, QUEUE, QUEUE, OTHER, DEAD)
KIND = range(choices.KINDS_OF_MESSAGES)
ANY = range(2**8)
ACTIONS = ("pause", "resume", "resume", "claim", "kill", "kill", "leave", "close_channel", "wait")
BOTH = (False, True)
PARTS = ("values", "order", "deaths", "limits", "returns", "remembered", "attaching")  # some need earlier ones
SECONDS_TO_FLOW = 60.0
MOST_CONSUMERS = 4
OPERATIONS: tuple[tuple[str, int, dict[str, Sequence[Any]]], ...] = (  # how often each, and with what
    ("put", 4, {"worker": WORKER, "name": NAMES, "kind": KIND}),
    ("put_many", 2, {"worker": WORKER, "name": NAMES, "kind": KIND, "count": range(2, 6)}),
    ("get", 2, {"worker": WORKER, "name": NAMES, "count": range(1, 4), "auto_ack": (False, False, False, True)}),
    ("consume", 2, {"worker": WORKER, "name": NAMES, "prefetch": (1, 2, 3, 10), "priority": (0, 1),
                    "selector": (*SELECTORS,), "awake": BOTH}),
    ("pull", 3, {"which": ANY}),
    ("end_consumer", 1, {"which": ANY, "everything": BOTH}),
    ("settle", 5, {"worker": WORKER, "which": ANY,
                   "how": ("ack", "ack", "nack", "nack", "nack", "reject", "give_back")}),
    ("channel_get", 1, {"worker": WORKER, "name": NAMES}),
    ("transact", 2, {"worker": WORKER, "count": range(4), "names": (*itertools.product(NAMES, repeat=3),),
                     "kind": KIND, "kind_2": KIND, "kind_3": KIND, "which": ANY, "how": ("ack", "nack", "reject"),
                     "commits": (True, True, False)}),
    ("select", 2, {"worker": WORKER, "name": NAMES, "selector": (*SELECTORS,),
                   "action": ("purge", "count", "move", "move"), "limit": (None, 1, 2, 3, 4)}),
    ("configure", 1, {"worker": WORKER, "changes": choices.CHANGES, "trim": BOTH}),
    ("do_rarely", 2, {"worker": WORKER, "name": NAMES, "action": ACTIONS}),
)  # fmt: skip
DIGIT = st.integers(0, 2**24 - 1)  # Hypothesis prefers small numbers out of a larger range
OPERATION = st.tuples(st.sampled_from([one for one in OPERATIONS for _ in range(one[1])]), DIGIT, DIGIT, DIGIT)


def chosen(options: dict[str, Sequence[Any]], *digits: int) -> dict[str, Any]:
    """One of each of the options. Hypothesis draws numbers much faster than it draws from many strategies."""
    number = functools.reduce(lambda number, digit: number * 2**24 + digit, reversed(digits))
    found = {}
    for name, values in options.items():
        number, at = divmod(number, len(values))
        found[name] = values[at]
    return found


def given_by(settings: Settings) -> dict[str, Any]:
    """The settings that are no defaults: what a declaration gives."""
    return {one.name: value for one in fields(settings) if (value := getattr(settings, one.name)) != one.default}


class QueueMachine(RuleBasedStateMachine):
    """Does the same to queues of real processes and to the reference."""

    stage: Stage
    steps = slow_runs = 0
    is_over = False  # the computer was too slow to know whether a delay was over when the housekeeper looked

    # ---- the beginning ----

    @initialize(
        values=st.sampled_from(choices.VALUES), order=st.sampled_from(choices.ORDERS),
        deaths=st.sampled_from(choices.DEATHS), limits=st.sampled_from(choices.LIMITS),
        returns=st.sampled_from(choices.RETURNS), remembered=st.sampled_from(choices.REMEMBERED),
        attaching=st.sampled_from(choices.ATTACHING),
        dead=st.sampled_from(choices.DEAD), other=st.sampled_from(choices.OTHER),
    )  # fmt: skip
    def declare(self, dead: dict[str, Any], other: dict[str, Any], **parts: dict[str, Any]) -> None:
        """Declare a queue with a choice of settings, and those to which its messages go."""
        settings = choices.combined(*(parts[name] for name in PARTS))
        self.declare_all(settings, Settings(**dead), Settings(**other))

    def declare_all(self, settings: Settings, of_dead: Settings, of_other: Settings) -> None:
        """Declare queues with these settings."""
        dead = Queue(DEAD, of_dead)
        archive = Queue(ARCHIVE, Settings())
        targets = {None: None, "": [dead], "dying": [dead, archive], "nowhere": []}[settings.dead_letter_exchange]
        queue = Queue(QUEUE, settings, targets)
        other = Queue(OTHER, of_other)
        self.world = World([queue, other, dead, archive], WORKERS)
        self.stage.declare({one.name: given_by(one.settings) for one in self.world.queues.values()})
        self.numbers = itertools.count(1)

    @rule(operation=OPERATION)
    def step(self, operation: tuple[tuple[str, int, dict[str, Sequence[Any]]], int, int, int]) -> None:
        """Do one thing. One rule for all, since Hypothesis leaves rules out of runs, and too little would happen."""
        (name, _, options), *digits = operation
        if not self.is_over:
            getattr(self, name)(**chosen(options, *digits))

    def do(self, worker: int, order: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        """Have a process carry out an order."""
        return self.stage.workers[worker].do(order, *arguments, **options)

    # ---- putting ----

    def put_of(self, name: str, kind: int) -> choices.Put:
        """A message for a queue. Where a consumer waits, it has no life of 0: it might come, or not."""
        return choices.put_of(next(self.numbers), kind, lasts=self.world.wakes(self.world.queues[name]))

    def put(self, worker: int, name: str, kind: int) -> None:
        """Put a message."""
        put = self.put_of(name, kind)
        expected = self.world.queues[name].put(put.message)
        self.stage.delays(put.message.delayed)
        same(self.do(worker, "put", name, [put.body], **put.options), expected)

    def put_many(self, worker: int, name: str, kind: int, count: int) -> None:
        """Put several messages in one call, as far as there is room."""
        puts = [self.put_of(name, kind) for _ in range(count)]
        queue, done, ended = self.world.queues[name], 0, "put"
        self.stage.delays(puts[0].message.delayed)
        for put in puts:
            # A queue that rejects makes a dead message only of the one that the call raises for.
            rejects = queue.settings.overflow.startswith("reject")
            if done and rejects and not queue.knows(put.message) and not queue.has_room(put.message):
                break
            ended = queue.put(put.message)
            if ended != "put":
                break
            done += 1
        same(self.do(worker, "put", name, [put.body for put in puts], **puts[0].options), done or ended)

    # ---- getting ----

    def get(self, worker: int, name: str, count: int, *, auto_ack: bool) -> None:
        """Get messages, and settle them with the get or later."""
        received = self.do(worker, "get", name, count, auto_ack=auto_ack)
        self.world.got(self.world.queues[name], worker, received, count, auto_ack=auto_ack)

    def consume(
        self, worker: int, name: str, prefetch: int, priority: int, selector: str | None, *, awake: bool
    ) -> None:
        """Open a consumer, if there are not many."""
        if len(self.world.consumers) >= MOST_CONSUMERS:
            return
        queue, number = self.world.queues[name], next(NUMBERS)
        chosen = selector if queue.claims.kind == "none" else None
        # Else a put would race with it for a message, for room, or for its life.
        awake = awake and not queue.settings.replaces() and queue.settings.message_ttl != 0
        # One that opens the gate would race with those that wait at it.
        awake = awake or (queue not in self.world.open and any(one.awake for one in self.world.consumers_at(queue)))
        received = self.do(
            worker, "consume", number, name, prefetch=prefetch, priority=priority, selector=chosen, awake=awake,
        )  # fmt: skip
        same(received is not None, self.world.may_consume(queue))
        if received is not None:
            holder = Holder(f"consumer {number}", worker, is_consumer=True)
            consumer = Consumer(number, holder, queue, prefetch, priority, chosen, awake)
            self.world.consumer_came(consumer)
            if not awake:
                self.world.pulled(consumer, received)

    def claim(self, worker: int, name: str) -> None:
        """Be the only consumer of a queue, or end that."""
        queue = self.world.queues[name]
        if worker in self.world.exclusive:
            self.do(worker, "unclaim")
            self.world.unclaimed(worker)
        elif choices.admits_claims(queue.settings) and queue.settings.message_ttl != 0:
            allowed = self.world.may_consume(queue, alone=True)
            same(self.do(worker, "claim", name), allowed)
            if allowed:
                self.world.claimed(worker, queue)

    def a_consumer(self, which: int) -> Consumer | None:
        """One of the consumers; `None`: there is none."""
        consumers = list(self.world.consumers.values())
        return consumers[which % len(consumers)] if consumers else None

    def pull(self, which: int) -> None:
        """A consumer takes what it may have."""
        consumer = self.a_consumer(which)
        if consumer is not None and not consumer.awake:
            self.world.pulled(consumer, self.do(consumer.holder.worker, "pull", consumer.number))

    def end_consumer(self, which: int, *, everything: bool) -> None:
        """A consumer ends, and keeps or returns what it has."""
        consumer = self.a_consumer(which)
        if consumer is not None:
            self.do(consumer.holder.worker, "close" if everything else "cancel", consumer.number)
            self.world.consumer_ended(consumer, everything=everything)

    # ---- settling ----

    def some_of(self, held: list[Handed], which: int) -> list[Handed]:
        """Up to three of the messages that a process may settle."""
        handed = [one for one in held if one.consumer is None or one.number not in one.consumer.row]
        return handed[which % len(handed) :][: 1 + which % 3] if handed else []

    def settle(self, worker: int, which: int, how: str) -> None:
        """Settle messages."""
        if not any(not one.by_channel for one in self.world.handed):
            return
        if not self.world.handed_by(worker, by_channel=False):
            worker = (worker + 1) % WORKERS
        some = self.some_of(self.world.handed_by(worker, by_channel=False), which)
        self.stage.delays(how == "nack")
        self.do(worker, "settle", [one.number for one in some], how)
        for one in some:
            self.world.settle(one, how)

    # ---- channels ----

    def channel_get(self, worker: int, name: str) -> None:
        """Get a message over a channel."""
        received = self.do(worker, "channel_get", name)
        self.world.got(self.world.queues[name], worker, received, 1, by_channel=True)

    def transact(
        self, worker: int, *, count: int, names: tuple[str, ...], which: int, how: str, commits: bool, **kinds: int
    ) -> None:
        """Publish and settle in one transaction: all of it happens, or nothing."""
        given = zip(names[:count], kinds.values(), strict=False)
        puts = [(name, self.put_of(name, kind)) for name, kind in given]
        for _, put in puts:
            put.message.delayed = False
        some = self.some_of(self.world.handed_by(worker, by_channel=True), which)
        self.stage.delays(happens=True)  # of what is returned, or of all that the channel has, if a queue rejects
        outcome = self.do(
            worker, "transact", [(f":{name}", put.body, put.properties) for name, put in puts],
            [(one.number, how) for one in some], commits=commits,
        )  # fmt: skip
        expected, admitted = self.world.admit([(self.world.queues[name], put.message) for name, put in puts])
        same(outcome, expected if commits else "done")
        if outcome == "rejected":
            self.world.channel_closed(worker)
        elif commits and outcome == "done":
            self.world.publish(admitted)
            for one in some:
                self.world.settle(one, how)

    def close_channel(self, worker: int) -> None:
        """Close the channel of a process."""
        self.stage.delays(happens=True)
        self.do(worker, "close_channel")
        self.world.channel_closed(worker)

    # ---- administration ----

    def select(self, worker: int, name: str, selector: str | None, *, action: str, limit: int | None) -> None:
        """Count, purge or move what a selector selects."""
        queue, wants = self.world.queues[name], SELECTORS[selector]
        if action == "count":
            same(self.do(worker, "count", name, selector), sum(map(wants, queue.ready)))
        elif action == "purge":
            same(self.do(worker, "purge", name, selector), queue.purge(wants))
        else:
            to = OTHER if name == QUEUE else QUEUE
            target, wanted = self.world.queues[to], [message for message in queue.ready if wants(message)][:limit]
            moved = queue.move(target, wants, limit)
            stopped = wanted[moved] if moved < len(wanted) else None
            raises = (
                stopped is not None and target.never_fits(stopped) and target.settings.overflow in {"block", "drop"}
            )
            same(self.do(worker, "move", name, to, selector, limit), "never fits" if raises else moved)

    def pause(self, worker: int, name: str) -> None:
        """Pause a queue, or resume it."""
        paused = not self.world.queues[name].paused
        self.do(worker, "pause", name, paused=paused)
        self.world.queues[name].paused = paused

    def configure(self, worker: int, changes: dict[str, Any], *, trim: bool) -> None:
        """Change a setting of the queue while it is in use."""
        queue = self.world.queues[QUEUE]
        changed = replace(queue.settings, **changes)
        races = self.world.wakes(queue) and (changed.replaces() or changed.message_ttl == 0)
        if choices.checked(changed) is not None and not races:
            # A limit of bytes that became smaller is enforced by a later put.
            trim = trim or (changed.overflow == "drop-head" and changed.max_bytes != -1)
            allowed = self.world.may_limit(queue, changed.max_consumers)
            same(self.do(worker, "configure", QUEUE, trim=trim, changes=changes), allowed)
            if allowed:
                queue.configure(trim=trim, **changes)
                self.world.look_at_gate(queue)

    # ---- processes ----

    def do_rarely(self, worker: int, name: str, action: str) -> None:
        """Do what should not be done as often as the rest, or takes longer."""
        if action in {"pause", "claim"}:
            getattr(self, action)(worker, name)
        elif action == "resume" and self.world.queues[name].paused:
            self.pause(worker, name)
        elif action in {"kill", "leave", "close_channel"}:
            getattr(self, action)(worker)
        elif action == "wait" and any(queue.has_delayed() for queue in self.world.queues.values()):
            self.let_become_due()

    def kill(self, worker: int) -> None:
        """Kill a process, and start another one in its place."""
        self.stage.kill(worker)
        self.world.killed(worker)

    def leave(self, worker: int) -> None:
        """Close the connection of a process; it opens another one."""
        self.stage.delays(happens=True)
        self.do(worker, "leave")
        self.world.left(worker)

    def let_become_due(self) -> None:
        """All delays are over."""
        self.stage.let_become_due()
        for queue in self.world.queues.values():
            queue.become_due()

    # ---- what is seen ----

    @invariant()
    def agree(self) -> None:
        """Statistics, listing and consumers are those of the reference."""
        if not hasattr(self, "world") or self.is_over:
            return
        if not self.stage.keep_house():
            self.is_over = True
            type(self).slow_runs += 1
            return
        type(self).steps += 1
        self.world.keep_house()
        try:
            self.compare()
        except Disagreement as error:
            error.add_note(self.stage.keep_evidence())
            raise

    def compare(self) -> None:
        """Raise where the broker differs from the reference."""
        self.let_flow()
        for queue in self.world.queues.values():
            seen = self.stage.statistics(queue.name)
            if self.world.has_been_awake:  # only its least value is known
                queue.counters["redelivered"] = max(queue.counters["redelivered"], seen.redelivered)
            expected = queue.statistics()
            found = {name: getattr(seen, name) for name in expected}
            same(found, expected, queue.name)
            listed = [(body_of(one), one.redelivered) for one in self.stage.queues[queue.name].browse()]
            same(listed, [(message.body, message.redelivered) for message in queue.ready], queue.name)

    def let_flow(self) -> None:
        """Wait until consumers that are awake have got what they must get."""
        until = time.monotonic() + SECONDS_TO_FLOW
        awake = [one for one in self.world.consumers.values() if one.awake]
        while awake:
            self.world.flowed([(one, got) for one in awake for got in self.do(one.holder.worker, "take", one.number)])
            if self.world.is_quiet():
                break
            if time.monotonic() > until:
                text = f"messages stay that consumers want: {[(one.number, one.queue.name) for one in awake]}"
                raise Disagreement(text)

    def teardown(self) -> None:
        """Consumers end, and everything is deleted; the doctor finds nothing."""
        if hasattr(self, "world"):
            self.stage.clear()


def body_of(message: shmbroker.Message) -> str:
    """The body without what makes it longer."""
    return bytes(message).decode().rstrip(".")


def same(found: object, expected: object, where: str = "") -> None:
    """Raise what tells both, unless they are the same."""
    if found != expected:
        text = f"{where} has {found}; expected: {expected}"
        raise Disagreement(text)
