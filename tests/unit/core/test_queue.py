# SPDX-License-Identifier: Apache-2.0
"""A queue in the core: options, settings and flags in its form, its facts, and what was deleted."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from queue import Full
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.scripted import Scripted
from scenario_support.waiting import eventually

from shmbroker._amqp import field_tables
from shmbroker._core import native
from shmbroker._core import queue as core_queue
from shmbroker._core import settings as core_settings
from shmbroker._core.managing import move_oldest
from shmbroker._core.native import FOR_EVER, ffi, slow
from shmbroker._core.queue import CoreQueue, PutOptions
from shmbroker._core.settings import decoded_settings, encoded_settings
from shmbroker.exceptions import BrokerError, CorruptSegment, NeverFits, NotFound
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    import shmbroker

NOTHING = {
    "ttl_ns": 0,
    "delay_ns": 0,
    "priority": 0,
    "key": None,
    "properties": None,
    "exchange": None,
}


def given(options: PutOptions) -> dict[str, Any]:
    """What the structure says; None: no text is given."""
    pointer = options.pointer
    texts = {
        name: None
        if getattr(pointer, name) == ffi.NULL
        else bytes(ffi.buffer(getattr(pointer, name), getattr(pointer, f"{name}_length")))
        for name in ("key", "properties", "exchange")
    }
    return {name: getattr(pointer, name) for name in ("ttl_ns", "delay_ns", "priority")} | texts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((0, 0, 0, b"", b""), {}),
        ((1.5, 0, 0, b"", b""), {"ttl_ns": 1_500_000_000}),
        ((0, 0.25, 0, b"", b""), {"delay_ns": 250_000_000}),
        ((0, 0, 7, b"", b""), {"priority": 7}),
        ((0, 0, 0, b"key", b""), {"key": b"key"}),
        ((0, 0, 0, b"", b"some"), {"properties": b"some"}),
        ((0, 0, 0, b"", b"", b"exchange"), {"exchange": b"exchange"}),
        (
            (2, 3, 255, b"k", b"pr", b"exc"),
            {
                "ttl_ns": 2_000_000_000,
                "delay_ns": 3_000_000_000,
                "priority": 255,
                "key": b"k",
                "properties": b"pr",
                "exchange": b"exc",
            },
        ),
    ],
)
def test_options_of_a_put_as_the_core_takes_them(options: tuple[Any, ...], expected: dict[str, Any]) -> None:
    """Each is in its field, times in nanoseconds; of what is not given the structure says nothing."""
    made = PutOptions(*options)
    assert given(made) == NOTHING | expected
    assert made.address == int(ffi.cast("uintptr_t", made.pointer))


def test_options_keep_their_texts() -> None:
    """The core reads them where they lie: they live as long as the options do, also the one that no attribute names."""
    exchange = bytes(bytearray(b"an exchange"))  # no constant, which may live for ever
    before = sys.getrefcount(exchange)
    options = PutOptions(0, 0, 0, b"", b"", exchange)
    assert sys.getrefcount(exchange) > before
    del options
    assert sys.getrefcount(exchange) == before


def declared(connection: shmbroker.Connection, name: str, settings: QueueSettings, flags: int = 0) -> CoreQueue:
    """Make a queue in the core, and open it."""
    assert core_queue.declare(core_of(connection), name, settings, FOR_EVER, flags)
    return CoreQueue(core_of(connection), name, core_of(connection).queue_slot(name))


def delete(queue: CoreQueue) -> None:
    """End a queue while it is open: one that is exclusive would end at a later tick, as a repair."""
    queue.delete(if_unused=False, if_empty=False, until=FOR_EVER)


EVERYTHING = QueueSettings(
    ring_size=5, max_length=6, max_bytes=7, overflow="drop-head", message_ttl=1.5, expires=100.25, durable=True,
    exclusive=True, auto_delete=True, single_active_consumer=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(),
        QueueSettings(ring_size=5),
        QueueSettings(max_length=6, overflow="drop"),
        QueueSettings(max_bytes=7, overflow="drop-head"),
        QueueSettings(message_ttl=0.0),
        QueueSettings(message_ttl=0.002),
        QueueSettings(expires=3600.0),
        QueueSettings(durable=True),
        QueueSettings(exclusive=True),
        QueueSettings(auto_delete=True),
        QueueSettings(single_active_consumer=True),
        EVERYTHING,
    ],
    ids=str,
)
def test_settings_are_read_as_they_were_declared(connection: shmbroker.Connection, settings: QueueSettings) -> None:
    """Each of them, with and without a flag beside them."""
    for flag in (0, core_queue.PAUSED, core_queue.KEEPS):
        queue = declared(connection, f"q{flag}", settings, flag)
        assert queue.settings() == (settings, flag)
        assert (queue.exclusive, queue.has_ttl) == (settings.exclusive, settings.message_ttl is not None)
        assert queue.changes_lives() == (settings.message_ttl is not None)
        delete(queue)


@pytest.mark.parametrize("settings", [QueueSettings(), EVERYTHING], ids=str)
def test_settings_are_changed_as_they_are_declared(connection: shmbroker.Connection, settings: QueueSettings) -> None:
    """Those that a queue may change, and the flags; a handle notices what it knew of the time to live."""
    before = QueueSettings(durable=settings.durable, max_length=100, message_ttl=100.0)
    queue = declared(connection, "q", before)
    queue.configure(settings, core_queue.PAUSED, trim=False, until=FOR_EVER)
    found, flags = queue.settings()
    changed = ("ring_size", "max_length", "max_bytes", "overflow", "message_ttl", "expires")
    assert {name: getattr(found, name) for name in changed} == {name: getattr(settings, name) for name in changed}
    assert flags == core_queue.PAUSED
    assert queue.has_ttl
    assert queue.changes_lives() == queue.has_ttl == (settings.message_ttl is not None)


def test_a_queue_expires_after_a_millisecond_at_least() -> None:
    """None is no time to expire after: the shortest is what the core counts by."""
    for seconds, expected in ((0.0001, 1), (0.0006, 1), (0.001, 1), (0.0016, 2), (5.0, 5000)):
        pointer, _ = encoded_settings(QueueSettings(expires=seconds), 0)
        assert pointer.values[slow.SB_SETTING_EXPIRES_MS] == expected


@pytest.mark.parametrize("overflow", [-1, 0, 1, 2, slow.SB_OVERFLOWS, 255])
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023, 1024])
def test_facts_with_numbers_nobody_wrote(overflow: int, flags: int) -> None:
    """An overflow that is none counts as "block", so that the queue can be examined; of the flags each says its own."""
    facts = ffi.new("sb_queue_facts *")
    facts.settings.values[slow.SB_SETTING_OVERFLOW], facts.settings.flags = overflow, flags
    facts.settings.values[slow.SB_SETTING_MESSAGE_TTL_MS], facts.settings.values[slow.SB_SETTING_EXPIRES_MS] = 1500, -2
    settings, known = decoded_settings(facts)
    assert settings.overflow == {1: "drop", 2: "drop-head"}.get(overflow, "block")
    assert (settings.message_ttl, settings.expires) == (1.5, None)
    assert [settings.durable, settings.exclusive, settings.auto_delete, settings.single_active_consumer] == [
        bool(flags & flag) for flag in (2, 4, 8, 16)
    ]
    assert known == flags & (1 | 128 | 256 | 512)


def test_texts_are_kept_with_the_queue(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are texts are stored as they were declared, of any length that fits, beside all others.

    No setting is a text yet: `overflow` stands for one.
    """
    monkeypatch.setattr(core_settings, "_TEXTS", ["overflow"])
    monkeypatch.setattr(core_settings, "_NUMBERS", [one for one in core_settings._NUMBERS if one[0] != "overflow"])  # noqa: SLF001
    for name in ("a", "\u20ac" * 85, "x" * 1500):
        wanted = dataclasses.replace(EVERYTHING, overflow=name)
        queue = declared(connection, f"q{len(name)}", wanted, core_queue.PAUSED)
        assert queue.settings() == (wanted, core_queue.PAUSED)
        queue.configure(dataclasses.replace(wanted, max_length=7), 0, trim=False, until=FOR_EVER)
        assert queue.settings() == (dataclasses.replace(wanted, max_length=7), 0)
        assert connection.queue(f"q{len(name)}", passive=True).put(b"A") is None
    with pytest.raises(BrokerError, match="a value is out of its range"):
        core_queue.declare(core_of(connection), "q", QueueSettings(overflow="x" * 1522), FOR_EVER)
    assert core_of(connection).queue_slot("q") == 0


