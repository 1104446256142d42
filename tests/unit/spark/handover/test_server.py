# SPDX-License-Identifier: Apache-2.0
"""The process that serves: what it answers to each kind of request, what it drops, and when it ends."""

from __future__ import annotations

import logging
import os
import queue as standard_queue
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import shmbroker
from shmbroker.spark import batches, serve
from shmbroker.spark.batches import Decoder, Encoder
from shmbroker.spark.handover import protocol, server

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = pa.record_batch({"id": [1, 2, 3]})
OTHER = pa.record_batch({"id": [4]})


def request_of(
    connection: shmbroker.Connection, batches: list[pa.RecordBatch], answers: str = "answers"
) -> shmbroker.Message:
    """Request 7, as a server gets it."""
    requests = connection.queue("requests")
    requests.put(Encoder().encoded(batches).body, key=protocol.request_key(7, answers))
    return requests.get(timeout=0)


def answered(
    connection: shmbroker.Connection, function: Callable[[pa.RecordBatch], Any], *batches: pa.RecordBatch
) -> shmbroker.Message:
    """The one answer to a request; that is acknowledged then."""
    answers, request = connection.queue("answers"), request_of(connection, list(batches) or [BATCH])
    server._Server(connection, function).answer(request)  # noqa: SLF001
    assert request.settled
    assert connection.queue("requests").statistics().message_count == 0
    (found,) = answers.get_many(9, timeout=0)
    return found


def raising(error: Exception) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that fails."""

    def fails(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise error

    return fails


@pytest.mark.parametrize(
    ("function", "made"),
    [
        (lambda batch: batch, [BATCH, OTHER]),
        (lambda batch: pa.Table.from_batches([batch, batch]), [BATCH, BATCH, OTHER, OTHER]),
        (lambda batch: [batch, batch.slice(1)], [BATCH, BATCH.slice(1), OTHER, OTHER.slice(1)]),
        (lambda batch: (batch for _ in range(2)), [BATCH, BATCH, OTHER, OTHER]),
        (lambda _batch: None, []),
        (lambda batch: None if len(batch) == 3 else [batch], [OTHER]),
    ],
    ids=["a batch", "a table", "a list", "a generator", "nothing", "some"],
)
def test_what_a_function_returns_is_the_answer(
    connection: shmbroker.Connection, function: Callable[[pa.RecordBatch], Any], made: list[pa.RecordBatch]
) -> None:
    """It is called with each batch of the request; all that it makes is one message, with the request's number."""
    answer = answered(connection, function, BATCH, OTHER)
    assert protocol.read_answer(answer.key) == (7, "")
    assert Decoder().batches(bytes(answer)) == made


def test_a_function_that_raises(connection: shmbroker.Connection, caplog: pytest.LogCaptureFixture) -> None:
    """The answer has the kind of error, its text, where it was raised and on which host; the log has its trace."""
    answer = answered(connection, raising(ValueError("3 is odd")))
    line = raising.__code__.co_firstlineno + 4
    assert protocol.read_answer(answer.key) == (7, "failed")
    assert bytes(answer).decode() == f"ValueError: 3 is odd ({__file__}:{line}, host {socket.gethostname()})"
    (record,) = caplog.records
    assert record.getMessage() == "ValueError of queue 'requests': 3 is odd"
    assert record.levelno == logging.WARNING
    assert record.exc_info
    assert record.exc_info[0] is ValueError


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (UnspeakableError(), "UnspeakableError: it has no text, since RuntimeError is raised for it ("),
        (ValueError("\ud800"), "ValueError: \\ud800 ("),
        (ValueError("x" * 3000), "ValueError: " + "x" * 1988 + " ("),
    ],
    ids=["none", "no UTF-8", "long"],
)
def test_the_text_of_an_error(
    connection: shmbroker.Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    start: str,
) -> None:
    """One that cannot be made says so, in the log, too; one that is no UTF-8 is escaped; one that is long is cut."""
    for name, value in (("propagate", False), ("handlers", [caplog.handler])):  # a report of no UTF-8 cannot be sent
        monkeypatch.setattr(server._log, name, value)  # noqa: SLF001 - its logger
    answer = answered(connection, raising(error))
    assert protocol.read_answer(answer.key) == (7, "failed")
    assert bytes(answer).decode().startswith(start + __file__)
    assert caplog.records[0].getMessage().startswith(f"{type(error).__name__} of queue 'requests': ")


def test_an_error_without_a_trace() -> None:
    """Its text has the host alone."""
    assert server._text_of(ValueError("odd")) == f"ValueError: odd (, host {socket.gethostname()})"  # noqa: SLF001


@pytest.mark.parametrize(("made", "kind"), [([7], "int"), ("a", "str")])
def test_a_function_that_makes_no_batches(connection: shmbroker.Connection, made: object, kind: str) -> None:
    """The answer says what it made."""
    answer = answered(connection, lambda _batch: made)
    returned = f"TypeError: the function returned an object of type {kind}: None, a pyarrow.Table, "
    assert bytes(answer).startswith(returned.encode())
    assert protocol.read_answer(answer.key) == (7, "failed")


