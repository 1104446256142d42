# SPDX-License-Identifier: Apache-2.0
"""The side of a task: what it has under way, which answers it gives when, and what it leaves."""

from __future__ import annotations

import os
import queue as standard_queue
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark.batches import Decoder, Encoder
from shmbroker.spark.handover import client as module
from shmbroker.spark.handover import memory_share
from shmbroker.spark.handover import session as session_module
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


def at_rest(connection: shmbroker.Connection) -> bool:
    """Is nothing left of what was asked?"""
    requests = connection.queue("requests", passive=True).statistics()
    return connection.queue_names() == ["requests"] and requests.message_count == 0


def test_requests_are_under_way_together(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """As many as the plan allows; an answer is waited for when there are so many, and given in the requests' order."""
    sent = [batch(number) for number in range(5)]
    with Client(plan(broker, inflight=3)) as asking:
        for one in sent[:3]:
            assert list(asking.send(one)) == []
        requests = by_hand.taken()
        assert [Decoder().batches(bytes(one)) for one in requests] == [[one] for one in sent[:3]]
        (answers,) = {(one.key or "").split(" ")[2] for one in requests}
        assert [(one.key or "").split(" ")[:2] for one in requests] == [["exchange", str(n)] for n in (1, 2, 3)]
        assert answers.startswith(f"replies.{os.getpid()}.")
        for one in reversed(requests):
            by_hand.answer(one)
        assert list(asking.send(sent[3])) == [sent[0]]
        assert list(asking.send(sent[4])) == [sent[1]]
        assert by_hand.answer_all() == 2
        assert list(asking.rest()) == sent[2:]
    assert [(key or "").split(" ")[1] for key in by_hand.keys] == ["1", "2", "3", "4", "5"]
    assert at_rest(by_hand.connection)


def test_an_answer_is_acknowledged_when_it_was_taken(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """Not before: it lies in the broker while Spark looks at it."""
    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1))) == []
        by_hand.answer_all()
        (name,) = set(by_hand.connection.queue_names()) - {"requests"}
        answers = by_hand.connection.queue(name, passive=True)
        rest = asking.rest()
        assert next(rest) == batch(1)
        assert answers.statistics().message_count == 1
        assert list(rest) == []
        assert answers.statistics().message_count == 0
        assert answers.settings.auto_delete
        assert answers.settings.expires == 60.0
        (consumer,) = [one for one in by_hand.connection.consumers() if one.queue == name]
        assert consumer.prefetch == 5


def test_a_second_answer_is_dropped(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """Where a server died before it acknowledged the request; so is an answer to no request."""
    with Client(plan(broker)) as asking:
        for number in (1, 2, 3):
            assert list(asking.send(batch(number))) == []
        first, second, third = by_hand.taken()
        by_hand.answer(third, times=2)
        by_hand.answer(first, times=2)
        target = by_hand.connection.queue((first.key or "").split(" ")[2], passive=True)
        for key in ("9 ", "no number ", None):
            target.put(b"", key=key)
        by_hand.answer(second, Encoder().encoded([batch(8)]).body)
        assert list(asking.rest()) == [batch(1), batch(8), batch(3)]
        assert target.statistics().message_count == 0


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("failed", shmbroker.FunctionFailed),
        ("refused", shmbroker.RequestRefused),
        ("malformed", shmbroker.ExchangeError),
        ("too-large", shmbroker.OutOfMemory),
    ],
)
def test_an_answer_that_is_an_error(
    broker: shmbroker.Broker, by_hand: ByHand, kind: str, error: type[Exception]
) -> None:
    """It is raised with the queue's name and the server's text; nothing stays."""
    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1))) == []
        (request,) = by_hand.taken()
        by_hand.answer(request, b"what was wrong", kind)
        with pytest.raises(error, match="queue 'requests': what was wrong") as raised:
            list(asking.rest())
        assert type(raised.value) is error
    assert at_rest(by_hand.connection)


