# SPDX-License-Identifier: Apache-2.0
"""The arguments of a put: what is kept with the message, whichever way they are given, and what is refused."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import assert_counts, listing

if TYPE_CHECKING:
    import shmbroker


class Text(str):
    """A string that is encoded in another way than the characters it has."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        """Returns other bytes."""
        return b"other"


ACCEPTED: dict[str, tuple[dict[str, Any], str, int]] = {
    "nothing": ({}, "", 0),
    "None": ({"key": None, "priority": None, "ttl": None, "headers": None, "timeout": None}, "", 0),
    "a key": ({"key": "a.b"}, "a.b", 0),
    "an empty key": ({"key": ""}, "", 0),
    "a key with a zero": ({"key": "a\0b"}, "a\0b", 0),
    "a key of other letters": ({"key": "κλειδί"}, "κλειδί", 0),
    "the longest key": ({"key": "é" * 127 + "e"}, "é" * 127 + "e", 0),
    "a key of a subclass": ({"key": Text("a")}, "other", 0),
    "a priority": ({"priority": 9}, "", 9),
    "the highest priority": ({"priority": 255}, "", 255),
    "a key and a priority": ({"priority": 1, "key": "k", "timeout": 0}, "k", 1),
    "a key and a life": ({"priority": 2, "ttl": 1000, "key": "k"}, "k", 2),
}


@pytest.mark.parametrize("body", [b"A", bytearray(b"A"), b"A" * 200_000], ids=["bytes", "bytearray", "long"])
@pytest.mark.parametrize("given", ACCEPTED)
def test_what_is_kept(queue: shmbroker.Queue, given: str, body: bytes | bytearray) -> None:
    """The key and the priority of a message are those of its put, for each kind of body and each way to call."""
    options, key, priority = ACCEPTED[given]
    queue.put(body, **options)
    queue.put(body=body, **options)
    queue.put_nowait(body, **{name: value for name, value in options.items() if name != "timeout"})
    for _ in range(3):
        message = queue.get(timeout=0)
        assert (bytes(message), message.routing_key, message.priority) == (bytes(body), key or queue.name, priority)
        message.ack()


EITHER = (TypeError, ValueError)
REFUSED: dict[str, tuple[type[Exception] | tuple[type[Exception], ...], str, tuple[Any, ...], dict[str, Any]]] = {
    "no body": (TypeError, r"missing 1 required positional argument: 'body'", (), {"key": "k"}),
    "two bodies": (TypeError, r"takes 2 positional arguments but 3 were given", (b"A", b"B"), {}),
    "the body twice": (TypeError, r"multiple values for argument 'body'", (b"A",), {"body": b"B"}),
    "another keyword": (TypeError, r"no keyword 'prefetch': timeout, priority", (b"A",), {"key": "k", "prefetch": 1}),
    "a key of bytes": (TypeError, r"key=b'k': a string is needed", (b"A",), {"key": b"k"}),
    "a long key": (ValueError, r"key of 256 bytes: at most 255", (b"A",), {"key": "é" * 128}),
    "half a letter": (ValueError, r"key='\\udc80': text that can be", (b"A",), {"key": "\udc80"}),
    "a true priority": (EITHER, r"priority=True", (b"A",), {"priority": True}),
    "a negative priority": (EITHER, r"priority=-1", (b"A",), {"priority": -1}),
    "a high priority": (EITHER, r"priority=256", (b"A",), {"priority": 256, "key": "k"}),
    "a huge priority": (EITHER, r"priority=1267", (b"A",), {"priority": 2**100}),
    "a bad timeout": (ValueError, r"timeout=-1", (b"A",), {"timeout": -1, "key": "k"}),
    "a bad timeout and a bad key": (TypeError, r"key=1", (b"A",), {"timeout": -1, "key": 1}),
    "text": (TypeError, r"bytes-like, not str: encode it", ("A",), {"key": "k"}),
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_refused(queue: shmbroker.Queue, given: str) -> None:
    """The error names what is wrong; the queue gets nothing."""
    error, text, positional, named = REFUSED[given]
    queue.put(b"", key="k")  # the first put of a process may have to map memory, which is not done by compiled code
    queue.get().ack()
    with pytest.raises(error, match=text):
        queue.put(*positional, **named)
    assert_counts(queue, message_count=0, added=1)


def test_a_full_queue_refuses_a_message_with_options(connection: shmbroker.Connection) -> None:
    """As one without: the error names the limit, and a put after a get succeeds."""
    queue = connection.queue("q", max_length=1)
    queue.put(b"A", key="k")
    for options in ({}, {"key": "k"}, {"priority": 1}, {"ttl": 100.0}):
        with pytest.raises(standard_queue.Full, match=r"queue 'q' is full: 1 messages are ready \(max_length=1"):
            queue.put(b"B", timeout=0, **options)  # type: ignore[arg-type]
    queue.get().ack()
    queue.put(b"C", key="k", timeout=0)
    assert listing(queue) == ["C"]
