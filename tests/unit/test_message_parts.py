# SPDX-License-Identifier: Apache-2.0
"""What a message object is made of: no object for the cyclic garbage collector, and the parts of the core's record."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import TYPE_CHECKING

import pytest

from shmbroker._core import native, record

if TYPE_CHECKING:
    import shmbroker

SHORT, LONG = 4096, 4097  # the longest body that is in its record, and the shortest that is not


@pytest.mark.parametrize("size", [0, 1, SHORT, LONG])
def test_the_collector_does_not_track_messages(queue: shmbroker.Queue, size: int) -> None:
    """A taken, an auto-acked, a browsed and a batch's message are freed with their last reference, never scanned."""
    for _ in range(3):
        queue.put(bytes(size))
    (browsed, *_) = queue.browse()
    messages = [browsed, queue.get(), queue.get(auto_ack=True), queue.get_many(1)[0]]
    assert [message for message in messages if gc.is_tracked(message)] == []
    assert [message for message in messages if bytes(message) != bytes(size)] == []


def test_a_class_without_the_collector_is_an_ordinary_class(queue: shmbroker.Queue) -> None:
    """It has its name, module, documentation and base; it makes no objects, and these take no attributes."""
    queue.put(b"")
    kind = type(queue.get())
    assert (kind.__module__, kind.__qualname__, kind.__bases__) == ("shmbroker.message", "Message", (native.Record,))
    assert (kind.__doc__ or "").startswith("A message that was taken from a queue")
    assert kind.nack.__qualname__ == "Message.nack"
    with pytest.raises(TypeError, match=r"cannot create 'shmbroker\.message\.Message' instances"):
        kind()


def test_a_message_takes_no_attributes_and_no_copies(queue: shmbroker.Queue) -> None:
    """A second object for one delivery could settle it twice."""
    queue.put(b"")
    message = queue.get()
    with pytest.raises(AttributeError):
        message.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        copy.copy(message)
    with pytest.raises(TypeError):
        pickle.dumps(message)


def test_a_weak_reference_ends_with_the_message(queue: shmbroker.Queue) -> None:
    """Without a run of the collector."""
    queue.put(b"")
    message = queue.get()
    reference = weakref.ref(message)
    message.ack()
    assert reference() is message
    del message
    assert reference() is None


@pytest.mark.parametrize("size", [0, 1, SHORT, LONG])
def test_a_record_is_put_together_again(queue: shmbroker.Queue, size: int) -> None:
    """Header, key and, if it was in the record, the body, for the parts of the package that read it."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    queue.put(body, key="key")
    message = queue.get()
    whole = message._record  # noqa: SLF001 - as the package reads it
    header = record.header(whole)
    assert (header.body_length, header.key_length) == (size, 3)
    assert whole[record.SIZE :] == b"key" + (body if size <= SHORT else b"")
    assert record.is_inline(whole) == (size <= SHORT)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_browsed_body_is_not_copied_once_more(queue: shmbroker.Queue, size: int) -> None:
    """The view of a long body is one of the record that the browse made; of a short one it is one of a copy."""
    queue.put(bytes(size))
    (message,) = queue.browse()
    assert (len(message.body), len(bytes(message))) == (size, size)
    assert len(message.body.obj) == (size if size == SHORT else record.SIZE + size)