def test_a_request_that_cannot_be_read(connection: shmbroker.Connection) -> None:
    """The function is not called; the answer says what is wrong, at no more than 2,000 characters."""
    answers, requests = connection.queue("answers"), connection.queue("requests")
    requests.put(b"no batch", key=protocol.request_key(7, "answers"))
    served = server._Server(connection, lambda _batch: pytest.fail("called"))  # noqa: SLF001
    served.answer(requests.get(timeout=0))
    with answers.get(timeout=0) as answer:
        assert protocol.read_answer(answer.key) == (7, "malformed")
        assert bytes(answer) == b"a request cannot be read: a body of 8 bytes is not an Arrow stream"


@pytest.mark.parametrize("deaths", [3, 4])
def test_a_request_that_servers_died_of(connection: shmbroker.Connection, deaths: int) -> None:
    """The fourth server gets it; whoever comes after it refuses it."""
    answers, requests = connection.queue("answers"), connection.queue("requests")
    requests.put(Encoder().encoded([BATCH]).body, key=protocol.request_key(7, "answers"))
    for _ in range(deaths - 1):
        requests.get(timeout=0).nack()
    server._Server(connection, lambda batch: batch).answer(requests.get(timeout=0))  # noqa: SLF001
    with answers.get(timeout=0) as answer:
        if deaths == 3:
            assert Decoder().batches(bytes(answer)) == [BATCH]
        else:
            assert protocol.read_answer(answer.key) == (7, "refused")
            assert (
                bytes(answer) == b"ACCESS_REFUSED - 3 servers died, or were killed, while they worked on this request"
            )


def test_the_asker_is_gone(connection: shmbroker.Connection) -> None:
    """Its request is dropped, and the function not called; a queue of the name that is made later gets nothing."""
    answers, calls = connection.queue("answers"), list[pa.RecordBatch]()
    served = server._Server(connection, calls.append)  # noqa: SLF001
    served.answer(request_of(connection, [BATCH]))
    assert (calls, len(answers)) == ([BATCH], 1)
    opened = served._targets["answers"]  # noqa: SLF001
    answers.delete()
    requests = [request_of(connection, [BATCH]), request_of(connection, [BATCH], "never made")]
    for request in requests:
        served.answer(request)
        assert request.settled
    assert calls == [BATCH]
    assert served._targets == {}  # noqa: SLF001
    with pytest.raises(shmbroker.ConnectionClosed):
        len(opened)
    again = connection.queue("answers")
    served.answer(request_of(connection, [BATCH]))
    assert len(again) == 1


def test_few_queues_of_answers_are_kept_open(connection: shmbroker.Connection) -> None:
    """The 64 that were used last: the others are closed."""
    served = server._Server(connection, lambda _batch: None)  # noqa: SLF001
    for at in range(64):
        connection.queue(f"answers.{at}")
        served.answer(request_of(connection, [BATCH], f"answers.{at}"))
    opened = dict(served._targets)  # noqa: SLF001
    assert list(opened) == [f"answers.{at}" for at in range(64)]
    served.answer(request_of(connection, [BATCH], "answers.0"))
    assert served._targets["answers.0"] is opened["answers.0"]  # noqa: SLF001
    connection.queue("answers.64")
    served.answer(request_of(connection, [BATCH], "answers.64"))
    assert list(served._targets) == [*(f"answers.{at}" for at in range(2, 64)), "answers.0", "answers.64"]  # noqa: SLF001
    with pytest.raises(shmbroker.ConnectionClosed):
        len(opened["answers.1"])
    assert len(opened["answers.0"]) == 2


