# SPDX-License-Identifier: Apache-2.0
"""Handing batches over and back: the generator that Spark's tasks run, beside real servers, without Spark."""

from __future__ import annotations

import contextlib
import os
import queue as standard_queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import shmbroker
from shmbroker.spark import serve
from shmbroker.spark.batches import Encoder
from shmbroker.spark.handover import protocol
from shmbroker.spark.handover.client import hand_over
from shmbroker.spark.handover.protocol import Handover
from shmbroker.spark.handover.unserved import unserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Servers

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def batch(number: int, rows: int = 3, width: int = 1) -> pa.RecordBatch:
    """A batch that can be recognised."""
    return pa.record_batch({"id": [number] * rows, "text": ["x" * width] * rows}, schema=SCHEMA)


def asked(owner: shmbroker.Broker, batches: Any, **options: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
    """The answers of the servers of queue "requests"."""
    given = {"schema": SCHEMA, "broker": owner.name, **options}
    return hand_over(iter(batches), Handover("requests", "replies", **given))


def at_rest(broker: shmbroker.Broker) -> None:
    """Waits until nothing is left of what was asked."""
    with broker.connect() as connection:
        requests = connection.queue("requests", passive=True)
        until_true(lambda: connection.queue_names() == ["requests"] and not requests.statistics().message_count)


def until_true(what: Callable[[], object]) -> None:
    """Wait for something that will be; the watchdog ends the test if it is not."""
    pause = threading.Event()
    while not what():
        pause.wait(0.01)


@pytest.mark.parametrize("inflight", [1, 4, 100])
def test_answers_come_in_the_order_of_the_requests(broker: shmbroker.Broker, servers: Servers, inflight: int) -> None:
    """What two servers send back is equal and in order, and nothing is left of it."""
    servers.start("echo")
    servers.start("echo")
    sent = [batch(number, 1 + number * 97 % 1000, 100) for number in range(100)]
    assert list(asked(broker, sent, inflight=inflight)) == sent
    at_rest(broker)


def test_an_empty_partition_needs_nobody(broker: shmbroker.Broker) -> None:
    """Without batches there is no answer, and no server is missed."""
    assert list(asked(broker, [])) == []


@pytest.mark.parametrize(
    ("function", "rows"),
    [("echo", [3, 0, 2]), ("each_row", [1, 1, 1, 1, 1]), ("table", [3, 3, 0, 0, 2, 2]), ("nothing", [])],
)
def test_functions_may_return_what_they_like(
    broker: shmbroker.Broker, servers: Servers, function: str, rows: list[int]
) -> None:
    """A batch, an iterator, a table or nothing."""
    servers.start(function)
    found = list(asked(broker, [batch(1, 3), batch(2, 0), batch(3, 2)]))
    assert [one.num_rows for one in found if function != "table" or one.num_rows] == [
        count for count in rows if function != "table" or count
    ]


def test_a_function_that_raises_is_the_error_of_who_asked(broker: shmbroker.Broker, servers: Servers) -> None:
    """The error carries the server's text, and the server goes on."""
    servers.start("odd")
    with pytest.raises(
        shmbroker.FunctionFailed, match=r"'requests': ValueError: 3 is odd \(.*servers.py:\d+, host"
    ) as e:
        list(asked(broker, map(batch, (2, 3, 4))))
    assert e.value.code == 541
    assert list(asked(broker, [batch(8)])) == [batch(8)]
    at_rest(broker)


@pytest.mark.parametrize(
    ("number", "text"), [(1, "UnspeakableError: it has no text, since RuntimeError"), (2, r"ValueError: \\ud800 \(")]
)
def test_an_error_whose_text_is_none(broker: shmbroker.Broker, servers: Servers, number: int, text: str) -> None:
    """It cannot be made, or written in UTF-8: that is told as well, and the server goes on."""
    servers.start("raises")
    with pytest.raises(shmbroker.FunctionFailed, match=f"queue 'requests': {text}"):
        list(asked(broker, [batch(number)]))
    assert list(asked(broker, [batch(8)])) == [batch(8)]
    at_rest(broker)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        ("other_type", shmbroker.SchemaMismatch, "column 'id' is string, and the schema says int64"),
        ("no_batch", shmbroker.FunctionFailed, "the function returned an object of type int: None, a pyarrow.Table, "),
    ],
)
def test_an_answer_of_another_kind_is_an_error(
    broker: shmbroker.Broker, servers: Servers, function: str, error: type[Exception], text: str
) -> None:
    """It says which column differs, or what was returned."""
    servers.start(function)
    with pytest.raises(error, match=text):
        list(asked(broker, [batch(1)]))
    at_rest(broker)


