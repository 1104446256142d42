# SPDX-License-Identifier: Apache-2.0
"""What a queue should be: the reference that the machine compares real queues with.

It is written to be read, not to be fast. A queue is a list of ready messages in the order of delivery, a list of
messages that rest, and a list of deliveries that are not settled. The rules are those of `docs/reference/settings.md`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.queue_machine.claims import Claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.queue_machine.claims import Holder

NO_LIMIT = -1
DELAYED = "delayed"
REJECTED, EXPIRED, MAX_LENGTH, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"


class Disagreement(AssertionError):  # noqa: N818 - it is a finding, not an error of the machine
    """What a process got is nothing that the reference allows."""


@dataclass
class Message:
    """A message, with its history in the queue that it is in."""

    body: str
    size: int = 0
    priority: int = 0
    colour: str | None = None
    group: str | None = None
    ends_group: bool = False
    expired: bool = False  # its time to live is over from the beginning
    delayed: bool = False
    duplicate_id: str | None = None
    place: int = 0
    level: int = 0  # its priority, as far as the queue has priorities
    count: int = 0  # deliveries that count
    redelivered: bool = False
    waits: int = 0  # its turn, while it is dead and its targets are full
    deaths: tuple[tuple[str, str, int], ...] = ()  # queue, reason and number, the latest first


@dataclass(eq=False)
class Delivery:
    """A message that a process has and has not settled."""

    message: Message
    queue: Queue
    holder: Holder


@dataclass(frozen=True)
class Settings:
    """The settings of a queue that the reference knows."""

    ring_size: int = NO_LIMIT
    max_length: int = NO_LIMIT
    max_bytes: int = NO_LIMIT
    overflow: str = "block"
    max_priority: int = 0
    message_groups: str = "none"
    group_buckets: int = 255
    sort_key: str | None = None  # the colour
    single_active_consumer: bool = False
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_delivery_attempts: int = NO_LIMIT
    redelivery_delay: float = 0.0
    message_ttl: float | None = None
    last_value_key: str | None = None
    duplicate_ids: int = 0
    max_consumers: int = NO_LIMIT
    consumers_before_dispatch: int = 0
    delay_before_dispatch: float = 0.0

    def is_limited(self) -> bool:
        """Whether there are messages that have no room, or that others evict."""
        return (self.ring_size, self.max_length, self.max_bytes) != (NO_LIMIT,) * 3

    def replaces(self) -> bool:
        """Whether a message that comes may end others."""
        return self.is_limited() or self.last_value_key is not None


@dataclass(eq=False)
class Queue:
    """A queue. `dead_to`: the queues that get its dead messages; `None`: it has no dead-letter exchange."""

    name: str
    settings: Settings
    dead_to: list[Queue] | None = None
    paused: bool = False
    bound: int = 0  # of a ring that was made smaller without trimming
    places: int = 0
    ready: list[Message] = field(default_factory=list)
    resting: list[tuple[Message, str]] = field(default_factory=list)
    held: list[Delivery] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    newest: dict[str, Message] = field(default_factory=dict)  # the last value of each key; it may be gone
    ids: list[str] = field(default_factory=list)  # those that are remembered, the latest last

    def __post_init__(self) -> None:
        self.claims = Claims(self.settings.message_groups, one_bucket=self.settings.group_buckets == 1)

    # ---- putting ----

    def fits(self, message: Message, count: int | None = None, size: int | None = None) -> bool:
        """Whether the limits leave room for one more, beside `count` messages of `size` bytes; without: those ready."""
        wanted = self.settings
        count, size = len(self.ready) if count is None else count, self.ready_bytes() if size is None else size
        return (wanted.max_length == NO_LIMIT or count < wanted.max_length) and (
            wanted.max_bytes == NO_LIMIT or size + message.size <= wanted.max_bytes
        )

    def never_fits(self, message: Message) -> bool:
        """Whether the message is too large for the limit, and the queue raises for it."""
        return self.settings.max_bytes != NO_LIMIT and message.size > self.settings.max_bytes

    def has_room(self, message: Message) -> bool:
        """Whether a put finds room. A new value may have the room of the one that it replaces."""
        older = None if message.delayed else self.last_value(message)
        if older is None or older not in self.ready:
            return self.fits(message)
        return self.fits(message) or self.fits(message, len(self.ready) - 1, self.ready_bytes() - older.size)

    def put(self, message: Message) -> str:
        """Put a message: `put`, `full` or `rejected`."""
        if self.knows(message):
            self.counters["duplicates"] += 1
            return "put"
        return self._put_new(message, has_room=self.has_room(message))

    def receive(self, message: Message) -> None:
        """Get the dead message of another queue: nothing is known of its id, and it needs room before it replaces."""
        message.duplicate_id = None
        self._put_new(message, has_room=self.fits(message))

    def _put_new(self, message: Message, *, has_room: bool) -> str:
        overflow = self.settings.overflow
        if overflow != "drop-head" and not has_room:
            if overflow == "block" or (overflow == "drop" and self.never_fits(message)):
                return "full"
            if overflow == "reject-publish":
                return "rejected"
            self.counters["added"] += 1
            if overflow == "drop":
                self.counters["dropped"] += 1
                return "put"
            self._place(message)
            self.resting.append((message, MAX_LENGTH))
            return "rejected"
        self.append(message)
        return "put"

    def _place(self, message: Message) -> None:
        message.place, self.places = self.places, self.places + 1
        message.level = min(message.priority, self.settings.max_priority)

    def append(self, message: Message, *, moved: bool = False, evicts: bool = True) -> None:
        """Add a message that has room at the end of its priority; then evict. What is moved keeps its time to live."""
        self.counters["added"] += 1
        self._place(message)
        if not moved:
            self._remember(message)
        message.expired = message.expired or (self.settings.message_ttl == 0 and not moved)
        if message.delayed:
            self.resting.append((message, DELAYED))
        else:
            self._make_ready(message, evicts=evicts)

    def _make_ready(self, message: Message, *, evicts: bool = True) -> None:
        self.ready.append(message)
        self.ready.sort(key=lambda one: (-one.level, one.place))
        self._settle_value(message)
        if evicts:
            self.evict()

    # ---- last values ----

    def last_value(self, message: Message) -> Message | None:
        """The newest message of the same key that was ready once, and is still there."""
        newest = None if self.settings.last_value_key is None else self.newest.get(message.colour or "")
        delayed = [one for one, why in self.resting if why == DELAYED]
        held = [one.message for one in self.held]
        return newest if any(newest is one for one in (*self.ready, *held, *delayed)) else None

    def _settle_value(self, message: Message) -> None:
        """A message became ready: of two values of one key the one that was put first ends, if it is ready."""
        if self.settings.last_value_key is None or message.colour is None:
            return
        other = self.last_value(message) or message
        older, self.newest[message.colour] = sorted((message, other), key=lambda one: one.place)
        if older is not self.newest[message.colour] and older in self.ready:
            self.ready.remove(older)
            self._replaced(older)

    def _replaced(self, message: Message) -> None:
        """Another message takes the place of this one."""
        if message.expired:
            self._end(message, "expired", EXPIRED)
        else:
            self.counters["replaced"] += 1
        self.lower_bound()

    # ---- duplicate ids ----

    def knows(self, message: Message) -> bool:
        """Whether the queue remembers the id of the message."""
        return message.duplicate_id in self.ids

    def _remember(self, message: Message) -> None:
        if message.duplicate_id is not None:
            self.ids.append(message.duplicate_id)
            self._forget()

    def _forget(self) -> None:
        while len(self.ids) > self.settings.duplicate_ids:
            del self.ids[0]

    # ---- limits ----

    def ready_bytes(self) -> int:
        """The bytes of the ready messages."""
        return sum(message.size for message in self.ready)

    def evict(self) -> None:
        """End the oldest messages of the lowest priority while a ring, or drop-head, has too many."""
        wanted, drops = self.settings, self.settings.overflow == "drop-head"
        self.lower_bound()
        while self.ready:
            ring = wanted.ring_size != NO_LIMIT and len(self.ready) > max(wanted.ring_size, self.bound)
            long = drops and wanted.max_length != NO_LIMIT and len(self.ready) > wanted.max_length
            large = drops and wanted.max_bytes != NO_LIMIT and self.ready_bytes() > wanted.max_bytes
            if not (ring or long or large):
                break
            victim = min(self.ready, key=lambda one: (one.level, one.place))
            self.ready.remove(victim)
            # The tighter of the two limits of length is the reason.
            replaces = ring and not (long and wanted.max_length < max(wanted.ring_size, self.bound))
            if victim.expired or replaces:
                self._replaced(victim)
            else:
                self._end(victim, "dropped", MAX_LENGTH)
        self.lower_bound()

    def lower_bound(self) -> None:
        """The bound of a ring that was made smaller falls with the number of ready messages."""
        self.bound = min(self.bound, len(self.ready))

    def configure(self, *, trim: bool, **changes: object) -> None:
        """Change settings. A ring that becomes smaller keeps what it has, unless it is trimmed."""
        before, self.settings = self.settings, replace(self.settings, **changes)  # type: ignore[arg-type]
        if self.settings.ring_size != NO_LIMIT and (trim or self.settings.ring_size != before.ring_size):
            self.bound = 0 if trim else len(self.ready)
        self._forget()
        self.evict()
        if changes.get("message_ttl") == 0:  # a shorter life is for what is there, too
            for message in self.ready:
                message.expired = True
            self.expire_ready()

    # ---- delivering ----

    def deliver(self, message: Message, holder: Holder) -> Delivery:
        """Give a ready message to a process."""
        self.ready.remove(message)
        self.lower_bound()
        message.count += 1
        self.counters["redelivered"] += message.redelivered
        delivery = Delivery(message, self, holder)
        self.held.append(delivery)
        self.claims.take(message, holder)
        return delivery

    def in_order(self, wants: Callable[[Message], bool]) -> list[Message]:
        """The ready messages that are wanted, in the order in which they are delivered."""
        wanted = [message for message in self.ready if wants(message)]
        if self.settings.sort_key is not None:
            wanted.sort(key=lambda one: (one.colour or "", one.place))
        return wanted

    def next_for(self, holder: Holder, wants: Callable[[Message], bool]) -> list[Message]:
        """The messages of which a holder may get one next; empty: none. Where several may come, they are of groups."""
        if self.paused:
            return []
        wanted = self.in_order(wants)
        return self.claims.choose(wanted, holder) if self.claims.kind != "none" else wanted[:1]

    # ---- settling ----

    def _end(self, message: Message, counter: str, reason: str) -> None:
        """End a message for a reason for which it may be dead."""
        if self.dead_to is None:
            self.counters[counter] += 1
        else:
            self.resting.append((message, reason))

    def _let_go(self, delivery: Delivery, *, ended: bool) -> None:
        self.held.remove(delivery)
        self.claims.let_go(delivery.message, delivery.holder, ended=ended)

    def ack(self, delivery: Delivery) -> None:
        """The consumer is done with the message."""
        self._let_go(delivery, ended=True)
        self.counters["acked"] += 1

    def reject(self, delivery: Delivery) -> None:
        """The consumer does not want the message."""
        self._let_go(delivery, ended=True)
        self._end(delivery.message, "dropped", REJECTED)

    def nack(self, delivery: Delivery, *, killed: bool = False) -> None:
        """The message comes back to its place, and the delivery counts.

        That of a killed process does not wait; and nothing is evicted before all of that process are back: see
        `World.killed`.
        """
        message, attempts = delivery.message, self.settings.max_delivery_attempts
        exhausted = attempts != NO_LIMIT and message.count >= attempts
        self._let_go(delivery, ended=exhausted)
        message.redelivered = True
        if exhausted:
            self._end(message, "dropped", DELIVERY_LIMIT)
        elif self.settings.redelivery_delay and not killed and self._has_ring_room():
            self.resting.append((message, DELAYED))
        else:
            self._make_ready(message, evicts=not killed)

    def _has_ring_room(self) -> bool:
        ring = self.settings.ring_size
        return ring == NO_LIMIT or len(self.ready) < max(ring, self.bound)

    def give_back(self, delivery: Delivery) -> None:
        """The message comes back to its place, and the delivery does not count."""
        self._let_go(delivery, ended=False)
        delivery.message.count -= 1
        delivery.message.redelivered = True
        self._make_ready(delivery.message)

    # ---- administration ----

    def purge(self, wants: Callable[[Message], bool]) -> int:
        """Remove ready messages; return their number."""
        gone = [message for message in self.ready if wants(message)]
        self.ready = [message for message in self.ready if message not in gone]
        self.counters["killed"] += len(gone)
        self.lower_bound()
        return len(gone)

    def move(self, to: Queue, wants: Callable[[Message], bool], limit: int | None) -> int:
        """Move ready messages, in the order of delivery, while the other queue has room; return their number."""
        moved = 0
        for message in [one for one in self.ready if wants(one)][:limit]:
            if to.settings.overflow != "drop-head" and not to.fits(message):
                break  # it is not dropped or rejected: it stays
            to.append(replace(message, delayed=False), moved=True)
            self.ready.remove(message)
            self.counters["moved"] += 1
            self.lower_bound()
            moved += 1
        return moved

    # ---- keeping house ----

    def expire(self) -> bool:
        """End the ready and delayed messages whose time is over; return whether there were any."""
        delayed = [message for message, why in self.resting if why == DELAYED and message.expired]
        self.resting = [(message, why) for message, why in self.resting if message not in delayed]
        for message in delayed:
            self._end(message, "expired", EXPIRED)
        return self.expire_ready() or bool(delayed)

    def expire_ready(self) -> bool:
        """End the ready messages whose time is over; return whether there were any."""
        over = [message for message in self.ready if message.expired]
        self.ready = [message for message in self.ready if not message.expired]
        for message in over:
            self._end(message, "expired", EXPIRED)
        self.lower_bound()
        return bool(over)

    def has_delayed(self) -> bool:
        """Whether a message waits until it is due."""
        return any(why == DELAYED for _, why in self.resting)

    def become_due(self) -> None:
        """The time of all messages that rest has come."""
        due = [message for message, why in self.resting if why == DELAYED]
        self.resting = [(message, why) for message, why in self.resting if why != DELAYED]
        for message in sorted(due, key=lambda one: (-one.level, one.place)):
            self._make_ready(message)

    def dead(self) -> list[Message]:
        """The messages that are to be carried out."""
        return [message for message, why in self.resting if why != DELAYED]

    def carry_out(self, dead: list[Message] | None = None) -> bool:
        """Carry these dead messages out while there is room for them, or all; return whether any was.

        Those that had to wait come first, then the others in their order in the queue.
        """
        dead = self.dead() if dead is None else dead
        waiting, done = [], False
        for message, why in sorted(self.resting, key=_turn):
            if why == DELAYED or not any(message is one for one in dead):
                waiting.append((message, why))
                continue
            targets = self.dead_to or []
            copies = [(to, self._copy(message, why)) for to in targets]
            if any(waits_for_room(to, copy) for to, copy in copies):
                message.waits = message.waits or 1 + max((one.waits for one, _ in waiting), default=0)
                waiting.append((message, why))
                continue
            done = True
            self.counters["dead_lettered" if copies else "dropped"] += 1
            for to, copy in copies:
                to.receive(copy)
        self.resting = waiting
        return done

    def _copy(self, message: Message, why: str) -> Message:
        times = 1 + sum(number for queue, reason, number in message.deaths if (queue, reason) == (self.name, why))
        others = tuple(one for one in message.deaths if one[:2] != (self.name, why))
        return Message(
            message.body, message.size, message.priority, message.colour, message.group, message.ends_group,
            deaths=((self.name, why, times), *others),
        )  # fmt: skip

    # ---- what is seen from outside ----

    def statistics(self) -> dict[str, int]:
        """What `Queue.statistics` should say."""
        there = [*self.ready, *(one for one, _ in self.resting), *(one.message for one in self.held)]
        names = ("added", "acked", "expired", "killed", "replaced", "dropped", "dead_lettered", "moved", "redelivered",
                 "duplicates")  # fmt: skip
        return {
            "message_count": len(there),
            "ready": len(self.ready),
            "delivering": len(self.held),
            "scheduled": len(self.resting),
            "bytes": sum(message.size for message in there),
            **{name: self.counters[name] for name in names},
        }


def _turn(resting: tuple[Message, str]) -> tuple[bool, int, int, int]:
    message, _ = resting
    return not message.waits, message.waits, -message.level, message.place


def waits_for_room(to: Queue, message: Message) -> bool:
    """Whether a dead message has to wait, since a queue that it goes to is full."""
    return to.settings.overflow == "block" and not to.fits(message)


def keep_house(queues: Iterable[Queue]) -> None:
    """Expire what is to expire, and carry the dead out, until nothing more happens.

    What expires is gone before the dead come, and is carried out after those that were dead before.
    """
    queues = list(queues)
    more = True
    while more:
        dead = [queue.dead() for queue in queues]
        expired = [queue.expire() for queue in queues]
        carried = [queue.carry_out(some) for queue, some in zip(queues, dead, strict=True)]
        more = any(carried) or any(expired)