def test_texts_that_are_damaged() -> None:
    """Bytes that are no table are damage of the broker; a name that is no setting is ignored."""
    facts = ffi.new("sb_queue_facts *")
    with pytest.raises(CorruptSegment, match="the texts of a queue's settings are damaged"):
        decoded_settings(facts, b"\x05abc")
    assert decoded_settings(facts, field_tables.encode({"strange": "A"})) == decoded_settings(facts)


def test_a_queue_is_made_once(connection: shmbroker.Connection) -> None:
    """The second declaration says that it was there, and changes nothing."""
    assert core_queue.declare(core_of(connection), "q", QueueSettings(max_length=1), FOR_EVER)
    assert not core_queue.declare(core_of(connection), "q", QueueSettings(max_length=2), FOR_EVER)
    assert connection.queue("q", passive=True).settings.max_length == 1


def test_a_handle_of_a_queue_that_was_deleted(connection: shmbroker.Connection) -> None:
    """It says so, whatever is asked of it, with the name of the queue."""
    queue, target = declared(connection, "q", QueueSettings()), declared(connection, "target", QueueSettings())
    assert not queue.is_deleted()
    assert queue.delete(if_unused=False, if_empty=False, until=FOR_EVER) == 0
    assert queue.is_deleted()
    uses = (
        queue.facts,
        queue.changes_lives,
        queue.purge,
        lambda: queue.browse(0),
        lambda: queue.browse_place(0),
        lambda: move_oldest(queue, target, 1, 1),
        lambda: queue.put_with(b"A", 1, core_queue.NO_OPTIONS, 0),
        lambda: queue.configure(QueueSettings(), 0, trim=False, until=FOR_EVER),
        lambda: queue.delete(if_unused=False, if_empty=False, until=FOR_EVER),
    )
    for use in uses:
        with pytest.raises(NotFound, match="no queue 'q' in vhost"):
            use()


