# SPDX-License-Identifier: Apache-2.0
"""A queue handle: functions bound to it, retries, and error texts."""

from __future__ import annotations

import functools
import queue as standard_queue
import time
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import filling, native, segments, syncing
from shmbroker._core.bodies import Place
from shmbroker._core.calls import in_flight
from shmbroker._core.growing import out_of_memory
from shmbroker._core.inspection import incarnation_of
from shmbroker._core.settings import ALL_GIVEN, birth_of, decoded_settings, encoded_settings, given_settings, is_durable
from shmbroker.settings import DEAD_LETTERING, PAGING

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.facts import QueueFacts
    from shmbroker.settings import QueueSettings

ffi, slow, fast, fast_ffi = native.ffi, native.slow, native.fast, native.fast_ffi
PAUSED: int = slow.SB_QUEUE_PAUSED
KEEPS: int = slow.SB_QUEUE_KEEPS
NOTES: int = slow.SB_QUEUE_NOTES
STAGE: int = slow.SB_QUEUE_STAGE
AUTO_CREATED: int = slow.SB_QUEUE_AUTO_CREATED
_TTL = slow.SB_QUEUE_TTL
# How long a put waits for another put of the same id: at least, and at most. A put takes microseconds, so the wait is
# for a process that is stopped, or has no processor.
_LEAST_PATIENCE, _PATIENCE = 100_000_000, 10 * native.NANOSECONDS
_LOOK_FOR_SIGNALS = 50_000_000
_GROUPS = slow.SB_QUEUE_GROUPS


# Options of a put, checked and encoded: ttl and delay in seconds, 0 = none; priority; routing key; properties.
# A named tuple would cost a fifth of the time of a put.
PutFields = tuple[float, float, int, bytes, bytes]


class PutOptions:
    """Options of a put in the core's form; must live as long as the call."""

    def __init__(  # noqa: PLR0917 - the fields of one structure
        self, ttl: float, delay: float, priority: int, key: bytes, properties: bytes, exchange: bytes = b""
    ) -> None:
        self.key, self.properties = key, properties
        self.pointer = pointer = ffi.new("sb_put_options *")
        kept = []  # absent options are skipped, which saves time: many puts have only a key
        if ttl or delay:
            pointer.ttl_ns, pointer.delay_ns = int(ttl * native.NANOSECONDS), int(delay * native.NANOSECONDS)
        if priority:
            pointer.priority = priority
        if key:
            kept.append(ffi.from_buffer(key))
            pointer.key, pointer.key_length = kept[-1], len(key)
        if properties:
            kept.append(ffi.from_buffer(properties))
            pointer.properties, pointer.properties_length = kept[-1], len(properties)
        if exchange:
            kept.append(ffi.from_buffer(exchange))
            pointer.exchange, pointer.exchange_length = kept[-1], len(exchange)
        self._kept = kept

    def fails_if_known(self) -> None:
        """Makes a commit fail if a queue knows the id of the message; without it, the commit skips that queue."""
        self.pointer.duplicates = slow.SB_DUPLICATES_FAIL

    def without_id(self) -> PutOptions:
        """Makes a commit put the message whatever its id is, and remember no id; returns these options."""
        self.pointer.duplicates = slow.SB_DUPLICATES_IGNORE
        return self

    def as_dead(self) -> PutOptions:
        """Returns options to put a message that its queue rejected, and sends to its dead-letter exchange."""
        given = self.pointer
        exchange = bytes(ffi.buffer(given.exchange, given.exchange_length)) if given.exchange_length else b""
        options = PutOptions(0, 0, given.priority, self.key, self.properties, exchange)
        options.pointer.dead = 1
        return options

    @property
    def ttl_ns(self) -> int:
        """The time to live in nanoseconds, 0 = none."""
        return int(self.pointer.ttl_ns)

    @property
    def delay_ns(self) -> int:
        """The delay in nanoseconds, 0 = none."""
        return int(self.pointer.delay_ns)

    @property
    def priority(self) -> int:
        """The priority, 0 = none."""
        return int(self.pointer.priority)

    @property
    def address(self) -> int:
        """The address of the structure, for modules that do not use cffi."""
        return int(ffi.cast("uintptr_t", self.pointer))


NO_OPTIONS = PutOptions(0, 0, 0, b"", b"")


