# SPDX-License-Identifier: Apache-2.0
"""Browsing and counting with a selector, and counting by a property or header."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.nursery import served

import shmbroker.aio
from shmbroker import BasicProperties, InvalidSelector, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable


def bodies(queue: shmbroker.Queue, selector: str | None) -> list[bytes]:
    """Return the bodies of the selected messages."""
    return [bytes(message) for message in queue.browse(selector)]


def test_properties_by_their_names(queue: shmbroker.Queue) -> None:
    """Each property of AMQP has its name; the fields of JMS are other names of properties."""
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    given = BasicProperties(
        content_type="a/b",
        content_encoding="gzip",
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="r",
        expiration="3600000",
        message_id="m",
        timestamp=at,
        type="t",
        user_id="u",
        app_id="p",
        cluster_id="l",
    )
    queue.put(b"A", properties=given)
    queue.put(b"B")
    seconds = int(at.timestamp())
    for condition in (
        "content_type = 'a/b' AND content_encoding = 'gzip' AND delivery_mode = 2 AND priority = 7",
        "correlation_id = 'c' AND reply_to = 'r' AND expiration = '3600000' AND message_id = 'm'",
        f"timestamp = {seconds} AND type = 't' AND user_id = 'u' AND app_id = 'p' AND cluster_id = 'l'",
        "JMSDeliveryMode = 'PERSISTENT' AND JMSPriority = 7 AND JMSMessageID = 'm' AND JMSCorrelationID = 'c'",
        f"JMSType = 't' AND JMSTimestamp = {seconds * 1000}",
    ):
        assert bodies(queue, condition) == [b"A"], condition
    missing = " AND ".join(
        f"{name} IS NULL" for name in BasicProperties.__match_args__ if name not in {"headers", "priority"}
    )
    assert bodies(queue, f"{missing} AND priority = 0 AND JMSDeliveryMode = 'NON_PERSISTENT'") == [b"B"]


def test_the_time_of_the_put_stands_for_a_timestamp(queue: shmbroker.Queue) -> None:
    """Without the property, JMSTimestamp is the time of the put, in milliseconds."""
    before = int(time.time() * 1000) - 1000
    queue.put(b"A")
    assert bodies(queue, f"JMSTimestamp BETWEEN {before} AND {before + 600_000}") == [b"A"]
    assert bodies(queue, f"JMSTimestamp < {before}") == []


def test_quotes_tell_a_header_from_a_property(queue: shmbroker.Queue) -> None:
    """A name in double quotes is that of a header, whatever else has the name, or which characters it has."""
    queue.put(b"A", headers={"priority": "high", "x-y": 1, "JMSType": "z", "AND": True, "größe": 1}, priority=2)
    for condition in ("\"priority\" = 'high'", '"x-y" = 1', "\"JMSType\" = 'z'", '"AND"', "größe = 1", "priority = 2"):
        assert bodies(queue, condition) == [b"A"], condition
    assert bodies(queue, "JMSType IS NULL AND type IS NULL") == [b"A"]


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (5, "h = 5.0 AND h = 0x5"),
        (300, "h = 300"),
        (2**40, "h > 4e9"),
        (2**53 + 1, "h <> 9007199254740992.0"),
        (0.1, "h = 0.1"),
        (Decimal("9.99"), "h = 9.99"),
        (dt.datetime(1970, 1, 2, tzinfo=dt.UTC), "h = 86400"),
        ("Z", "h < 'a' AND h < 'é'"),
        ("50%", "h LIKE '__!%' ESCAPE '!'"),
        (True, "h AND h = TRUE AND h <> FALSE"),
        (None, "h IS NULL"),
        (b"x", "h IS NOT NULL AND NOT h = 'x'"),
        ([1], "h IS NOT NULL AND NOT h = 1"),
        ({"a": 1}, "h IS NOT NULL"),
    ],
)
def test_headers_have_their_types(queue: shmbroker.Queue, value: object, condition: str) -> None:
    """A header is compared as a number, a string or a boolean; other kinds are only NULL or not."""
    queue.put(b"A", headers={"h": value})
    assert bodies(queue, condition) == [b"A"]


@pytest.mark.parametrize(
    "condition",
    [
        "1/0 = 1 OR NOT 1/0 = 1",
        "h / zero IS NOT NULL",
        "h / 0.0 > 0",
        "h + 9223372036854775807 IS NOT NULL",
        "-(-9223372036854775807 - h) IS NOT NULL",
        "h * 9223372036854775807 <> 0",
        "none = 1 OR none <> 1 OR NOT none = 1 OR none + 1 > 0",
        "none IN ('a') OR none NOT IN ('a') OR none LIKE '%' OR none NOT LIKE '%'",
        "none BETWEEN 1 AND 2 OR none NOT BETWEEN 1 AND 2 OR h BETWEEN none AND 1",
        "none OR NOT none",
        "h = '5' OR h <> '5' OR h < 'a' OR h LIKE '%' OR h",
    ],
)
def test_what_is_unknown_or_unlike_selects_nothing(queue: shmbroker.Queue, condition: str) -> None:
    """Divisions by zero, overflow, missing headers and values of other types are no error, and select no message."""
    queue.put(b"A", headers={"h": 5, "zero": 0})
    assert bodies(queue, condition) == []


def test_without_a_selector_there_are_all(queue: shmbroker.Queue) -> None:
    """None selects all messages, and counting needs no selector."""
    queue.put_many([b"A", b"B"])
    assert bodies(queue, None) == [b"A", b"B"]
    assert queue.count() == 2
    assert queue.count(group_by="region") == {None: 2}


@pytest.mark.parametrize("call", [lambda queue: queue.browse("a ="), lambda queue: queue.count(selector="a =")])
def test_a_wrong_selector_is_refused_by_the_call(
    queue: shmbroker.Queue, call: Callable[[shmbroker.Queue], object]
) -> None:
    """The call raises, not the first step of an iteration."""
    with pytest.raises(InvalidSelector, match="line 1, column 4"):
        call(queue)


def test_groups(queue: shmbroker.Queue) -> None:
    """Each value has its number, the most frequent one first; None is what has no value that can be compared."""
    values: list[Any] = ["eu", "eu", "us", 5, 5.0, b"b", [1], {"a": 1}, None, True, "eu", Decimal("1.5")]
    for value in values:
        queue.put(b"", headers={"h": value})
    queue.put(b"")
    found = queue.count(group_by="h")
    assert list(found.items())[:2] == [(None, 4), ("eu", 3)]
    assert found == {"eu": 3, "us": 1, 5: 2, b"b": 1, None: 4, True: 1, 1.5: 1}
    assert queue.count(selector="h = 'eu' OR h = 5", group_by='"h"') == {"eu": 3, 5: 2}
    assert queue.count(selector="h = 'nowhere'", group_by="h") == {}
    assert queue.count(group_by="priority") == {0: 13}


def test_more_values_than_one_call_holds(queue: shmbroker.Queue) -> None:
    """Long values are counted in several calls, each message once."""
    for number in range(60):
        queue.put(b"", headers={"h": str(number % 3) * 20_000})
    assert queue.count(group_by="h") == {digit * 20_000: 20 for digit in "012"}
    assert queue.count(selector="h > '1'", group_by="h") == {digit * 20_000: 20 for digit in "12"}


def test_what_was_taken_or_has_expired_does_not_count(queue: shmbroker.Queue) -> None:
    """Only ready messages count."""
    for _ in range(3):
        queue.put(b"A", headers={"h": 1})
    queue.put(b"B", headers={"h": 1}, delay=3600)
    held = queue.get()
    assert queue.count(selector="h = 1") == 2
    held.nack()
    assert queue.count(selector="h = 1") == 3


def test_messages_in_parts_are_selected(broker_name: str) -> None:
    """A message whose headers lie in several parts of the memory is selected like others."""
    with served(broker_name, memory="32M") as broker, broker.connect() as connection:
        stays, goes, queue = (connection.queue(name) for name in ("stays", "goes", "q"))
        queue.put(b"the queue has its pages from now on")
        try:
            while True:
                stays.put(b"s", timeout=0)
                goes.put(b"g", timeout=0)
        except OutOfMemory:
            goes.purge()
        for number in range(3):
            queue.put(b"x" * 5000, headers={"long": "y" * 900, "number": number}, timeout=0)
        assert [one.headers["number"] for one in queue.browse("number >= 1 AND long LIKE 'y%'")] == [1, 2]
        assert queue.count(group_by="number") == {None: 1, 0: 1, 1: 1, 2: 1}


def test_the_asyncio_twin(broker: shmbroker.Broker) -> None:
    """`shmbroker.aio` browses and counts in the same way."""

    async def run() -> None:
        async with await shmbroker.aio.connect(broker.name) as connection:
            queue = await connection.queue("q")
            for number in range(4):
                await queue.put(str(number).encode(), headers={"h": number % 2})
            assert [bytes(message) for message in queue.browse("h = 1")] == [b"1", b"3"]
            assert queue.count() == 4
            assert queue.count(selector="h = 1") == 2
            assert queue.count(group_by="h") == {0: 2, 1: 2}

    asyncio.run(run())


def fill(queue: shmbroker.Queue, count: int = 10) -> None:
    """Put messages with their number as body and as header."""
    for number in range(count):
        queue.put(str(number).encode(), headers={"n": number})


def test_selected_messages_are_moved(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """They go in their order, up to the limits; the others keep their places, and the accounts agree."""
    fill(queue)
    target = connection.queue("target")
    assert queue.move(target, selector="n >= 3 AND n < 8", limit=3) == 3
    assert bodies(target, None) == [b"3", b"4", b"5"]
    assert bodies(queue, None) == [b"0", b"1", b"2", b"6", b"7", b"8", b"9"]
    assert queue.move("target", selector="n = 1 OR n = 9", max_bytes=1) == 1
    assert queue.move("target", selector="n > 100") == 0
    assert queue.move("target", selector="n > 7") == 2
    assert bodies(target, None) == [b"3", b"4", b"5", b"1", b"8", b"9"]
    assert (queue.statistics().moved, queue.statistics().ready, len(target)) == (6, 4, 6)
    assert [bytes(message) for message in queue.get_many(9, auto_ack=True)] == [b"0", b"2", b"6", b"7"]
    with pytest.raises(InvalidSelector):
        queue.move(target, selector="n >")


def test_a_move_ends_where_the_target_is_full(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """What was not moved stays, ready."""
    fill(queue)
    target = connection.queue("target", max_length=2, overflow="block")
    assert queue.move(target, selector="n > 4") == 2
    assert bodies(target, None) == [b"5", b"6"]
    assert len(queue) == 8
    target.purge()
    assert queue.move(target, selector="n > 4") == 2
    assert bodies(target, None) == [b"7", b"8"]


def test_selected_messages_are_removed(queue: shmbroker.Queue) -> None:
    """A purge with a selector removes only what it selects; held messages stay, whatever it selects."""
    fill(queue, 200)
    held = queue.get()
    assert queue.purge(selector="n BETWEEN 0 AND 149") == 149
    held.nack()
    assert [bytes(message) for message in queue.browse()] == [b"0", *(str(n).encode() for n in range(150, 200))]
    assert queue.purge(selector="n < 0") == 0
    assert queue.statistics().killed == 149
    assert queue.purge() == 51
    with pytest.raises(InvalidSelector):
        queue.purge(selector="")


def test_each_priority_is_searched(connection: shmbroker.Connection) -> None:
    """Selected messages of every priority are moved and removed, the highest priority first."""
    queue, target = connection.queue("ranked", max_priority=9), connection.queue("target")
    for number in range(12):
        queue.put(str(number).encode(), headers={"n": number}, priority=number % 3 * 4)
    assert queue.move(target, selector="n > 3", limit=5) == 5
    assert bodies(target, None) == [b"5", b"8", b"11", b"4", b"7"]
    assert queue.purge(selector="JMSPriority < 8") == 6
    assert bodies(queue, None) == [b"2"]


def test_queues_are_moved_into_each_other(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A move takes what is ready when it begins: two queues can be moved into each other."""
    fill(queue, 100)
    target = connection.queue("target")
    assert queue.move(target, selector="n >= 0") == 100
    assert target.move(queue, selector="n >= 0") == 100
    assert [bytes(message) for message in queue.browse()] == [str(n).encode() for n in range(100)]


def test_the_asyncio_twin_moves_and_removes(broker: shmbroker.Broker) -> None:
    """`shmbroker.aio` moves and removes in the same way."""

    async def run() -> None:
        async with await shmbroker.aio.connect(broker.name) as connection:
            queue, target = await connection.queue("q"), await connection.queue("target")
            for number in range(4):
                await queue.put(str(number).encode(), headers={"h": number})
            assert queue.move(target, selector="h = 1") == 1
            assert queue.purge(selector="h > 2") == 1
            assert [bytes(message) for message in queue.browse()] == [b"0", b"2"]

    asyncio.run(run())
