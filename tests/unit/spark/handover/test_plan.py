# SPDX-License-Identifier: Apache-2.0
"""What a hand-over is given on the driver, the keys of its messages, and the errors that answers are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark import exchange
from shmbroker.spark.handover import client, protocol
from shmbroker.spark.handover.protocol import Handover

BAD: list[tuple[dict[str, Any], str]] = [
    ({"request_queue": ""}, "request_queue='': 1 to 255 bytes of UTF-8 without NUL are allowed"),
    ({"request_queue": "x" * 256}, f"request_queue={'x' * 256!r}: 1 to 255 bytes of"),
    ({"request_queue": "a\0"}, "request_queue='a\\x00': 1 to 255 bytes"),
    ({"request_queue": "\ud800"}, "request_queue='\\ud800': 1 to 255 bytes"),
    ({"request_queue": 5}, "request_queue=5: 1 to 255 bytes"),
    ({"reply_queue": ""}, "reply_queue='': 1 to 200 bytes"),
    ({"reply_queue": "ä" * 101}, f"reply_queue={'ä' * 101!r}: 1 to 200 bytes"),
    ({"reply_queue": None}, "reply_queue=None: 1 to 200 bytes"),
    ({"inflight": 0}, "inflight=0: an integer from 1 to 1024 is allowed"),
    ({"inflight": 1025}, "inflight=1025: an integer"),
    ({"inflight": True}, "inflight=True: an integer"),
    ({"inflight": 2.0}, "inflight=2.0: an integer"),
    ({"timeout": 0}, "timeout=0: seconds, more than 0, or None are allowed"),
    ({"timeout": -1.5}, "timeout=-1.5: seconds"),
    ({"timeout": "1"}, "timeout='1': seconds"),
    ({"timeout": float("nan")}, "timeout=nan: seconds"),
]
GOOD: list[dict[str, Any]] = [
    {"request_queue": "x", "reply_queue": "y"},
    {"request_queue": "x" * 255, "reply_queue": "ä" * 100},
    {"inflight": 1, "timeout": 0.001},
    {"inflight": 1024, "timeout": 1},
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=[text[:30] for _, text in BAD])
def test_a_bad_option_is_refused(options: dict[str, Any], text: str) -> None:
    """On the driver; the error names the option, the value and what is allowed."""
    with pytest.raises(ValueError, match="allowed") as refused:
        Handover(**{"request_queue": "requests", "reply_queue": "replies", **options})
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize("options", GOOD)
def test_a_plan_travels(options: dict[str, Any]) -> None:
    """With a schema, as it was made."""
    given = {"request_queue": "requests", "reply_queue": "replies", "schema": pa.schema({"id": pa.int64()}), **options}
    made = Handover(**given)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301
    assert {name: getattr(made, name) for name in given} == given


class Frame:
    """Stands in for a DataFrame."""

    def mapInArrow(self, function: Any, schema: Any) -> tuple[Any, Any]:  # noqa: ANN401, N802
        """Gives back what it was given."""
        return function, schema


def test_an_exchange_is_a_map_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is made and checked on the driver; the tasks run it over their batches."""
    pytest.importorskip("pyspark")
    from pyspark.sql import types  # noqa: PLC0415 - may be missing

    struct = types.StructType([types.StructField("id", types.LongType())])
    frame: Any = Frame()
    through, schema = exchange(frame, "requests", "replies", struct, inflight=7, timeout=1.5, broker="b")
    assert schema == struct
    seen: list[Any] = []
    monkeypatch.setattr(client, "hand_over", lambda *given: seen.append(given))
    through("batches")
    plan = Handover("requests", "replies", pa.schema({"id": pa.int64()}), 7, 1.5, "b")
    assert seen == [("batches", plan)]
    with pytest.raises(ValueError, match="inflight=0"):
        exchange(frame, "requests", "replies", struct, inflight=0)


def test_keys() -> None:
    """A request says its number and the queue of its answer; an answer the number, and the kind of error."""
    assert protocol.request_key(7, "replies.1 x") == "exchange 7 replies.1 x"
    assert protocol.read_request("exchange 7 replies.1 x") == ("7", "replies.1 x")
    for key in (
        None,
        "",
        "exchange",
        "exchange 7",
        "exchange 7 ",
        "exchange x replies",
        "other 7 replies",
        "7 replies",
    ):
        assert protocol.read_request(key) is None
    assert (protocol.answer_key("7"), protocol.answer_key("7", "failed")) == ("7 ", "7 failed")
    assert protocol.read_answer("7 ") == protocol.read_answer("7") == (7, "")
    assert protocol.read_answer("12 no-room") == (12, "no-room")
    assert protocol.read_answer("x failed") == (0, "failed")
    assert protocol.read_answer(None) == (0, "")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("failed", shmbroker.FunctionFailed),
        ("refused", shmbroker.RequestRefused),
        ("malformed", shmbroker.ExchangeError),
        ("of another release", shmbroker.ExchangeError),
        ("too-large", shmbroker.OutOfMemory),
        ("no-room", shmbroker.OutOfMemory),
    ],
)
def test_errors(kind: str, error: type[Exception]) -> None:
    """Each kind is one; its text has the queue and what the server says, in whatever bytes."""
    found = protocol.error_of(kind, b"odd \xff", "requests")
    assert type(found) is error
    assert "queue 'requests': odd \ufffd" in str(found)
