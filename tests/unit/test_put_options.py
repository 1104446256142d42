# SPDX-License-Identifier: Apache-2.0
"""What a put is given: bodies, sizes and options, checked and in the form the core takes."""

from __future__ import annotations

import array
from typing import Any

import pytest

from shmbroker import BasicProperties, _put_options, properties
from shmbroker._core import native
from shmbroker._core.queue import NO_OPTIONS
from shmbroker.exceptions import PreconditionFailed


def test_bytes_are_taken_as_they_are() -> None:
    """The very object, and its length."""
    body = b"abc"
    found, size = _put_options.body_of(body)
    assert found is body
    assert size == 3


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"xabcx")[1:4], b"abc"),
        (array.array("H", [1, 2]), array.array("H", [1, 2]).tobytes()),
        (memoryview(b"a.b.c.")[::2], b"abc"),
        (memoryview(b"abc")[::-1], b"cba"),
        (b"", b""),
        (bytearray(), b""),
    ],
)
def test_a_body_is_contiguous_and_its_size_is_in_bytes(body: Any, content: bytes) -> None:  # noqa: ANN401
    """Whatever its items are; a view with gaps is copied."""
    found, size = _put_options.body_of(body)
    assert bytes(found) == content
    assert size == len(content)
    assert memoryview(found).contiguous


def test_a_long_body_is_not_copied() -> None:
    """A view of the caller's buffer is handed on."""
    body = bytearray(10)
    found, _ = _put_options.body_of(body)
    assert found.obj is body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("text", "a body is bytes-like, not str: encode it"),
        (5, "a body is bytes-like, not int"),
        ([b"a"], "a body is bytes-like, not list"),
    ],
)
def test_a_body_is_bytes_like(body: object, text: str) -> None:
    """A str is told to be encoded."""
    with pytest.raises(TypeError) as refusal:
        _put_options.body_of(body)
    assert str(refusal.value) == text
    assert refusal.value.__suppress_context__


def test_a_size_that_a_body_can_have() -> None:
    """0 to 1 GiB."""
    for size in (0, 1, 1 << 30):
        assert _put_options.check_size(size) == size
    for wrong in (-1, (1 << 30) + 1, True, False, 1.0, "1", None):
        with pytest.raises(ValueError, match="0 to 1073741824 bytes are allowed") as refusal:
            _put_options.check_size(wrong)
        assert str(refusal.value).startswith(f"size={wrong!r}: ")


def test_no_options() -> None:
    """Without options, or with None for each, a put has the one structure of no options."""
    assert _put_options.options_of() is NO_OPTIONS
    nothing: dict[str, Any] = dict.fromkeys(_put_options.PutKeywords.__annotations__)
    assert _put_options.options_of(**nothing) is NO_OPTIONS
    assert _put_options.fields_of(nothing) == _put_options.fields_of({}) == (0, 0, 0, b"", b"")  # type: ignore[arg-type]


def test_options_in_the_form_of_the_core() -> None:
    """Times in nanoseconds, the priority, the key and the properties."""
    options = _put_options.options_of(priority=3, ttl=1.5, delay=2, key="é", headers={"a": 1})
    made = options.pointer
    assert (made.ttl_ns, made.delay_ns, made.priority) == (1_500_000_000, 2_000_000_000, 3)
    assert bytes(native.ffi.buffer(made.key, made.key_length)) == b"\xc3\xa9"
    encoded = properties.encode(BasicProperties(headers={"a": 1}, priority=3))
    assert bytes(native.ffi.buffer(made.properties, made.properties_length)) == encoded
    assert _put_options.options_of(priority=0) is not NO_OPTIONS


P = BasicProperties


