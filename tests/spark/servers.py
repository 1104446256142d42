# SPDX-License-Identifier: Apache-2.0
"""Processes that serve: ``servers.py BROKER QUEUE FUNCTION [ARGUMENT]``; and one that asks: FUNCTION "ask"."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from shmbroker.spark import serve
from shmbroker.spark.handover.client import hand_over
from shmbroker.spark.handover.protocol import Handover

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGUMENT = sys.argv[4] if len(sys.argv) > 4 else ""


def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What came."""
    return batch


def each_row(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch for each row."""
    return (batch.slice(at, 1) for at in range(batch.num_rows))


def table(batch: pa.RecordBatch) -> pa.Table:
    """A table."""
    return pa.Table.from_batches([batch, batch])


def nothing(_batch: pa.RecordBatch) -> None:
    """No rows."""


def other_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Its number as text."""
    return batch.set_column(0, "id", batch.column(0).cast(pa.string()))


def null(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A number that is none."""
    return batch.set_column(0, "id", pa.array([None] * batch.num_rows, batch.column(0).type))


def no_batch(_batch: pa.RecordBatch) -> object:
    """What cannot be sent."""
    return [7]


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Even numbers only."""
    first = batch.column(0)[0].as_py()
    if first % 2:
        msg = f"{first} is odd"
        raise ValueError(msg)
    return batch


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError


def raises(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raises errors whose texts are none; what is the number of a batch."""
    number = batch.column(0)[0].as_py()
    if number == 1:
        raise UnspeakableError
    if number == 2:
        msg = "\ud800"
        raise ValueError(msg)
    return batch


def larger(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Eight times as much."""
    return [batch] * 8


def signed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row with a name."""
    return pa.record_batch({"id": batch.column(0), "text": [ARGUMENT] * len(batch)})


def dies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Kills its process at a number."""
    if int(ARGUMENT) in batch.column(0).to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def waits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Says that it is at a batch, and goes on when it is told so."""
    Path(ARGUMENT, "at").touch()
    while not Path(ARGUMENT, "go").exists():
        time.sleep(0.01)
    return batch


def ask(broker: str, queue: str) -> None:
    """Asks for ever, and says so after each answer."""
    batches = (pa.record_batch({"id": [number] * 5000}) for number in itertools.count())
    for batch in hand_over(batches, Handover(queue, "replies", broker=broker)):
        Path(ARGUMENT, "answered").write_text(str(batch.num_rows), encoding="ascii")


if __name__ == "__main__":
    if sys.argv[3] == "ask":
        ask(*sys.argv[1:3])
    else:
        serve(sys.argv[2], globals()[sys.argv[3]], broker=sys.argv[1])
