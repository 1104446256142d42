# SPDX-License-Identifier: Apache-2.0
"""A connection: the owner of what is taken, and its IO thread."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from shmbroker import exceptions
from shmbroker._core import attachment, kept, library, segments
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker import statistics
    from shmbroker._core import wording

ffi, slow, fast = library.ffi, library.slow, library.fast
_STATES = {0: "removed", 1: "not_interested", 2: "interested", 3: "notified", 4: "non_acquiring"}
_COUNTED, _DIRECT = 1, 2
_FINDINGS = 1000
_LET_GO_SECONDS = 0.25
_POLL_SECONDS = 0.5
_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


P = ParamSpec("P")
R = TypeVar("R")


class _Connected(Protocol):
    @property
    def connection(self) -> CoreConnection: ...


S = TypeVar("S", bound=_Connected)


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A call without the GIL: closing the connection waits for its end before memory goes."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = self.connection
        if connection.attachment.forked or connection.closed:
            connection.refuse()
        # From here into the `try` without a call: neither a signal handler nor another thread comes in between.
        connection.calls += 1
        try:
            return method(self, *args, **kwargs)
        finally:
            connection.calls -= 1
            if connection.closed and not connection.calls:
                connection.forget()

    return call


class Place(NamedTuple):
    """Where a message lies that was browsed; every process of the broker finds it there, until it is gone.

    Attributes:
        slot: its slot.
        generation: tells it from others that have the slot later.
        length: bytes of its body.
    """

    slot: int
    generation: int
    length: int


class CoreConnection(attachment.User):
    """One connection id of a broker. Calls in flight are counted, so that closing frees nothing under their feet."""

    handle: Any = None  # for `__del__`, also where a signal's handler raises before `__init__` has begun

    def __init__(self, path: str, name: str) -> None:
        # The core puts its handle there before any signal handler can raise. What is lost then ends with this.
        self._handles = ffi.new("sb_connection *[1]")  # the core clears it when it drops the connection
        self._place = ffi.gc(self._handles, slow.sb_connection_dropped)
        self.closed = False
        self._forgotten = False
        self.calls = 0  # under way; each change is a single line, without a call
        self._calls_lock = locks.lock()  # a view may end, by the garbage collector, while we hold it
        self._io: threading.Thread | None = None
        self.has_io = False  # once there was a thread; whoever polls asks for that, each time
        self._let_go_at = self._polled_at = 0.0
        self.on_stopping: Callable[[], None] = lambda: None
        self.on_housekeeper_missing: Callable[[], None] = lambda: None
        self.on_ready: Callable[[int], None] = lambda _: None  # a channel is to be handed over: what it was opened with
        attachment.acquire(path, self)
        try:
            if self.attachment.closing():
                library.raise_for(library.STOPPING)
            self._open(name)
            self.mapping: attachment.Use | None = attachment.Use(self.attachment)  # views keep it longer
        except BaseException:
            slow.sb_connection_dropped(self._place)
            self._detach()
            raise
        self.handle = self._place[0]
        self.address = int(ffi.cast("uintptr_t", self.handle))
        self.id = int(slow.sb_connection_id(self.handle))
        near = library.as_fast(self.handle, "sb_connection *")  # how many are open, for others to see
        self.count_channels: Callable[[int], None] = functools.partial(fast.sb_connection_channels, near)

    def _open(self, name: str) -> None:
        encoded = name.encode(errors="replace")[:255]  # it is made of the program's, whose file may be called anything
        while (status := slow.sb_connect_at(self.attachment.handle, encoded, len(encoded), self._place)) != library.OK:
            if status == library.NO_MEMORY:
                what = f" for connection {name!r}"
                raise self.attachment.full(what)
            if status == slow.SB_LIMIT:
                raise self.attachment.all_connected(name)
            if status != library.GROW:
                library.raise_for(int(status), f"connection {name!r}")
            self.attachment.grow()

    def _detach(self) -> None:
        attachment.release(self.attachment, self)

    # ---- calls ----

    @property
    def connection(self) -> CoreConnection:
        """Itself, for :func:`guarded`."""
        return self

    def enter(self) -> None:
        """Notes that a call uses the handle; :meth:`leave` must follow."""
        if self.attachment.forked or self.closed:
            self.refuse()
        self.calls += 1

    def refuse(self) -> NoReturn:
        """Says why no call can be made."""
        if self.attachment.forked:
            library.raise_for(library.FORKED)
        library.raise_for(library.CLOSED, "the connection")

    def leave(self) -> None:
        """Ends a call; the last one after a close frees the handle."""
        self.calls -= 1
        if self.closed and not self.calls:
            self.forget()

    def end(self, call: Callable[[Any], object], handle: Any) -> None:  # noqa: ANN401 - cffi has no types
        """Ends what a handle stands for: the broker stays mapped meanwhile, whichever thread closes the connection.

        Args:
            call: of the core, that may be made after closing, and in a forked child, where it does nothing.
            handle: its argument.
        """
        self.calls += 1
        try:
            call(handle)
        finally:
            self.leave()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A call without the GIL that is not made with cffi; see :func:`guarded`."""
        if self.attachment.forked or self.closed:
            self.refuse()
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            if self.closed and not self.calls:
                self.forget()

    def let_go(self, *, at_once: bool = False) -> bool:
        """Frees what deleted queues still have, as a housekeeper does; for a call that finds no memory.

        Args:
            at_once: however short ago it looked.

        Returns:
            Whether it looked: not more often than a few times a second.
        """
        now = time.monotonic()
        if now < self._let_go_at and not at_once:
            return False
        self._let_go_at = now + _LET_GO_SECONDS
        slow.sb_housekeeper_sweep(self.handle, 0)
        slow.sb_reclaim(self.handle)  # what they had may be of another kind than what is needed
        return True

    # ---- IO thread ----

    def polled(self) -> None:
        """A call found no message, and does not wait for one.

        A client that polls for half a second gets an IO thread, as one that waits: that notices a housekeeper that
        died or is stopped. Where there is one, nobody needs to call this.
        """
        if self.has_io:
            return
        now = time.monotonic()
        if not self._polled_at:
            self._polled_at = now
        elif now - self._polled_at > _POLL_SECONDS:
            self.start_io()

    def start_io(self) -> None:
        """Starts the IO thread, unless there is one: it lives in the core without the GIL."""
        if self._io is None and not self.closed:
            threading.Thread(target=self._run_io, name=f"shmbroker-io-{self.id}", daemon=True).start()

    def _run_io(self) -> None:
        with self._calls_lock:  # it counts itself: who starts it may be interrupted anywhere, or beside another starter
            if self._io is not None or self.closed:
                return
            self._io = threading.current_thread()
            self.has_io = True
            self.calls += 1
        try:
            while True:
                status = int(slow.sb_connection_run_io(self.handle))
                if status == library.NO_HOUSEKEEPER:
                    self.on_housekeeper_missing()
                elif status == library.STOPPING:
                    self.on_stopping()
                    return
                elif status == library.READY:
                    while user := int(slow.sb_next_ready(self.handle)):
                        self.on_ready(user)
                elif status == library.GROW:
                    try:
                        self.attachment.grow()
                    except exceptions.ConnectionClosedByBroker:
                        self.on_stopping()
                        return
                else:
                    return
        finally:
            self.leave()

    @guarded
    def limit(self, prefetch: int) -> None:
        """How many messages the consumers of all its channels may have unacked; 0 = as many as there are."""
        status = slow.sb_connection_limit(self.handle, prefetch)
        if status != library.OK:
            library.raise_for(status, "the connection")

    # ---- closing ----

    def close(self) -> None:
        """Returns what is held and ends every wait. Safe to call from any thread, and again."""
        inside = False
        try:
            with self._calls_lock:
                if self._is_over():
                    return
                self.calls += 1
                inside = self.closed = True
            self.mapping = None
            slow.sb_disconnect(self.handle)
            io = self._io
            if io is not None and io is not threading.current_thread() and not self.attachment.forked:
                io.join()
        finally:
            if inside:
                self.calls -= 1
                if not self.calls:
                    self.forget()

    def _is_over(self) -> bool:
        """Whether there is nothing left to give back, and the handle must not be used.

        A garbage collector finalizes the objects of a cycle in any order: `_place` may have freed the handle before
        another finalizer closes the connection. That happens to a connection that was closed and not forgotten, because
        a signal's handler raised inside a call, which is counted for ever then.
        """
        return self._forgotten or not self._handles[0]

    def forget(self) -> None:
        """Frees the handle, after the last call; or the end of the last view does."""
        with self._calls_lock:
            if self._is_over():
                return
            self._forgotten = gone = bool(slow.sb_forget(self.handle))
        if gone:
            self._detach()

    def begin_view(self, tag: int, sequence: int, address: int) -> int:
        """Takes a reference to the body of a held message; `cffi_src/native/native_view.c` asks if it is not simple."""
        view = ffi.new("uint64_t *")
        while (status := slow.sb_begin_view(self.handle, tag, sequence, address, view)) == library.GROW:
            self.attachment.grow()
        if status == library.NO_MEMORY:
            raise out_of_memory(self, 0)
        if status != library.OK:
            library.raise_for(status, "the connection")
        return int(view[0])

    def view_failed(self, status: int) -> None:
        """Says why a body that lies in several pieces was not copied; `cffi_src/native/native_view.c` asks."""
        library.raise_for(status, "the connection")

    def body_at(self, place: Place) -> memoryview | None:
        """A body whose message nobody here holds; ``None``: the message is gone.

        It is read in place, and stays as long as the memoryview does, whatever becomes of the message. One that is
        short, in many queues, or being read in place by this way already is copied.
        """
        while True:
            found = library.read_in_place(self, *place)
            if isinstance(found, memoryview):
                return found
            if found == library.GROW:
                self.attachment.grow()
            elif found in {library.IN_USE, library.NO_MEMORY}:  # there may be none to note who reads
                return self._copied_from(place)
            elif found == library.SETTLED:
                return None
            else:
                library.raise_for(found, "the connection")

    @guarded
    def _copied_from(self, place: Place) -> memoryview | None:
        where, memory = ffi.new("sb_place *"), _uncleared("char[]", max(1, place.length))
        where.slot, where.generation, where.length = place
        status = slow.sb_copy_body(self.handle, where, memory)
        if status == library.SETTLED:
            return None
        if status != library.OK:
            library.raise_for(status, "the connection")
        return memoryview(ffi.buffer(memory, place.length)).toreadonly()

    def view_ended(self) -> None:
        """A view ended after closing: was it the last one? Also from wherever the garbage collector runs."""
        self.calls += 1
        self.leave()

    def __del__(self) -> None:
        if not self.attached or self.attachment.forked:
            return
        if self.handle is None:  # a signal's handler raised in `__init__`
            slow.sb_connection_dropped(self._handles)
            self._detach()
        elif self._is_over():  # or between that and `_detach`
            self._detach()
        else:
            self.close()  # nobody can use it any more; the handle goes after this, see `_place`

    # ---- facts ----

    @guarded
    def queue_slot(self, name: str) -> int:
        """The slot of a queue, 0 when there is none."""
        slot, encoded = ffi.new("uint32_t *"), name.encode()
        status = slow.sb_find(self.handle, encoded, len(encoded), slot)
        if status == library.NOT_FOUND:
            return 0
        if status != library.OK:
            library.raise_for(status, f"queue {name!r}")
        return int(slot[0])

    @guarded
    def touch(self, slot: int) -> None:
        """A queue was declared once more: one that expires lives on."""
        slow.sb_touch(self.handle, slot)

    def queue_incarnations(self) -> dict[str, int]:
        """The queues there are, each with what tells it from earlier ones of its name."""
        every = (self.queue_facts(slot) for slot in self.queue_slots())
        return {_name_of(facts): incarnation_of(facts) for facts in every if facts is not None}

    def queue_incarnation(self, name: str) -> int:
        """What tells the queue that has a name now from earlier ones; 0 = there is none."""
        slot = self.queue_slot(name)
        facts = self.queue_facts(slot) if slot else None
        return 0 if facts is None else incarnation_of(facts)

    @guarded
    def queues_ended(self) -> int:
        """How many queues ended by themselves so far."""
        return int(slow.sb_queues_ended(self.handle))

    @guarded
    def queue_slots(self) -> list[int]:
        """The slots of all queues."""
        index, slots = ffi.new("uint32_t *"), []
        while slot := slow.sb_next_queue(self.handle, index):
            slots.append(int(slot))
        return slots

    @guarded
    def queue_facts(self, slot: int) -> Any:  # noqa: ANN401
        """The core's description of a queue, ``None`` when it is gone."""
        facts = ffi.new("sb_queue_facts *")
        status = slow.sb_describe(self.handle, slot, facts)
        if status == library.DELETED:
            return None
        if status != library.OK:
            library.raise_for(status, "queue")
        return facts

    @guarded
    def kept(self) -> str:
        """What keeps the chunks of the broker, as the end of a sentence."""
        return kept.in_words(self.handle, self.queue_name)

    def queue_statistics(self, slot: int) -> statistics.QueueStatistics | None:
        """A snapshot of a queue, ``None`` when it is gone."""
        from shmbroker import statistics  # noqa: PLC0415 - most programs ask for none

        facts = self.queue_facts(slot)
        if facts is None:
            return None
        counted = {
            name: int(getattr(facts, name))
            for name in (
                "ready", "delivering", "scheduled", "bytes", "added", "acked", "expired", "killed", "replaced",
                "dropped", "dead_lettered", "moved", "redelivered", "rescues",
            )
        }  # fmt: skip
        lists = {
            name: max(0, int(getattr(facts, name)))
            for name in ("consumers", "interested", "notified", "not_interested", "non_acquiring")
        }
        count = counted["ready"] + counted["delivering"] + counted["scheduled"]
        return statistics.QueueStatistics(name=_name_of(facts), message_count=count, **counted, **lists)

    @guarded
    def consumers(self, slot: int, queue: str) -> list[statistics.ConsumerInfo]:
        """The consumers of a queue, and the calls that wait at it."""
        from shmbroker import statistics  # noqa: PLC0415 - most programs ask for none

        room = 256
        while True:
            facts = ffi.new("sb_consumer_facts[]", room)
            count = slow.sb_consumers_of(self.handle, slot, facts, room)
            if count < 0:
                library.raise_for(-count, f"queue {queue!r}")
            if count < room:
                break
            room *= 4
        return [
            statistics.ConsumerInfo(
                queue=queue,
                connection=fact.connection,
                channel=fact.channel,
                pid=fact.pid,
                state=_STATES.get(fact.state, "unknown"),
                priority=fact.priority,
                prefetch=fact.prefetch,
                unacked=fact.unacked,
                delivered=fact.delivered,
                waiting=not fact.flags & _COUNTED,
            )
            for fact in facts[0:count]
            if fact.flags & _COUNTED or (fact.flags & _DIRECT and _STATES.get(fact.state) in {"interested", "notified"})
        ]

    @guarded
    def connections(self) -> list[statistics.ConnectionInfo]:
        """The connections of the broker."""
        return self.attachment.connections()

    @guarded
    def is_there(self, number: int, pid: int) -> bool:
        """Has that process a connection of that number? One that died has, until it is cleared up after."""
        facts = ffi.new("sb_connection_facts *")
        found = slow.sb_connection_describe(self.attachment.handle, number, facts) == library.OK
        return bool(found and facts.pid == pid)

    @guarded
    def is_usable(self) -> bool:
        """Is the broker not on its way out?"""
        return not self.attachment.facts().closing

    @guarded
    def doctor(self) -> list[str]:
        """What is wrong with the broker's memory, in words.

        Raises:
            BrokerError: it could not be examined.
        """
        facts = self.attachment.facts()
        count = facts.segments if facts.segments <= facts.segments_limit else 0  # if there seem to be more, it is said
        damaged = segments.damaged(self.attachment.path, count, facts.chunks_per_segment)
        if damaged:  # touching what is no longer there would end this process
            return damaged
        count, findings = self._check()
        if findings:  # what was only under way is not found a second time
            again = set(self._check()[1])
            findings = [finding for finding in findings if finding in again]
        words = [finding.words(self.queue_name(finding.queue)) for finding in findings]
        return words + ([f"... and {count - _FINDINGS} more"] if count > _FINDINGS else [])

    def _check(self) -> tuple[int, list[wording.Finding]]:
        from shmbroker._core import wording  # noqa: PLC0415 - only the doctor needs it

        memory = ffi.new("sb_finding[]", _FINDINGS)
        count = int(slow.sb_check(self.handle, memory, _FINDINGS))
        findings = [wording.Finding.copied(item) for item in memory[0 : min(count, _FINDINGS)]]
        if count and findings[0].code == slow.SB_NOT_CHECKED:
            if findings[0].found == slow.SB_SYSTEM:
                text = f"broker {self.attachment.name!r} was not examined: this process has no memory for that"
                raise exceptions.BrokerError(541, text)
            library.raise_for(findings[0].found, "the connection")
        return count, findings

    def queue_name(self, slot: int) -> str | None:
        """The name of the queue in a slot; ``None``: there is none that can be read."""
        try:
            facts = self.queue_facts(slot) if slot else None
        except exceptions.BrokerError:
            return None
        return _name_of(facts) if facts is not None else None


def _name_of(facts: Any) -> str:  # noqa: ANN401
    return bytes(ffi.buffer(facts.name, facts.name_length)).decode(errors="replace")


def incarnation_of(facts: Any) -> int:  # noqa: ANN401
    """What tells a queue from others that had its name: its slot, and how often that was used."""
    return int(facts.incarnation) >> 2 << 28 | int(facts.slot)


def out_of_memory(connection: CoreConnection, size: int) -> exceptions.OutOfMemory:
    """The error of a full broker: what is used, the limit, and the queue that holds most.

    Args:
        connection: of the caller.
        size: bytes of the body there was no room for; 0 = it was for something of the broker's own.
    """
    most, name = 0, None
    for slot in connection.queue_slots():
        queue = connection.queue_facts(slot)
        if queue is not None and queue.bytes > most:
            most, name = int(queue.bytes), _name_of(queue)
    holder = f"; queue {name!r} holds most, {most} bytes" if name is not None else "; no queue holds bodies"
    return connection.attachment.full(f" for a body of {size} bytes" if size else "", holder + connection.kept())