def test_a_null_where_the_schema_says_there_is_none(broker: shmbroker.Broker, servers: Servers) -> None:
    """The column is named; where there may be nulls, it is an answer like any other."""
    servers.start("null")
    never = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(SCHEMA)[1:]])
    with pytest.raises(shmbroker.SchemaMismatch, match="'requests': in the server's answer column 'id' has a null"):
        list(asked(broker, [batch(1)], schema=never))
    (answer,) = asked(broker, [batch(1)])
    assert answer["id"].null_count == answer.num_rows
    at_rest(broker)


def test_nobody_serves(broker: shmbroker.Broker) -> None:
    """Without a server there is an error that names the queue and the broker, and nothing was put."""
    for _ in ("no queue", "a queue, and no server"):
        with pytest.raises(shmbroker.NoServer, match=f"313 .*'requests' of broker '{broker.name}'"):
            next(asked(broker, [batch(1)]))
        with broker.connect() as connection:
            assert len(connection.queue("requests")) == 0
    at_rest(broker)


def test_no_broker(broker_name: str) -> None:
    """Without a broker there is an error that names it, the host, and how to name another one."""
    with pytest.raises(shmbroker.BrokerNotFound, match=f"'{broker_name}' on host .*SHMBROKER_BROKER"):
        next(hand_over(iter([batch(1)]), Handover("requests", "replies", broker=broker_name)))


