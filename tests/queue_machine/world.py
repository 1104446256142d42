# SPDX-License-Identifier: Apache-2.0
"""The reference of a whole broker: queues, consumers, and what the processes got of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.queue_machine.choices import NO_WAIT
from tests.queue_machine.claims import Holder
from tests.queue_machine.reference import NO_LIMIT, Delivery, Disagreement, Message, Queue, keep_house

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.queue_machine.worker import Received

SELECTORS: dict[str | None, Callable[[Message], bool]] = {
    None: lambda _: True,
    "colour = 'red'": lambda message: message.colour == "red",
    "colour <> 'red' OR JMSPriority > 1": lambda message: message.colour not in {None, "red"} or message.priority > 1,
    "colour IS NULL": lambda message: message.colour is None,
}


@dataclass(eq=False)
class Consumer:
    """A consumer. `row`: what it pulled, and the process did not take."""

    number: int
    holder: Holder
    queue: Queue
    prefetch: int
    priority: int
    selector: str | None
    awake: bool = False  # not suspended between two steps
    row: list[int] = field(default_factory=list)

    def wants(self, message: Message) -> bool:
        """Whether its selector selects the message."""
        return SELECTORS[self.selector](message)


@dataclass(eq=False)
class Handed:
    """A delivery that a process knows by a number. `consumer`: it is open, and gets the credit back."""

    number: int
    delivery: Delivery
    consumer: Consumer | None = None
    by_channel: bool = False

    @property
    def worker(self) -> int:
        """The process that has it."""
        return self.delivery.holder.worker


class World:
    """The queues by name; the consumers by number; what the processes have, by number of process and delivery."""

    def __init__(self, queues: list[Queue], workers: int) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.gets = [Holder(f"gets of {worker}", worker) for worker in range(workers)]
        self.consumers: dict[int, Consumer] = {}
        self.active: dict[str, Consumer | None] = {}
        self.exclusive: dict[int, Queue] = {}
        self.open: set[Queue] = set()  # the gate of the queue is open for all of its consumers
        self.handed: list[Handed] = []
        self.has_been_awake = False  # a consumer that may pull messages, and return them with its end, unseen

    def handed_by(self, worker: int, *, by_channel: bool) -> list[Handed]:
        """What a process has, in the order in which it came."""
        return [one for one in self.handed if one.worker == worker and one.by_channel == by_channel]

    def of_consumer(self, consumer: Consumer) -> list[Handed]:
        """What a consumer has that is not settled, in its row or handed out."""
        return [one for one in self.handed if one.consumer is consumer]

    # ---- what was received ----

    def got(
        self, queue: Queue, worker: int, received: list[Received], most: int, *,
        auto_ack: bool = False, by_channel: bool = False,
    ) -> None:  # fmt: skip
        """A process got messages by a call that asked for at most so many, and settled each at once, or none."""
        holder = self.gets[worker]
        for one in received:
            self._deliver(queue, holder, lambda _: True, one, None, by_channel=by_channel)
            if auto_ack:
                self.settle(self.handed[-1], "ack")
        if len(received) > most:
            text = f"{len(received)} messages came, {most} were asked for"
            raise Disagreement(text)
        if len(received) < most:
            self._nothing_left(queue, holder, lambda _: True)

    def pulled(self, consumer: Consumer, received: list[Received]) -> None:
        """A consumer handed out all that it may have: first its row, then what is ready for it."""
        for one in self._from_row(consumer, received):
            self._may_get(consumer, one)
            self._deliver(consumer.queue, consumer.holder, consumer.wants, one, consumer)
        if self.has_credit(consumer):
            self._nothing_left(consumer.queue, consumer.holder, consumer.wants)

    def flowed(self, received: list[tuple[Consumer, Received]]) -> None:
        """Consumers that are awake handed out what they have got: which of them got which is free, within the rules."""
        fresh = []
        for consumer in dict.fromkeys(consumer for consumer, _ in received):
            mine = [one for whose, one in received if whose is consumer]
            fresh += [(consumer, one) for one in self._from_row(consumer, mine)]
        for consumer, one in sorted(fresh, key=lambda each: place_of(each[0].queue, each[1].body)):
            self._may_get(consumer, one)
            self._deliver(consumer.queue, consumer.holder, consumer.wants, one, consumer)

    def is_quiet(self) -> bool:
        """Whether the consumers that are awake have got all that they must get."""
        return not any(
            consumer.queue.next_for(consumer.holder, consumer.wants)
            for consumer in self.consumers.values()
            if consumer.awake and self.has_credit(consumer)
        ) and not any(consumer.row for consumer in self.consumers.values() if consumer.awake)

    def has_credit(self, consumer: Consumer) -> bool:
        """Whether the consumer may get one more."""
        waits = self.stands_by(consumer) or consumer.queue not in self.open
        return not waits and len(self.of_consumer(consumer)) < consumer.prefetch

    def _may_get(self, consumer: Consumer, one: Received) -> None:
        if not self.has_credit(consumer):
            text = f"{one} came to consumer {consumer.number}, which waits, or has {consumer.prefetch} messages"
            raise Disagreement(text)

    def _from_row(self, consumer: Consumer, received: list[Received]) -> list[Received]:
        """Compare what came with the row that the consumer had; return the rest."""
        row, consumer.row = consumer.row, []
        for number, one in zip(row, received, strict=False):
            handed = next(each for each in self.handed if each.number == number and each.consumer is consumer)
            handed.number = one.number
            self._compare(handed.delivery.message, one)
        if len(received) < len(row):
            text = f"the row had {len(row)} messages, {len(received)} came"
            raise Disagreement(text)
        return received[len(row) :]

    def _deliver(
        self,
        queue: Queue,
        holder: Holder,
        wants: Callable[[Message], bool],
        one: Received,
        consumer: Consumer | None,
        *,
        by_channel: bool = False,
    ) -> None:
        wanted = queue.in_order(wants)
        if queue.paused:
            text = f"{one} came from a queue that is paused"
            raise Disagreement(text)
        if queue.claims.kind == "none" and not (consumer is not None and consumer.awake):
            message = wanted[0] if wanted else None
        else:
            found = [each for each in wanted if each.body == one.body]
            message = found[0] if found and queue.claims.allows(wanted, found[0], holder) else None
        if message is None or message.body != one.body:
            text = f"{one} came to {holder.name} out of {[each.body for each in wanted]}"
            raise Disagreement(text)
        delivery = queue.deliver(message, holder)
        self._compare(message, one)
        self.handed.append(Handed(one.number, delivery, consumer, by_channel))

    def _nothing_left(self, queue: Queue, holder: Holder, wants: Callable[[Message], bool]) -> None:
        left = queue.next_for(holder, wants)
        if left:
            text = f"{holder.name} did not get {[each.body for each in left]}"
            raise Disagreement(text)
        if not queue.paused and queue.claims.kind != "none":
            queue.claims.not_given([message for message in queue.ready if wants(message)], holder)

    def _compare(self, message: Message, one: Received) -> None:
        expected = (message.body, message.count, message.redelivered, message.deaths)
        if (one.body, one.delivery_count, one.redelivered, one.deaths) != expected:
            text = f"{one} came; expected: {expected}"
            raise Disagreement(text)

    # ---- transactions ----

    def admit(self, puts: list[tuple[Queue, Message]]) -> tuple[str, list[tuple[Queue, Message, bool]]]:
        """What a commit of these messages says, and which of them have room.

        The limits are looked at for all messages before any is put: what a ring will evict still takes room.
        """
        room: dict[str, tuple[int, int]] = {}
        admitted = []
        for queue, message in puts:
            if queue.knows(message):
                return "duplicate", []
            count, size = room.get(queue.name, (len(queue.ready), queue.ready_bytes()))
            overflow = queue.settings.overflow
            fits = overflow == "drop-head" or queue.fits(message, count, size)
            if not fits and overflow.startswith("reject"):
                return "rejected", []
            if not fits and (overflow == "block" or queue.never_fits(message)):
                return "full", []
            if fits:
                room[queue.name] = count + 1, size + message.size
            admitted.append((queue, message, fits))
        ids = [
            (queue.name, message.duplicate_id)
            for queue, message, fits in admitted
            if fits and queue.settings.duplicate_ids and message.duplicate_id is not None
        ]
        return ("done", admitted) if len(set(ids)) == len(ids) else ("duplicate", [])

    def publish(self, admitted: list[tuple[Queue, Message, bool]]) -> None:
        """Put the messages of a commit; what they evict goes when all of them are there."""
        for queue, message, fits in admitted:
            if fits:
                queue.append(message, evicts=False)
            else:
                queue.counters["added"] += 1
                queue.counters["dropped"] += 1
        for queue in {id(queue): queue for queue, _, _ in admitted}.values():
            queue.evict()

    # ---- what the processes do ----

    def settle(self, handed: Handed, how: str) -> None:
        """A process settles a message."""
        queue = handed.delivery.queue
        if how == "give_back" and handed.consumer is not None:
            handed.consumer.row.insert(0, handed.number)
            return
        self.handed.remove(handed)
        {"ack": queue.ack, "nack": queue.nack, "reject": queue.reject, "give_back": queue.give_back}[how](
            handed.delivery
        )

    def may_consume(self, queue: Queue, *, alone: bool = False) -> bool:
        """Whether a consumer is admitted."""
        there, seats = self.attached(queue), queue.settings.max_consumers
        has_seat = seats == NO_LIMIT or there < seats
        return has_seat and queue not in self.exclusive.values() and not (alone and there)

    def consumers_at(self, queue: Queue) -> list[Consumer]:
        """The consumers of a queue, without those that claim it."""
        return [one for one in self.consumers.values() if one.queue is queue]

    def wakes(self, queue: Queue) -> bool:
        """Whether a consumer waits for messages between two steps."""
        return any(one.awake for one in self.consumers_at(queue)) or queue in self.exclusive.values()

    def attached(self, queue: Queue) -> int:
        """How many consumers a queue has."""
        return len(self.consumers_at(queue)) + list(self.exclusive.values()).count(queue)

    def may_limit(self, queue: Queue, seats: int) -> bool:
        """Whether the queue may have this limit of consumers."""
        return seats in {NO_LIMIT, queue.settings.max_consumers} or self.attached(queue) <= seats

    def claimed(self, worker: int, queue: Queue) -> None:
        """A process is the only consumer of a queue."""
        self.exclusive[worker] = queue
        self.look_at_gate(queue)

    def unclaimed(self, worker: int) -> None:
        """It is that no more, if it was."""
        queue = self.exclusive.pop(worker, None)
        if queue is not None:
            self.look_at_gate(queue)

    def look_at_gate(self, queue: Queue) -> None:
        """The gate opens when enough consumers are there, or a time has passed; then until all of them have left."""
        wanted, delay = queue.settings.consumers_before_dispatch, queue.settings.delay_before_dispatch
        there = self.attached(queue)
        if not there:
            self.open.discard(queue)
        elif (not wanted and not delay) or there >= (wanted or there + 1) or 0 < delay <= NO_WAIT:
            self.open.add(queue)

    def consumer_came(self, consumer: Consumer) -> None:
        """A consumer is registered."""
        self.consumers[consumer.number] = consumer
        self.has_been_awake = self.has_been_awake or consumer.awake
        consumer.queue.claims.joined()
        self._succeed(consumer.queue)
        self.look_at_gate(consumer.queue)

    def consumer_ended(self, consumer: Consumer, *, everything: bool) -> None:
        """A consumer was cancelled, or closed, with which everything goes back that it has."""
        back = [one for one in self.of_consumer(consumer) if everything or one.number in consumer.row]
        del self.consumers[consumer.number]
        consumer.queue.claims.leave(consumer.holder)
        for one in back:
            self.handed.remove(one)
            consumer.queue.give_back(one.delivery)
        for one in self.of_consumer(consumer):
            one.consumer = None
        self._succeed(consumer.queue)
        self.look_at_gate(consumer.queue)

    def channel_closed(self, worker: int) -> None:
        """What a channel has comes back, and the deliveries count."""
        for one in self.handed_by(worker, by_channel=True):
            self.settle(one, "nack")

    def left(self, worker: int) -> None:
        """The connection of a process was closed: its consumers end first, then its channels."""
        for consumer in self._consumers_of(worker):
            self.consumer_ended(consumer, everything=True)
        self.channel_closed(worker)
        self.unclaimed(worker)
        for one in self.handed_by(worker, by_channel=False):
            one.consumer = None
            self.settle(one, "give_back")

    def killed(self, worker: int) -> None:
        """A process was killed: what it had comes back, and each delivery counts."""
        for one in [one for one in self.handed if one.worker == worker]:
            self.handed.remove(one)
            one.delivery.queue.nack(one.delivery, killed=True)
        self.unclaimed(worker)
        for consumer in self._consumers_of(worker):
            del self.consumers[consumer.number]
        for queue in self.queues.values():
            queue.evict()
            queue.claims.end_all_of(worker)
            self._succeed(queue)
            self.look_at_gate(queue)

    def _consumers_of(self, worker: int) -> list[Consumer]:
        return [one for one in self.consumers.values() if one.holder.worker == worker]

    # ---- single active consumers ----

    def stands_by(self, consumer: Consumer) -> bool:
        """Whether another consumer of the queue is the active one."""
        return consumer.queue.settings.single_active_consumer and self.active.get(consumer.queue.name) is not consumer

    def _succeed(self, queue: Queue) -> None:
        active = self.active.get(queue.name)
        if active is None or active.number not in self.consumers:
            self.active[queue.name] = min(
                self.consumers_at(queue), key=lambda one: (-one.priority, one.number), default=None
            )

    # ---- what happens by itself ----

    def keep_house(self) -> None:
        """What a housekeeper does."""
        keep_house(self.queues.values())


def place_of(queue: Queue, body: str) -> int:
    """Where a message is in a queue; that of a message that is not ready is behind all others."""
    return next((place for place, message in enumerate(queue.ready) if message.body == body), len(queue.ready))
