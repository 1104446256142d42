# SPDX-License-Identifier: Apache-2.0
"""What was planned for a broker is for that one only; without Spark."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import shmbroker
from shmbroker.spark import broker_identity
from shmbroker.spark.broker_identity import BrokerIdentity
from shmbroker.spark.options import read_options, stream_options, write_options
from shmbroker.spark.sink import BatchWriter
from shmbroker.spark.source import BrowseReader
from shmbroker.spark.stream import LeaseReader
from shmbroker.staging import stages

pa = pytest.importorskip("pyarrow")


def test_the_broker_that_was_planned_for(connection: shmbroker.Connection) -> None:
    """It travels, and is found again in the same process and in others."""
    sent = BrokerIdentity.of(connection)
    assert pickle.loads(pickle.dumps(sent)) == sent  # noqa: S301
    assert sent.connection().broker_name == connection.broker_name
    assert connection.broker_name in sent.identity(connection.queue("q"))


def test_another_host(connection: shmbroker.Connection) -> None:
    """It is told by its kernel; the error names both hosts, also where there is no broker of that name."""
    planned = dataclasses.replace(BrokerIdentity.of(connection), host="there", boot="another")
    with pytest.raises(
        shmbroker.BrokerNotFound,
        match=r"planned the task on host 'there' for the broker .* of that host, and runs it on host '",
    ):
        planned.connection()
    with pytest.raises(
        shmbroker.BrokerNotFound,
        match="planned the task on host 'there' for the broker 'nowhere' of that host, and runs it on",
    ):
        dataclasses.replace(planned, broker="nowhere").connection()


def test_a_broker_that_was_made_anew(broker_name: str) -> None:
    """Another one of the name is refused, by readers of both kinds; the error has the times of both."""
    options = {"queue": "q", "broker": broker_name}
    batch, stream = BrowseReader(read_options(options)), LeaseReader(stream_options(options | {"group": "g"}))
    with shmbroker.Broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
        start = stream.initialOffset()
        planned = [(batch, batch.partitions()[0]), (stream, stream.partitions(start, stream.latestOffset(start))[0])]
        old = broker_identity._time(BrokerIdentity.of(connection).created_at)  # noqa: SLF001
        broker.stop(purge=True)
    with shmbroker.Broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        new = broker_identity._time(BrokerIdentity.of(connection).created_at)  # noqa: SLF001
        connection.queue("q").put(b"B")
        for reader, part in planned:
            with pytest.raises(shmbroker.BrokerNotFound, match=f"broker '{broker_name}' of host .* is gone") as gone:
                list(reader.read(part))  # type: ignore[arg-type]
            said = str(gone.value)
            assert said.index(f"made at {old}") < said.index(f"now was made at {new}")


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_task_on_another_host(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """It stages nothing for a batch that is published elsewhere; what is put as it comes is put where the task is."""
    queue = connection.queue("q")
    options = {"queue": "q", "broker": connection.broker_name, "delivery": delivery}
    sent = pickle.dumps(BatchWriter(write_options(options)))
    monkeypatch.setattr(broker_identity, "_boot", lambda: "another")
    writer = pickle.loads(sent)  # noqa: S301
    rows = iter([pa.record_batch({"value": [b"A"]})])
    if delivery == "exactly-once":
        with pytest.raises(shmbroker.BrokerNotFound, match="planned the task on host"):
            writer.write(rows)
    else:
        writer.commit([writer.write(rows)])
    assert stages(connection) == []
    assert [bytes(message) for message in queue.browse()] == ([] if delivery == "exactly-once" else [b"A"])
