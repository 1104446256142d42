# SPDX-License-Identifier: Apache-2.0
"""Reading a queue as a table, without Spark: options, columns, batches."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from shmbroker import BasicProperties  # noqa: E402 - pyarrow may be missing
from shmbroker.spark import rows  # noqa: E402
from shmbroker.spark.options import read_options  # noqa: E402

if TYPE_CHECKING:
    import shmbroker

BAD = [
    ({}, "option queue is missing"),
    ({"queue": "jobs", "maxrow": "5"}, "option 'maxrow' is unknown: broker, queue, payload, columns, maxRows are"),
    ({"queue": "jobs", "maxRows": "0"}, "option maxRows is '0': a whole number of at least 1"),
    ({"queue": "jobs", "maxRows": "many"}, "option maxRows is 'many'"),
    ({"queue": "jobs", "columns": "value,colour"}, "option columns has 'colour': each of sequence, queue"),
    ({"queue": "jobs", "columns": "key,key"}, "option columns has 'key'"),
    ({"queue": "jobs", "columns": ""}, "option columns has ''"),
    ({"queue": "jobs", "payload": "pickle"}, "option payload is 'pickle': bytes or arrow or handle is allowed"),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=[text[:40] for _, text in BAD])
def test_a_bad_option_is_refused(options: dict[str, str], text: str) -> None:
    """The error names the option and what is allowed."""
    with pytest.raises(ValueError, match="option") as refused:
        read_options(options)
    assert str(refused.value).startswith(text)


def test_options_have_no_case() -> None:
    """As Spark has it; the path of ``load`` is the queue, unless that is named."""
    assert read_options({"PATH": "jobs", "MAXROWS": "7"}).max_rows == 7
    assert read_options({"path": "jobs"}).queue == "jobs"
    assert read_options({"path": "jobs", "queue": "others", "columns": " value , key "}).columns == ("value", "key")


def test_a_message_as_a_row(queue: shmbroker.Queue) -> None:
    """Each column has its type; what a message does not have is null, or an empty map."""
    queue.put(b"A")
    queue.put(b"B", properties=BasicProperties(headers={"text": "t", "number": 5, "list": [1, "x"]}), key="k")
    (batch,) = rows.batches(queue.browse(), tuple(rows.COLUMNS))
    assert batch.schema == pa.schema([(name, column.arrow) for name, column in rows.COLUMNS.items()])
    first, second = batch.to_pylist()
    assert (first["key"], first["headers"], first["value"]) == (None, [], b"A")
    assert (second["sequence"], second["queue"], second["redelivered"], second["value"]) == (1, "q", False, b"B")
    assert second["key"] == b"k"
    assert second["headers"] == [("text", "t"), ("number", "5"), ("list", '[1, "x"]')]
    age = dt.datetime.now(dt.UTC) - second["timestamp"]
    assert abs(age) < dt.timedelta(minutes=1)


def test_batches_end_by_rows_and_by_bytes(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has so many rows, or so many bytes of bodies, at most one more; none is empty."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 3)
    monkeypatch.setattr(rows, "BATCH_BYTES", 1000)
    queue.put_many([b""] * 7 + [b"x" * 600] * 3)
    assert [len(batch) for batch in rows.batches(queue.browse(), ("value",))] == [3, 3, 3, 1]
    queue.purge()
    assert list(rows.batches(queue.browse(), ("value",))) == []


def test_no_more_is_read_than_is_asked_for(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is there before the second is looked at."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    queue.put_many([b"A", b"B", b"C"])
    looked_at = []
    found = rows.batches((looked_at.append(message.sequence) or message for message in queue.browse()), ("value",))
    next(found)
    assert looked_at == [0, 1]
