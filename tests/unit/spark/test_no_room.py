# SPDX-License-Identifier: Apache-2.0
"""Where a write finds no room, and a worker no address space: errors with their remedies, in time; without Spark."""

from __future__ import annotations

import queue as standard_queue
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import shmbroker  # noqa: E402 - pyspark may be missing
from shmbroker.spark.options import stream_write_options, write_options  # noqa: E402
from shmbroker.spark.sink import BatchWriter, StreamWriter  # noqa: E402
from shmbroker.staging import stages  # noqa: E402

MOUNT = 'mount -t tmpfs -o size=40m tmpfs /dev/shm && exec "$@"'
SMALL = """
    import pyarrow as pa
    import shmbroker, shmbroker.testing
    from shmbroker.spark.options import write_options
    from shmbroker.spark.sink import BatchWriter

    with shmbroker.testing.broker("small", memory="256M") as broker, broker.connect() as connection:
        connection.queue("q")
        writer = BatchWriter(write_options({"queue": "q", "broker": "small", "timeout": "0.2"}))
        try:
            writer.write(iter([pa.record_batch({"value": [bytes(1 << 20)] * 50})]))
        except shmbroker.OutOfMemory as full:
            print(full)
"""
NARROW = """
    import resource, sys
    import pyarrow as pa
    import shmbroker
    from shmbroker.spark.handover.client import hand_over
    from shmbroker.spark.handover.protocol import Handover

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    try:
        list(hand_over(iter([pa.record_batch({"id": [1]})]), Handover("requests", "replies", broker=sys.argv[1])))
    except shmbroker.OutOfMemory as narrow:
        print(narrow)
"""


def run(program: str, *arguments: str, within: tuple[str, ...] = ()) -> str:
    """What a program prints."""
    command = [*within, sys.executable, "-P", "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def writer_to(connection: shmbroker.Connection, **options: str) -> BatchWriter:
    """Of a batch, to queue "q"; it waits for a moment."""
    given = {"queue": "q", "broker": connection.broker_name, "timeout": "0.1"}
    return BatchWriter(write_options(given | options))


def test_a_batch_that_is_larger_than_the_broker(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """The error says what is used and by whom; nothing is left of it."""
    writer = writer_to(connection)
    with pytest.raises(shmbroker.OutOfMemory, match=r"no room for a body of 1048576 bytes.* holds most"):
        writer.write(iter([pa.record_batch({"value": [bytes(1 << 20)] * 100})]))
    assert (stages(connection), len(queue)) == ([], 0)


@pytest.mark.parametrize("columns", [["value"], ["value", "key"]])
def test_rows_are_not_left_out_where_there_is_no_room(connection: shmbroker.Connection, columns: list[str]) -> None:
    """A write as it comes fails when the queue stays full: what it had room for is there."""
    queue = connection.queue("q", max_length=2)
    rows = pa.record_batch({"value": [b"A", b"B", b"C"], "key": ["k"] * 3}).select(columns)
    with pytest.raises(standard_queue.Full):
        writer_to(connection, delivery="at-least-once").write(iter([rows]))
    assert [bytes(message) for message in queue.browse()] == [b"A", b"B"]


@pytest.mark.parametrize("count", [2, 1500], ids=["at once", "begun"])
def test_publishing_a_numbered_batch_ends_at_the_timeout(connection: shmbroker.Connection, count: int) -> None:
    """With an error of the queue; the batch that comes again then is published once, as far as it was not."""
    queue = connection.queue("q", max_length=count)
    queue.put(b"in the way")
    options = {"queue": "q", "broker": connection.broker_name, "timeout": "0.2"}
    writer = StreamWriter(stream_write_options(options))
    rows = pa.record_batch({"value": [b"%d" % n for n in range(count)]})
    for _ in range(2):
        with pytest.raises(standard_queue.Full, match="queue 'q'"):
            writer.commit([writer._stage([rows], "query.x", 7)], 7)  # noqa: SLF001 - Spark's tasks do that
    assert bytes(queue.get(auto_ack=True)) == b"in the way"
    writer.commit([writer._stage([rows], "query.x", 7)], 7)  # noqa: SLF001
    assert [int(bytes(message)) for message in queue.browse()] == list(range(count))
    assert stages(connection) == []


def test_a_small_shm() -> None:
    """The error has what to do about it in Docker and in Kubernetes."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1)")
    alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh")
    allowed = subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"not allowed to mount a tmpfs: {allowed.stderr.strip()}")
    said = run(SMALL, within=alone)
    assert re.search(r"has no room for segment \d of broker 'small'", said)
    assert "docker run --shm-size, or an emptyDir of medium Memory at /dev/shm" in said


def test_a_worker_whose_address_space_is_limited(broker_name: str) -> None:
    """The error has the limit, and Spark's setting that makes it."""
    with shmbroker.Broker(broker_name, memory="8G"):
        said = run(NARROW, broker_name)
    assert f"broker '{broker_name}': its memory cannot be mapped: the address space of this process" in said
    assert f"is limited to {4 << 30} bytes (ulimit -v)" in said
    assert "spark.executor.pyspark.memory limits the memory of Spark's Python workers" in said