def test_the_facts_are_never_those_of_a_later_queue(connection: shmbroker.Connection) -> None:
    """The slot of a deleted queue may have another queue: who asks for the first one is told that there is none."""
    queue, later = declared(connection, "q", QueueSettings()), declared(connection, "later", QueueSettings())
    queue.slot = later.slot
    for use in (queue.facts, queue.settings, queue.changes_lives):
        with pytest.raises(NotFound, match="no queue 'q' in vhost"):
            use()


def test_a_queue_that_ends_while_it_is_opened(
    connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle is made, and knows nothing of the queue: the next call says that there is none."""
    core = core_of(connection)
    assert core_queue.declare(core, "q", EVERYTHING, FOR_EVER)
    slot = core.queue_slot("q")
    with monkeypatch.context() as ended:
        ended.setattr(core, "queue_facts", lambda _: None)
        queue = CoreQueue(core, "q", slot)
    assert (queue.incarnation, queue.exclusive, queue.has_ttl) == (0, False, False)
    assert (queue.name, queue.slot, queue.connection) == ("q", slot, core)
    queue = CoreQueue(core, "q", slot)
    assert queue.incarnation == core.queue_incarnation("q") != 0
    delete(queue)


def test_the_place_of_a_queue_of_another_name(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """The queue is not found. The other one is not kept open, also while the application has the error."""
    core, elsewhere = core_of(connection), core_of(other)
    fresh = declared(other, "fresh", EVERYTHING)
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'") as raised:
        CoreQueue(core, "q", fresh.slot)
    delete(fresh)
    fresh.leave()
    numbers = itertools.count()

    def is_reused() -> bool:
        elsewhere.let_go(at_once=True)  # frees nothing while the housekeeper holds the topology lock
        return declared(other, f"next-{next(numbers)}", EVERYTHING).slot == fresh.slot

    eventually(is_reused)
    assert raised.value.args[0] == 404


def test_what_can_fit_an_empty_queue(connection: shmbroker.Connection) -> None:
    """As many messages, and bytes, as its limits say; without limits everything can."""
    limited = declared(connection, "limited", QueueSettings(max_length=2, max_bytes=10))
    limited.check_can_fit(2, 10)
    limited.check_can_fit(0, 0)
    text = r"queue 'limited': {} messages of {} bytes in total can never fit at once \(max_length=2, max_bytes=10\)"
    for count, size in ((3, 10), (2, 11), (3, 11)):
        with pytest.raises(NeverFits, match=text.format(count, size)):
            limited.check_can_fit(count, size)
    declared(connection, "free", QueueSettings()).check_can_fit(1 << 40, 1 << 50)


def test_messages_are_browsed_with_their_positions(connection: shmbroker.Connection) -> None:
    """From a position on; the one behind the message is where the next is looked for. A body of any length is whole."""
    queue = connection.queue("q")
    bodies = [b"A", b"B" * 5000, b"C" * 300_000, b"D"]
    queue.put_many(bodies)
    position, found = 0, list[bytes]()
    while (one := core_of(queue).browse(position)) is not None:
        data, position = one
        found.append(data)
    assert position == len(bodies)
    assert [data[64:] for data in found] == bodies
    again = core_of(queue).browse(2)
    assert again is not None
    assert (again[0][64:], again[1]) == (bodies[2], 3)
    with pytest.raises(OverflowError):
        core_of(queue).browse(-1)


def test_messages_are_browsed_in_their_places(connection: shmbroker.Connection) -> None:
    """In place of its body each has the place where that lies, from which it can be read."""
    queue = connection.queue("q")
    bodies = [b"A", b"B" * 300_000]
    queue.put_many(bodies, key="key")
    position, found = 0, list[bytes]()
    while (one := core_of(queue).browse_place(position)) is not None:
        data, position, place = one
        assert (data[64:67], place.length) == (b"key", len(bodies[len(found)]))
        memory = core_of(connection).body_at(place)
        assert memory is not None
        found.append(bytes(memory))
        memory.release()
    assert found == bodies
    assert position == len(bodies)


def test_a_browse_gets_the_room_that_the_core_asks_for(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 8 bytes say how much; behind them may be what was copied of a message that changed meanwhile."""

    def asks(_handle: object, _position: object, memory: Any, _size: int) -> int:  # noqa: ANN401
        ffi.buffer(memory, 10)[:] = (70_000).to_bytes(8, "little") + b"\xff\xff"
        return -native.FULL

    queue.put(b"A")
    calls = Scripted(slow, "sb_queue_browse", asks)
    monkeypatch.setattr(core_queue, "slow", calls)
    found = core_of(queue).browse(0)
    assert found is not None
    assert (found[0][64:], found[1]) == (b"A", 1)
    assert [call[3] for call in calls.calls] == [native.RECORD_BYTES, 70_000]


def test_a_time_that_is_now_is_over(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that may wait until this very moment does not ask the core for room."""
    core, now = core_of(connection.queue("q")), time.monotonic_ns()
    calls = Scripted(slow, "sb_queue_wait_for_room")
    monkeypatch.setattr(core_queue, "slow", calls)
    monkeypatch.setattr(core.connection, "start_io", lambda: None)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    with pytest.raises(Full):
        core.put_failed(native.FULL, 5, now)
    assert calls.calls == []


def test_a_handle_is_given_back_when_nothing_needs_it(connection: shmbroker.Connection) -> None:
    """Not before what was taken through it is settled."""
    queue = connection.queue("q")
    queue.put(b"A")
    message = queue.get()
    assert core_of(queue).leave() is False
    message.ack()
    assert core_of(queue).leave() is True
