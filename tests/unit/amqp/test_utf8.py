# SPDX-License-Identifier: Apache-2.0
"""The names that queues may have."""

from __future__ import annotations

import pytest

from shmbroker._amqp import utf8


def test_the_size_of_a_text() -> None:
    """In bytes of UTF-8; half of a surrogate pair has none."""
    assert [utf8.size_in_utf8(one) for one in ("", "a", "é", "\U0001f600")] == [0, 1, 2, 4]
    assert utf8.size_in_utf8("a\ud800") is None


@pytest.mark.parametrize("name", ["a", " ", "x" * 255, "é" * 127, "\U0001f600"], ids=ascii)
def test_a_queue_name(name: str) -> None:
    """1 to 255 bytes of UTF-8 are handed back as they are."""
    assert utf8.check_queue_name(name) is name


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "a\0b", "\0", "\ud800"], ids=ascii)
def test_what_is_no_queue_name(name: str) -> None:
    """The error shows the name and says the rule."""
    with pytest.raises(ValueError, match="1 to 255 bytes of UTF-8 without NUL are allowed") as refusal:
        utf8.check_queue_name(name)
    assert str(refusal.value).startswith(f"queue name {name!r}: ")


@pytest.mark.parametrize("name", [b"q", None, 5])
def test_a_queue_name_is_a_string(name: object) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError) as refusal:
        utf8.check_queue_name(name)
    assert str(refusal.value) == f"queue name {name!r}: a string is needed"
