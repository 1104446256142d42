# SPDX-License-Identifier: Apache-2.0
"""Spark's Python workers are killed in the middle of reading and of writing: each message is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker.staging import stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = 60


def killing_source(flag: str, point: str) -> type:  # noqa: C901 - one function, see below
    """The source and sink "killing": its worker kills itself once, in the middle of a part.

    What is made in a function is sent to the workers by value: they do not have this file.
    """
    import contextlib  # noqa: PLC0415 - as that
    import os  # noqa: PLC0415
    import signal  # noqa: PLC0415

    from shmbroker.spark import sink, source, stream  # noqa: PLC0415

    def kill_once(here: str) -> None:
        if here == point:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)

    def read_on(found: Iterator[Any]) -> Iterator[Any]:
        for batch in found:
            yield batch.slice(0, 3)
            kill_once("read")
            yield batch.slice(3)

    def write_on(given: Iterator[Any]) -> Iterator[Any]:
        for batch in given:
            yield batch.slice(0, 3)
            kill_once("write")
            yield batch.slice(3)

    class Browsing(source.BrowseReader):
        def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401
            return read_on(super().read(partition))

    class Leasing(stream.LeaseReader):
        def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401
            return read_on(super().read(partition))

    class Batch(sink.BatchWriter):
        def write(self, iterator: Iterator[Any]) -> Any:  # noqa: ANN401
            return super().write(write_on(iterator))

    class Stream(sink.StreamWriter):
        def write(self, iterator: Iterator[Any]) -> Any:  # noqa: ANN401
            return super().write(write_on(iterator))

    class Killing(source.ShmBrokerDataSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def reader(self, schema: Any) -> Any:  # noqa: ANN401
            return Browsing(super().reader(schema)._options)  # noqa: SLF001

        def streamReader(self, schema: Any) -> Any:  # noqa: ANN401, N802
            return Leasing(super().streamReader(schema)._options)  # noqa: SLF001

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ANN401, FBT001
            return Batch(super().writer(schema, overwrite)._options)  # noqa: SLF001

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802
            return Stream(super().streamWriter(schema, overwrite)._options)  # noqa: SLF001

    return Killing


@pytest.fixture
def out(queue: shmbroker.Queue) -> shmbroker.Queue:
    """Where the messages of the queue are to be, which has some now."""
    queue.put_many([b"%d" % n for n in range(COUNT)])
    return connection_of(queue).queue("out")


def check(out: shmbroker.Queue, until_true: Callable[[Callable[[], Any]], None]) -> None:
    """Each message is there once, nothing is staged, and what the dead had is given back."""
    assert sorted(int(bytes(message)) for message in out.browse()) == list(range(COUNT))
    assert stages(connection_of(out)) == []
    until_true(lambda: connection_of(out).doctor() == [])


@pytest.mark.parametrize("point", ["read", "write"])
def test_a_batch_job(
    spark: Any,  # noqa: ANN401
    out: shmbroker.Queue,
    tmp_path: Path,
    until_true: Callable[[Callable[[], Any]], None],
    point: str,
) -> None:
    """Spark tries the task again; what is read stays where it is, what is written is published once."""
    flag, broker = tmp_path / "killed", connection_of(out).broker_name
    spark.dataSource.register(killing_source(str(flag), point))
    table = spark.read.format("killing").option("broker", broker).load("q").select("value")
    table.write.format("killing").mode("append").option("broker", broker).option("queue", "out").save()
    assert flag.exists()
    check(out, until_true)
    assert len(connection_of(out).queue("q")) == COUNT


@pytest.mark.parametrize("point", ["read", "write"])
def test_a_stream(
    spark: Any,  # noqa: ANN401
    out: shmbroker.Queue,
    tmp_path: Path,
    until_true: Callable[[Callable[[], Any]], None],
    point: str,
) -> None:
    """The same, by leases; nothing is leased in the end."""
    flag, broker = tmp_path / "killed", connection_of(out).broker_name
    spark.dataSource.register(killing_source(str(flag), point))
    source = spark.readStream.format("killing").option("broker", broker).option("group", "g")
    table = source.option("maxRowsPerTrigger", COUNT // 2).option("minPartitions", 2).load("q").select("value")
    sink = table.writeStream.format("killing").option("broker", broker).option("queue", "out")
    sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert flag.exists()
    check(out, until_true)
    assert [(one.messages, one.acked) for one in shmbroker.groups(connection_of(out))] == [(0, 2)]
    assert len(connection_of(out).queue("q")) == 0
