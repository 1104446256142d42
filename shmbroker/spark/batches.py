# SPDX-License-Identifier: Apache-2.0
"""Arrow record batches as the body of a message: an IPC stream of one schema, without a mark of its end.

A stream begins with its schema, which is the same for thousands of messages. The encoder caches the encoded schema for
all but its long bodies. The decoder caches the schemas that it has parsed. A long body is written once, directly into
shared memory; a shorter one, or one with a dictionary type, is encoded in private memory first. A body is read in
place, if it is aligned.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker import Queue
    from shmbroker.staging import Writer

_CONTINUES = b"\xff\xff\xff\xff"
_PREFIX = 8  # bytes: the mark `_CONTINUES`, and the length of the schema that follows
_JOINED_BELOW = 32 << 10  # bytes: below this size, another copy costs less than the reservation of a slot
_ENCODED_BELOW = 256 << 10  # bytes: below this size, a copy costs less than the writer of a stream, 20 microseconds
_KNOWN = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """Batches on their way into a queue: either encoded already, or still to be written into a slot.

    Attributes:
        size: the size of their encoded form, in bytes.
        body: their encoded form; empty if ``write`` is set.
        write: a function that writes their encoded form into a memoryview of ``size`` bytes, and keeps no reference to
            the memoryview; ``None``: ``body`` has the encoded form.
    """

    size: int
    body: Any = b""
    write: Callable[[memoryview], None] | None = None

    def put(self, queue: Queue | Writer, key: str | None = None, timeout: float | None = None) -> None:
        """Puts the batches into ``queue``, as one message; a :class:`Writer` stages that message.

        Raises:
            queue.Full: there was no room in time, or (``OutOfMemory``) no memory.
        """
        if self.write is None:
            queue.put(self.body, key=key, timeout=timeout)
            return
        with queue.reserve(self.size, key=key, timeout=timeout) as memory:
            self.write(memory)


class Encoder:
    """Encodes batches; caches the last schema."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._prefix = b""
        self._plain = True

    def encoded(self, batches: Sequence[pa.RecordBatch]) -> Encoded:
        """Encodes the batches of one message.

        Raises:
            pyarrow.ArrowInvalid: the schemas differ.
        """
        if not batches:
            return Encoded(0, b"")
        schema = batches[0].schema
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._schema, self._prefix, self._plain = schema, schema.serialize().to_pybytes(), _is_plain(schema)
        for batch in batches[1:]:
            if not batch.schema.equals(schema):
                msg = f"batches of one answer have one schema: {batch.schema} is not {schema}"
                raise pa.ArrowInvalid(msg)
        if not self._plain:
            sink = pa.BufferOutputStream()
            _stream(sink, schema, batches)
            body = sink.getvalue()
            return Encoded(body.size, body)
        size = len(self._prefix) + sum(map(pa.ipc.get_record_batch_size, batches))
        if size >= _ENCODED_BELOW:
            return Encoded(size, write=lambda memory: _stream(_sink(memory), schema, batches))
        parts = (self._prefix, *(batch.serialize() for batch in batches))
        if size < _JOINED_BELOW:
            return Encoded(size, b"".join(parts))
        return Encoded(size, write=lambda memory: _copy(parts, memory))


def _stream(sink: Any, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:  # noqa: ANN401
    writer = pa.ipc.new_stream(sink, schema)
    for batch in batches:
        writer.write_batch(batch)  # the writer is never closed: a close would write an end mark, which no reader needs


def _copy(parts: Sequence[Any], memory: memoryview) -> None:
    """Copies the parts, which are bytes or buffers, into the memory, one behind the other."""
    at = 0
    for part in parts:
        with memoryview(part).cast("B") as source:
            memory[at : (at := at + source.nbytes)] = source


def _sink(memory: memoryview) -> Any:  # noqa: ANN401
    return pa.FixedSizeBufferWriter(pa.py_buffer(memory))


class Decoder:
    """Decodes messages; caches the schemas it has seen."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[pa.Schema, bool]] = {}

    def batches(self, body: memoryview | bytes) -> list[pa.RecordBatch]:
        """Decodes a message in place, or a copy of it if the body is not aligned.

        The body, or the copy, lives until the last Arrow object made of it is gone.

        Raises:
            pyarrow.ArrowInvalid: the body is not an Arrow stream.
        """
        buffer = pa.py_buffer(body)
        if buffer.address % 8:  # a short body may not be aligned
            buffer = pa.py_buffer(bytes(body))
        if not buffer.size:
            return []
        prefix = _prefix_of(buffer)
        try:
            return self._decoded(buffer, prefix)
        except (pa.ArrowException, OSError) as error:
            raise pa.ArrowInvalid(str(error)) from None

    def _decoded(self, buffer: pa.Buffer, prefix: bytes) -> list[pa.RecordBatch]:
        known = self._known.get(prefix)
        if known is None:
            schema = pa.ipc.read_schema(pa.py_buffer(prefix))
            if len(self._known) == _KNOWN:
                self._known.clear()
            known = self._known[prefix] = schema, _is_plain(schema)
        schema, plain = known
        if not plain:
            return list(pa.ipc.open_stream(buffer))
        source, found = pa.BufferReader(buffer.slice(len(prefix))), []
        with contextlib.suppress(EOFError):  # raised by the read, at the end of the body or at an end mark
            while True:
                found.append(pa.ipc.read_record_batch(source, schema))
        return found


def _prefix_of(buffer: pa.Buffer) -> bytes:
    """Returns the encoded schema at the start of a stream."""
    start = buffer.slice(0, min(_PREFIX, buffer.size)).to_pybytes()  # the check below raises for a shorter body
    size = _PREFIX + int.from_bytes(start[4:], "little")
    if start[:4] != _CONTINUES or size > buffer.size:
        msg = f"a body of {buffer.size} bytes is not an Arrow stream"
        raise pa.ArrowInvalid(msg)
    prefix: bytes = buffer.slice(0, size).to_pybytes()
    return prefix


def _is_plain(schema: pa.Schema) -> bool:
    """Whether the schema has no dictionary type: a stream would hold the values of a dictionary outside the batch."""
    pending = [field.type for field in schema]
    while pending:
        found = pending.pop()
        if pa.types.is_dictionary(found):
            return False
        pending += [found.field(at).type for at in range(found.num_fields)]
    return True
