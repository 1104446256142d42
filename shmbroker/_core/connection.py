# SPDX-License-Identifier: Apache-2.0
"""A connection, which owns the messages that it took, and its IO thread."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from shmbroker import exceptions, statistics
from shmbroker._core import attachment, examination, native, occupancy
from shmbroker._core.facts import QueueFacts, consumers_in, facts_of_queue, statistics_of_queue
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ffi, slow, fast = native.ffi, native.slow, native.fast
_SLOT_BITS: int = slow.SB_SLOT_BITS
_LET_GO_SECONDS = 0.25
_POLL_SECONDS = 0.5
_IO_PAUSE_SECONDS = 0.1
# What the IO thread does in Python, by the status with which the core asks for it.
_IO_WORK = {
    native.NO_HOUSEKEEPER: "have a housekeeper started",
    native.READY: "wake a channel",
    native.GROW: "add a segment",
}
_log = logging.getLogger("shmbroker")
_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


P = ParamSpec("P")
R = TypeVar("R")


class _Connected(Protocol):
    @property
    def connection(self) -> CoreConnection: ...


S = TypeVar("S", bound=_Connected)


def in_flight(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Counts each call of a method that drops the GIL. After close(), the last such call releases the connection."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = self.connection
        if connection.attachment.forked or connection.closed:
            connection.refuse()
        # No call from here to the `try`: neither a signal handler nor another thread can run in between.
        connection.calls += 1
        try:
            return method(self, *args, **kwargs)
        finally:
            connection.calls -= 1
            if connection.closed and not connection.calls:
                connection.forget()

    return call


class Place(NamedTuple):
    """The place of a browsed message; valid in every process of the broker until the message is gone.

    Attributes:
        slot: the slot of the message.
        generation: distinguishes it from later messages in the same slot.
        length: the bytes of its body.
    """

    slot: int
    generation: int
    length: int


class CoreConnection(attachment.User):
    """One connection to a broker. It counts the calls in flight, so that closing frees no memory they use."""

    # `__del__` reads these, even if a signal handler raises in `__init__` before they are set.
    handle: Any = None
    mapping: attachment.MappingReference | None = None

    def __init__(self, path: str, name: str) -> None:
        # The core stores the handle here before a signal handler can raise; so no exception loses the handle.
        self._handles = ffi.new("sb_connection *[1]")  # cleared when `sb_connection_discard` frees the connection
        self._place = ffi.gc(self._handles, slow.sb_connection_discard)
        self.closed = False
        self._forgotten = False
        # The number of calls in flight. A line that changes the number makes no call, so no signal handler splits it.
        self.calls = 0
        self._calls_lock = locks.lock()  # reentrant: the end of a view takes it, perhaps in the thread that holds it
        self._io: threading.Thread | None = None
        self.has_io = False  # whether an IO thread was ever started; every poll checks this
        self._let_go_at = self._polled_at = 0.0
        self.on_stopping: Callable[[], None] = lambda: None
        self.on_housekeeper_missing: Callable[[], None] = lambda: None
        self.on_ready: Callable[[int], None] = lambda _: None  # called with the number of a ready channel
        attachment.acquire(path, self)
        try:
            if self.attachment.closing():
                native.raise_for(native.STOPPING)
            self._open(name)
            # views keep the mapping alive longer than this connection
            self.mapping = attachment.MappingReference(self.attachment)
        except BaseException:
            slow.sb_connection_discard(self._place)
            self._detach()
            raise
        self.handle = self._place[0]
        self.address = int(ffi.cast("uintptr_t", self.handle))
        self.id = int(slow.sb_connection_id(self.handle))
        near = native.cast_fast(self.handle, "sb_connection *")  # for `count_channels`: how many channels are open
        self.count_channels: Callable[[int], None] = functools.partial(fast.sb_connection_set_channels, near)

    def _open(self, name: str) -> None:
        # If the caller gave no name, it begins with the program's name, which may be any bytes.
        encoded = name.encode(errors="replace")[: slow.SB_NAME_MAX]
        while (
            status := slow.sb_connection_open_at(self.attachment.handle, encoded, len(encoded), self._place)
        ) != native.OK:
            if status == native.NO_MEMORY:
                what = f" for connection {name!r}"
                raise self.attachment.full(what)
            if status == slow.SB_LIMIT:
                raise self.attachment.all_connected(name)
            if status != native.GROW:
                native.raise_for(int(status), f"connection {name!r}")
            self.attachment.grow()

    def _detach(self) -> None:
        """Gives back both uses of the attachment, when no view remains. Safe to call again, also if interrupted.

        The reference is not left to its finalizer: an exception of a signal handler in a finalizer is printed and lost,
        and the process would stay attached. In a forked child, views that it inherited may remain: they keep the
        reference.
        """
        mapping = self.mapping
        if mapping is not None:
            if not self.attachment.forked:
                attachment.release(self.attachment, mapping)
            self.mapping = None
        attachment.release(self.attachment, self)

    # ---- calls ----

    @property
    def connection(self) -> CoreConnection:
        """Returns itself, for :func:`in_flight`."""
        return self

    def enter(self) -> None:
        """Counts a call that uses the handle; the caller must call :meth:`leave` afterwards."""
        if self.attachment.forked or self.closed:
            self.refuse()
        self.calls += 1

    def refuse(self) -> NoReturn:
        """Raises the reason why no call is possible."""
        if self.attachment.forked:
            native.raise_for(native.FORKED)
        native.raise_for(native.CLOSED, "the connection")

    def leave(self) -> None:
        """Ends a counted call; the last one after a close releases the connection."""
        self.calls -= 1
        if self.closed and not self.calls:
            self.forget()

    def end(self, call: Callable[[Any], object], handle: Any) -> None:  # noqa: ANN401 - cffi has no types
        """Ends an object of the core; meanwhile the broker stays mapped, even if another thread closes the connection.

        Args:
            call: the core's function that ends the object. It must be safe after closing, and do nothing in a forked
                child.
            handle: the handle of the object.
        """
        self.calls += 1
        try:
            call(handle)
        finally:
            self.calls -= 1  # no call of `leave`: a signal handler may raise as that begins
            if self.closed and not self.calls:
                self.forget()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call of the core that drops the GIL, for code that is no method decorated with :func:`in_flight`."""
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
        """Frees memory of deleted queues, as the housekeeper does; for a call that finds no memory.

        Args:
            at_once: sweep even if the last sweep was a moment ago.

        Returns:
            Whether it tried; without ``at_once``, it tries at most once per 0.25 s. It sweeps nothing while another
            thread or process holds the topology lock.
        """
        now = time.monotonic()
        if now < self._let_go_at and not at_once:
            return False
        self._let_go_at = now + _LET_GO_SECONDS
        slow.sb_housekeeper_sweep(self.handle, 0)
        slow.sb_connection_reclaim(self.handle)  # frees chunks of structures that hold no used slot, for any use
        return True

    def no_memory(self) -> None:
        """Handles a call that found no memory: frees that of deleted queues, and returns if the caller should retry.

        Raises:
            OutOfMemory: a call freed what there was less than 0.25 s ago.
        """
        if not self.let_go():
            raise out_of_memory(self, 0)

    @in_flight
    def growing(
        self,
        call: Callable[..., int],
        *arguments: Any,  # noqa: ANN401 - cffi has no types
    ) -> int:
        """Calls a function of the core, and again as long as it needs another segment; returns its status.

        If the broker has no memory, this method frees that of deleted queues, and calls the function once more.

        Args:
            call: the function.
            arguments: its arguments.

        Raises:
            OutOfMemory: the broker has no memory for its structures.
        """
        swept = False
        while True:
            status = int(call(*arguments))
            if status == native.GROW:
                self.attachment.grow()
            elif status != native.NO_MEMORY:
                return status
            elif swept:
                raise out_of_memory(self, 0)
            else:
                swept = self.let_go(at_once=True)

    def opening(
        self,
        call: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401 - cffi has no types
        made: list[Any] | None = None,
    ) -> tuple[Any, int]:
        """Calls a function that returns a handle, as :meth:`growing` does; adds an argument that receives the status.

        Args:
            call: the function.
            arguments: its arguments.
            made: gets what the function returns, even if a signal handler raises. The ``__del__`` of the caller gives
                it to :meth:`end_made`: so no handle stays behind that the caller could not store.

        Returns:
            The handle and the status.
        """
        status, handles = ffi.new("sb_status *"), [] if made is None else made

        def attempt() -> int:
            # One call of C opens and stores the handle. A signal handler that raises runs before this call or after it.
            handles.extend(itertools.starmap(call, [(*arguments, status)]))
            return int(status[0])

        self.growing(attempt)
        return handles[-1], int(status[0])

    def end_made(self, call: Callable[[Any], object], made: list[Any]) -> None:
        """Ends the handles that :meth:`opening` made, as :meth:`end` does. Safe to call again."""
        while made:
            handle = made.pop()
            if handle != ffi.NULL:
                self.end(call, handle)

    # ---- IO thread ----

    def polled(self) -> None:
        """Notes that a call found no message and does not wait for one.

        A client that polls for half a second gets an IO thread, as a waiting client does. The thread notices a
        housekeeper that died or is stopped. Once there is a thread, this call is unnecessary.
        """
        if self.has_io:
            return
        now = time.monotonic()
        if not self._polled_at:
            self._polled_at = now
        elif now - self._polled_at > _POLL_SECONDS:
            self.start_io()

    def start_io(self) -> None:
        """Starts the IO thread, which runs in the core without the GIL, unless there is one."""
        if self._io is None and not self.closed:
            threading.Thread(target=self._run_io, name=f"shmbroker-io-{self.id}", daemon=True).start()

    def _run_io(self) -> None:
        # The thread sets `_io` itself, since a signal may interrupt `start_io` anywhere. It checks `_io` again, since
        # two callers of `start_io` may have started a thread each.
        with self._calls_lock:
            if self._io is not None or self.closed:
                return
            self._io = threading.current_thread()
            self.has_io = True
            self.calls += 1
        said: dict[int, str] = {}
        try:
            while (status := self._io_turn(said)) in _IO_WORK:
                pass
            if status == native.STOPPING:
                self.on_stopping()
        finally:
            self.leave()

    def _io_turn(self, said: dict[int, str]) -> int:
        """Runs the IO thread in the core until there is work for Python, and does that work; returns the status.

        Work may fail for want of a descriptor, a thread or memory of this process. The thread must not end for that: no
        other thread would serve the consumers of the connection. So it logs the error, and goes on after a moment. The
        core asks again for a segment or a housekeeper as long as it needs one.

        Args:
            said: the error of each kind of work that failed last time, by status. It is logged once.
        """
        status = int(slow.sb_connection_run_io(self.handle))
        try:
            if status == native.NO_HOUSEKEEPER:
                self.on_housekeeper_missing()
            elif status == native.READY:
                while channel_number := int(slow.sb_connection_next_ready(self.handle)):
                    self.on_ready(channel_number)
            elif status == native.GROW:
                self.attachment.grow()
        except exceptions.ConnectionClosedByBroker:
            return native.STOPPING
        except Exception as error:  # noqa: BLE001 - see above
            if said.get(status) != str(error):
                said[status] = str(error)
                text = "the IO thread of connection %d to broker %r could not %s, and goes on: %s: %s"
                _log.warning(text, self.id, self.attachment.name, _IO_WORK[status], type(error).__name__, error)
            time.sleep(_IO_PAUSE_SECONDS)
        else:
            said.pop(status, None)
        return status

    @in_flight
    def limit(self, prefetch: int) -> None:
        """Limits how many messages the consumers of all its channels may have unacked; 0: no limit."""
        status = slow.sb_connection_set_prefetch(self.handle, prefetch)
        if status != native.OK:
            native.raise_for(status, "the connection")

    # ---- closing ----

    def close(self) -> None:
        """Requeues held messages and ends every wait. Safe to call from any thread, and to call again."""
        inside = False
        try:
            with self._calls_lock:
                over = self._is_over()
                if not over:
                    handle = self.handle
                    self.calls += 1
                    inside = self.closed = True
            if over:
                self._detach()  # in case a signal handler raised in `forget`, before its end
        finally:
            if inside:
                try:
                    # Runs even if a signal handler raises after `closed` is set: it then raises inside the `try`.
                    slow.sb_connection_close(handle)
                    io = self._io
                    if io is not None and io is not threading.current_thread() and not self.attachment.forked:
                        io.join()
                finally:
                    self.calls -= 1
                    if not self.calls:
                        self.forget()

    def _is_over(self) -> bool:
        """Whether the connection was released; then the handle must not be used.

        The finalizer of `_place` can release it before :meth:`forget` does, and frees the handle, too: the garbage
        collector finalizes the objects of a cycle in any order. This concerns a connection that was dropped without a
        close. It also concerns a connection that was closed but not forgotten, because a signal handler raised inside a
        call and so left the call counted for ever.
        """
        return self._forgotten or not self._handles[0]

    def forget(self) -> None:
        """Releases the connection after the last call; if views remain, the end of the last view does it.

        The handle stays until the finalizer of `_place` frees it.
        """
        with self._calls_lock:
            if self._is_over():
                return
            self._forgotten = gone = bool(slow.sb_connection_release(self.handle))
        if gone:
            self._detach()

    def begin_view(self, tag: int, sequence: int, address: int) -> int:
        """Takes a view of a held message's body and returns the view's token.

        `cffi_src/native/native_view.c` calls this method if its own attempt failed.
        """
        view, statuses = ffi.new("uint64_t *"), list[int]()

        def attempt() -> int:
            # One call of C takes the view and stores the status. A signal handler that raises runs before this call or
            # after it.
            statuses.extend(itertools.starmap(slow.sb_view_begin, [(self.handle, tag, sequence, address, view)]))
            return statuses[-1]

        try:
            status = self.growing(attempt)
            if status != native.OK:
                native.raise_for(status, "the connection")
            return int(view[0])
        except BaseException:
            if native.OK in statuses and slow.sb_view_end(self.handle, view[0]):  # the caller does not get the view
                self.view_ended()
            raise

    @in_flight
    def copy_body(self, tag: int, sequence: int, address: int) -> memoryview:
        """Copies the body of a held message.

        `cffi_src/native/native_view.c` calls this method for a caller that only copies the body, if the body has as
        many views as it can have, or the broker has no memory to record one more.
        """
        place = ffi.new("sb_place *")
        status = slow.sb_view_place(self.handle, tag, sequence, address, place)
        if status != native.OK:
            native.raise_for(int(status), "the connection")
        copied = self._copied_from(Place(int(place.slot), int(place.generation), int(place.length)))
        if copied is None:  # another thread has settled the message meanwhile
            native.raise_for(native.SETTLED)
        return copied

    def view_failed(self, status: int) -> None:
        """Raises the reason why a body in several pieces was not copied; `cffi_src/native/native_view.c` calls it."""
        native.raise_for(status, "the connection")

    def body_at(self, place: Place) -> memoryview | None:
        """Reads the body of a message that this connection does not hold; ``None``: the message is gone.

        The body is read in place, and stays as long as the memoryview, whatever happens to the message. A body that is
        short, in several pieces, in many queues, or already being read in place this way is copied. So is any body if
        the broker has no memory to record the reader.
        """
        while True:
            found = native.read_in_place(self, *place)
            if isinstance(found, memoryview):
                return found
            if found == native.GROW:
                self.attachment.grow()
            elif found in {native.IN_USE, native.NO_MEMORY}:  # NO_MEMORY: none to record the reader
                return self._copied_from(place)
            elif found == native.SETTLED:
                return None
            else:
                native.raise_for(found, "the connection")

    @in_flight
    def _copied_from(self, place: Place) -> memoryview | None:
        where, memory = ffi.new("sb_place *"), _uncleared("char[]", max(1, place.length))
        where.slot, where.generation, where.length = place
        status = slow.sb_place_copy_body(self.handle, where, memory)
        if status == native.SETTLED:
            return None
        if status != native.OK:
            native.raise_for(status, "the connection")
        return memoryview(ffi.buffer(memory, place.length)).toreadonly()

    def view_ended(self) -> None:
        """Handles the end of a view after closing: the last one releases the connection.

        Safe inside the garbage collector.
        """
        if self.closed and not self.calls:  # else the last call does it
            self.forget()

    def __del__(self) -> None:
        if not self.attached or self.attachment.forked:
            return
        if self.handle is None:  # a signal handler raised in `__init__`
            slow.sb_connection_discard(self._handles)
            self._detach()
        elif self._is_over():  # by `_place`; or by `forget`, in which a signal handler raised before `_detach`
            self._detach()
        else:
            self.close()  # no user is left; `_place` frees the handle afterwards

    # ---- facts ----

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

    def queue_incarnation(self, name: str) -> int:
        """The incarnation of the queue that has the name now; 0: there is no such queue."""
        slot = self.queue_slot(name)
        facts = self.queue_facts(slot) if slot else None
        return 0 if facts is None else incarnation_of(facts)

    @in_flight
    def queues_ended(self) -> int:
        """The number of queues that have ended so far without a call that deleted them, such as expired ones."""
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

    def queue_statistics(self, slot: int) -> statistics.QueueStatistics | None:
        """A snapshot of a queue, ``None`` when the queue is gone."""
        found = self._description(slot)
        return None if found is None else statistics_of_queue(found)

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
        return examination.of(self.attachment, self.handle, self.queue_name)

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


def out_of_memory(connection: CoreConnection, size: int) -> exceptions.OutOfMemory:
    """The error of a full broker: the bytes used, the limit, and the queue that holds most.

    Args:
        connection: the connection of the caller.
        size: bytes of the body there was no room for; 0: the room was for the broker's structures.
    """
    most, name = 0, None
    for slot in connection.queue_slots():
        queue = connection.queue_facts(slot)
        if queue is not None and queue.bytes > most:
            most, name = queue.bytes, queue.name
    holder = f"; queue {name!r} holds most, {most} bytes" if name is not None else "; no queue holds bodies"
    return connection.attachment.full(f" for a body of {size} bytes" if size else "", holder + connection.occupancy())
