# SPDX-License-Identifier: Apache-2.0
"""Bodies that the core's part of a connection views, reads in place, or copies."""

# ruff: noqa: SLF001 - what only damage brings about is brought about by hand
from __future__ import annotations

import gc
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, answering
from scenario_support.processes import run_python

import shmbroker
from shmbroker import body_references
from shmbroker._core import native
from shmbroker.exceptions import CorruptSegment, MessageSettled, NotAllowed, OutOfMemory
from shmbroker.message import OPEN, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.bodies import Place
    from shmbroker._core.connection import CoreConnection

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"
NO_ROOM = r"has no room: \d+ of \d+ bytes are used"
SIZE = 70_000


@pytest.fixture
def connection(broker_name: str) -> Iterator[shmbroker.Connection]:
    """Connect to a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="64M").create()
    with shmbroker.connect(broker_name, create=False, client_name="one") as opened:
        yield opened


def test_a_view_of_a_held_message(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The core is given what identifies it, again after the broker has grown; its reference is returned."""
    before = core.attachment.facts().segments

    def begin(handle: object, tag: int, sequence: int, address: int, view: Any) -> int:  # noqa: ANN401
        assert (handle, tag, sequence, address) == (core.handle, 1, 2, 3)
        view[0] = 99
        return native.OK

    other_calls(sb_view_begin=answering(begin, native.GROW, native.GROW))
    assert core.begin_view(1, 2, 3) == 99
    assert core.attachment.facts().segments == before + 2


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [(native.NO_MEMORY, OutOfMemory, NO_ROOM), (STATUS, CorruptSegment, f"the connection: {DAMAGED}")],
)
def test_a_body_that_cannot_be_viewed(
    core: CoreConnection, other_calls: Callable[..., None], status: int, error: type[Exception], text: str
) -> None:
    """The error is that of the status; where there is no memory it says what is used, and not for a body."""
    other_calls(sb_view_begin=lambda *_: status)
    with pytest.raises(error, match=text):
        core.begin_view(1, 2, 3)
    with pytest.raises(CorruptSegment, match=f"the connection: {DAMAGED}"):
        core.view_failed(STATUS)


@pytest.mark.parametrize("taken", ["limit", "no memory"])
def test_a_copy_of_a_held_message(connection: shmbroker.Connection, core: CoreConnection, taken: str) -> None:
    """It needs no view: ``bytes`` makes one where a body has every view that it can have. What is settled is gone."""
    queue = connection.queue("q")
    queue.put(b"A" * SIZE)
    message = queue.get()
    fields = message._fields
    held = fields.tag, fields.sequence, fields.body_address
    if taken == "limit":
        views = []
        with pytest.raises(NotAllowed, match="a limit of the broker"):  # noqa: PT012 - one of many
            while True:
                views.append(core.begin_view(*held))
        with pytest.raises(NotAllowed, match="a limit of the broker"):
            message.body  # noqa: B018
        assert bytes(message) == bytes(message.body) == b"A" * SIZE
        for view in views:
            native.slow.sb_view_end(core.handle, view)
    body = core.copy_body(*held)
    assert (bytes(body), body.readonly) == (b"A" * SIZE, True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core, "_copied_from", lambda _: message.ack())  # as another thread does meanwhile
        for _ in range(2):
            with pytest.raises(MessageSettled):
                core.copy_body(*held)
    assert bytes(body) == b"A" * SIZE


@pytest.fixture
def place(connection: shmbroker.Connection) -> Place:
    """Where a body lies."""
    queue = connection.queue("q")
    queue.put(b"A" * SIZE)
    ((_, found),) = body_references.of_queue(queue)
    return found


def test_a_body_in_place(core: CoreConnection, place: Place, patched: pytest.MonkeyPatch) -> None:
    """It is read where it lies, also after the broker has grown; one that is read already is copied."""
    copy = Noted(core._copied_from)
    patched.setattr(core, "_copied_from", copy)
    patched.setattr(native, "read_in_place", answering(native.read_in_place, native.GROW))
    before = core.attachment.facts().segments
    body = core.body_at(place)
    assert body is not None
    assert (bytes(body), body.readonly, copy.calls) == (b"A" * SIZE, True, [])
    assert core.attachment.facts().segments == before + 1
    again = core.body_at(place)
    assert again is not None
    assert (bytes(again), again.readonly, copy.calls) == (b"A" * SIZE, True, [(place,)])


def test_a_body_that_nobody_can_note_is_copied(core: CoreConnection, place: Place, patched: pytest.MonkeyPatch) -> None:
    """Without memory for a note of who reads it, and if it is in use."""
    for status in (native.NO_MEMORY, native.IN_USE):
        patched.setattr(native, "read_in_place", lambda *_, status=status: status)
        body = core.body_at(place)
        assert body is not None
        assert bytes(body) == b"A" * SIZE


