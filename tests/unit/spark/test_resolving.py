# SPDX-License-Identifier: Apache-2.0
"""Claim check without Spark: handles become bodies where they lie."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from scenario_support.inside import connection_of

from shmbroker import body_references

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark import handles, resolve
from shmbroker.spark.broker_identity import BrokerIdentity

BODIES = [b"", b"short", b"twelve bytes", b"thirteen byte", b"x" * 5000, bytes(range(256)) * 1000, b"y" * 3_000_000]


def handles_of(queue: shmbroker.Queue, broker_identity: BrokerIdentity | None = None) -> list[bytes]:
    """A handle of each ready message."""
    origin = handles.Origin(broker_identity or BrokerIdentity.of(connection_of(queue)), queue.name)
    return [origin.handle_of(message.sequence, place) for message, place in body_references.of_queue(queue)]


def batch_of(rows: list[bytes | None], kind: pa.DataType | None = None) -> pa.RecordBatch:
    """A batch as it comes through Spark."""
    return pa.record_batch({"id": range(len(rows)), "handle": pa.array(rows, kind or pa.binary()), "more": rows})


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_handles_become_bodies(queue: shmbroker.Queue, kind: pa.DataType) -> None:
    """In the place of the column, of any length, with nulls; a handle may come twice; other columns stay."""
    queue.put_many(BODIES)
    found = handles_of(queue)
    rows: list[bytes | None] = [*found, None, found[5], *found]
    (batch,) = resolve([batch_of(rows, kind)])
    batch.validate(full=True)
    assert batch.schema.names == ["id", "value", "more"]
    assert batch["value"].type == pa.binary_view()
    assert batch["value"].to_pylist() == [*BODIES, None, BODIES[5], *BODIES]
    assert batch["more"].to_pylist() == rows
    assert batch["value"].cast(pa.binary()).to_pylist() == batch["value"].to_pylist()
    assert len(queue) == len(BODIES)


def test_long_bodies_are_read_where_they_lie(queue: shmbroker.Queue) -> None:
    """An Arrow object that points into a body keeps its slot, also when the message is gone, and is the last to."""
    queue.put_many([b"%d" % number * 1_000_000 for number in range(10)])
    slot = [place.slot for _, place in body_references.of_queue(queue)][3]
    (batch,) = resolve([batch_of(handles_of(queue))])
    part = batch["value"].slice(3, 1)
    queue.purge()
    queue.put_many([b"z" * 1_000_000] * 30)
    assert slot not in {place.slot for _, place in body_references.of_queue(queue)}
    assert part[0].as_buffer().slice(999_999).to_pybytes() == b"3"
    queue.purge()
    del batch
    assert part[0].as_buffer().slice(999_999).to_pybytes() == b"3"
    del part
    queue.put_many([b"z" * 1_000_000] * 30)
    assert slot in {place.slot for _, place in body_references.of_queue(queue)}


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_handle_is_stale(queue: shmbroker.Queue, size: int) -> None:
    """The error names message and queue, also when another message lies there."""
    queue.put_many([b"A" * size, b"B" * size])
    both = batch_of(handles_of(queue))
    found = resolve([both, both])
    assert next(found)["value"].to_pylist() == [b"A" * size, b"B" * size]
    queue.get().ack()
    queue.put_many([b"C" * size] * 200)
    with pytest.raises(shmbroker.StaleHandle, match="message 0 of queue 'q' is gone: it was acknowledged"):
        next(found)


def test_a_handle_of_another_place(queue: shmbroker.Queue) -> None:
    """Another host, another broker of the name, or none: the error says which one was meant."""
    queue.put(b"A")
    broker_identity = BrokerIdentity.of(connection_of(queue))
    for other, words in (
        (
            dataclasses.replace(broker_identity, boot="other", host="elsewhere"),
            "planned the task on host 'elsewhere' for the broker .* runs it on",
        ),
        (
            dataclasses.replace(broker_identity, created_at=1.5),
            "for which Spark planned is gone: that broker was made at",
        ),
        (dataclasses.replace(broker_identity, broker="missing"), "no broker 'missing' on host"),
    ):
        with pytest.raises(shmbroker.BrokerNotFound, match=words):
            next(resolve([batch_of(handles_of(queue, other))]))


@pytest.mark.parametrize("bad", [b"", b"x", b"x" * 200, struct.pack("<QQQI", 0, 0, 1, 0), b"\xff" * 28 + b'["a"]'])
def test_what_is_no_handle(queue: shmbroker.Queue, bad: bytes) -> None:
    """It is an error, however it looks."""
    queue.put(b"A")
    (right,) = handles_of(queue)
    for written in (bad, bad[:28].ljust(28, b"\xff") + right[28:], right[:28] + bad[28:]):
        with pytest.raises(ValueError, match="is not a handle"):
            next(resolve([batch_of([written])]))


@pytest.mark.parametrize("table", [{"value": [b"A"]}, {"handle": ["text"]}])
def test_a_batch_without_handles(table: dict[str, list[object]]) -> None:
    """The error names the columns that there are."""
    with pytest.raises(shmbroker.SchemaMismatch, match=r"no column 'handle' of type binary among (value|handle) \("):
        next(resolve([pa.record_batch(table)]))


def test_a_batch_that_has_bodies_already(queue: shmbroker.Queue) -> None:
    """Two columns of one name would be nobody's."""
    queue.put(b"A")
    batch = batch_of(handles_of(queue)).append_column("value", pa.array([b"B"]))
    with pytest.raises(shmbroker.SchemaMismatch, match=r"column 'value' exists already, among id .*, value"):
        next(resolve([batch]))
