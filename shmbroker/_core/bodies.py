# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages: views of the bodies of held messages, and reads of browsed messages by their place."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._core import native
from shmbroker._core.calls import in_flight
from shmbroker._core.growing import Growing

if TYPE_CHECKING:
    from shmbroker._core import record

ffi, slow = native.ffi, native.slow
_IN_PARTS: int = slow.SB_IN_PARTS
_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


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


class Bodies(Growing):
    """Reads bodies in place, or copies them."""

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

    def held_body(self, taken: bytes, header: record.Header) -> Any:  # noqa: ANN401 - bytes-like
        """Returns the body of a held message; a view that is valid as long as the message is held, or a copy.

        Args:
            taken: the record of the message.
            header: the header of the record.
        """
        if header.body_address == 0:
            return taken[len(taken) - header.body_length :]
        if header.body_address == _IN_PARTS:
            return self.copy_body(header.tag, header.sequence, header.body_address)
        return ffi.buffer(ffi.cast("char *", header.body_address), header.body_length)

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

        The body is read in place, and stays as long as the memoryview, whatever happens to the message. The method
        copies the body instead if one of these is true: it has at most 4 KiB; it lies in several pieces; it was
        published to more than four queues; it has about a dozen views already; another caller reads it in place this
        way; or the broker has no memory to record the reader.
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
        """Handles the end of a view of a closed connection: the end of the last view releases the connection.

        Safe inside the garbage collector.
        """
        if self.closed and not self.calls:  # else the end of the last call releases the connection
            self.forget()