def test_an_answer_of_another_schema(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """It is an error, if a schema was said."""
    other = Encoder().encoded([pa.record_batch({"id": [1]})])
    for schema in (SCHEMA, None):
        with Client(plan(broker, schema=schema)) as asking:
            assert list(asking.send(batch(1))) == []
            (request,) = by_hand.taken()
            by_hand.answer(request, other.body)
            if schema is None:
                assert list(asking.rest()) == [pa.record_batch({"id": [1]})]
            else:
                with pytest.raises(shmbroker.SchemaMismatch, match="in the server's answer column 'text' is missing"):
                    list(asking.rest())


def test_an_answer_that_does_not_come(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the timeout there is an error; waits are cut, and each time it looks whether there is a server."""
    waits: list[float] = []
    now = 100.0

    class Clock:
        monotonic = staticmethod(lambda: now)

    with Client(plan(broker, timeout=0.5)) as asking:
        assert list(asking.send(batch(1))) == []
        looks = []
        session: Any = asking._session  # noqa: SLF001
        monkeypatch.setattr(module, "time", Clock)
        monkeypatch.setattr(session.watch, "look", lambda: looks.append(now))

        def get(timeout: float) -> shmbroker.Message:
            nonlocal now
            waits.append(timeout)
            now += timeout
            raise standard_queue.Empty

        consumer = type("Consumer", (), {"get": staticmethod(get), "close": session.consumer.close})()
        monkeypatch.setattr(session, "consumer", consumer)
        with pytest.raises(shmbroker.Timeout, match=r"queue 'requests': no answer within 0\.5 seconds"):
            list(asking.rest())
        assert waits == pytest.approx([0.2, 0.2, 0.1])
        assert looks == pytest.approx([100.2, 100.4, 100.5])
    by_hand.taken()[0].ack()


def test_there_is_no_limit_of_time(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """Unless one is said: slices go on."""
    with Client(plan(broker)) as asking:
        assert asking._slice(-1e9) == 0.2  # noqa: SLF001
    with Client(plan(broker, timeout=5)) as asking, pytest.raises(shmbroker.Timeout):
        asking._slice(-1e9)  # noqa: SLF001
    assert by_hand.taken() == []


@pytest.mark.parametrize(
    ("rows", "pieces"), [(1_048_000, [1_048_000]), (5 << 18, [5 << 17] * 2), (5 << 19, [873_814, 873_814, 873_812])]
)
def test_a_large_batch_goes_in_pieces(
    broker: shmbroker.Broker, serving: Callable[..., Any], rows: int, pieces: list[int]
) -> None:
    """Of an eighth of the memory each, at most; their answers come in order."""
    seen: list[int] = []

    def answer(server: ByHand, request: shmbroker.Message, _seen: int) -> None:
        seen.append(Decoder().batches(bytes(request))[0].num_rows)
        server.answer(request)

    serving(answer)
    large = pa.record_batch({"id": range(rows)})
    found = list(hand_over(iter([large]), plan(broker, schema=None)))
    assert pa.Table.from_batches(found).combine_chunks().to_batches() == [large]
    assert seen == pieces


@pytest.mark.parametrize(("rows", "pieces"), [(0, [0]), (1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (5, [2, 2, 1])])
def test_pieces_are_rows(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, rows: int, pieces: list[int]
) -> None:
    """None is empty but that of a batch without rows; all but the last one have the same number."""
    encoded = Encoder().encoded([batch(1, rows)]).size
    monkeypatch.setattr(memory_share.MemoryShare, "most_in_one", 100 if rows < 4 else encoded // 3 + 1)
    with Client(plan(broker, inflight=9)) as asking:
        assert list(asking.send(batch(1, rows))) == []
        requests = by_hand.taken()
        assert [Decoder().batches(bytes(one))[0].num_rows for one in requests] == pieces
        for one in requests:
            by_hand.answer(one, b"")
        assert list(asking.rest()) == []


def test_the_size_of_answers_is_learnt(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the largest one until now: what may be under way is asked with it."""
    windows: list[tuple[int, int, int]] = []
    fits: list[int] = []

    def window(_self: memory_share.MemoryShare, request: int, answer: int, most: int) -> int:
        windows.append((request, answer, most))
        return 1

    def does_fit(_self: memory_share.MemoryShare, _requests: list[int], answer: int) -> bool:
        fits.append(answer)
        return True

    monkeypatch.setattr(memory_share.MemoryShare, "window", window)
    monkeypatch.setattr(memory_share.MemoryShare, "fits", does_fit)
    size = Encoder().encoded([batch(1)]).size
    with Client(plan(broker, schema=None)) as asking:
        for answer in (b"", Encoder().encoded([batch(1, 100)]).body, b"", b""):
            list(asking.send(batch(1)))
            (request,) = by_hand.taken()
            by_hand.answer(request, answer)
        list(asking.rest())
    large = Encoder().encoded([batch(1, 100)]).size
    assert fits == [0, large, large, large]
    assert windows == [(size, answer, 4) for answer in (0, 0, 0, 0, large, large, large)]


def test_a_row_is_not_cut(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """A batch without rows goes as it is; so does one row, however long."""
    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1, 0))) == []
        assert list(asking.send(batch(1, 1, 100_000))) == []
        first, second = by_hand.taken()
        assert Decoder().batches(bytes(first)) == [batch(1, 0)]
        assert Decoder().batches(bytes(second)) == [batch(1, 1, 100_000)]
        for one in (first, second):
            by_hand.answer(one)
        assert list(asking.rest()) == [batch(1, 0), batch(1, 1, 100_000)]


