# SPDX-License-Identifier: Apache-2.0
"""Dead letters that the housekeeper carries out together: each has its own headers, body and targets."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from scenario_support.dead_letters import (
    EXCHANGE,
    dead_letter_queue,
    death,
    deaths_of,
    next_dead,
    reasons,
    without_housekeeper,
)
from scenario_support.observing import assert_balanced, await_counts, listing, texts

from shmbroker import BasicProperties

if TYPE_CHECKING:
    import shmbroker

MANY = 600
"""Messages of more than two batches."""


def reject_all(queue: shmbroker.Queue, count: int) -> None:
    """Take messages and reject each."""
    for _ in range(count):
        queue.get(timeout=60).reject()


def test_b64_each_message_keeps_its_own_headers(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Messages with different headers and properties die together: each copy has its own ones, and one death."""
    dead, queue = dead_letter_queue(connection), connection.queue("q", dead_letter_exchange=EXCHANGE)
    given = [
        BasicProperties(
            content_type=f"text/{number}" if number % 2 else None,
            headers={"number": number, "nested": {"deep": [number, {"deeper": b"x" * (number % 7)}]}, "none": None},
            correlation_id=str(number),
            message_id=f"id-{number}" if number % 3 else None,
        )
        for number in range(MANY)
    ]
    with without_housekeeper(broker):
        for number, properties in enumerate(given):
            queue.put(b"%d" % number, properties=properties)
        reject_all(queue, MANY)
    await_counts(dead, ready=MANY)
    for number, (message, properties) in enumerate(zip(dead.get_many(MANY, auto_ack=True), given, strict=True)):
        assert bytes(message) == b"%d" % number
        told = {name: value for name, value in message.headers.items() if "death" in name}
        assert set(told) == {"x-death"} | {
            f"x-{when}-death-{what}" for when in ("first", "last") for what in ("reason", "queue", "exchange")
        }
        assert deaths_of(message) == [death("q", "rejected", "q")]
        assert {name: message.headers[name] for name in message.headers if name not in told} == properties.headers
        for name in BasicProperties.__match_args__:
            if name != "headers":
                assert getattr(message.properties, name) == getattr(properties, name), name
    assert_balanced(queue)
    assert connection.doctor() == []