def raise_topology_error(status: int, holder: int, what: str) -> None:
    """Raises the error of a failed topology change; returns if ``status`` is OK.

    Args:
        status: the status of the change; TIMEOUT: the topology lock was not free in time.
        holder: the process that holds the topology lock; 0: unknown.
        what: the object concerned, such as ``queue 'jobs'``.
    """
    if status == native.TIMEOUT:
        text = (
            f"{what}: the topology lock is held by process {holder}" if holder else f"{what}: the topology lock is held"
        )
        raise exceptions.Timeout(text)
    if status != native.OK:
        native.raise_for(status, what)


def declare(  # noqa: PLR0917 - what a queue consists of
    connection: CoreConnection,
    name: str,
    settings: QueueSettings,
    until: int,
    flags: int = 0,
    given: frozenset[str] = ALL_GIVEN,
    birth: int = 0,
) -> bool:
    """Makes a queue.

    Args:
        connection: the connection of the caller.
        name: the name of the queue.
        settings: its settings.
        until: the deadline of the wait for the topology lock.
        flags: any of KEEPS, NOTES, STAGE and AUTO_CREATED, the core's bits ``SB_QUEUE_...``.
        given: the names of the settings that were given for this queue; address settings determine the others.
        birth: the number that the queue had before it was stored; 0: it is new.

    Returns:
        Whether it was made; False: it exists.

    Raises:
        PreconditionFailed: its messages shall leave the memory, and the broker has no store.
    """
    if settings.overflow == PAGING and connection.attachment.data_dir is None:
        text = f"overflow={PAGING!r} of queue {name!r}: broker {connection.attachment.name!r} has no store (data_dir)"
        raise amqp_error(exceptions.PreconditionFailed, text)
    slot, holder, encoded = ffi.new("uint32_t *"), ffi.new("int32_t *"), name.encode()
    wanted, _texts = encoded_settings(settings, flags, given, birth or segments.random_number())
    status = connection.growing(
        slow.sb_queue_declare, connection.handle, encoded, len(encoded), wanted, until, slot, holder
    )
    if status == native.EXISTS:
        return False
    if status == slow.SB_LIMIT:
        raise connection.attachment.all_declared(name)
    raise_topology_error(status, holder[0], f"queue {name!r}")
    return True