def test_the_broker_is_found_in_the_environment(
    broker: shmbroker.Broker, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option it is the one that the environment names."""
    servers.start("echo")
    monkeypatch.setenv("SHMBROKER_BROKER", broker.name)
    assert list(asked(broker, [batch(1)], broker=None)) == [batch(1)]


def test_another_server_takes_over(broker: shmbroker.Broker, servers: Servers) -> None:
    """A request whose server is killed is answered by another one; nothing is missing, twice or out of order."""
    servers.start("dies", "requests", "7")
    answers = asked(broker, map(batch, range(30)), inflight=3)
    assert next(answers) == batch(0)
    servers.start("echo")
    assert list(answers) == [batch(number) for number in range(1, 30)]
    at_rest(broker)


def test_a_dead_server_is_an_error(broker: shmbroker.Broker, servers: Servers) -> None:
    """When the last server is killed there is an error, and the requests that nobody answers are taken back."""
    servers.start("dies", "requests", "7")
    with pytest.raises(shmbroker.NoServer, match="no process serves queue 'requests'"):
        list(asked(broker, map(batch, range(30)), inflight=8))
    at_rest(broker)


def test_a_deadly_request_is_refused(broker: shmbroker.Broker, servers: Servers) -> None:
    """The fourth server does not touch a request that three died of, and answers the next one."""
    for _ in range(4):
        servers.start("dies", "requests", "7")
    with pytest.raises(
        shmbroker.RequestRefused, match="3 servers died, or were killed, while they worked on this request"
    ):
        list(asked(broker, map(batch, range(30)), inflight=1))
    assert sorted(process.poll() is None for process in servers.started) == [False, False, False, True]
    assert list(asked(broker, [batch(8)])) == [batch(8)]
    at_rest(broker)


def test_an_answer_that_takes_too_long(broker: shmbroker.Broker, servers: Servers, tmp_path: Path) -> None:
    """When time is up there is an error; the late answer finds nobody, and the server goes on."""
    servers.start("waits", "requests", str(tmp_path))
    with pytest.raises(shmbroker.Timeout, match=r"'requests': no answer within 0\.3 seconds"):
        list(asked(broker, [batch(1), batch(2)], timeout=0.3))
    (tmp_path / "go").touch()
    assert list(asked(broker, [batch(3)])) == [batch(3)]
    at_rest(broker)


def test_who_wants_no_more_leaves_nothing(broker: shmbroker.Broker, servers: Servers) -> None:
    """A generator that is closed early, as with limit(1), leaves no queue and no memory, while batches live on."""
    servers.start("echo")
    with broker.connect() as connection:
        connection.queue("requests")
    before = broker.statistics().memory_used
    answers = asked(broker, (batch(number, 5000, 100) for number in range(100)))
    kept = next(answers)
    answers.close()
    at_rest(broker)
    assert kept == batch(0, 5000, 100)
    del kept, answers
    until_true(lambda: broker.statistics().memory_used <= before + (64 << 10))


def test_a_task_that_is_killed_leaves_nothing(broker: shmbroker.Broker, servers: Servers, tmp_path: Path) -> None:
    """A process that asks and is killed leaves neither its queue of answers nor requests."""
    servers.start("echo")
    script = str(Path(__file__).with_name("servers.py"))
    task = subprocess.Popen([sys.executable, script, broker.name, "requests", "ask", str(tmp_path)])
    until_true((tmp_path / "answered").exists)
    task.kill()
    task.wait()
    at_rest(broker)


def test_sigterm_lets_a_server_finish(broker: shmbroker.Broker, servers: Servers, tmp_path: Path) -> None:
    """A server that is told to end answers the request it is at, and ends with success."""
    server = servers.start("waits", "requests", str(tmp_path))
    numbers = iter(range(3))

    def numbered() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            if number == 1:
                until_true((tmp_path / "at").exists)
                server.terminate()
                (tmp_path / "go").touch()
                server.wait()
                servers.start("echo")
            yield batch(number)

    assert list(asked(broker, numbered())) == [batch(number) for number in range(3)]
    assert server.returncode == 0


@pytest.mark.parametrize("broker", ["32M"], indirect=True)
@pytest.mark.parametrize(
    ("function", "times", "rows"),
    [("echo", 1, 30), ("echo", 1, 300), ("echo", 1, 1500), ("larger", 8, 30), ("larger", 8, 300)],
)
def test_chained_hand_overs_share_the_memory(
    broker: shmbroker.Broker, servers: Servers, function: str, times: int, rows: int
) -> None:
    """Several that wait for each other, with more under way than there is memory, come through.

    The first one's answers are taken only when the last one asks, which needs memory.
    """
    servers.start(function)
    servers.start("echo", "more")
    sent = [batch(number, rows, 1000) for number in range(30)]
    chain = asked(broker, sent, inflight=100)
    for _ in range(3):
        chain = hand_over(chain, Handover("more", "replies", SCHEMA, 100, None, broker.name))
    found = 0
    for answer in chain:
        assert answer == sent[found // times]
        found += 1
    assert found == len(sent) * times


def test_what_can_never_fit_is_an_error(broker: shmbroker.Broker, servers: Servers) -> None:
    """A single row larger than the broker's memory says so, at once."""
    servers.start("echo")
    with pytest.raises(shmbroker.OutOfMemory, match="can never fit"):
        next(asked(broker, [batch(1, 1, 70 << 20)]))
    at_rest(broker)


def test_what_can_never_fit_its_queue_is_an_error(broker: shmbroker.Broker, servers: Servers) -> None:
    """A request that is longer than the queue's limit says so, at once; others go."""
    with broker.connect() as connection:
        connection.queue("requests", max_bytes=2000)
    servers.start("echo")
    with pytest.raises(standard_queue.Full, match=r"queue 'requests': .* can never fit max_bytes=2000"):
        next(asked(broker, [batch(1, 1, 2000)]))
    assert list(asked(broker, [batch(8)])) == [batch(8)]
    at_rest(broker)


def test_large_batches_go_in_pieces(broker: shmbroker.Broker, servers: Servers) -> None:
    """A batch that would take most of the memory is cut, and its rows come back in order."""
    servers.start("echo")
    large = pa.record_batch({"id": range(4 << 20)})
    found = list(asked(broker, [large], schema=None))
    assert len(found) > 1
    assert pa.Table.from_batches(found).combine_chunks().to_batches() == [large]


@pytest.mark.parametrize("broker", ["32M"], indirect=True)
def test_an_answer_that_can_never_fit_is_an_error(broker: shmbroker.Broker, servers: Servers) -> None:
    """An answer larger than the broker's memory says so, at once."""
    servers.start("larger")
    with pytest.raises(shmbroker.OutOfMemory, match=r"the server cannot put its answer: .* can never fit"):
        next(asked(broker, [batch(1, 5000, 1000)]))
    at_rest(broker)


class Forger(threading.Thread):
    """A server by hand: gives each request the answers that it is told, with the body that came."""

    def __init__(self, broker: shmbroker.Broker, kinds: Callable[[int], list[str]]) -> None:
        """Serve from now on."""
        super().__init__(daemon=True)
        self.connection, self._kinds, self.seen = broker.connect(), kinds, 0
        self._consumer = self.connection.queue("requests").consume(prefetch=100)
        self.start()

    def run(self) -> None:
        """Answer until the consumer is closed."""
        for request in self._consumer:
            number, answers = protocol.read_request(request.key) or ("", "")
            self.seen += 1
            with contextlib.suppress(
                shmbroker.NotFound
            ):  # a client that has all its answers closes, although some come twice
                target = self.connection.queue(answers, passive=True)
                for kind in self._kinds(self.seen):
                    target.put(bytes(request), key=protocol.answer_key(number, kind))
            request.ack()

    def stop(self) -> None:
        """End it."""
        self._consumer.close()
        self.join()
        self.connection.close()


@pytest.mark.parametrize(
    ("kinds", "requests"),
    [(lambda _seen: ["", ""], 20), (lambda seen: ["no-room"] if seen % 3 == 0 else [""], 29)],
    ids=["twice", "no-room"],
)
def test_each_request_has_one_answer(
    broker: shmbroker.Broker, kinds: Callable[[int], list[str]], requests: int
) -> None:
    """A second answer is dropped; after one that there was no room, the request is made again, in its turn."""
    forger = Forger(broker, kinds)
    sent = [batch(number, 500, 20) for number in range(20)]
    assert list(asked(broker, sent, inflight=5)) == sent
    assert forger.seen == requests
    forger.stop()
    at_rest(broker)


def test_what_is_no_request_does_not_stop_a_server(broker: shmbroker.Broker, servers: Servers) -> None:
    """A request that cannot be read is answered by an error."""
    servers.start("echo")
    with broker.connect() as connection, connection.queue("answers") as answers, connection.queue("requests") as to:
        for body in (b"no batch", bytes(Encoder().encoded([batch(1)]).body)[:-20]):
            to.put(body, key=protocol.request_key(7, "answers"))
            with answers.get() as message:
                assert protocol.read_answer(message.key) == (7, "malformed")
                assert b"cannot be read" in message.body.tobytes()
        answers.delete()
    assert list(asked(broker, [batch(8)])) == [batch(8)]
    at_rest(broker)


STRAYS: list[tuple[bytes, dict[str, Any]]] = [
    (b"neither batch nor key", {}),
    (b"x" * 5000, {"key": "order"}),
    (b"", {"key": "7 answers", "headers": {"number": 5}, "priority": 3}),
    (b"no mark", {"key": "order 7 answers"}),
    (b"no number", {"key": "exchange x answers"}),
    (b"no queue", {"key": "exchange 7 "}),
    (b"timed", {"ttl": 3600, "properties": shmbroker.BasicProperties(correlation_id="c")}),
]


def shown(queue: shmbroker.Queue) -> list[tuple[Any, ...]]:
    """What its messages are."""
    return [
        (bytes(one), one.key, one.properties, one.priority, one.expires_at and round(one.expires_at, -1))
        for one in queue.browse()
    ]


def test_messages_that_are_no_requests_are_set_aside(
    broker: shmbroker.Broker, servers: Servers, capfd: pytest.CaptureFixture[str]
) -> None:
    """They go to a queue beside, as they were put; a line in the log names them and that queue. Requests are served."""
    with broker.connect() as connection, connection.queue("requests") as to:
        for body, options in STRAYS:
            to.put(body, **options)
        put = shown(to)
        servers.start("echo")
        assert list(asked(broker, [batch(8)])) == [batch(8)]
        with connection.queue("unserved.requests", passive=True) as aside:
            assert shown(aside) == put
        assert len(to) == 0
    said = capfd.readouterr().err
    assert (
        "queue 'requests': message 0 is not a request of exchange(): it was moved to queue 'unserved.requests'" in said
    )
    assert said.count("is not a request") == len(STRAYS)


def test_a_message_that_cannot_be_set_aside_stays(broker: shmbroker.Broker) -> None:
    """The server ends with what is in the way, and the message is in its place, as if it had not been taken."""
    with broker.connect() as connection, connection.queue("requests") as to:
        connection.queue("unserved.requests", max_length=1).put(b"there before")
        to.put(b"order")
        with pytest.raises(standard_queue.Full) as full:
            serve("requests", lambda one: one, broker=broker.name)
        (note,) = full.value.__notes__
        assert note.startswith(
            "queue 'requests': message 0 is not a request of exchange(), and cannot be moved to queue"
        )
        with to.get(timeout=0) as message:
            assert (bytes(message), message.sequence, message.delivery_count) == (b"order", 0, 1)


@pytest.mark.parametrize("name", ["q", "ä" * 127, "amq.gen-1"])
def test_names_of_queues_beside(name: str) -> None:
    """Each queue of requests has one whose name is allowed."""
    assert len(unserved(name).encode()) <= 255
    assert unserved(name).startswith("unserved." + name[:9])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"inflight": 0}, "inflight=0"),
        ({"inflight": True}, "inflight=True"),
        ({"timeout": 0}, "timeout=0"),
        ({"request_queue": ""}, "request_queue=''"),
        ({"request_queue": "\ud800"}, r"request_queue=.*UTF-8 without NUL are allowed"),
        ({"reply_queue": "x" * 201}, "reply_queue='x"),
    ],
)
def test_options_are_checked_on_the_driver(options: dict[str, Any], name: str) -> None:
    """A wrong value is an error before anything runs; it names the option and the value."""
    with pytest.raises(ValueError, match=name):
        Handover(**{"request_queue": "requests", "reply_queue": "replies", **options})


def test_there_is_one_connection_for_a_process(broker: shmbroker.Broker, servers: Servers) -> None:
    """Tasks that run one after another in a worker of Spark share its connection."""
    servers.start("echo")
    for _ in range(3):
        list(asked(broker, [batch(1)]))
    with broker.connect() as connection:
        assert [one.name for one in connection.connections()].count(f"spark:{os.getpid()}") == 1