def test_what_is_given_is_no_longer_in_the_broker(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If answers turn out too large for the share: those under way are copied, and their memory is free."""
    with Client(plan(broker, inflight=4)) as asking:
        for number in range(3):
            assert list(asking.send(batch(number))) == []
        by_hand.answer_all()
        (name,) = set(by_hand.connection.queue_names()) - {"requests"}
        answers = by_hand.connection.queue(name, passive=True)
        share: Any = asking._session.share  # noqa: SLF001
        asked: list[tuple[list[int], int]] = []
        monkeypatch.setattr(share, "fits", lambda held, largest: asked.append((held, largest)))
        rest = asking.rest()
        size = Encoder().encoded([batch(0)]).size
        assert next(rest) == batch(0)
        assert asked == [([size] * 3, size)]
        assert answers.statistics().message_count == 0
        assert list(rest) == [batch(1), batch(2)]
        assert asked == [([size] * 3, size), ([], size), ([], size)]


def test_a_client_that_sends_nothing(broker_name: str) -> None:
    """Needs neither broker nor server."""
    assert list(hand_over(iter([]), Handover("requests", "replies", broker=broker_name))) == []


def test_what_is_under_way_is_let_go(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the client is closed, which it may be more than once; requests are left to the server that there is."""
    monkeypatch.setattr(shmbroker.Queue, "get_many", lambda *_, **__: pytest.fail("taken"))
    asking = Client(plan(broker))
    assert list(asking.send(batch(1))) == []
    session: Any = asking._session  # noqa: SLF001
    asking.close()
    asking.close()
    assert asking._pending == {}  # noqa: SLF001
    with pytest.raises(shmbroker.ConnectionClosed):
        len(session.answers)
    assert by_hand.connection.queue_names() == ["requests"]
    assert len(by_hand.taken()) == 1


def test_a_generator_that_is_closed_early(
    broker: shmbroker.Broker, connection: shmbroker.Connection, serving: Callable[..., Any]
) -> None:
    """It leaves no queue of answers; requests are left to the server that there is."""
    serving(lambda server, request, _seen: server.answer(request))
    answers = hand_over(map(batch, range(9)), plan(broker, inflight=2))
    assert next(answers) == batch(0)
    answers.close()  # type: ignore[attr-defined] # it is a generator
    assert connection.queue_names() == ["requests"]


def test_requests_that_are_in_other_hands(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not waited for, when a task ends beside a server that is dying."""
    requests, get_many, asked = by_hand.connection.queue("requests"), shmbroker.Queue.get_many, []

    def noted(self: shmbroker.Queue, most: int, *, timeout: float | None = None) -> Any:  # noqa: ANN401
        asked.append((self.name, timeout))
        return get_many(self, most, timeout=timeout)

    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1))) == []
        by_hand.consumer.close()
        held = requests.get()
        monkeypatch.setattr(shmbroker.Queue, "get_many", noted)
    assert asked == [("requests", 0)]
    assert not held.settled
    held.ack()


def test_nothing_is_taken_back_where_all_was_answered(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have asked is left alone, though no server is there any more."""
    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1))) == []
        by_hand.answer_all()
        assert list(asking.rest()) == [batch(1)]
        by_hand.consumer.close()
        monkeypatch.setattr(shmbroker.Queue, "get_many", lambda *_, **__: pytest.fail("taken"))