@pytest.mark.parametrize(
    ("given", "fields", "kept"),
    [
        ({"priority": 0}, (0, 0, 0, b""), None),
        ({"priority": 255}, (0, 0, 255, b""), None),
        ({"ttl": 1}, (1.0, 0, 0, b""), None),
        ({"ttl": 1e-9}, (1e-9, 0, 0, b""), None),
        ({"ttl": 10**8}, (1e8, 0, 0, b""), None),
        ({"delay": 0}, (0, 0.0, 0, b""), None),
        ({"delay": 10**8}, (0, 1e8, 0, b""), None),
        ({"key": ""}, (0, 0, 0, b""), None),
        ({"key": "é" * 127 + "x"}, (0, 0, 0, ("é" * 127 + "x").encode()), None),
        ({"headers": {"a": 1}}, (0, 0, 0, b""), P(headers={"a": 1})),
        ({"headers": {}}, (0, 0, 0, b""), P(headers={})),
        ({"headers": {"a": 1}, "priority": 7}, (0, 0, 7, b""), P(headers={"a": 1}, priority=7)),
        ({"properties": P()}, (0, 0, 0, b""), P()),
        ({"properties": P(priority=9, app_id="x")}, (0, 0, 9, b""), P(priority=9, app_id="x")),
        ({"properties": P(priority=9), "priority": 0}, (0, 0, 0, b""), P(priority=0)),
        ({"properties": P(expiration="1500")}, (1.5, 0, 0, b""), P(expiration="1500")),
        ({"properties": P(expiration="0")}, (1e-9, 0, 0, b""), P(expiration="0")),
        ({"properties": P(expiration="1500"), "ttl": 3}, (3.0, 0, 0, b""), P(expiration="1500")),
        (
            {"properties": P(headers={"a": 1}, type="t"), "headers": {"b": 2}, "delay": 5, "key": "k"},
            (0, 5.0, 0, b"k"),
            P(headers={"b": 2}, type="t"),
        ),
        ({"properties": P(headers={"a": 1}), "headers": {}}, (0, 0, 0, b""), P(headers={})),
        ({"duplicate_id": "a" * 255}, (0, 0, 0, b""), P(headers={"x-duplicate-id": "a" * 255})),
        (
            {"duplicate_id": b"a", "group": "g", "headers": {"a": 1}},
            (0, 0, 0, b""),
            P(headers={"a": 1, "JMSXGroupID": "g", "x-duplicate-id": b"a"}),
        ),
        (
            {"duplicate_id": "a", "properties": P(headers={"a": 1, "x-duplicate-id": "b"})},
            (0, 0, 0, b""),
            P(headers={"a": 1, "x-duplicate-id": "a"}),
        ),
    ],
    ids=str,
)
def test_the_fields_of_a_put(given: Any, fields: tuple[Any, ...], kept: BasicProperties | None) -> None:  # noqa: ANN401
    """Ttl, delay, priority and key, and the properties that are kept: what is given as a keyword wins over them."""
    *found, encoded = _put_options.fields_of(given)
    assert tuple(found) == fields
    assert encoded == (b"" if kept is None else properties.encode(kept))


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"prio": 1},
        TypeError,
        "a put has no keyword 'prio': timeout, priority, ttl, delay, group, duplicate_id, key, headers, properties",
    ),
    ({"key": "k", "size": 1}, TypeError, "a put has no keyword 'size': timeout, priority"),
    *[
        ({"priority": v}, ValueError, f"priority={v!r}: an integer from 0 to 255 is allowed")
        for v in (-1, 256, True, 1.0)
    ],
    *[
        ({"ttl": v}, ValueError, f"ttl={v!r}: more than 0 and at most 100000000 seconds")
        for v in (0, -1, 1e8 + 1, True)
    ],
    *[({"ttl": v}, ValueError, f"ttl={v!r}: more than 0 and at most 100000000 seconds") for v in ("1", 9e-10)],
    *[({"delay": v}, ValueError, f"delay={v!r}: 0 to 100000000 seconds are") for v in (-1, 1e8 + 1, False, "1")],
    ({"key": b"k"}, TypeError, "key=b'k': a string is needed"),
    ({"key": "x" * 256}, ValueError, "key of 256 bytes: at most 255 are allowed"),
    ({"key": "é" * 128}, ValueError, "key of 256 bytes: at most 255 are allowed"),
    ({"key": "\ud800"}, ValueError, r"key='\ud800': text that can be written in UTF-8 is allowed"),
    ({"duplicate_id": 7}, TypeError, "duplicate_id=7: a string or bytes are needed"),
    ({"duplicate_id": ""}, ValueError, "duplicate_id of 0 bytes: 1 to 255 bytes are allowed"),
    ({"duplicate_id": "é" * 128}, ValueError, "duplicate_id of 256 bytes: 1 to 255 bytes are allowed"),
    ({"duplicate_id": b"x" * 256}, ValueError, "duplicate_id of 256 bytes: 1 to 255 bytes are allowed"),
    ({"duplicate_id": "\ud800"}, ValueError, r"duplicate_id='\ud800': text that can be written in UTF-8 is allowed"),
    ({"properties": {"type": "t"}}, TypeError, "properties={'type': 't'}: BasicProperties are needed"),
    ({"headers": ["a"]}, TypeError, "headers=['a']: a dict is needed"),
    ({"properties": P(expiration="soon")}, PreconditionFailed, "invalid expiration 'soon'"),
    ({"properties": P(priority=256)}, TypeError, "priority=256: an integer from 0 to 255 is needed"),
]


@pytest.mark.parametrize(("given", "error", "text"), WRONG, ids=[ascii(given) for given, _, _ in WRONG])
def test_options_that_are_not_allowed(given: Any, error: type[Exception], text: str) -> None:  # noqa: ANN401
    """The error names the option, the value and what is allowed; options_of raises the same."""
    for check in (_put_options.fields_of, lambda given: _put_options.options_of(**given)):
        with pytest.raises(error) as refusal:
            check(given)
        assert type(refusal.value) is error
        assert text in str(refusal.value)