def test_b64_each_message_has_its_own_past(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Of messages that die together, some died before: there for another reason, here before, twice, or never."""
    dead, queue = dead_letter_queue(connection), connection.queue("q", dead_letter_exchange=EXCHANGE)
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    there = {"count": 1, "reason": "expired", "queue": "there", "time": at, "exchange": "", "routing-keys": ["there"]}
    here = {"count": 4, "reason": "rejected", "queue": "q", "time": at, "exchange": "e", "routing-keys": ["k"]}
    first = {f"x-first-death-{what}": f"first {what}" for what in ("reason", "queue", "exchange")}
    pasts = [
        ({}, [("q", "rejected", 1)]),
        ({"x-death": [there], **first}, [("q", "rejected", 1), ("there", "expired", 1)]),
        ({"x-death": [there, here], **first}, [("q", "rejected", 5), ("there", "expired", 1)]),
        ({"x-death": "no list"}, [("q", "rejected", 1)]),
        ({"x-death": [there, 7, "no table"]}, [("q", "rejected", 1), ("there", "expired", 1)]),
        ({"x-last-death-queue": "last", "x-first-death-reason": "first"}, [("q", "rejected", 1)]),
    ]
    with without_housekeeper(broker):
        for number in range(60):
            queue.put(b"%d" % number, headers={**pasts[number % 6][0], "number": number})
        reject_all(queue, 60)
    await_counts(dead, ready=60)
    for number, message in enumerate(dead.get_many(60, auto_ack=True)):
        headers, told = pasts[number % 6]
        assert reasons(message) == told
        assert message.headers["number"] == number
        assert message.headers["x-last-death-queue"] == "q"
        assert message.headers["x-first-death-reason"] == (
            "first reason" if "x-first-death-queue" in headers else "rejected"
        )
        if number % 6 == 2:
            assert message.headers["x-death"][0] == {**here, "count": 5}
    assert connection.doctor() == []


def test_each_message_goes_where_its_key_leads(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Messages with different keys and header CC die together: each comes to its queues, in order."""
    targets = [connection.queue(name) for name in "abc"]
    queue = connection.queue("q", dead_letter_exchange="")
    with without_housekeeper(broker):
        for number in range(MANY):
            copied = {"CC": ["c"]} if number % 10 == 0 else {}
            queue.put(b"%d" % number, key="ab"[number % 2], headers={"number": number, **copied})
        reject_all(queue, MANY)
    await_counts(targets[0], ready=MANY // 2)
    await_counts(targets[1], ready=MANY // 2)
    await_counts(targets[2], ready=MANY // 10)
    for target, step, start in zip(targets, (2, 2, 10), (0, 1, 0), strict=True):
        messages = target.get_many(MANY, auto_ack=True)
        assert texts(messages) == [str(number) for number in range(start, MANY, step)]
        assert [message.headers["number"] for message in messages] == [*range(start, MANY, step)]
    assert connection.doctor() == []


def test_each_message_goes_where_its_headers_lead(
    broker: shmbroker.Broker, connection: shmbroker.Connection, channel: shmbroker.Channel
) -> None:
    """Where bindings look at headers, messages that differ in another header only are not mistaken for each other."""
    channel.exchange_declare(EXCHANGE, "headers")
    targets = [connection.queue(name) for name in ("even", "odd")]
    for odd, target in enumerate(targets):
        channel.queue_bind(target.name, EXCHANGE, arguments={"x-match": "all", "odd": odd})
    queue = connection.queue("q", dead_letter_exchange=EXCHANGE)
    with without_housekeeper(broker):
        for number in range(MANY):
            queue.put(b"%d" % number, headers={"odd": number % 2, "third": number % 3})
        reject_all(queue, MANY)
    for odd, target in enumerate(targets):
        await_counts(target, ready=MANY // 2)
        assert listing(target) == [str(number) for number in range(odd, MANY, 2)]


@pytest.mark.parametrize("times", [1, 100])
def test_long_heads_arrive_with_the_others(
    broker: shmbroker.Broker, connection: shmbroker.Connection, times: int
) -> None:
    """Messages with more headers, or more deaths, than the core rewrites die among others: all arrive."""
    dead, queue = dead_letter_queue(connection), connection.queue("q", dead_letter_exchange=EXCHANGE)
    long = {"x": "y" * 40_000}
    told = {"x-death": [{"queue": f"q{number}", "reason": "rejected", "count": 1} for number in range(60)]}
    with without_housekeeper(broker):
        for number in range(3 * times):
            queue.put(b"%d" % number, headers=({}, long, told)[number % 3])
        reject_all(queue, 3 * times)
    await_counts(dead, ready=3 * times)
    messages = [next_dead(dead) for _ in range(3 * times)]
    assert sorted(int(bytes(message)) for message in messages) == [*range(3 * times)]
    for message in messages:
        kind = int(bytes(message)) % 3
        assert reasons(message)[0] == ("q", "rejected", 1)
        assert len(reasons(message)) == (61 if kind == 2 else 1)
        assert message.headers.get("x") == (long["x"] if kind == 1 else None)


def test_the_expiration_of_each_message_is_told(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Messages with different expirations die together: each death has its own, and no copy expires."""
    dead, queue = dead_letter_queue(connection), connection.queue("q", dead_letter_exchange=EXCHANGE)
    given = [str(60_000 + number % 4) if number % 4 else None for number in range(40)]
    with without_housekeeper(broker):
        for number, expiration in enumerate(given):
            queue.put(b"%d" % number, properties=BasicProperties(expiration=expiration))
        reject_all(queue, len(given))
    await_counts(dead, ready=len(given))
    # the order of deaths is not kept where some messages have timers
    messages = sorted(dead.get_many(len(given), auto_ack=True), key=lambda message: int(bytes(message)))
    assert [message.headers["x-death"][0].get("original-expiration") for message in messages] == given
    assert {message.properties.expiration for message in messages} == {None}


def test_t22_many_messages_that_are_due_together_keep_their_order(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Thousands of delays ended while no housekeeper ran: all become ready, and come in the order of their puts."""
    queue = connection.queue("q")
    with without_housekeeper(broker):
        for number in range(5000):
            queue.put(b"%d" % number, delay=(1 + number % 50) / 1000)
    await_counts(queue, ready=5000, scheduled=0)
    assert listing(queue) == [str(number) for number in range(5000)]
    assert connection.doctor() == []
