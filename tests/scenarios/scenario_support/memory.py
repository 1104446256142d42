# SPDX-License-Identifier: Apache-2.0
"""A broker's memory, mapped by a test that wants to look into it, or to damage it."""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Any

from scenario_support.brokers import segment
from scenario_support.layout import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
WORD = 8


class Memory:
    """The segments of a broker, and its structures in them as pointers of cffi: what is assigned is in the memory."""

    def __init__(self, broker: str) -> None:
        """Map the segments that exist."""
        module = compiled()
        self.ffi, self.lib = module.ffi, module.lib
        self._maps = [_mapped(broker, 0)]
        self.header = self._at(0, 0, "sb_header_shm *")
        self._maps += [_mapped(broker, number + 1) for number in range(self.header.segments)]
        self.classes = self._at(0, self.lib.SB_OFF_CLASSES, "sb_class_shm *")
        self.processes = self._at(0, self.lib.SB_OFF_PROCESSES, "sb_process_shm *")
        self.connections = self._at(0, self.lib.SB_OFF_CONNECTIONS, "uint64_t *")
        self.chunks = self._at(0, self.lib.SB_OFF_CHUNKS, "uint64_t *")
        self.directory = self._at(0, self.lib.SB_OFF_DIRECTORY, "uint64_t *")

    def contents(self) -> list[bytes]:
        """Return a copy of all there is."""
        return [bytes(memory) for memory in self._maps]

    def restore(self, contents: list[bytes]) -> None:
        """Put everything back as it was when a copy was taken."""
        for memory, content in zip(self._maps, contents, strict=True):
            memory[:] = content

    def used_words(self, filler: bytes) -> list[tuple[int, int]]:
        """Return segment and offset of every word that is neither zero nor the byte that bodies are made of."""
        found = []
        for number, memory in enumerate(self._maps):
            content = bytes(memory)
            for page in range(0, len(content), PAGE):
                if any(content[page : page + PAGE]):
                    words = range(page, page + PAGE, WORD)
                    found += [(number, at) for at in words if content[at : at + WORD].strip(filler + b"\0")]
        return found

    @contextlib.contextmanager
    def words_put_back(self, words: list[tuple[int, int]]) -> Iterator[list[Any]]:
        """Give pointers to some words, and put the words back at the end."""
        pointers = [self._at(number, offset, "uint64_t *") for number, offset in words]
        before = [pointer[0] for pointer in pointers]
        try:
            yield pointers
        finally:
            for pointer, value in zip(pointers, before, strict=True):
                pointer[0] = value

    # ---- chunks and slots ----

    def meta(self, chunk: int) -> Any:  # noqa: ANN401 (a pointer of cffi, as below)
        """Return the metadata of a chunk."""
        number, index = divmod(chunk, self.header.chunks_per_segment)
        return self._at(number + 1, index * self.lib.SB_CHUNK_META_BYTES, "sb_chunk_meta_shm *")

    def chunk_of(self, slot: int) -> int:
        """Return the chunk a slot lies in."""
        return slot // self.lib.SB_CHUNK_UNITS

    def headers(self, slot: int) -> Any:  # noqa: ANN401
        """Return a pointer to the slot's header; `[0]` is the word."""
        return self.meta(self.chunk_of(slot)).headers + slot % self.lib.SB_CHUNK_UNITS

    def slot(self, kind: str, slot: int) -> Any:  # noqa: ANN401
        """Return the structure in a slot, such as `"queue"`."""
        number, index = divmod(self.chunk_of(slot), self.header.chunks_per_segment)
        metadata = self.header.chunks_per_segment * self.lib.SB_CHUNK_META_BYTES
        inside = index * self.lib.SB_CHUNK_BYTES + slot % self.lib.SB_CHUNK_UNITS * self.lib.SB_UNIT
        return self._at(number + 1, metadata + inside, f"sb_{kind}_shm *")

    def a_free_slot(self, beside: int) -> int:
        """Return a free slot of the chunk that another slot lies in."""
        chunk = self.chunk_of(beside)
        units = self.classes[self.lib.sb_chunk_class(self.chunks[chunk])].units
        first = chunk * self.lib.SB_CHUNK_UNITS
        slots = range(first, first + self.lib.SB_CHUNK_UNITS - units + 1, units)
        return next(slot for slot in slots if self.lib.sb_slot_state(self.headers(slot)[0]) == self.lib.SB_SLOT_FREE)

    # ---- queues ----

    def entry(self, queue: str) -> int:
        """Return the index of a queue's directory entry."""
        for index, name in self._entries():
            if name == queue:
                return index
        raise LookupError(queue)

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return [name for _, name in self._entries()]

    def _entries(self) -> Iterator[tuple[int, str]]:
        for index in range(self.lib.SB_DIRECTORY_SIZE):
            word = self.directory[index]
            if word & 3 == self.lib.SB_DIR_LIVE:
                yield index, self._name(self.queue_in(word))

    def queue_in(self, entry: int) -> int:
        """Return the slot a directory entry leads to."""
        return entry >> 2 & (1 << 28) - 1

    def queue_slot(self, queue: str) -> int:
        """Return the slot of a queue."""
        return self.queue_in(self.directory[self.entry(queue)])

    def queue(self, queue: str) -> Any:  # noqa: ANN401
        """Return a queue."""
        return self.slot("queue", self.queue_slot(queue))

    def _name(self, slot: int) -> str:
        queue = self.slot("queue", slot)
        return bytes(self.ffi.buffer(queue.name, queue.name_length)).decode()

    def page(self, link: int) -> Any:  # noqa: ANN401
        """Return the page a link leads to."""
        height = self.lib.sb_link_height(link)
        return self.slot("inner" if height else "leaf", self.lib.sb_link_slot(link))

    def leaf(self, root: int, position: int = 0) -> Any:  # noqa: ANN401
        """Return the leaf of a ring that has a position."""
        while self.lib.sb_link_height(root):
            height = self.lib.sb_link_height(root)
            root = self.page(root).children[position >> 6 * height & 63]
        return self.page(root)

    def leaf_gen(self, root: int, position: int = 0) -> int:
        """Return the generation of that leaf."""
        while self.lib.sb_link_height(root):
            height = self.lib.sb_link_height(root)
            root = self.page(root).children[position >> 6 * height & 63]
        return int(self.lib.sb_slot_gen(self.headers(self.lib.sb_link_slot(root))[0]))

    def cell(self, queue: str, position: int) -> Any:  # noqa: ANN401
        """Return a cell of a queue."""
        cells = self.leaf(self.queue(queue).root, position).cells
        return cells[position % self.lib.SB_PAGE_CELLS]

    def lane(self, queue: str, number: int) -> Any:  # noqa: ANN401
        """Return a lane of a queue with priorities, other than the first."""
        at = self.queue(queue).lanes
        while at:
            lane = self.slot("lane", at)
            if lane.number == number:
                return lane
            at = lane.next
        raise LookupError(number)

    def cell_of_lane(self, queue: str, number: int, index: int) -> Any:  # noqa: ANN401
        """Return a cell of such a lane, by its number since the base of the lane."""
        lane = self.lane(queue, number)
        return self.leaf(lane.root, lane.base + index).cells[index % self.lib.SB_PAGE_CELLS]

    def body_slot(self, queue: str, position: int) -> int:
        """Return the slot of a message."""
        return int(self.lib.sb_cell_slot(self.cell(queue, position).word))

    def ledger(self, queue: str) -> Any:  # noqa: ANN401
        """Return the first ledger of a queue."""
        return self.slot("ledger", self.queue(queue).ledgers)

    # ---- connections ----

    def record(self, connection: int) -> Any:  # noqa: ANN401
        """Return the record of a connection."""
        return self.slot("connection", self.lib.sb_conn_slot(self.connections[connection]))

    def holdings(self, connection: int, kind: int) -> list[Any]:
        """Return the entries of a kind in the first table of a connection's holdings."""
        table = self.slot("holdings", self.record(connection).holdings)
        entries = [table.entries[index] for index in range(2, table.used)]
        return [entry for entry in entries if self.lib.sb_holding_kind(entry.what) == kind]

    # ---- inside ----

    def _at(self, number: int, offset: int, ctype: str) -> Any:  # noqa: ANN401
        memory = self.ffi.from_buffer(self._maps[number])
        return self.ffi.cast(ctype, memory + offset)


def _mapped(broker: str, number: int) -> mmap.mmap:
    with segment(broker, number).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
