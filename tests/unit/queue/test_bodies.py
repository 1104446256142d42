# SPDX-License-Identifier: Apache-2.0
"""Bodies that are put: which are taken, and that they come out as they went in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.observing import assert_counts, take

from shmbroker.exceptions import OutOfMemory

if TYPE_CHECKING:
    import shmbroker

LARGEST_BODY = 2**30


@pytest.mark.parametrize("body", ["text", None, 5, ["a"], ...], ids=repr)
def test_a_body_is_bytes(queue: shmbroker.Queue, body: object) -> None:
    """A body that is not bytes-like, above all a str, is a TypeError."""
    with pytest.raises(TypeError):
        queue.put(body)
    with pytest.raises(TypeError):
        queue.put_nowait(body)
    with pytest.raises(TypeError):
        queue.put_many([b"fine", body])
    assert_counts(queue, message_count=0)


@pytest.mark.parametrize(
    "body",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"xabcx")[1:4]],
    ids=["bytes", "bytearray", "memoryview", "slice"],
)
def test_every_bytes_like_body_is_taken(queue: shmbroker.Queue, body: object) -> None:
    """Bytes, bytearray and views of them are bodies."""
    queue.put(body)
    assert queue.put_many([body, body]) == 2
    assert take(queue, 3) == ["abc"] * 3


def test_a_body_with_gaps_is_taken_as_what_it_shows(queue: shmbroker.Queue) -> None:
    """A view with a stride is either copied as it reads, or refused as no body."""
    try:
        queue.put(memoryview(b"a.b.c.")[::2])
    except (TypeError, ValueError, BufferError):
        assert_counts(queue, message_count=0)
    else:
        assert take(queue, 1) == ["abc"]


def test_a_body_is_copied_by_put(queue: shmbroker.Queue) -> None:
    """What is done to the caller's buffer after put does not reach the message."""
    for size in (3, 5000, 100_000):
        body = bytearray(b"a" * size)
        queue.put(body)
        body[:] = b"b" * size
        assert bytes(queue.get(auto_ack=True)) == b"a" * size


@pytest.mark.parametrize("size", [0, 1, 63, 64, 191, 192, 193, 255, 256, 257])
def test_short_bodies(queue: shmbroker.Queue, size: int) -> None:
    """Bodies around the size of a unit, and the empty one, come out as they went in."""
    body = bytes(range(256)) + b"x"
    queue.put(body[:size])
    message = queue.get()
    assert len(message) == size
    assert bytes(message) == body[:size]
    message.ack()
    assert_counts(queue, message_count=0, bytes=0)


@pytest.mark.parametrize("power", [12, 16, 17, 20, 21])
@pytest.mark.parametrize("off", [-65, -64, -1, 0, 1])
def test_bodies_around_the_size_classes(queue: shmbroker.Queue, power: int, off: int) -> None:
    """Bodies around a power of two come out as they went in."""
    body = bytes(range(251)) * (2**power // 251 + 1)
    body = body[: 2**power + off]
    queue.put(body)
    message = queue.get()
    assert bytes(message) == body
    message.ack()


def test_a_body_above_the_limit_is_refused(queue: shmbroker.Queue) -> None:
    """A body above 1 GiB is refused at once, without a wait, and nothing is added."""
    with pytest.raises((ValueError, OutOfMemory)), queue.reserve(LARGEST_BODY + 1):
        pass
    assert_counts(queue, added=0, message_count=0)
