# SPDX-License-Identifier: Apache-2.0
"""The storekeeper of a broker: follows the stored queues, and brings what changes into the store, turn by turn.

A turn collects what ended, gathers what came, and writes both in one transaction, which is synced once for all that
wait for it. The protocol is that of ``sb_turns.h``, and is checked in ``tests/models/store.pml``.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar

from shmbroker import exceptions
from shmbroker._core import native, paging, segments, storing
from shmbroker._core import queue as core_queue
from shmbroker._core.connection import CoreConnection
from shmbroker._core.queue import CoreQueue
from shmbroker._core.settings import PERSISTENT_PAUSE
from shmbroker._dataclasses import replace
from shmbroker._storekeeper import records, stored_topology
from shmbroker._storekeeper.disk import Disk
from shmbroker._storekeeper.expiries import Expiries
from shmbroker._storekeeper.following import Following
from shmbroker._storekeeper.loading import Loader
from shmbroker._storekeeper.records import QueueRecord
from shmbroker._storekeeper.room import Room
from shmbroker._storekeeper.stored_topology import StoredTopology
from shmbroker._storekeeper.verification import Verification
from shmbroker.storage import rows, settling
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from shmbroker.storage.batch import Batch
    from shmbroker.storage.database import Database

T = TypeVar("T")
NAME = "storekeeper"
_FIRST_NUMBER = 1
_LOOK_SECONDS = 0.05
_RESTORE_SECONDS = 30.0
_LINKS = 1024  # so many leaves are linked by one call of the core
_PASSES = 4  # of a turn, before it holds commits back


@dataclass
class _Written:
    """What a turn writes.

    Attributes:
        queues: those that it looked into, in that order.
        records: the settings of those whose record it wrote.
        removed: those that were deleted.
        topology: the version of the topology that it wrote; ``None``: it wrote none, or one that is not complete.
        messages: how many messages it wrote.
    """

    queues: dict[Following, None] = field(default_factory=dict)
    records: dict[Following, object] = field(default_factory=dict)
    removed: list[tuple[str, int]] = field(default_factory=list)
    topology: int | None = None
    messages: int = 0


class Storekeeper:
    """The storekeeper of one broker. One thread uses it.

    Args:
        path: the path of the broker's memory.
        database: the store, opened for writing; the caller closes it.

    Attributes:
        passed: how many transient messages the last turn has left out, or has written since the memory is short.
    """

    def __init__(self, path: str, database: Database) -> None:
        self._path, self._memory = path, segments.identity(path)
        self._connection = CoreConnection(path, NAME)
        self._core = storing.CoreStorekeeper(self._connection, rows.SEAL)
        self._database = database
        self._writer: Writer | None = None
        self._instance = self._connection.attachment.facts().instance
        self._following: dict[storing.Place, Following] = {}
        self._numbers: dict[tuple[str, int], int] = {}  # of the queues of this memory, by name and incarnation
        self._next_number = _FIRST_NUMBER
        self._topology = StoredTopology(self._connection)
        loader = Loader(lambda: database, keeps=True)
        self._connection.attachment.load = loader.load
        self._expiries = Expiries(database)
        self._room = Room(self._connection.attachment, self._core, loader, self._expiries)
        self.verification = Verification(self._connection.attachment, database.folder)
        self._disk = Disk(self._core, database)
        self._new: list[Following] = []  # those of which the store may have no record
        self._queues = -1  # which queues are followed, as `Look.queues`
        self._everything = True  # whether all that the memory has counts as changed
        self._serves = False
        self.passed = 0

    def begin(self) -> bool:
        """Becomes the storekeeper, unless there is another one; reads which queues the store has.

        Raises:
            StoreError: the store is damaged.
        """
        self._serves = self._core.begin()
        if self._serves:
            self._disk.begin()
            self._connection.attachment.set_store_id(self._with_the_reserve(self._database.identify))
            self._writer = self._with_the_reserve(lambda: Writer(self._database))
            for number, record in self._stored_queues().items():
                self._next_number = max(self._next_number, number + 1)
                if record.instance == self._instance:
                    self._numbers[record.name, record.incarnation] = number
        return self._serves

    def _stored_queues(self) -> dict[int, QueueRecord]:
        with self._database.read() as transaction:
            found = Reader(self._database, transaction).queues()
        return {number: records.decode(encoded) for number, encoded in found.items()}

    # ---- turns ----

    def turn(self) -> int:
        """Runs one turn; returns how many messages it wrote.

        Raises:
            StoreError: the store cannot be written; those that wait go on waiting, and a later turn tries again.
        """
        writer = self._writing()
        wrote = self._with_the_reserve(self._turn, lambda: writer.rows)
        if self._disk.is_full:
            self.settle()
            self._with_the_reserve(writer.pass_on)
        self._disk.look(writer.rows, writer.logged)
        return wrote

    def _with_the_reserve(self, write: Callable[[], T], rows: Callable[[], int] = int) -> T:
        """Writes the store; if its disk is full, again: with pages that came free, then with the room of the reserve.

        Args:
            write: writes.
            rows: the bytes of messages that it tried to write.
        """
        ways = iter((self._frees_pages, lambda: self._disk.gives_way(rows())))
        while True:
            try:
                return write()
            except exceptions.StoreError as error:
                if not self._disk.is_short(error) or not next(ways, self._disk.has_no_room)():
                    raise

    def _frees_pages(self) -> bool:
        """Commits what the log has: pages that the commit before has freed are room for the next one then."""
        with contextlib.suppress(exceptions.StoreError):
            if self._writer is not None:
                self._writer.pass_on()
        return True

    def _turn(self) -> int:
        turn = self._core.turn_begin()
        afresh, self._everything = self._everything, True  # unless this turn comes to its end
        written = _Written()
        with self._writing().turn() as batch:
            commits, passes = self._core.await_commits(), 1
            work = self._look(everything=afresh)
            if self._write_topology(batch, written):  # a queue may have forgotten ids
                places = set(work)
                work = [one for one in self._following.values() if one in places or one.ids.has_some]
            self._pass(batch, written, work, everything=afresh)
            # Once more, if what a commit changes in several queues may be in the batch in part (I125 of `sb_turns.h`).
            while commits != self._core.commits():
                if passes == _PASSES:
                    self._core.hold_commits(held=True)
                commits, passes = self._core.await_commits(), passes + 1
                self._pass(batch, written, self._look())
            for one in written.queues:
                if self._writes_transients and one.wants_transients:
                    one.write_transients(batch)
                one.write_rest(batch)
            began = time.monotonic_ns()
        if written.messages:
            self._core.report(time.monotonic_ns() - began, written.messages)
        if passes > _PASSES:
            self._core.hold_commits(held=False)
        self._core.turn_end(turn)
        self._writing().catch_up()
        self._everything = False
        self.passed = sum(one.passed for one in written.queues)
        self._end(written)
        return written.messages

    def _end(self, written: _Written) -> None:
        """Notes what the store has after a turn."""
        for place in written.removed:
            del self._numbers[place]
        if written.topology is not None:
            self._topology.written(written.topology)
        for one, settings in written.records.items():
            one.recorded = settings
        for one in written.queues:
            one.synced()
            self._room.came(one.size)

    def _look(self, *, everything: bool = False) -> list[Following]:
        """The queues that have something to store. Follows those that are new, and leaves those that are gone."""
        seen = self._core.look()
        if everything or seen.queues != self._queues:
            self._follow()
            self._queues = seen.queues
        places = set(seen.work)
        found = (one for place, one in self._following.items() if everything or place in places or self._awaits(one))
        return [one for one in found if not (one.lies_only_in_memory and self._room.suffices())]

    def _awaits(self, one: Following) -> bool:
        """Whether a turn has to look into a queue, even if it has nothing new to store."""
        return one.needs_turn or (self._writes_transients and one.wants_transients)

    @property
    def _writes_transients(self) -> bool:
        """Whether turns write transient messages. What is left of a full disk is for those that are removed."""
        return not self._room.is_ample and not self._disk.is_full

    def _write_topology(self, batch: Batch, written: _Written) -> bool:
        """Writes what is no message: the topology, the records of queues, and that queues were deleted.

        Returns:
            Whether the topology has changed.
        """
        written.removed = self._gone()
        for place in written.removed:
            batch.remove_queue(self._numbers[place])
        topology = self._topology.changed(self._numbers)
        if topology is not None:
            batch.put_topology(topology[1])
            self._write_records(batch, written, self._following.values())
            # A binding to a queue that was made meanwhile is left out: then a later turn writes the topology again.
            written.topology = topology[0] if self._core.look().queues == self._queues else None
        return topology is not None

    def _pass(self, batch: Batch, written: _Written, work: list[Following], *, everything: bool = False) -> None:
        """Brings what has changed in queues into the batch: the ends first, then the messages."""
        self._begin_with(batch, written, work, everything=everything)
        for one in work:
            one.collect(everything=everything)
        for one in work:
            if everything:
                one.forget_unsynced(batch)
            one.write_ends(batch)
        written.messages += sum(one.write_messages(batch) for one in work)
        for one in work:
            one.write_changed(batch)
        if any(one.saw_ends for one in work):  # such a message may have gone to another queue meanwhile (I124)
            self._begin_with(batch, written, self._look())
            written.messages += sum(one.write_messages(batch) for one in written.queues)

    def _begin_with(self, batch: Batch, written: _Written, work: list[Following], *, everything: bool = False) -> None:
        self._write_records(batch, written, self._new)
        self._new.clear()
        for one in work:
            if one not in written.queues:
                one.begin(everything=everything)
                written.queues[one] = None

    def make_room(self) -> bool:
        """Lets messages leave the memory if it is short, else keeps limits, and loads what expired or is needed next.

        Returns:
            Whether messages were loaded or evicted, or are to be written first: there may be more to do soon.

        Raises:
            StoreError: the store cannot be written, or is damaged.
        """
        if self._everything:
            return False  # the last turn failed
        followed = list(self._following.values())
        left = self._room.make(followed, self._writing().settle)
        awaits = self._writes_transients and self._room.awaits_transients(followed)
        if self._room.load_wished(followed) or awaits:
            return True
        if left > 0:
            return False
        kept = self._room.keep_limits(followed)
        expired = self._room.load_expired()
        return self._room.load_ahead(followed) or kept or expired

    def settle(self) -> None:
        """Brings what only the log has into the database. The broker is quiet, or a process asks for it.

        Raises:
            StoreError: the store cannot be written; the log keeps what it has.
        """
        self._with_the_reserve(self._writing().settle)
        self._database.forget_dead_readers()

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk of the store is full. Each turn then ends with a commit."""
        return self._disk.is_full

    def takes_request_to_settle(self) -> bool:
        """Whether a process has asked for a database that has everything; the request counts once."""
        return settling.take(self._database.folder)

    def _writing(self) -> Writer:
        assert self._writer is not None  # noqa: S101 - `begin` has opened it
        return self._writer

    def rest(self, until: int, *, patient: bool = False) -> int:
        """Waits until a connection asks for a turn; returns a status of the core.

        Args:
            until: the time at which the wait ends, in nanoseconds of the monotonic clock.
            patient: whether to wait until then even if a connection asks, because the store cannot be written.
        """
        status = self._core.rest(until)
        while patient and status == native.OK and (left := until - time.monotonic_ns()) > 0:
            time.sleep(min(left / native.NANOSECONDS, _LOOK_SECONDS))
            status = self._core.rest(0)
        return status

    def is_alone(self) -> bool:
        """Whether no process uses the broker but this one and the housekeeper."""
        attached = self._connection.attachment
        return attached.facts().processes <= 1 + (not attached.housekeeper_missing())

    def is_forsaken(self) -> bool:
        """Whether the memory was removed without a purge, for example by hand: nobody can reach it any more."""
        return segments.identity(self._path) != self._memory

    def _follow(self) -> None:
        """Opens queues that are new, and leaves those that are gone."""
        there = set()
        for slot in self._connection.queue_slots():
            facts = self._connection.queue_facts(slot)
            if facts is None:
                continue
            place = slot, facts.incarnation
            there.add(place)
            if place in self._following:
                continue
            with contextlib.suppress(exceptions.NotFound):  # deleted again
                queue = CoreQueue(self._connection, facts.name, slot)
                if storing.is_stored(queue):
                    known = self._numbers.get((queue.name, queue.incarnation), 0)
                    number = known or self._new_number(queue)
                    self._following[place] = Following(self._core, queue, number, known=known != 0)
                    self._new.append(self._following[place])
                    if known:
                        self._expiries.read(self._following[place])
                else:
                    queue.leave()
        for place in self._following.keys() - there:
            gone = self._following.pop(place)
            self._expiries.forget(gone)
            gone.queue.leave()

    def _new_number(self, queue: CoreQueue) -> int:
        number = self._next_number
        self._next_number += 1
        self._numbers[queue.name, queue.incarnation] = number
        return number

    def _write_records(self, batch: Batch, written: _Written, followed: Iterable[Following]) -> None:
        """Writes the records of queues of which the store has none, or an old one."""
        for one in followed:
            with contextlib.suppress(exceptions.NotFound):  # deleted meanwhile: the next turn removes it
                found = one.queue.facts().settings
                if found != written.records.get(one, one.recorded):
                    self._write_record(batch, one)
                    written.records[one] = found

    def _write_record(self, batch: Batch, one: Following) -> None:
        settings, flags = one.queue.settings()
        given = one.queue.given()
        kept = flags if PERSISTENT_PAUSE in given else flags & ~core_queue.PAUSED  # another pause ends with the memory
        incarnation, birth = one.queue.incarnation, one.queue.birth
        record = QueueRecord(one.queue.name, self._instance, incarnation, settings, given, kept, birth)
        batch.put_queue(one.number, records.encode(record))

    def _gone(self) -> list[tuple[str, int]]:
        """The queues of this memory that were deleted, and that the store has still."""
        if len(self._numbers) == len(self._following):
            return []
        kept = {one.number for one in self._following.values()}
        return [place for place, number in self._numbers.items() if number not in kept]

    # ---- recovery ----

    def restore(self) -> int:
        """Makes queues and topology of the store again, in a memory that has none; returns how many queues there are.

        Raises:
            StoreError: the store is damaged.
            OutOfMemory: the memory of the broker is too small for the messages.
        """
        found = self._stored_queues()
        with self._writing().turn() as batch:
            batch.drop_transient()  # the memory that they belonged to is gone
        with self._database.read() as transaction:
            reader = Reader(self._database, transaction)
            for number, record in found.items():
                if record.instance != self._instance:
                    self._restore_queue(reader, number, record)
            incarnations = {number: incarnation for (_, incarnation), number in self._numbers.items()}
            until = native.deadline(_RESTORE_SECONDS)
            stored_topology.restore(self._connection, reader.topology(), incarnations.get, until)
        return len(found)

    def _restore_queue(self, reader: Reader, number: int, record: QueueRecord) -> None:
        if not record.settings.durable or record.settings.exclusive:
            self._numbers["", number] = number  # no queue of this memory: the next turn removes it
            return
        # Limits come at the end. A ring that was made smaller may have more messages than its size: only messages that
        # come later evict some. And the messages of a queue without limits may stay in the store.
        settings = replace(record.settings, ring_size=-1, max_length=-1, max_bytes=-1)
        core_queue.declare(self._connection, record.name, settings, 0, record.flags, record.given, record.birth)
        queue = CoreQueue(self._connection, record.name, self._connection.queue_slot(record.name))
        try:
            for tail in reader.tails(number):
                lane = tail >> rows.LANE_SHIFT << rows.LANE_SHIFT
                first = reader.first(number, lane)
                storing.resume(queue, tail if first is None else rows.leaf_of(first))
                _restore_lane(reader, number, queue, tail)
                storing.skip(queue, tail)
            if settings.duplicate_ids > 0 and (ids := reader.ids(number)):
                storing.restore_ids(queue, ids)
            storing.resumed(queue)
            if settings != record.settings:
                until = native.deadline(_RESTORE_SECONDS)
                queue.configure(record.settings, record.flags, trim=False, until=until, given=record.given)
            self._numbers[queue.name, queue.incarnation] = number
        finally:
            queue.leave()

    # ---- its end ----

    def close(self) -> None:
        """Gives up the storekeeper's place, and closes its connection."""
        self.verification.close()
        if self._writer is not None:
            with contextlib.suppress(exceptions.StoreError):  # the log keeps it
                self._writer.settle()
            self._writer.close()
        if self._serves:
            self._core.end()
            self._serves = False
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _restore_lane(reader: Reader, number: int, queue: CoreQueue, tail: int) -> None:
    """Restores the messages of a lane. They stay in the store if they may (`sb_departure.h`), until they are needed."""
    may_leave, largest = paging.may_leave(queue), paging.largest(queue)
    absent: list[tuple[int, int, int]] = []
    for found in reader.leaves(number, tail >> rows.LANE_SHIFT << rows.LANE_SHIFT):
        leaf = found if found.sure else reader.counted(number, found)
        whole = leaf.sequence + rows.LEAF <= tail and leaf.size <= largest
        stays = may_leave and whole and leaf.messages > 0 and not leaf.waits
        if stays:
            absent.append((leaf.sequence, leaf.messages, leaf.size))
        if not stays or len(absent) == _LINKS:
            storing.restore_absent(queue, absent)
            absent.clear()
        if not stays:
            for heads, bodies, ended in reader.leaf(number, leaf.sequence):
                storing.restore(queue, heads, bodies, ended)
    storing.restore_absent(queue, absent)
