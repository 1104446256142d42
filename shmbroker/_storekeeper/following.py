# SPDX-License-Identifier: Apache-2.0
"""One stored queue, as the storekeeper follows it: what the store lacks of it, turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker._core import paging, storing
from shmbroker._storekeeper.remembering import Remembering
from shmbroker._storekeeper.transients import Transients
from shmbroker.storage import rows

if TYPE_CHECKING:
    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.storing import Change, CoreStorekeeper, Gathered
    from shmbroker.storage.batch import Batch

_STATE_OF_ENTRY = slice(rows.SEAL + rows.HEAD, rows.SEAL + rows.HEAD + rows.ENTRY)


class Following:
    """A queue that the storekeeper follows.

    Args:
        core: the storekeeper in the core.
        queue: the queue.
        number: the number of the queue in the store.
        known: whether the store may have messages of it.
    """

    def __init__(self, core: CoreStorekeeper, queue: CoreQueue, number: int, *, known: bool) -> None:
        settings = queue.settings()[0]
        self._is_transient = settings.exclusive or not settings.durable
        # A queue that is not durable is removed by a start as a whole: its rows need not tell their messages apart.
        self._which = storing.ALL if self._is_transient else storing.DURABLE
        self._wrote = known
        self.queue = queue
        self.number = number
        self.ids = Remembering(core, queue, number)
        self.recorded: object = None  # the settings that the record in the store has; None: there is no record
        self.transients = Transients(core, queue, number)
        self.passed = 0  # transient messages that this turn has left out, or has written later
        self.saw_ends = False  # whether this turn found that a message ended, perhaps because another queue got it
        self.size = 0  # bytes of bodies that this turn has gathered
        self._core = core
        self._staged: set[int] = set()
        self._changes: list[Change] = []
        self._stored: dict[int, int] = {}  # by lane: what the store has when this turn begins
        self._reached: dict[int, int] = {}  # by lane: up to where this turn has gathered
        self._collected: dict[int, int] = {}  # the same, when it last collected

    @property
    def has_staged(self) -> bool:
        """Whether a commit that was not carried out has messages here."""
        return bool(self._staged)

    @property
    def lies_only_in_memory(self) -> bool:
        """Whether its messages are not durable, and none was written yet."""
        return self._is_transient and not self._wrote

    @property
    def needs_turn(self) -> bool:
        """Whether the next turn has to look here, even if the queue has nothing new to store."""
        return self.has_staged or self.ids.needs_turn

    @property
    def may_leave(self) -> bool:
        """Whether messages of the queue may leave the memory."""
        return paging.may_leave(self.queue)

    @property
    def wants_transients(self) -> bool:
        """Whether transient messages have to be written before their leaves can leave the memory."""
        return self.transients.some_lack and self.may_leave

    def begin(self, *, everything: bool) -> None:
        """Notes what the store has. The first step of a turn.

        Args:
            everything: whether everything counts as changed.
        """
        self.ids.begin(everything=everything)
        self._changes, self.saw_ends, self.size, self.passed = [], False, 0, 0
        self._stored = {lane.stored >> rows.LANE_SHIFT: lane.stored for lane in self._core.lanes(self.queue)}
        self._reached = dict(self._stored)

    def collect(self, *, everything: bool) -> None:
        """Collects what has ended or returned since the last call. The first step of a pass."""
        self._changes, self._collected = [], dict(self._reached)
        for lane in self._collected:
            complete = False
            while not complete:
                found, complete = self._core.changes(self.queue, lane << rows.LANE_SHIFT, everything=everything)
                if everything and not complete:  # the core begins again: a walk with room for all of them is needed
                    self._core.more_changes()
                    continue
                self._changes += found
        self.saw_ends = any(change.whole or change.ended for change in self._changes)

    def forget_unsynced(self, batch: Batch) -> None:
        """Removes rows that an earlier storekeeper wrote, and perhaps did not sync: they are gathered again."""
        for stored in self._stored.values():
            batch.end_from(self.number, stored)

    def write_ends(self, batch: Batch) -> None:
        """Removes what has ended."""
        for change in self._changes:
            if change.whole:
                batch.end_span(self.number, change.first, change.span)
            elif change.ended:
                batch.end_cells(self.number, change.first, change.ended)

    def write_messages(self, batch: Batch) -> int:
        """Writes what was appended since the last call in this turn; returns how many messages."""
        count = 0
        for lane in self._core.lanes(self.queue):
            at = self._reached.setdefault(lane.tail >> rows.LANE_SHIFT, lane.stored)
            while at < lane.tail:
                row = self._core.gather(self.queue, at, lane.tail, self._which)
                self._staged.update(row.staged)
                if row.messages:
                    batch.put_row(self.number, at, row.heads, row.bodies)
                    self._wrote = True
                    self.ids.came(row.ids)
                count += row.messages
                self.size += len(row.bodies)
                passed = self._left_out(row)
                self.passed += passed
                if row.behind - at > row.messages + len(row.staged) + passed:
                    self.saw_ends = True
                    self.ids.ended()
                at = row.behind
            self._reached[lane.tail >> rows.LANE_SHIFT] = at
        return count

    def write_changed(self, batch: Batch) -> None:
        """Writes delivery counts and states that have changed, and messages of commits that were carried out."""
        for change in self._changes:
            reached = self._collected[change.first >> rows.LANE_SHIFT]
            below = (1 << max(0, min(rows.LEAF, reached - change.first))) - 1
            if change.live & below:
                members, transient = batch.members(self.number, change.first)
                for at in _bits(self._lacking(change.first, change.live & below & ~(members | transient))):
                    self._write_one(batch, change.first + at)
                for at in _bits(change.returned & below & members):
                    self._write_state(batch, change.first + at)
                for at in _bits(change.returned & below & transient):
                    self._write_state(batch, change.first + at, transient=True)
        for sequence in sorted(self._staged):
            self._staged.discard(sequence)  # it is added again if it is still staged
            self._write_one(batch, sequence)

    def write_transients(self, batch: Batch) -> None:
        """Writes transient messages that the store lacks. A step after all messages were gathered."""
        self.passed += self.transients.write(batch, self._reached)

    def _left_out(self, row: Gathered) -> int:
        """Notes the transient messages that a row was gathered without; returns how many there are."""
        if self._which == storing.ALL or not row.transient:
            return 0
        self.transients.lacks(row.first + _lowest(row.transient))
        return row.transient.bit_count()

    def _lacking(self, leaf: int, missing: int) -> int:
        """Which messages of a leaf this turn has to write, of those that the store lacks: transient ones can wait."""
        if not missing or self._which == storing.ALL:
            return missing
        transient = missing & self._core.gather(self.queue, leaf, leaf + rows.LEAF, storing.DURABLE).transient
        if transient:
            self.transients.lacks_one_before(leaf + _lowest(transient))
        return missing & ~transient

    def _gather_one(self, sequence: int, which: int) -> Gathered:
        row = self._core.gather(self.queue, sequence, sequence + 1, which)
        self._staged.update(row.staged)
        return row

    def _write_one(self, batch: Batch, sequence: int) -> None:
        row = self._gather_one(sequence, self._which)
        if row.messages:
            batch.put_row(self.number, sequence, row.heads, row.bodies)
            self.ids.came(row.ids)
        elif row.transient:
            self.transients.lacks_one_before(sequence)
        else:
            self.ids.ended()

    def _write_state(self, batch: Batch, sequence: int, *, transient: bool = False) -> None:
        row = self._gather_one(sequence, storing.ALL)
        if row.messages:
            batch.put_returned(self.number, sequence, bytes(row.heads[_STATE_OF_ENTRY]), transient=transient)

    def write_rest(self, batch: Batch) -> None:
        """Notes which sequence numbers the next messages get, and which ids the queue remembers."""
        self.ids.write(batch)
        for lane, reached in self._reached.items():
            if reached != self._stored.get(lane):
                batch.set_tail(self.number, reached)

    def synced(self) -> None:
        """Tells the core what the store has now. The last step of a turn, after the sync."""
        for lane, reached in self._reached.items():
            if reached != self._stored.get(lane):
                self._core.advance(self.queue, reached)
        self.ids.synced()


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> list[int]:
    return [at for at in range(rows.LEAF) if mask >> at & 1]
