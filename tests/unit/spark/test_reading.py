# SPDX-License-Identifier: Apache-2.0
"""Reading a queue as a table, without Spark: options, columns, batches."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import shmbroker  # noqa: E402
from shmbroker import BasicProperties  # noqa: E402 - pyarrow may be missing
from shmbroker.columns import Ready  # noqa: E402
from shmbroker.spark import rows  # noqa: E402
from shmbroker.spark.options import read_options  # noqa: E402

if TYPE_CHECKING:
    from shmbroker.columns import Columns

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
    queue.put(
        b"B", properties=BasicProperties(headers={"text": "t", "number": 5, "list": [1, "x"], "none": None}), key="k"
    )
    (batch,) = rows.batches(Ready(queue).fill, "q", rows.WITH_BODIES)
    assert batch.schema == pa.schema(
        [(name, column.arrow) for name in rows.WITH_BODIES if (column := rows.COLUMNS[name])]
    )
    first, second = batch.to_pylist()
    assert (first["key"], first["headers"], first["value"]) == (None, [], b"A")
    assert (second["sequence"], second["queue"], second["redelivered"], second["value"]) == (1, "q", False, b"B")
    assert second["key"] == b"k"
    assert second["headers"] == [("text", "t"), ("number", "5"), ("list", '[1, "x"]'), ("none", None)]
    age = dt.datetime.now(dt.UTC) - second["timestamp"]
    assert abs(age) < dt.timedelta(minutes=1)


def test_batches_end_by_rows_and_by_bytes(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has so many rows, or so many bytes of bodies; one that is longer is alone. None is empty."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 3)
    monkeypatch.setattr(rows, "TEXT_BYTES", rows.TEXT_BYTES | {"body": 1000})
    bodies = [b""] * 7 + [b"x" * 600, b"y" * 2000, b"z" * 300, b"w" * 700]
    queue.put_many(bodies)
    found = list(rows.batches(Ready(queue).fill, "q", ("value",)))
    assert [len(batch) for batch in found] == [3, 3, 2, 1, 2]
    assert [row["value"] for batch in found for row in batch.to_pylist()] == bodies
    queue.purge()
    assert list(rows.batches(Ready(queue).fill, "q", ("value",))) == []


def test_headers_that_are_long(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made for what has none, of any column."""
    monkeypatch.setattr(rows, "TEXT_BYTES", dict.fromkeys(rows.TEXT_BYTES, 10))
    for at in range(3):
        queue.put(b"x" * 30 * at, key="k" * (1 + 20 * at), headers={"name": "v" * 40 * at})
    found = [row for batch in rows.batches(Ready(queue).fill, "q", rows.WITH_BODIES) for row in batch.to_pylist()]
    assert [len(row["value"]) for row in found] == [0, 30, 60]
    assert [len(row["key"]) for row in found] == [1, 21, 41]
    assert [len(dict(row["headers"])["name"]) for row in found] == [0, 40, 80]


def test_a_read_that_is_given_up_leaves_nothing(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `limit` does it: the next batch, which is being made meanwhile, is waited for; no thread goes on."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    queue.put_many([b"A"] * 9)
    before = set(threading.enumerate())
    found = rows.batches(Ready(queue).fill, "q", ("sequence",))
    assert next(found).num_rows == 2
    found.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before  # one of another test may end meanwhile


def test_an_error_of_the_next_batch_is_raised_when_it_is_asked_for(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not before; the ones that were made are there."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    queue.put_many([b"A"] * 9)
    ready, filled = Ready(queue), iter([None, shmbroker.NotFound(404, "gone")])

    def fill(columns: Columns, most: int) -> tuple[int, bool]:
        if (error := next(filled)) is not None:
            raise error
        return ready.fill(columns, most)

    found = rows.batches(fill, "q", ("sequence",))
    assert next(found).num_rows == 2
    with pytest.raises(shmbroker.NotFound, match="gone"):
        next(found)


def test_what_others_hold_is_passed_over(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they have taken; no more rows are read than are wanted."""
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    queue.put_many([b"%d" % at for at in range(9)])
    held = queue.get_many(4)
    held[1].nack()
    held[3].ack()
    found = rows.batches(Ready(queue, most=5).fill, "q", ("sequence",))
    assert [row["sequence"] for batch in found for row in batch.to_pylist()] == [1, 4, 5, 6, 7]
