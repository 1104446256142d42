# SPDX-License-Identifier: Apache-2.0
"""What encoder and decoder remember of schemas, and what a put of batches does where there is no room."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from shmbroker.spark.batches import Decoder, Encoded, Encoder

if TYPE_CHECKING:
    import shmbroker

SHORT = pa.record_batch({"id": [1, 2, 3]})
MIDDLE = pa.record_batch({"id": range(5_000)})
LONG = pa.record_batch({"id": range(100_000)})
CODES = pa.array(["x", "y", "x"]).dictionary_encode()
NESTED = [
    pa.record_batch({"code": CODES, "id": [1, 2, 3]}),
    pa.record_batch({"id": [1, 2], "codes": pa.ListArray.from_arrays([0, 1, 3], CODES)}),
    pa.record_batch({"deep": pa.StructArray.from_arrays([pa.array([1, 2, 3]), CODES], ["number", "code"])}),
]


def body(encoded: Encoded) -> bytes:
    """The bytes of a message, however they are to be written."""
    if encoded.write is None:
        return bytes(encoded.body)
    memory = bytearray(encoded.size)
    encoded.write(memoryview(memory))
    return bytes(memory)


@pytest.mark.parametrize("batch", [SHORT, MIDDLE, LONG, *NESTED])
def test_the_size_is_that_of_the_message(batch: pa.RecordBatch) -> None:
    """Exactly; a short message is encoded at once, and a longer one is written where it is to lie."""
    encoder = Encoder()
    for _ in range(2):
        encoded = encoder.encoded([batch, batch])
        assert encoded.size == len(body(encoded))
        assert (encoded.write is None) == (batch is not MIDDLE and batch is not LONG)
        assert Decoder().batches(body(encoded)) == [batch, batch]


def test_no_batches_are_an_empty_message() -> None:
    """Which is no batches again."""
    assert Encoder().encoded([]) == Encoded(0, b"", None)
    assert Decoder().batches(b"") == []
    assert Decoder().batches(SHORT.schema.serialize().to_pybytes()) == []


def test_metadata_is_part_of_a_schema() -> None:
    """A schema that differs in nothing else is another one; batches of one message may differ in it."""
    encoder, decoder = Encoder(), Decoder()
    named = SHORT.replace_schema_metadata({"made by": "a test"})
    for batch in (SHORT, named, SHORT):
        (found,) = decoder.batches(body(encoder.encoded([batch])))
        assert found.schema.equals(batch.schema, check_metadata=True)
    assert len(decoder.batches(body(encoder.encoded([SHORT, named])))) == 2


def test_a_body_at_an_odd_address_is_copied() -> None:
    """The values of a batch are where their type may lie."""
    given = body(Encoder().encoded([SHORT]))
    raw = bytearray(len(given) + 8)
    memory = pa.py_buffer(raw)
    for at in range(8):
        view = memoryview(raw)[at : at + len(given)]
        view[:] = given
        (found,) = Decoder().batches(view)
        assert found == SHORT
        address = found.column(0).buffers()[1].address
        assert address % 8 == 0
        assert (memory.address <= address < memory.address + memory.size) == ((memory.address + at) % 8 == 0)


def test_few_schemas_are_remembered() -> None:
    """A decoder keeps 64 of them, and begins anew with the next."""
    decoder = Decoder()
    for at in range(130):
        (found,) = decoder.batches(body(Encoder().encoded([pa.record_batch({f"c{at}": [at]})])))
        assert found.to_pylist() == [{f"c{at}": at}]
        assert len(decoder._known) == at % 64 + 1  # noqa: SLF001 - what grows


@pytest.mark.parametrize("batch", [SHORT, LONG])
def test_a_put_where_there_is_no_room(connection: shmbroker.Connection, batch: pa.RecordBatch) -> None:
    """It ends at the timeout, with the error of the queue, and nothing is put."""
    queue = connection.queue("q", max_length=1)
    encoder = Encoder()
    encoder.encoded([batch]).put(queue, "first", 0)
    with pytest.raises(standard_queue.Full):
        encoder.encoded([batch]).put(queue, "second", 0)
    (found,) = queue.browse()
    assert (found.key, Decoder().batches(found.body)) == ("first", [batch])


def test_the_text_of_what_is_no_stream() -> None:
    """It says how long it is."""
    for given in (b"x", b"\xff" * 4, b"12345678", b"\xff\xff\xff\xff\x01\0\0\0", bytes(9)):
        with pytest.raises(pa.ArrowInvalid, match=f"a body of {len(given)} bytes is not an Arrow stream"):
            Decoder().batches(given)


def test_batches_of_two_schemas_are_named() -> None:
    """The error shows both of them."""
    with pytest.raises(pa.ArrowInvalid) as differ:
        Encoder().encoded([SHORT, SHORT.rename_columns(["other"])])
    assert str(differ.value) == "batches of one answer have one schema: other: int64 is not id: int64"
