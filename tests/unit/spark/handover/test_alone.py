# SPDX-License-Identifier: Apache-2.0
"""Requests that find no room, or no memory: they wait for their own answers, and then go alone, in their turn."""

from __future__ import annotations

import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark.batches import Encoder
from shmbroker.spark.handover import client as module
from shmbroker.spark.handover import memory_share
from shmbroker.spark.handover.client import Client, hand_over
from shmbroker.spark.handover.protocol import Handover

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import ByHand

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def batch(number: int, rows: int = 3, width: int = 1) -> pa.RecordBatch:
    """A batch that can be recognised."""
    return pa.record_batch({"id": [number] * rows, "text": ["x" * width] * rows}, schema=SCHEMA)


def plan(broker: shmbroker.Broker, **options: Any) -> Handover:  # noqa: ANN401
    """To queue "requests" of that broker."""
    return Handover("requests", "replies", **{"schema": SCHEMA, "broker": broker.name, **options})


def test_a_request_does_not_wait_while_answers_may_come(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put if there is room, and else the oldest answer goes first."""
    puts = []
    with Client(plan(broker)) as asking:
        send = asking._send  # noqa: SLF001

        def noted(one: pa.RecordBatch, encoded: Any, timeout: float) -> int:  # noqa: ANN401
            puts.append(timeout)
            if len(puts) == 2:
                raise standard_queue.Full
            return send(one, encoded, timeout)

        monkeypatch.setattr(asking, "_send", noted)
        assert list(asking.send(batch(1))) == []
        by_hand.answer_all()
        assert list(asking.send(batch(2))) == [batch(1)]
        assert puts == [0, 0, 0]
        by_hand.answer_all()
        assert list(asking.rest()) == [batch(2)]


def test_no_room_for_an_answer(broker: shmbroker.Broker, serving: Callable[..., Any]) -> None:
    """Then the request is made again, alone, after the answers to what is under way have come; nobody is overtaken."""
    keys: list[str] = []

    def answer(server: ByHand, request: shmbroker.Message, seen: int) -> None:
        keys.append((request.key or "").split(" ")[1])
        server.answer(request, kind="no-room" if seen in {2, 5} else "")

    serving(answer)
    sent = [batch(number) for number in range(5)]
    assert list(hand_over(iter(sent), plan(broker, inflight=4))) == sent
    assert sorted(map(int, keys)) == [*range(1, len(keys) + 1)]
    assert len(keys) == 7


def test_nothing_is_under_way_beside_a_request_that_is_made_again(
    broker: shmbroker.Broker, serving: Callable[..., Any]
) -> None:
    """The answers to the others have been copied, and are free."""
    held = []

    def answer(server: ByHand, request: shmbroker.Message, seen: int) -> None:
        if seen == 5:
            target = server.connection.queue((request.key or "").split(" ")[2], passive=True)
            held.append(target.statistics().message_count)
        server.answer(request, kind="no-room" if seen == 1 else "")

    serving(answer)
    sent = [batch(number) for number in range(4)]
    assert list(hand_over(iter(sent), plan(broker, inflight=4))) == sent
    assert held == [0]


def test_what_does_not_fit_the_share_goes_alone(
    broker: shmbroker.Broker, serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the turn of the whole broker, which is over before the answer is given; nothing of that is in the broker."""
    turns = []

    def answer(server: ByHand, request: shmbroker.Message, _seen: int) -> None:
        turns.append(memory_share.TURN in server.connection.queue_names())
        server.answer(request)

    serving(answer)
    monkeypatch.setattr(memory_share.MemoryShare, "window", lambda *_: 0)
    with Client(plan(broker)) as asking, broker.connect() as looking:
        for number in range(2):
            sending = asking.send(batch(number))
            assert next(sending) == batch(number)
            assert memory_share.TURN not in looking.queue_names()
            assert [looking.queue(name, passive=True).statistics().message_count for name in looking.queue_names()] == [
                0,
                0,
            ]
            assert list(sending) == []
    assert turns == [True, True]


def test_a_request_finds_its_queue_full(broker: shmbroker.Broker, serving: Callable[..., Any]) -> None:
    """It waits for the answers to others of its own, and then for room, alone."""
    with broker.connect() as connection:
        connection.queue("requests", max_length=1)
    served = serving(lambda server, request, _seen: server.answer(request))
    sent = [batch(number) for number in range(10)]
    assert list(hand_over(iter(sent), plan(broker, inflight=4))) == sent
    assert served.seen == 10


def test_a_request_that_can_never_fit(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """The error comes without waiting."""
    requests = connection.queue("requests", max_bytes=2000)
    with requests.consume(), pytest.raises(standard_queue.Full, match="can never fit max_bytes=2000"):
        list(hand_over(iter([batch(1, 1, 2000)]), plan(broker)))
    assert memory_share.TURN not in connection.queue_names()


@pytest.mark.parametrize(("until", "ends"), [(125.0, 140.0), (140.0, 150.0), (165.0, 170.0)])
def test_patience_with_memory_ends(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, until: float, ends: float
) -> None:
    """What finds no memory alone is an error after half a minute; what finds a full queue waits on."""
    now, tries = 100.0, list[float]()
    looks = []

    class Clock:
        monotonic = staticmethod(lambda: now)

    with Client(plan(broker)) as asking:
        session: Any = asking._session  # noqa: SLF001
        monkeypatch.setattr(session.watch, "look", lambda: looks.append(now))
        monkeypatch.setattr(module, "time", Clock)
        encoded = Encoder().encoded([batch(1)])

        def send(_batch: object, _encoded: object, timeout: float) -> int:
            nonlocal now
            tries.append(timeout)
            now += 10
            if len(tries) < 4:
                raise standard_queue.Full
            text = "no memory"
            raise shmbroker.OutOfMemory(text)

        monkeypatch.setattr(asking, "_send", send)
        with pytest.raises(shmbroker.OutOfMemory, match="no memory"):
            asking._send_alone(batch(1), encoded, until=until)  # noqa: SLF001
        assert tries == [0.2] * len(tries)
        assert looks == [*range(110, int(now), 10)]
        assert now == ends
    assert by_hand.taken() == []


def test_room_for_a_request_is_waited_for(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as for an answer."""
    now = 100.0
    with Client(plan(broker, timeout=0.5)) as asking:

        def send(_batch: object, _encoded: object, timeout: float) -> int:
            nonlocal now
            now += timeout
            raise standard_queue.Full

        monkeypatch.setattr(asking._session.watch, "look", lambda: None)  # noqa: SLF001
        monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
        monkeypatch.setattr(asking, "_send", send)
        encoded = Encoder().encoded([batch(1)])
        with pytest.raises(shmbroker.Timeout, match="no answer within"):
            asking._send_alone(batch(1), encoded, until=0.0)  # noqa: SLF001
    assert now == pytest.approx(100.5)
    assert by_hand.taken() == []


def test_the_turn_of_another_is_waited_for(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as for an answer."""
    now, looks = 100.0, list[float]()

    def look() -> None:
        nonlocal now
        now += 0.125
        looks.append(now)
        assert len(looks) < 9

    monkeypatch.setattr(memory_share.MemoryShare, "window", lambda *_: 0)
    by_hand.connection.queue(memory_share.TURN, exclusive=True)
    with Client(plan(broker, timeout=0.5)) as asking:
        monkeypatch.setattr(asking._session.watch, "look", look)  # noqa: SLF001
        monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
        with pytest.raises(shmbroker.Timeout, match="no answer within"):
            list(asking.send(batch(1)))
    assert looks == [100.125, 100.25, 100.375, 100.5]
    assert by_hand.taken() == []


def test_no_room_for_an_answer_for_long(
    broker: shmbroker.Broker, serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again for half a minute, with pauses: then that is the error."""
    now, pauses = 100.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 10
        pauses.append(seconds)

    clock = {"monotonic": staticmethod(lambda: now), "sleep": staticmethod(sleep)}
    monkeypatch.setattr(module, "time", type("Clock", (), clock))
    served = serving(lambda server, request, _seen: server.answer(request, b"for the answer: full", "no-room"))
    with pytest.raises(shmbroker.OutOfMemory, match="queue 'requests': for the answer: full"):
        list(hand_over(iter([batch(1)]), plan(broker)))
    assert pauses == [0.2] * 4
    assert served.seen == 6
