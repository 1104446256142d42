# SPDX-License-Identifier: Apache-2.0
"""What a connection can read of its broker: queues, their consumers, connections, faults of the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._core import examination, native, occupancy
from shmbroker._core.calls import Calls, in_flight
from shmbroker._core.facts import QueueFacts, consumers_in, facts_of_queue, statistics_of_queue
from shmbroker._core.settings import birth_of, decoded_settings

if TYPE_CHECKING:
    from shmbroker import statistics

ffi, slow = native.ffi, native.slow
_SLOT_BITS: int = slow.SB_SLOT_BITS
_LETTERS: tuple[tuple[str, str, int], ...] = (
    ("dead_letter_exchange", "dead letters", slow.SB_QUEUE_DEAD_LETTERS),
    ("expiry_exchange", "expired messages", slow.SB_QUEUE_EXPIRY_LETTERS),
)
"""For each setting that is an exchange: what goes there, and the flag of queues that have it."""


class Inspection(Calls):
    """Looks into a broker. Each method asks the core anew, so two results may belong to different moments."""

    @in_flight
    def queue_slot(self, name: str) -> int:
        """The slot of the queue with this name; 0: there is no such queue."""
        slot, encoded = ffi.new("uint32_t *"), name.encode()
        status = slow.sb_queue_find(self.handle, encoded, len(encoded), slot)
        if status == native.NOT_FOUND:
            return 0
        if status != native.OK:
            native.raise_for(status, f"queue {name!r}")
        return int(slot[0])

    @in_flight
    def touch(self, slot: int) -> None:
        """Restarts the expiry of a queue, as each declaration of an existing queue does."""
        slow.sb_queue_touch(self.handle, slot)

    def queue_incarnations(self) -> dict[str, int]:
        """The incarnation of each existing queue, which distinguishes it from earlier queues of its name."""
        every = (self.queue_facts(slot) for slot in self.queue_slots())
        return {facts.name: incarnation_of(facts) for facts in every if facts is not None}

    def queue_births(self) -> dict[str, int]:
        """The birth of each existing queue, which it keeps when it is made again from the store."""
        every = (self.queue_facts(slot) for slot in self.queue_slots())
        return {facts.name: birth_of(facts) for facts in every if facts is not None}

    def queue_incarnation(self, name: str) -> int:
        """The incarnation of the queue that has the name now; 0: there is no such queue."""
        slot = self.queue_slot(name)
        facts = self.queue_facts(slot) if slot else None
        return 0 if facts is None else incarnation_of(facts)

    @in_flight
    def queues_ended(self) -> int:
        """A number that rises when a queue has ended whose bindings may be left; it may rise twice for one queue.

        Such a queue expired, or ended by itself, or the caller that deleted it did not remove its bindings.
        """
        return int(slow.sb_topology_queues_ended(self.handle))

    @in_flight
    def queue_slots(self) -> list[int]:
        """The slots of all queues."""
        index, slots = ffi.new("uint32_t *"), []
        while slot := slow.sb_queue_next(self.handle, index):
            slots.append(int(slot))
        return slots

    @in_flight
    def _description(self, slot: int) -> Any:  # noqa: ANN401 - cffi has no types
        facts = ffi.new("sb_queue_facts *")
        status = slow.sb_queue_describe(self.handle, slot, facts)
        if status not in {native.OK, native.DELETED}:
            native.raise_for(status, "queue")
        return None if status == native.DELETED else facts

    def queue_facts(self, slot: int) -> QueueFacts | None:
        """The core's description of a queue, ``None`` when the queue is gone."""
        found = self._description(slot)
        return None if found is None else facts_of_queue(found)

    @in_flight
    def occupancy(self) -> str:
        """Describes what occupies the chunks of the broker's memory, as the end of a sentence; may be empty."""
        return occupancy.in_words(self.handle, self.queue_name)

    def queue_statistics(self, slot: int, *, in_full: bool = False) -> statistics.QueueStatistics | None:
        """A snapshot of a queue, ``None`` when the queue is gone.

        Args:
            slot: the slot of the queue.
            in_full: also look at all messages of a stored queue that are in the memory, which takes time. Otherwise
                `memory` is ``None``.
        """
        found = self._description(slot)
        if found is None:
            return None
        return statistics_of_queue(found, self._regions(slot) if in_full else None)

    @in_flight
    def _regions(self, slot: int) -> Any:  # noqa: ANN401 - cffi has no types
        """What the memory has of a stored queue; ``None``: it is not stored."""
        regions = ffi.new("sb_regions *")
        while slow.sb_queue_regions(self.handle, slot, regions):
            pass
        return regions if regions.incarnation else None

    @in_flight
    def consumers(self, slot: int, queue: str) -> list[statistics.ConsumerInfo]:
        """The consumers of a queue, and the threads that wait inside a get for its messages."""
        room = 256
        while True:
            facts = ffi.new("sb_consumer_facts[]", room)
            count = slow.sb_queue_consumers(self.handle, slot, facts, room)
            if count < 0:
                native.raise_for(-count, f"queue {queue!r}")
            if count < room:
                break
            room *= 4
        return consumers_in(queue, facts[0:count])

    @in_flight
    def connections(self) -> list[statistics.ConnectionInfo]:
        """The connections of the broker."""
        return self.attachment.connections()

    @in_flight
    def is_there(self, number: int, pid: int) -> bool:
        """Whether process ``pid`` has the connection ``number``; after the process died, True until it is reaped."""
        facts = ffi.new("sb_connection_facts *")
        found = slow.sb_connection_describe(self.attachment.handle, number, facts) == native.OK
        return bool(found and facts.pid == pid)

    @in_flight
    def is_usable(self) -> bool:
        """Whether the broker is not closing."""
        return not self.attachment.closing()

    @in_flight
    def doctor(self) -> list[str]:
        """Describes the faults of the broker's memory, in words.

        Raises:
            BrokerError: the memory could not be examined.
        """
        found = examination.of(self.attachment, self.handle, self.queue_name)
        # the core does not read texts; they are read only where nothing else is wrong
        return found or [text for slot in self.queue_slots() if (text := self._fault_of_texts(slot))]

    def _fault_of_texts(self, slot: int) -> str:
        """What is wrong with the settings of a queue that are texts; empty: nothing."""
        facts, texts, after = self.queue_facts(slot), self.queue_texts(slot), self.queue_facts(slot)
        if facts is None or after is None or facts.incarnation != after.incarnation:
            return ""  # it ended meanwhile, and the texts may be those of another queue
        try:
            settings, _ = decoded_settings(facts, texts)
        except exceptions.CorruptSegment as error:
            return f"queue {facts.name!r}: {error.text}"
        for setting, what, flag in _LETTERS:
            has_exchange, is_marked = getattr(settings, setting) is not None, bool(facts.settings.flags & flag)
            if has_exchange != is_marked:
                without = f"the flag of {what}" if has_exchange else f"an exchange for {what}"
                having = "an exchange for them" if has_exchange else "their flag"
                return f"queue {facts.name!r}: lacks {without}, and has {having}"
        return ""

    @in_flight
    def queue_texts(self, slot: int) -> bytes:
        """The encoded settings of a queue that are texts; empty: it has none."""
        buffer = ffi.new("char[]", slow.SB_TEXTS_MAX)
        return bytes(ffi.buffer(buffer, slow.sb_texts(self.handle, slot, buffer)))

    def queue_name(self, slot: int) -> str | None:
        """The name of the queue in a slot; ``None``: no name can be read."""
        try:
            facts = self.queue_facts(slot) if slot else None
        except exceptions.BrokerError:
            return None
        return facts.name if facts is not None else None


def incarnation_of(facts: QueueFacts) -> int:
    """Identifies a queue among queues of the same name: its slot, and a number that only rises in that slot."""
    return facts.incarnation << _SLOT_BITS | facts.slot