def test_requests_that_nobody_will_answer(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """They are taken back when their task ends and no server is left; those of others stay, as they were put."""
    requests = by_hand.connection.queue("requests")
    with Client(plan(broker)) as asking:
        for number in range(3):
            assert list(asking.send(batch(number))) == []
        requests.put(b"of another", key="exchange 1 others")
        requests.put(b"of nobody")
        first, *_ = by_hand.taken()
        by_hand.answer(first)
        assert next(asking.rest()) == batch(0)
        by_hand.consumer.close()
    assert [(bytes(one), one.key, one.delivery_count) for one in requests.get_many(9, timeout=0)] == [
        (b"of another", "exchange 1 others", 1),
        (b"of nobody", None, 1),
    ]
    asking.close()


def finish(asking: Client) -> None:
    """Wait for the answers, and end, as a task does."""
    with asking:
        list(asking.rest())


def test_the_queue_of_requests_is_deleted_beneath_a_task(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """Its error is that no process serves the queue; its queue of answers ends."""
    asking = Client(plan(broker))
    assert list(asking.send(batch(1))) == []
    session: Any = asking._session  # noqa: SLF001
    by_hand.connection.queue("requests", passive=True).delete()
    with pytest.raises(shmbroker.NoServer):
        finish(asking)
    assert by_hand.connection.queue_names() == []
    with pytest.raises(shmbroker.ConnectionClosed):
        len(session.answers)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_requests_are_taken_back_from_among_any_number(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """There may be more ready messages than one call takes: all are looked at, and those of others keep their place."""
    requests, get_many = by_hand.connection.queue("requests"), shmbroker.Queue.get_many
    monkeypatch.setattr(session_module, "_AT_ONCE", most)
    requests.put_many([b"first", b"second"])
    with Client(plan(broker)) as asking:
        assert list(asking.send(batch(1))) == []
        requests.put(b"third")
        assert list(asking.send(batch(2))) == []
        requests.put(b"fourth")
        by_hand.consumer.close()
    assert [(bytes(one), one.delivery_count) for one in get_many(requests, 9, timeout=0)] == [
        (one, 1) for one in (b"first", b"second", b"third", b"fourth")
    ]


def test_more_ready_messages_than_one_call_takes(broker: shmbroker.Broker, by_hand: ByHand) -> None:
    """They hide no error of the task, and the request is taken back."""
    requests = by_hand.connection.queue("requests")
    asking = Client(plan(broker))
    assert list(asking.send(batch(1))) == []
    requests.put_many([b""] * 65_536)
    by_hand.consumer.close()
    with pytest.raises(shmbroker.NoServer):
        finish(asking)
    assert len(requests) == 65_536


@pytest.mark.parametrize("call", ["get_many", "is_served", "close"])
def test_an_error_at_the_end_hides_none_of_the_task(
    broker: shmbroker.Broker, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Such as missing memory, or a topology lock that is held: the queue of answers is closed, and the error told."""

    def fails(*_: object, **__: object) -> None:
        text = "of the end"
        raise shmbroker.Timeout(text) if call == "close" else shmbroker.OutOfMemory(text)

    asking = Client(plan(broker, timeout=1e-9))
    assert list(asking.send(batch(1))) == []
    session: Any = asking._session  # noqa: SLF001
    by_hand.consumer.close()
    at: Any = {"get_many": session.requests, "is_served": session.watch, "close": session.consumer}[call]
    with monkeypatch.context() as patch:
        patch.setattr(type(at), call, fails)
        with pytest.raises(shmbroker.Timeout, match="no answer within"):
            finish(asking)
    with pytest.raises(shmbroker.ConnectionClosed):
        len(session.answers)
