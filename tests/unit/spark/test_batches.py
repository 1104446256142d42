# SPDX-License-Identifier: Apache-2.0
"""Batches as bodies of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from shmbroker.spark.batches import Decoder, Encoder

if TYPE_CHECKING:
    import shmbroker

WORDS = pa.record_batch({"id": [1, 2, None], "word": ["a", None, "ccc"], "deep": [[1], [], None]})
LARGE = pa.record_batch({"id": range(100_000), "half": [one / 2 for one in range(100_000)]})
CODED = pa.record_batch({"code": pa.array(["x", "y", "x"]).dictionary_encode()})
NO_STREAMS = [b"x", b"\xff" * 8, b"\xff\xff\xff\xff\x10\0\0\0" + b"z" * 24, b"hello, world" * 9]


@pytest.mark.parametrize("batches", [[], [WORDS], [WORDS, WORDS.slice(1)], [LARGE], [LARGE, LARGE], [CODED, CODED]])
def test_what_is_put_comes_out(broker: shmbroker.Broker, batches: list[pa.RecordBatch]) -> None:
    """Batches come back equal, however many and however long, and the schema is recognised the second time."""
    encoder, decoder = Encoder(), Decoder()
    with broker.connect() as connection:
        queue = connection.queue("q")
        for _ in range(2):
            encoder.encoded(batches).put(queue, "key", 1.0)
            with queue.get() as message:
                assert message.key == "key"
                assert decoder.batches(message.body) == batches


def test_long_bodies_are_written_and_read_in_place(broker: shmbroker.Broker) -> None:
    """A long body takes its slot once, and the slot is free when the last Arrow object made of it is gone."""
    with broker.connect() as connection:
        queue = connection.queue("q")
        broker.stop()  # the housekeeper would open the queue when it comes to it, which takes memory
        Encoder().encoded([LARGE]).put(queue, "", 60.0)
        held = broker.statistics().memory_used
        message = queue.get()
        (batch,) = Decoder().batches(message.body)
        column = batch.column(1).slice(7)
        message.ack()
        del batch, message
        assert column[0].as_py() == 3.5
        assert broker.statistics().memory_used == held
        del column
        assert broker.statistics().memory_used < held - LARGE.nbytes + 1


def test_schemas_take_turns() -> None:
    """Encoder and decoder follow a change of the schema, there and back."""
    encoder, decoder = Encoder(), Decoder()
    for batch in (WORDS, CODED, WORDS, WORDS.rename_columns(["a", "b", "c"]), WORDS):
        assert decoder.batches(bytes(encoder.encoded([batch]).body)) == [batch]


def test_batches_of_two_schemas_are_no_body() -> None:
    """One message has one schema."""
    with pytest.raises(pa.ArrowInvalid, match="one schema"):
        Encoder().encoded([WORDS, CODED])


def body_of(batch: pa.RecordBatch) -> bytes:
    """As others write it, with the mark of its end."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
        stream.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


@pytest.mark.parametrize("batch", [WORDS, CODED])
def test_streams_of_others(batch: pa.RecordBatch) -> None:
    """They have a mark of their end."""
    assert Decoder().batches(body_of(batch)) == [batch, batch]


@pytest.mark.parametrize("body", [*NO_STREAMS, body_of(WORDS)[:-20], body_of(CODED)[:-20]])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    """Other bodies, and parts of one, are an error, not a crash; always the same error."""
    with pytest.raises(pa.ArrowInvalid):
        Decoder().batches(body)