def test_a_body_that_is_gone(
    connection: shmbroker.Connection, core: CoreConnection, place: Place, patched: pytest.MonkeyPatch
) -> None:
    """There is none, nor a copy of it."""
    connection.queue("q").purge()
    assert core.body_at(place) is None
    assert core._copied_from(place) is None
    copy = Noted(core._copied_from)
    patched.setattr(core, "_copied_from", copy)
    patched.setattr(native, "read_in_place", lambda *_: native.SETTLED)
    assert core.body_at(place) is None
    assert copy.calls == []


def test_an_empty_body_is_copied(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """It has no byte."""
    queue = connection.queue("empty")
    queue.put(b"")
    ((_, found),) = body_references.of_queue(queue)
    body = core._copied_from(found)
    assert body is not None
    assert (bytes(body), body.readonly) == (b"", True)


def test_a_body_that_cannot_be_read(
    core: CoreConnection, place: Place, other_calls: Callable[..., None], patched: pytest.MonkeyPatch
) -> None:
    """The error is that of the status."""
    other_calls(sb_place_copy_body=lambda *_: STATUS)
    with pytest.raises(CorruptSegment, match=f"the connection: {DAMAGED}"):
        core._copied_from(place)
    patched.setattr(native, "read_in_place", lambda *_: STATUS)
    with pytest.raises(CorruptSegment, match=f"the connection: {DAMAGED}"):
        core.body_at(place)


# Takes messages that are settled at once while the n-th allocation of Python fails, or all from the n-th one on, for
# each n there is. Then checks whether closing releases the connection.
WITHOUT_MEMORY = """
    import _testcapi, gc, json, sys, time
    import shmbroker

    name, way, number, done, counts = *sys.argv[1:], 0, False, []
    takes = {
        "get": lambda: queue.get(timeout=0, auto_ack=True),
        "many": lambda: queue.get_many(2, timeout=0, auto_ack=True),
        "consumer": lambda: consumer.get(timeout=0),
        "channel": lambda: channel.basic_get("q", auto_ack=True),
    }

    def tried(last):
        _testcapi.set_nomemory(number, last)
        try:
            return takes[way]()
        except MemoryError:
            return None
        finally:
            _testcapi.remove_mem_hooks()

    gc.disable()
    filled = shmbroker.connect(name, create=False).queue("q")
    while not done:
        for last in number + 1, 0:
            connection = shmbroker.connect(name, create=False)
            queue, channel = connection.queue("q", passive=True), connection.channel()
            consumer = queue.consume(auto_ack=True) if way == "consumer" else None
            for filling in 1, 2:  # the first use of a channel or a consumer makes what has nothing to do with this
                filled.put_many([bytes(5000)] * filling)
                while consumer is not None and consumer.statistics().waiting < filling:
                    time.sleep(0)
                if filling == 1:
                    takes[way]()
            got = tried(last)
            done, got = got is not None, None
            connection.close()
            counts.append(shmbroker.Broker(name).statistics().connection_count)
            filled.purge()
        number += 1
    print(json.dumps([number, counts]))
"""


@pytest.mark.parametrize("way", ["get", "many", "consumer", "channel"])
def test_a_settled_message_that_finds_no_memory_keeps_no_body(broker_name: str, way: str) -> None:
    """The message is lost, as the caller said that it may be; its body is let go, so that the connection can end."""
    pytest.importorskip("_testcapi")
    shmbroker.Broker(broker_name, memory="32M").create()
    done = run_python(WITHOUT_MEMORY, broker_name, way)
    assert done.returncode == 0, done.stderr
    number, counts = json.loads(done.stdout)
    assert number > 2
    assert set(counts) == {1}  # that of the queue which is filled


class ReadMeanwhile:
    """A connection whose address is asked for while another thread reads the body of a message."""

    def __init__(self, core: CoreConnection, read: Callable[[], object]) -> None:
        """Take the place of this one; read once."""
        self.mapping, self.view_ended = core.mapping, core.view_ended
        self._address, self._reads = core.address, [read]

    @property
    def address(self) -> int:
        """Its address, after the other thread has read."""
        if self._reads:
            self._reads.pop()()
        return self._address


def test_two_threads_read_one_body(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """Both get it, and nothing of it is left when both have let it go: the connection ends."""
    queue, messages, seen = connection.queue("q"), list[Message](), list[memoryview]()
    queue.put(b"A" * SIZE)
    held = queue.get(timeout=0)
    source = SimpleNamespace(_core_connection=ReadMeanwhile(core, lambda: seen.append(messages[0].body)))
    messages.append(queue._taker.message(source, held._record, OPEN))
    assert bytes(messages[0].body) == bytes(seen[0]) == b"A" * SIZE
    messages.clear()
    seen.clear()
    del source
    gc.collect()
    connection.close()
    assert core._forgotten
