# SPDX-License-Identifier: Apache-2.0
"""Headers as texts of a table, without Spark."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from shmbroker.columns import Ready
from shmbroker.spark import header_value, rows
from shmbroker.spark.headers import written

if TYPE_CHECKING:
    import shmbroker

TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
FORMS: list[tuple[Any, str | None]] = [
    ("text", "text"),
    ("5", "5"),
    (None, None),
    (True, "true"),
    (5, "5"),
    (2**62, "4611686018427387904"),
    (2.5, "2.5"),
    (decimal.Decimal("1.50"), '{"decimal": "1.50"}'),
    (b"\xff\x00", '{"bytes": "/wA="}'),
    (TIME, '{"timestamp": "2026-01-02T03:04:05+00:00"}'),
    ([1, "x", None, b"y"], '[1, "x", null, {"bytes": "eQ=="}]'),
    ({"a": 1, "at": TIME}, '{"a": 1, "at": {"timestamp": "2026-01-02T03:04:05+00:00"}}'),
    ({"bytes": "no bytes"}, '{"table": {"bytes": "no bytes"}}'),
    ({"table": {"table": {}}}, '{"table": {"table": {"table": {"table": {}}}}}'),
    ({"a": 1}, '{"a": 1}'),
    ({"bytes": 1, "b": 2}, '{"bytes": 1, "b": 2}'),
    ({}, "{}"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(dt.UTC))
)
NAMES = st.sampled_from(["bytes", "decimal", "timestamp", "table", "other"])
VALUES = st.recursive(SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(NAMES, some, max_size=3))


def test_each_type_of_a_header_has_its_form(queue: shmbroker.Queue) -> None:
    """As it comes from a message to a row, and back from there; a text is itself."""
    queue.put(b"", headers={str(at): value for at, (value, _) in enumerate(FORMS)})
    (batch,) = rows.batches(Ready(queue).fill, "q", ("headers",))
    ((found,),) = (row.values() for row in batch.to_pylist())
    assert [text for _, text in found] == [form for _, form in FORMS]
    for value, form in FORMS:
        if form is not None and not isinstance(value, str):
            assert header_value(form) == value


@given(VALUES)
def test_what_is_no_text_comes_back(value: Any) -> None:  # noqa: ANN401
    """Of each type, however it is nested."""
    text = written(value)
    if value is None or isinstance(value, str):
        assert text == value
    else:
        assert text is not None
        found = header_value(text)
        assert (found, type(found)) == (value, type(value))


def test_a_number_that_is_none() -> None:
    """What AMQP has as a number comes back as such."""
    assert math.isnan(header_value(written(math.nan) or ""))


@pytest.mark.parametrize(
    "text",
    [
        *("text", "", "{", '{"bytes": 5}', '{"bytes": "*"}', '{"decimal": "x"}', '{"timestamp": "x"}', '{"table": 5}'),
        *('"x"', '"5"', "null", "[" * 10**5 + "]" * 10**5, '{"table":' * 10**5 + "{}" + "}" * 10**5),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_is_no_other_value(text: str) -> None:
    """The error has the text and says what is allowed."""
    with pytest.raises(ValueError, match="the JSON of a number, truth value, array") as refused:
        header_value(text)
    assert str(refused.value).startswith(f"header {text!r}: ")


@pytest.mark.parametrize("value", ["5", "1.1", "true", "null", "[0, [1, 5], -1]", '{"a": "5"}'])
@pytest.mark.parametrize("kind", ["bytes", "decimal", "timestamp"])
@pytest.mark.parametrize("outer", ["%s", "[%s]", '{"table": {"a": %s}}'])
def test_a_value_with_a_form_of_its_own_is_a_text_in_it(kind: str, value: str, outer: str) -> None:
    """However it is nested: a decimal of the number 1.1 would be 1.100000000000000088..., which is another value."""
    text = outer % f'{{"{kind}": {value}}}'
    with pytest.raises(ValueError, match="the JSON of a number, truth value, array") as refused:
        header_value(text)
    assert str(refused.value).startswith(f"header {text!r}: ")