def test_there_is_no_room_for_an_answer(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """For now: then the answer is a word, as soon as there is room for that."""
    answers = connection.queue("answers", max_length=1)
    answers.put(b"in the way")
    tell = server._Server._tell  # noqa: SLF001
    tries = []

    def make_room(self: Any, target: shmbroker.Queue, *said: str) -> None:  # noqa: ANN401
        tries.append(said)
        answers.get(auto_ack=True, timeout=0)
        tell(self, target, *said)

    monkeypatch.setattr(server._Server, "_tell", make_room)  # noqa: SLF001
    monkeypatch.setattr(server, "ROOM_SECONDS", 0.01)
    server._Server(connection, lambda batch: batch).answer(request_of(connection, [BATCH]))  # noqa: SLF001
    with answers.get(timeout=0) as answer:
        assert protocol.read_answer(answer.key) == (7, "no-room")
        assert bytes(answer).startswith(b"the server cannot put its answer: queue 'answers'")
    assert len(tries) == 1


def test_an_answer_that_never_fits(connection: shmbroker.Connection) -> None:
    """It is told from one that has no room for now: the asker need not ask again."""
    connection.queue("answers", max_bytes=500)
    answer = answered(connection, lambda batch: [batch] * 10)
    assert protocol.read_answer(answer.key) == (7, "too-large")
    assert b"the server cannot put its answer: " in bytes(answer)
    assert b"can never fit" in bytes(answer)


def test_an_answer_longer_than_any_body(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is too large as well."""

    def put(*_: object, **__: object) -> None:
        text = "size=99: 0 to 9 bytes are allowed"
        raise ValueError(text)

    monkeypatch.setattr(batches.Encoded, "put", put)
    answer = answered(connection, lambda batch: batch)
    assert protocol.read_answer(answer.key) == (7, "too-large")
    assert bytes(answer) == b"the server cannot put its answer: size=99: 0 to 9 bytes are allowed"


class Full:
    """Stands in for a queue that has no room at first."""

    def __init__(self, times: int) -> None:
        """Refuse so often."""
        self.times, self.taken = times, list[Any]()

    def put(self, *given: object, **options: object) -> None:
        """Take it, or not."""
        if self.times:
            self.times -= 1
            raise standard_queue.Full
        self.taken.append((given, options))


def test_a_word_has_room_sooner_or_later(connection: shmbroker.Connection) -> None:
    """It is put again until there is, for a moment each time."""
    target: Any = Full(3)
    server._Server(connection, lambda batch: batch)._tell(target, "7 failed", "ä")  # noqa: SLF001
    assert target.taken == [(("ä".encode(),), {"timeout": 0.2, "key": "7 failed"})]


def test_what_is_no_request_is_set_aside(connection: shmbroker.Connection) -> None:
    """It stays as it is, in the queue beside."""
    requests = connection.queue("requests")
    requests.put(b"order", key="no request")
    server._Server(connection, lambda _batch: pytest.fail("called")).answer(requests.get(timeout=0))  # noqa: SLF001
    (found,) = connection.queue("unserved.requests", passive=True).browse()
    assert (bytes(found), found.key, len(requests)) == (b"order", "no request", 0)


def test_a_server_ends_at_sigterm(connection: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers the request that it is at, and not the next one; others see who it is; signals are as before then."""
    answers, seen = connection.queue("answers"), []
    requests = connection.queue("requests")
    for number in (1, 2, 3):
        requests.put(Encoder().encoded([BATCH]).body, key=protocol.request_key(number, "answers"))
    before = signal.getsignal(signal.SIGTERM)

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(({one.name for one in connection.connections()}, requests.statistics().delivering))
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch

    monkeypatch.setenv("SHMBROKER_BROKER", connection.broker_name)
    serve("requests", twice)
    assert signal.getsignal(signal.SIGTERM) == before
    assert [one.key for one in answers.browse()] == ["1 ", "2 "]
    assert [one.key for one in requests.browse()] == ["exchange 3 answers"]
    assert "serve requests" in seen[0][0]
    assert [delivering for _, delivering in seen] == [1, 1]
    assert "serve requests" not in {one.name for one in connection.connections()}


def test_a_second_sigterm_may_interrupt_the_first(connection: shmbroker.Connection) -> None:
    """The handler takes no lock, and so calls nothing of `threading`: the second one would wait for the first one."""
    connection.queue("answers")
    connection.queue("requests").put(Encoder().encoded([BATCH]).body, key=protocol.request_key(1, "answers"))
    called: list[str] = []

    def end(batch: pa.RecordBatch) -> pa.RecordBatch:
        handler: Any = signal.getsignal(signal.SIGTERM)
        sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_filename))
        handler(signal.SIGTERM, None)
        sys.setprofile(None)
        return batch

    serve("requests", end, broker=connection.broker_name)
    assert server.__file__ in called
    assert threading.__file__ not in called


def test_a_server_waits_for_requests(connection: shmbroker.Connection, until_true: Callable[..., None]) -> None:
    """It makes the queue, and serves it until it is deleted; in a thread that gets no signals, too."""
    ended: list[BaseException] = []

    def run() -> None:
        try:
            serve("requests", lambda batch: batch, broker=connection.broker_name)
        except shmbroker.NotFound as gone:
            ended.append(gone)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    until_true(lambda: [one.queue for one in connection.consumers()] == ["requests"])
    assert signal.getsignal(signal.SIGTERM) == before
    (consumer,) = connection.consumers()
    assert consumer.prefetch == 1
    answers = connection.queue("answers")
    for number in (1, 2):
        connection.queue("requests").put(b"", key=protocol.request_key(number, "answers"))
        with answers.get() as answer:
            assert (answer.key, bytes(answer)) == (f"{number} ", b"")
    connection.queue("requests").delete()
    thread.join()
    assert len(ended) == 1


def test_a_function_is_needed(broker_name: str) -> None:
    """What cannot be called is refused before anything is made."""
    with pytest.raises(TypeError, match="function=7: a callable is needed"):
        serve("requests", 7, broker=broker_name)  # type: ignore[arg-type]
    assert broker_name not in shmbroker.brokers()
