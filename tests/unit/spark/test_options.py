# SPDX-License-Identifier: Apache-2.0
"""What reads, streams and writes may be asked for: the options as a whole, and each value that is allowed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from shmbroker.spark.options import (
    ReadOptions,
    StreamOptions,
    WriteOptions,
    columns_asked_for,
    read_options,
    stream_options,
    stream_write_options,
    table_asked_for,
    write_options,
)
from shmbroker.spark.payloads import Payload

COLUMNS = ("sequence", "queue", "key", "headers", "timestamp", "redelivered", "value")
OF_ARROW = Payload("arrow", pa.schema({"id": pa.int64(), "word": pa.string()}))
STREAM = {
    "group": "g",
    "maxRowsPerTrigger": "7",
    "maxBytesPerTrigger": "8",
    "minPartitions": "9",
    "failOnDataLoss": "False",
}


def test_a_read() -> None:
    """Its defaults, and all that it may be asked for."""
    assert read_options({"queue": "q"}) == ReadOptions("q", None, Payload(), COLUMNS, None)
    given = {"path": "q", "broker": "b", "payload": "arrow", "columns": "word, id", "maxRows": "10"}
    assert read_options(given, OF_ARROW) == ReadOptions("q", "b", OF_ARROW, ("word", "id"), 10)
    assert read_options({"queue": "q", "columns": "handle"}, Payload("handle")).columns == ("handle",)


def test_a_stream() -> None:
    """Its defaults, and all that it may be asked for."""
    assert stream_options({"queue": "q"}) == StreamOptions("q", None, Payload(), COLUMNS, None, None, None, 1, True)  # noqa: FBT003
    given = {"queue": "q", "broker": "b", "payload": "arrow", "columns": "id", **STREAM}
    assert stream_options(given, OF_ARROW) == StreamOptions("q", "b", OF_ARROW, ("id",), 7, "g", 8, 9, False)  # noqa: FBT003
    assert stream_options({"queue": "q", "failondataloss": "TRUE"}).fail_on_data_loss
    assert stream_options({"queue": "q", "failondataloss": ""}).fail_on_data_loss


def test_a_write() -> None:
    """Its defaults, and all that it may be asked for; Spark's own options are let through."""
    plain = WriteOptions("q", None, "bytes", exactly_once=True, timeout=None, app=None, version=0)
    assert write_options({"queue": "q"}) == plain
    assert stream_write_options({"path": "q", "checkpointLocation": "/c", "queryName": "n"}) == plain
    given = {"queue": "q", "broker": "b", "payload": "arrow", "delivery": "At-Least-Once", "timeout": "1.5"}
    wanted = WriteOptions("q", "b", "arrow", exactly_once=False, timeout=1.5, app=None, version=0)
    assert write_options(given) == stream_write_options(given) == wanted
    numbered = {"queue": "q", "delivery": "EXACTLY-ONCE", "txnAppId": "a" * 64, "txnVersion": "5"}
    assert write_options(numbered) == WriteOptions("q", None, "bytes", exactly_once=True, app="a" * 64, version=5)


BAD: list[tuple[Any, dict[str, str], str]] = [
    (read_options, {"queue": "q", "provider": "x"}, "Spark does not pass the options of a catalog table to sources"),
    (read_options, {"queue": "q", "group": "g"}, "option 'group' is unknown: broker, queue, payload, columns, maxRows"),
    (
        read_options,
        {"queue": "", "path": ""},
        'option queue is missing: give .option("queue", NAME), or a path, as in .load(NAME) ',
    ),
    (read_options, {"queue": "q", "maxRows": "-1"}, "option maxRows is '-1': a whole number of at least 1 is allowed"),
    (read_options, {"queue": "q", "maxRows": "\u0661"}, "option maxRows is '\u0661': a whole number of at least 1"),
    (read_options, {"queue": "q", "maxRows": ""}, "option maxRows is '': a whole number of at least 1 is allowed"),
    (read_options, {"queue": "q", "payload": "x"}, "option payload is 'x': bytes or arrow or handle is allowed"),
    (stream_options, {"queue": "q", "payload": "x"}, "option payload is 'x': bytes or arrow or handle is allowed"),
    (stream_options, {"queue": "q", "maxRows": "5"}, "option 'maxrows' is unknown: broker, queue, payload, columns, "),
    (stream_options, {"queue": "q", "failOnDataLoss": "no"}, "option failOnDataLoss is 'no': true or false is allowed"),
    (stream_options, {"queue": "q", "minPartitions": "0"}, "option minPartitions is '0': a whole number of at least"),
    (stream_options, {"queue": "q", "columns": "key,value,key"}, "option columns has 'key': each of sequence, queue"),
    (write_options, {"queue": "q", "payload": "handle"}, "option payload is 'handle': bytes or arrow is allowed"),
    (
        write_options,
        {"queue": "q", "delivery": "x"},
        "option delivery is 'x': exactly-once or at-least-once is allowed",
    ),
    (
        write_options,
        {"queue": "q", "columns": "key"},
        "option 'columns' is unknown: broker, queue, delivery, payload, ",
    ),
    (write_options, {"queue": "q", "txnAppId": "a", "txnVersion": "\u0661"}, "option txnVersion is '\u0661': a whole"),
    (write_options, {"queue": "q", "txnAppId": "\ud800", "txnVersion": "1"}, "option txnAppId is '\\ud800': 1 to 64"),
    (write_options, {"queue": "q", "timeout": "-1"}, "option timeout is '-1': seconds, more than 0, are allowed"),
    (
        stream_write_options,
        {"queue": "amq.group.x"},
        "option queue is 'amq.group.x': a queue that is not the broker's own is allowed",
    ),
]


@pytest.mark.parametrize(
    ("check", "options", "text"), BAD, ids=[f"{at} {text[:30]}" for at, (*_, text) in enumerate(BAD)]
)
def test_what_is_refused(check: Any, options: dict[str, str], text: str) -> None:  # noqa: ANN401 - a function
    """The error names the option, its value, and what is allowed."""
    with pytest.raises(ValueError, match=r".") as refused:
        check(options)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize("value", ["ä" * 60, "a" * 64, "x"])
def test_names_of_applications(value: str) -> None:
    """Up to 64 characters, in up to 120 bytes."""
    assert write_options({"queue": "q", "txnAppId": value, "txnVersion": "0"}).app == value
    for longer in ("ä" * 61, "a" * 65):
        with pytest.raises(ValueError, match="1 to 64 characters without NUL, in at most 120 bytes of UTF-8"):
            write_options({"queue": "q", "txnAppId": longer, "txnVersion": "0"})


def test_what_is_asked_before_the_kind_of_read_is_known() -> None:
    """The options of all reads are allowed then."""
    given = {"queue": "q", "broker": "b", "payload": "handle", "maxRows": "1", **STREAM}
    assert table_asked_for(given) == ("q", "b", "handle")
    assert table_asked_for({"path": "q"}) == ("q", None, None)
    assert columns_asked_for(given | {"columns": "handle,key"}, Payload("handle")) == ("handle", "key")
    assert columns_asked_for({"queue": "q"}, Payload()) == COLUMNS
    for asked in (table_asked_for, lambda options: columns_asked_for(options, Payload())):
        with pytest.raises(
            ValueError, match="option 'colour' is unknown: broker, queue, payload, columns, maxRows, group"
        ):
            asked({"queue": "q", "colour": "red"})
    with pytest.raises(ValueError, match="option payload is 'x'"):
        table_asked_for({"queue": "q", "payload": "x"})
