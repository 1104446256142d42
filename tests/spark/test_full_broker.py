# SPDX-License-Identifier: Apache-2.0
"""Queries on a broker that plain producers have filled: they start, and go on from queue to queue."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = bytes(4_000)


def fill(queue: shmbroker.Queue) -> int:
    """Until a plain put finds no memory; returns how many messages there are."""
    count = 0
    for together in (256, 1):
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                count += queue.put_many([BODY] * together, timeout=0)
    return count


@pytest.mark.parametrize("broker", ["32M"], indirect=True)
@pytest.mark.parametrize("when", ["before it is full", "when it is full"])
def test_from_queue_to_queue(  # noqa: PLR0917 (fixtures)
    spark: Any,  # noqa: ANN401 (pyspark has no types for it here)
    broker: shmbroker.Broker,
    queue: shmbroker.Queue,
    tmp_path: Path,
    when: str,
    until_true: Callable[[Callable[[], Any]], None],
) -> None:
    """A query without limits starts on a full broker and goes on: a consumer of the target gets each message once."""
    out = connection_of(queue).queue("out")
    source = spark.readStream.format("shmbroker").option("broker", broker.name).load("q").select("value")
    sink = source.writeStream.format("shmbroker").option("broker", broker.name).option("queue", "out")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query, count = None, 0
    try:
        if when == "before it is full":
            query = sink.start()
            queue.put(BODY)
            until_true(lambda: len(out))
            out.get(timeout=0).ack()
        count = fill(queue)
        query = query or sink.start()
        with broker.connect() as connection:
            messages = connection.queue("out", passive=True).consume(prefetch=100)
            for message in itertools.islice(messages, count):
                message.ack()
        until_true(lambda: not len(queue))
    finally:
        if query is not None:
            query.stop()
    assert len(out) == 0
