# SPDX-License-Identifier: Apache-2.0
"""Handles and homes: how they are written, which of them are believed, and what errors say of the place."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import connection_of

from shmbroker import body_references

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.body_references import Place
from shmbroker.spark import attachment, resolve, resolving
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.handles import Handle, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = BrokerIdentity("b", "there", "12345678-90ab", 1_700_000_000.25)
ORIGIN = Origin(HOME, "q")


def test_how_a_handle_is_written() -> None:
    """Sequence, generation, length and slot, and then the place in JSON; it is read as it was written."""
    place = Place(slot=5, generation=6, length=7)
    written = ORIGIN.handle_of(3, place)
    facts = b'["b","there","12345678-90ab",1700000000.25,"q"]'
    assert written == struct.pack("<QQQI", 3, 6, 7, 5) + facts
    assert ORIGIN.written == facts
    assert Handle.read(written) == Handle(ORIGIN, 3, place)
    assert Origin.read(facts) is Origin.read(facts)
    assert json.loads(Origin(dataclasses.replace(HOME, broker="ä"), "q").written)[0] == "ä"


@pytest.mark.parametrize(
    "bad", [b"", b"x" * 27, b"x" * 28, b"\0" * 28 + b"[]", b"\0" * 28 + b"7", b"\0" * 28 + b"\xff"]
)
def test_what_is_no_handle(bad: bytes) -> None:
    """The error shows its beginning, and where handles come from."""
    with pytest.raises(ValueError, match=r".") as odd:
        Handle.read(bad)
    assert str(odd.value) == f"{bad!r} is not a handle: a read with payload=handle makes handles"
    long = b"\xff" * 28 + b"x" * 100
    with pytest.raises(ValueError, match=r".") as odd:
        Handle.read(long)
    assert str(odd.value).startswith(f"{long[:80]!r} is not a handle")


def test_a_message_that_is_gone(queue: shmbroker.Queue) -> None:
    """Its handle says which one it was of; the body of one that is there is itself."""
    queue.put(b"A" * 100)
    ((message, place),) = body_references.of_queue(queue)
    handle = Handle(Origin(BrokerIdentity.of(connection_of(queue)), "q"), message.sequence, place)
    assert bytes(handle.body(connection_of(queue))) == b"A" * 100
    queue.get(auto_ack=True)
    with pytest.raises(shmbroker.StaleHandle) as gone:
        handle.body(connection_of(queue))
    assert gone.value.code == 404
    assert gone.value.text == (
        "NOT_FOUND - message 0 of queue 'q' is gone: it was acknowledged, consumed or has expired since its handle was "
        "made"
    )


def test_the_identity_of_a_broker(connection: shmbroker.Connection) -> None:
    """Its name, a part of what the kernel calls its run, and when it was made: to the microsecond."""
    assert HOME.identity(connection.queue("q")) == "b@12345678-1700000000.250000"


def test_the_home_of_a_broker(connection: shmbroker.Connection) -> None:
    """This host, this run of its kernel, and when the broker was made."""
    found = BrokerIdentity.of(connection)
    created = shmbroker.Broker(connection.broker_name).statistics().created_at
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    assert found == BrokerIdentity(connection.broker_name, socket.gethostname(), boot, created)
    assert found.connection() is attachment.connection_to(connection.broker_name)


def test_the_errors_of_a_home(connection: shmbroker.Connection) -> None:
    """Another host, and another broker of the name: what was planned, and what is here."""
    here, broker_identity = socket.gethostname(), BrokerIdentity.of(connection)
    with pytest.raises(shmbroker.BrokerNotFound) as elsewhere:
        dataclasses.replace(broker_identity, broker="b", host="there", boot="x").connection()
    assert elsewhere.value.code == 404
    assert elsewhere.value.text == (
        f"NOT_FOUND - Spark planned the task on host 'there' for the broker 'b' of that host, "
        f"and runs it on host {here!r}: a broker's messages are read and published on its host"
    )
    with pytest.raises(shmbroker.BrokerNotFound) as other:
        dataclasses.replace(broker_identity, created_at=1.5).connection()
    assert other.value.code == 404
    assert other.value.text.startswith(
        f"NOT_FOUND - the broker '{broker_identity.broker}' of host {here!r} for which Spark planned is "
        "gone: that broker was made at 1970-01-01T00:00:01.500+00:00, and the broker with this name now was made at 20"
    )


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17])
def test_arrays_of_bodies(count: int) -> None:
    """Of any number, with nulls anywhere, or nowhere; long ones point to where they lie."""
    bodies = [memoryview(b"%02d" % at * (at + 1)) for at in range(count)]
    for step in (1, 2, 3, 100):
        given = [None if at % step == step - 1 else body for at, body in enumerate(bodies)]
        found = resolving.array_of(given)
        found.validate(full=True)
        assert found.to_pylist() == [None if one is None else bytes(one) for one in given]
        assert found.null_count == given.count(None)
        assert len(found.buffers()) == 2 + sum(one is not None and len(one) > 12 for one in given)


def test_one_connection_for_all_handles(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a place: its broker is looked at once; a batch is free before the next one is made."""
    queue.put_many([b"A" * 50, b"B"])
    origin = Origin(BrokerIdentity.of(connection_of(queue)), "q")
    handles = [origin.handle_of(message.sequence, place) for message, place in body_references.of_queue(queue)]
    looks = []
    connection = BrokerIdentity.connection

    def noted(self: BrokerIdentity) -> shmbroker.Connection:
        looks.append(1)
        return connection(self)

    monkeypatch.setattr(BrokerIdentity, "connection", noted)

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield pa.record_batch({"handle": handles})

    assert [one["value"].to_pylist() for one in resolve(batches())] == [[b"A" * 50, b"B"]] * 3
    assert len(looks) == 1


def test_a_column_of_handles_may_be_anywhere(queue: shmbroker.Queue) -> None:
    """The first one, too; an empty batch is one of bodies."""
    found = next(resolve([pa.record_batch({"handle": pa.array([], pa.binary())})]))
    assert (found.schema.names, found.num_rows) == (["value"], 0)
    assert found["value"].type == pa.binary_view()
    with pytest.raises(shmbroker.SchemaMismatch) as missing:
        next(resolve([pa.record_batch({"a": [1], "b": ["x"]})]))
    assert missing.value.text == (
        "PRECONDITION_FAILED - there is no column 'handle' of type binary among a (int64), b (string)"
    )
    both = pa.record_batch({"handle": [b""], "value": [b""]})
    with pytest.raises(shmbroker.SchemaMismatch) as twice:
        next(resolve([both]))
    assert twice.value.text.startswith("PRECONDITION_FAILED - column 'value' exists already, among handle (binary), v")
    assert len(queue) == 0