class CoreQueue(native.Finalized):
    """An open queue of a connection.

    ``lasts``: whether a start from the store makes the queue again. ``birth``: a number that the queue keeps then.
    ``settle`` is the core's function, bound to the handle: it returns a status and raises nothing.
    :mod:`shmbroker._native_message` takes messages, and makes the first attempt of a put; it knows the queue by its
    ``address``. Calls that wait for room put by :meth:`put_with`.

    Args:
        connection: the connection.
        name: the name of the queue.
        slot: the slot that the caller found under the name, perhaps a while ago.

    Raises:
        NotFound: the queue was deleted; another queue may have its slot now.
    """

    def __init__(self, connection: CoreConnection, name: str, slot: int) -> None:
        self.connection = connection
        self.name = name
        self.what = f"queue {name!r}"
        self.slot = slot
        self._made: list[Any] = []
        handle, status = connection.opening(slow.sb_queue_open, connection.handle, slot, made=self._made)
        if handle == ffi.NULL:
            native.raise_for(status, self.what)
        self.handle: Any = handle
        self.address = int(ffi.cast("uintptr_t", handle))
        near = native.cast_fast(handle, "sb_queue *")
        facts = connection.queue_facts(slot)
        if facts is not None and facts.name != name:
            self.leave()  # not left to `_finalize`: the application may keep the error, which refers to this object
            native.raise_for(native.NOT_FOUND, self.what)
        self.incarnation = 0 if facts is None else incarnation_of(facts)
        self.birth = 0 if facts is None else birth_of(facts)
        self.exclusive = facts is not None and bool(facts.settings.flags & slow.SB_QUEUE_EXCLUSIVE)
        self.waits_for_store = bool(slow.sb_queue_waits_for_store(handle))
        self.lasts = facts is not None and is_durable(facts) and bool(slow.sb_queue_is_stored(handle))
        self.has_ttl = facts is not None and bool(facts.settings.flags & _TTL)
        self.has_groups = facts is not None and bool(facts.settings.flags & _GROUPS)
        self.auto_created = facts is not None and bool(facts.settings.flags & AUTO_CREATED)
        self.settle: Callable[[bytes, int], int] = functools.partial(fast.sb_queue_settle, near)
        self.length: Callable[[], int] = functools.partial(fast.sb_queue_length, near)

    # ---- errors ----

    @in_flight
    def put_failed(self, status: int, size: int, until: int, count: int = 1) -> None:
        """Handles a failed put: makes room or waits for it, so that the caller can retry, else raises.

        Args:
            status: The status of the put.
            size: The size of the body. If the queue is full: the total size of all ``count`` bodies.
            until: The deadline of the wait.
            count: The number of messages that a full queue must have room for at the same time.
        """
        if status == native.GROW:
            self.connection.attachment.grow()
        elif status == native.FULL and count > 1:
            self._wait_for_batch(count, size, until)
        elif status in {native.FULL, native.NO_MEMORY}:
            self._wait_for_room(memory=status == native.NO_MEMORY, size=size, until=until)
        elif status == native.STORE_FULL:
            filling.await_room(self.connection, self.what, until)
        elif status == native.TOO_LARGE:
            self._too_large(size)
        elif status in {native.REJECTED, native.DUPLICATE}:
            raise self._refusal(status)
        elif status == native.UNDECIDED:
            self._wait_for_id(until)
        elif status == slow.SB_INVALID:
            msg = "key and properties of a message take more than 64 KiB"
            raise ValueError(msg)
        elif status != native.OK:
            native.raise_for(status, self.what)

    def _refusal(self, status: int) -> exceptions.PublishRejected | exceptions.DuplicateId:
        if status == native.REJECTED:
            return exceptions.PublishRejected(f"{self.what} rejects the message: {self._ready()}", self.name)
        why = "knows the id of the message, or the transaction has it twice"
        return exceptions.DuplicateId(f"{self.what} {why}, so it is not done: roll it back", self.name)

    def check_can_fit(self, count: int, size: int) -> None:
        """Checks that ``count`` messages, ``size`` bytes in total, fit into the queue when it is empty.

        Raises:
            NeverFits: they exceed its limits.
        """
        settings, _ = self.settings()
        if 0 <= settings.max_length < count or 0 <= settings.max_bytes < size:
            limits = f"max_length={settings.max_length}, max_bytes={settings.max_bytes}"
            text = f"{self.what}: {count} messages of {size} bytes in total can never fit at once ({limits})"
            raise exceptions.NeverFits(text)

    def _too_large(self, size: int) -> None:
        facts = self.connection.attachment.facts()
        limit = min(native.MAX_BODY, facts.memory_limit)
        settings, _ = self.settings()
        if size <= limit and 0 <= settings.max_bytes < size:
            text = f"{self.what}: a body of {size} bytes can never fit max_bytes={settings.max_bytes}"
            raise exceptions.NeverFits(text)
        allowed = f"at most {limit} bytes are allowed"
        if size <= limit:
            allowed = f"the broker's own structures leave no piece of that size in its {facts.memory_limit} bytes"
        text = f"{self.what}: a body of {size} bytes can never fit: {allowed}"
        raise exceptions.NeverFitsMemory(text)

    def _wait_for_room(self, *, memory: bool, size: int, until: int) -> None:
        self.connection.start_io()
        if memory and self.connection.let_go():
            return  # the caller tries again, even if there is no time left to wait
        if memory and until > time.monotonic_ns():
            self.connection.memory_waits.begin()
        self._wait(functools.partial(slow.sb_queue_wait_for_room, self.handle, memory), size, until, memory=memory)

    def _wait_for_batch(self, count: int, size: int, until: int) -> None:
        self.connection.start_io()
        self._wait(functools.partial(slow.sb_queue_wait_for_batch, self.handle, count), size, until, memory=False)

    def _wait(self, wait: Callable[[int, int], int], size: int, until: int, *, memory: bool) -> None:
        status = wait(size, until) if until > time.monotonic_ns() else native.TIMEOUT
        if status == native.NO_MEMORY or (memory and status == native.TIMEOUT):
            raise out_of_memory(self.connection, size)
        if status == native.TIMEOUT:
            text = f"{self.what} is full: {self._ready()}"
            raise standard_queue.Full(text)
        if status == native.GROW:
            self.connection.attachment.grow()
        elif status not in {native.OK, native.INTERRUPTED}:
            native.raise_for(status, self.what)

    def _wait_for_id(self, until: int) -> None:
        """Waits until another put of the same id has ended, for a while even if there is no time left to wait.

        Raises:
            Timeout: it has not ended in time; its process may be stopped.
        """
        now, pid, status = time.monotonic_ns(), ffi.new("int32_t *"), native.TIMEOUT
        until = min(max(until, now + _LEAST_PATIENCE), now + _PATIENCE)
        while status == native.TIMEOUT and now < until:  # in short calls: a signal handler runs between them
            status = slow.sb_queue_wait_for_id(self.handle, min(until, now + _LOOK_FOR_SIGNALS), pid)
            now = time.monotonic_ns()
        if status == native.TIMEOUT:
            text = (
                f"{self.what}: process {pid[0]} is putting a message of the same id, and does not end; is it stopped?"
            )
            raise exceptions.Timeout(text)
        if status != native.OK:
            native.raise_for(status, self.what)

    def _ready(self) -> str:
        settings, _ = self.settings()
        limits = f"max_length={settings.max_length}, max_bytes={settings.max_bytes}"
        return f"{self.length()} messages are ready ({limits})"

    # ---- putting ----

    @in_flight
    def put_with(self, body: Any, size: int, options: PutOptions, until: int) -> None:  # noqa: ANN401
        """Puts one body with options, and waits for room until ``until``.

        If the queue rejects the message, and sends what it rejects to its dead-letter exchange, the message is on its
        way there when this method raises.

        Raises:
            PublishRejected: the queue rejects the message.
        """
        pointer = ffi.from_buffer("char[]", body)
        with self.connection.memory_waits:
            while (status := slow.sb_queue_put_with(self.handle, pointer, size, options.pointer)) != native.OK:
                if status == native.REJECTED and self.dead_letters_rejected():
                    self._put_dead(pointer, size, options.as_dead(), until)
                self.put_failed(status, size, until)

    def await_store(self, until: int) -> None:
        """Waits until what was put into a stored queue is in the store; not if ``until`` is 0.

        Raises:
            Timeout: it is not in time. The messages are in the queue.
        """
        if self.waits_for_store and until != 0:
            syncing.wait(self.connection, syncing.ask(self.connection), until)

    def dead_letters_rejected(self) -> bool:
        """Whether the queue sends the messages that it rejects to its dead-letter exchange."""
        return self.settings()[0].overflow == DEAD_LETTERING

    def _put_dead(self, pointer: Any, size: int, options: PutOptions, until: int) -> None:  # noqa: ANN401
        while (status := slow.sb_queue_put_with(self.handle, pointer, size, options.pointer)) != native.OK:
            self.put_failed(status, size, until)

    # ---- getting ----

    def get_failed(self, status: int) -> None:
        """Handles the status of a get that returned nothing: returns if the caller should retry, else raises."""
        if status == native.GROW:
            self.connection.attachment.grow()
        elif status in {native.TIMEOUT, native.EMPTY}:
            raise standard_queue.Empty
        elif status == native.NO_MEMORY:
            self.connection.no_memory()
        elif status not in {native.INTERRUPTED, native.TICK}:
            native.raise_for(status, self.what)

    @in_flight
    def browse(self, position: int, selector: bytes = b"") -> tuple[bytes, int] | None:
        """Returns the record of the next ready message at or after a position, and the position after the message.

        The record is a private copy, with the body. ``None``: there is no such message.

        Args:
            position: where to begin; 0 = with the oldest message.
            selector: a compiled selector, which selects the messages; ``b""`` selects all.
        """
        program = ffi.from_buffer("char[]", selector)
        at, size = ffi.new("uint64_t *", position), native.RECORD_BYTES
        while True:
            memory = ffi.new("char[]", size)
            if selector:
                length = slow.sb_queue_browse_selected(self.handle, at, program, len(selector), memory, size)
            else:
                length = slow.sb_queue_browse(self.handle, at, memory, size)
            if length >= 0:
                return bytes(ffi.buffer(memory, length)), int(at[0])
            if -length == native.EMPTY:
                return None
            if -length == native.GROW:
                self.connection.attachment.grow()
                continue
            if -length != native.FULL:
                native.raise_for(-length, self.what)
            size = int.from_bytes(bytes(ffi.buffer(memory, 8)), "little")

    @in_flight
    def browse_place(self, position: int) -> tuple[bytes, int, Place] | None:
        """Browses as :meth:`browse` does: returns the record without the body, the position, and the body's place."""
        at, size, place = ffi.new("uint64_t *", position), native.RECORD_BYTES, ffi.new("sb_place *")
        memory = ffi.new("char[]", size)
        while (length := slow.sb_queue_browse_place(self.handle, at, memory, size, place)) == -native.GROW:
            self.connection.attachment.grow()
        if length >= 0:
            found = Place(int(place.slot), int(place.generation), int(place.length))
            return bytes(ffi.buffer(memory, length)), int(at[0]), found
        if -length != native.EMPTY:
            native.raise_for(-length, self.what)
        return None

    # ---- topology and facts ----

    def changes_lives(self) -> bool:
        """Whether the queue has a setting that changes the life of messages that are put. Updates `has_ttl`.

        Such a queue needs a publication of its own: the core then gives the message its life.
        """
        self.has_ttl = bool(self.facts().settings.flags & _TTL)
        return self.has_ttl

    @in_flight
    def facts(self) -> QueueFacts:
        """The core's description of the queue.

        Raises:
            NotFound: the queue was deleted.
        """
        facts = self.connection.queue_facts(self.slot)
        if facts is None or incarnation_of(facts) != self.incarnation:  # a later queue may have the slot
            native.raise_for(native.DELETED, self.what)
        return facts

    def settings(self) -> tuple[QueueSettings, int]:
        """The settings now, and which of the flags PAUSED, KEEPS, NOTES, STAGE and AUTO_CREATED the queue has.

        Raises:
            NotFound: the queue was deleted.
        """
        facts = self.facts()
        return decoded_settings(facts, self.connection.queue_texts(self.slot) if facts.settings.texts_length else b"")

    def given(self) -> frozenset[str]:
        """The names of the settings that were given for this queue; address settings determine the others."""
        return given_settings(self.facts())

    @in_flight
    def configure(
        self, settings: QueueSettings, flags: int, *, trim: bool, until: int, given: frozenset[str] = ALL_GIVEN
    ) -> None:
        """Changes the settings. ``given``: the names of those that were given for this queue, as for `declare`.

        Raises:
            PreconditionFailed: the queue has more consumers than the new ``max_consumers``. Nothing changed.
            Timeout: another process holds the topology lock past ``until``.
        """
        holder = ffi.new("int32_t *")
        wanted, _texts = encoded_settings(settings, flags, given, self.birth)
        status = slow.sb_queue_configure(self.handle, wanted, trim, until, holder)
        if status == native.NO_SEAT:
            least = max(self.facts().consumers, settings.max_consumers + 1)
            text = f"max_consumers={settings.max_consumers}: {self.what} in vhost '/' has {least} consumers; "
            raise amqp_error(exceptions.PreconditionFailed, f"{text}-1 (no limit) or at least {least} is allowed")
        raise_topology_error(status, holder[0], self.what)

    @in_flight
    def delete(self, *, if_unused: bool, if_empty: bool, until: int) -> int:
        """Deletes the queue; returns the number of messages deleted with it."""
        holder, removed = ffi.new("int32_t *"), ffi.new("uint64_t *")
        status = self.connection.growing(slow.sb_queue_delete, self.handle, if_unused, if_empty, until, holder, removed)
        if status in {native.IN_USE, native.NOT_EMPTY}:
            reason = "in use" if status == native.IN_USE else "not empty"
            raise amqp_error(exceptions.PreconditionFailed, f"{self.what} in vhost '/' {reason}")
        raise_topology_error(status, holder[0], self.what)
        return int(removed[0])

    @in_flight
    def delete_idle(self, until: int) -> bool:
        """Deletes the queue if it has no consumer and no message, also none that a connection holds.

        Returns:
            Whether the queue is deleted, by this call or by another one.
        """
        holder = ffi.new("int32_t *")
        status = self.connection.growing(slow.sb_queue_delete_idle, self.handle, until, holder)
        if status in {native.IN_USE, native.NOT_EMPTY}:
            return False
        if status != native.DELETED:
            raise_topology_error(status, holder[0], self.what)
        return True

    @in_flight
    def purge(self) -> int:
        """Removes the ready messages, and returns their number."""
        removed = ffi.new("uint64_t *")
        status = self.connection.growing(slow.sb_queue_purge, self.handle, removed)
        if status != native.OK:
            native.raise_for(status, self.what)
        return int(removed[0])

    @in_flight
    def move(self, target: CoreQueue, limit: int, left: Any) -> tuple[int, int]:  # noqa: ANN401 - cffi has no types
        """Moves the oldest ready messages, as `sb_queue_move` does; returns their number and the status."""
        status = ffi.new("sb_status *")
        return int(slow.sb_queue_move(self.handle, target.handle, limit, left, status)), int(status[0])

    def is_deleted(self) -> bool:
        """Whether the queue is gone; False if the broker is no longer usable."""
        return self.length() == -native.DELETED

    @in_flight
    def leave(self) -> bool:
        """Detaches the handle. False: it stays, since it is in use or the queue is exclusive to the connection."""
        return bool(slow.sb_queue_close(self.handle))

    def _finalize(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            self.handle = None  # a reservation that is finalized later must not find the freed handle
            self.connection.end_made(slow.sb_queue_free, made)
