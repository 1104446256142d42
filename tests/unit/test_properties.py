# SPDX-License-Identifier: Apache-2.0
"""The encoding of message properties: exact bytes, their limits, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from shmbroker import BasicProperties, properties
from shmbroker.exceptions import PreconditionFailed

ALL = BasicProperties(
    content_type="a",
    content_encoding="b",
    headers={"h": True},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="d",
    expiration="4",
    message_id="e",
    timestamp=dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=dt.UTC),
    type="f",
    user_id="g",
    app_id="i",
    cluster_id="j",
)
ALL_ENCODED = (
    b"\xff\xfc\1a\1b\0\0\0\4\1ht\1\2\3\1c\1d\x014\1e" + (7).to_bytes(8, "big") + b"\1f\1g\1i\1j"
)  # the flags from the highest bit, then the values in the order of AMQP 0-9-1


def having(**given: Any) -> BasicProperties:  # noqa: ANN401
    """Return properties by their names."""
    return BasicProperties(**given)


def test_all_properties_have_the_form_of_a_content_header() -> None:
    """Flags from the highest bit, then the values; the bytes are decoded to the same properties."""
    assert properties.encode(ALL) == ALL_ENCODED
    assert properties.decode(ALL_ENCODED) == ALL


@pytest.mark.parametrize("name", properties.NAMES)
def test_each_property_alone(name: str) -> None:
    """A property needs no other one, and decoding sets no other one."""
    one = having(**{name: getattr(ALL, name)})
    encoded = properties.encode(one)
    assert encoded[:2] == (1 << 15 - properties.NAMES.index(name)).to_bytes(2, "big")
    assert properties.decode(encoded) == one


def test_no_properties() -> None:
    """Without a property there are flags alone; no bytes are no properties."""
    assert properties.encode(BasicProperties()) == b"\0\0"
    assert properties.decode(b"\0\0") == BasicProperties()
    assert properties.decode(b"") is properties.NO_PROPERTIES


def test_a_late_timestamp_beside_no_letter_of_a_time() -> None:
    """A timestamp after 2106 is in seconds, whatever stands before it."""
    late = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
    for others in ({}, {"headers": {"a": b"x"}, "priority": 1, "message_id": "m"}):
        given = having(timestamp=late, **others)
        encoded = properties.encode(given)
        assert b"T" not in encoded
        assert properties.decode(encoded) == given


def test_a_late_time_in_the_headers_without_a_timestamp() -> None:
    """A time after 2106 in the headers is in seconds, whatever stands before and behind them."""
    late = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
    given = BasicProperties(content_type="ct", headers={"at": [late]}, delivery_mode=2, message_id="m")
    assert properties.decode(properties.encode(given)) == given


def test_bytes_in_the_headers_are_bytes() -> None:
    """Decoding gives bytes, which have a hash, also in lists and tables."""
    back = properties.decode(properties.encode(BasicProperties(headers={"a": b"\1", "b": [{"c": b"\2"}]})))
    assert back.headers is not None
    assert [type(back.headers["a"]), type(back.headers["b"][0]["c"])] == [bytes, bytes]


def test_properties_take_at_most_60000_bytes() -> None:
    """The limit counts the flags and all values, and can be reached."""
    frame = len(properties.encode(BasicProperties(headers={"a": ""})))
    assert len(properties.encode(BasicProperties(headers={"a": "x" * (60_000 - frame)}))) == 60_000
    with pytest.raises(ValueError, match="properties take 60001 bytes encoded: at most 60000 are allowed"):
        properties.encode(BasicProperties(headers={"a": "x" * (60_001 - frame)}))


@pytest.mark.parametrize("name", ["content_type", "expiration", "cluster_id"])
def test_a_short_string_takes_at_most_255_bytes(name: str) -> None:
    """The limit is on bytes of UTF-8."""
    longest = "é" * 127 + "x"
    assert properties.encode(having(**{name: longest}))[2:] == b"\xff" + longest.encode()
    with pytest.raises(ValueError, match=f"{name} takes 256 bytes: at most 255 are allowed"):
        properties.encode(having(**{name: "é" * 128}))


@pytest.mark.parametrize("value", [1, b"x", True, ["x"]])
def test_a_short_string_is_a_string(value: Any) -> None:  # noqa: ANN401
    """The error names the property and the value."""
    with pytest.raises(TypeError) as refusal:
        properties.encode(BasicProperties(reply_to=value))
    assert f"reply_to={value!r}: a string is needed" in str(refusal.value)


def test_a_short_string_can_be_written() -> None:
    """Half of a surrogate pair cannot."""
    with pytest.raises(ValueError, match=r"app_id='\\ud800': text that can be written in UTF-8"):
        properties.encode(BasicProperties(app_id="\ud800"))


@pytest.mark.parametrize("name", ["delivery_mode", "priority"])
def test_an_octet(name: str) -> None:
    """An octet is an integer from 0 to 255; a truth is none."""
    for value in (0, 1, 255):
        encoded = properties.encode(having(**{name: value}))
        assert encoded[2:] == bytes([value])
        assert properties.decode(encoded) == having(**{name: value})
    for wrong in (-1, 256, 1.0, "1", True, False):
        with pytest.raises(TypeError) as refusal:
            properties.encode(having(**{name: wrong}))
        assert f"{name}={wrong!r}: an integer from 0 to 255 is needed" in str(refusal.value)


def test_headers_are_a_dict_in_the_order_given() -> None:
    """Their order is kept, a tuple is a list; what is no dict is refused."""
    encoded = properties.encode(BasicProperties(headers={"b": 1, "a": (True, [None])}))
    assert encoded == b"\x20\0\0\0\0\x13\1bb\1\1aA\0\0\0\x08t\1A\0\0\0\1V"
    for wrong in (["a"], "a", 1):
        with pytest.raises(TypeError) as refusal:
            properties.encode(BasicProperties(headers=wrong))  # type: ignore[arg-type]
        assert f"headers={wrong!r}: a dict is needed" in str(refusal.value)


def test_a_header_that_cannot_be_encoded() -> None:
    """The kind of error is that of the table: a wrong type, or a value that is too much."""
    with pytest.raises(TypeError, match="properties cannot be encoded: headers: name 1 in a table: a string is needed"):
        properties.encode(BasicProperties(headers={1: 2}))  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="properties cannot be encoded: headers: name 'xx"):
        properties.encode(BasicProperties(headers={"x" * 129: 2}))
    with pytest.raises(ValueError, match=r"properties cannot be encoded: header '\\ud800': text"):
        properties.encode(BasicProperties(headers={"a": "\ud800"}))


@pytest.mark.parametrize(
    ("expiration", "seconds"),
    [
        ("0", 1e-9),
        ("1", 0.001),
        ("1000", 1.0),
        ("1500", 1.5),
        ("000000001000", 1.0),
        ("315360000000", 315_360_000.0),
    ],
)
def test_an_expiration_is_a_number_of_milliseconds(expiration: str, seconds: float) -> None:
    """None at all is the shortest life there is, not an endless one."""
    assert properties.seconds_of(expiration) == seconds


@pytest.mark.parametrize("expiration", ["", "soon", "-1", "1.5", " 1", "1_000", "٣", "²", 5, None, b"5"])
def test_an_expiration_that_is_no_number(expiration: object) -> None:
    """Only the digits 0 to 9 make a number."""
    with pytest.raises(PreconditionFailed) as refusal:
        properties.seconds_of(expiration)
    assert refusal.value.code == 406
    assert f"invalid expiration '{expiration}': no_integer" in str(refusal.value)


@pytest.mark.parametrize(
    ("expiration", "shown"),
    [
        ("315360000001", "315360000001"),
        ("999999999999", "999999999999"),
        ("0000000000001", "000000000000..."),
        ("9" * 5000, "999999999999..."),
    ],
)
def test_an_expiration_after_more_than_ten_years(expiration: str, shown: str) -> None:
    """The error shows the value, but not thousands of digits."""
    with pytest.raises(PreconditionFailed) as refusal:
        properties.seconds_of(expiration)
    assert refusal.value.code == 406
    assert f"invalid expiration '{shown}': {{value_too_big,{shown}}}" in str(refusal.value)
