# SPDX-License-Identifier: Apache-2.0
"""The formats of exports: any message comes back as it was."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmbroker import transfer
from shmbroker._amqp import field_tables
from shmbroker.properties import NO_PROPERTIES, BasicProperties, encode
from shmbroker.transfer import values

TIMES = st.integers(0, 253_402_300_799).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC))
SHORT = st.text(st.characters(codec="utf-8"), max_size=20)
OCTETS = st.integers(0, 255)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), SHORT, st.binary(max_size=20), TIMES,
    st.decimals(-(10**6), 10**6, places=3),
)  # fmt: skip
NAMES = st.one_of(SHORT, st.sampled_from(["$bytes", "$table", "$time", "$"]))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
NANOSECONDS = st.one_of(st.none(), st.integers(1, 2**63 - 1))
PROPERTIES = st.builds(
    BasicProperties, content_type=st.none() | SHORT, headers=st.none() | st.dictionaries(NAMES, VALUES, max_size=4),
    delivery_mode=st.none() | OCTETS, priority=st.none() | OCTETS, expiration=st.none() | SHORT,
    timestamp=st.none() | TIMES, type=st.none() | SHORT,
)  # fmt: skip
MESSAGES = st.builds(
    transfer.Exported, body=st.binary(max_size=50), properties=PROPERTIES | st.just(NO_PROPERTIES), exchange=SHORT,
    routing_key=st.none() | SHORT, priority=OCTETS, sequence=st.none() | st.integers(0, 2**60), state=st.just("ready"),
    timestamp_ns=NANOSECONDS, expires_ns=NANOSECONDS.map(lambda found: found or 0), due_ns=NANOSECONDS,
    delivery_count=st.none() | st.integers(0, 65535), redelivered=st.booleans(),
)  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, max_size=4))
@settings(deadline=None)
def test_a_table_comes_back(table: dict[str, Any]) -> None:
    """In the same bytes, so with the same types; the names of a table may be those of the marks."""
    text = json.dumps({name: values.to_json(value) for name, value in table.items()}, allow_nan=False)
    back = {name: values.from_json(value) for name, value in json.loads(text).items()}
    assert field_tables.encode_as_given(back) == field_tables.encode_as_given(table)


@pytest.mark.parametrize("form", transfer.FORMATS)
@given(messages=st.lists(MESSAGES, max_size=4))
@settings(deadline=None)
def test_messages_come_back(form: str, messages: list[transfer.Exported]) -> None:
    """All fields are as they were, and the properties have the same bytes."""
    if form == "arrow":
        pytest.importorskip("pyarrow")
    stream = io.BytesIO()
    transfer.write(stream, messages, form)
    stream.seek(0)
    back = list(transfer.read(stream, form))
    assert [encode(one.properties) for one in back] == [encode(one.properties) for one in messages]
    names = [name for name in transfer.Exported.__dataclass_fields__ if name != "properties"]
    assert [[getattr(one, name) for name in names] for one in back] == [
        [getattr(one, name) for name in names] for one in messages
    ]


def test_a_life_that_the_property_says() -> None:
    """A message without a time of its end is another one than a message that never ends."""
    for expires in (None, 0, 5):
        line = transfer.json_lines.line_of(transfer.Exported(b"", expires_ns=expires))
        assert next(transfer.read(io.BytesIO(line), "jsonl")).expires_ns == expires


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01 00:00:01.5+00:00", 1_500_000_000),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("2026-11-30T12:00:00.123456789Z", 1_796_040_000_123_456_789),
    ],
)
def test_times(text: str, expected: int) -> None:
    """In any zone, and to the nanosecond."""
    assert values.ns_of(text) == expected


@pytest.mark.parametrize("text", ["", "now", "2026-11-30", "2026-11-30T12:00:00", "2026-13-30T12:00:00Z"])
def test_texts_that_are_no_times(text: str) -> None:
    """A time without a zone is one of them."""
    with pytest.raises(ValueError, match=r"time|month"):
        values.ns_of(text)


def test_a_deep_table_is_refused() -> None:
    """Before Python's own limit is reached."""
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    with pytest.raises(ValueError, match="more than 40 deep"):
        values.from_json(deep)


@pytest.mark.parametrize("form", ["", "csv", None])
def test_a_format_that_is_not_known(form: Any) -> None:  # noqa: ANN401
    """The error names those that are."""
    with pytest.raises(ValueError, match="one of 'arrow', 'jsonl' is allowed"):
        transfer.write(io.BytesIO(), [], form)
    with pytest.raises(ValueError, match="one of 'arrow', 'jsonl' is allowed"):
        transfer.read(io.BytesIO(), form)


def test_a_value_that_no_table_has() -> None:
    """A mistake of the caller."""
    assert values.to_json(Decimal("1.50")) == {"$decimal": "1.50"}
    with pytest.raises(TypeError, match="complex"):
        values.to_json(1j)
