# SPDX-License-Identifier: Apache-2.0
"""The commands `export` and `import`."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import transfer
from shmbroker._core import attachment, native, segments
from shmbroker.properties import encode
from shmbroker_cli import transfer as commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEADERS: dict[str, Any] = {
    "integer": 1,
    "negative": -(2**40),
    "float": 1.0,
    "infinite": float("inf"),
    "true": True,
    "none": None,
    "text": "Grüße\n",
    "bytes": b"\0\xff",
    "decimal": Decimal("1.50"),
    "time": dt.datetime(2200, 1, 1, tzinfo=dt.UTC),
    "list": [1, [b"x", 1.5], {"$bytes": "no bytes"}],
    "table": {"$x": 1, "inner": {}},
    "": "",
}
PROPERTIES = shmbroker.BasicProperties(
    content_type="text/plain", content_encoding="utf-8", headers=HEADERS, delivery_mode=2, priority=3,
    correlation_id="c", reply_to="r", expiration="3600000", message_id="m",
    timestamp=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), type="t", app_id="a", cluster_id="i",
)  # fmt: skip
FORMATS = ["jsonl", "arrow"]
KEPT = ("body", "exchange", "routing_key", "priority", "due_ns")


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    """Return the name of a format."""
    if request.param == "arrow":
        pytest.importorskip("pyarrow")
    return str(request.param)


def fill(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Put messages of all kinds, and one of them twice."""
    queue.put(b"plain")
    queue.put(b"\xff\0", key="key", properties=PROPERTIES)
    queue.put(b"", headers={})
    queue.put(b"x" * 2**20, priority=7)
    queue.put("Grüße\u2028".encode(), ttl=3600)
    channel = connection.channel()
    channel.exchange_declare("events", "fanout")
    channel.queue_bind(queue.name, "events", "")
    channel.basic_publish("events", "a.b", b"published")
    channel.close()
    queue.get().nack()


def same(one: transfer.Exported, other: transfer.Exported) -> bool:
    """Whether two messages have the same body, properties in the same bytes, names and life."""
    lives = abs((one.expires_ns or 0) - (other.expires_ns or 0)) < 60 * 10**9
    kept = all(getattr(one, name) == getattr(other, name) for name in KEPT)
    return kept and lives and encode(one.properties) == encode(other.properties)


def test_messages_leave_and_come_back(
    cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker, tmp_path: Path, form: str
) -> None:
    """An import has what the queue had: the types of headers, too. The queue keeps its messages."""
    with broker.connect() as connection:
        fill(connection, jobs)
        before = list(transfer.messages_of(jobs))
        file = tmp_path / f"jobs.{form}"
        assert cli("export", "jobs", str(file)).lines == ["jobs: 6 messages exported"]
        kept = list(transfer.messages_of(jobs))
        assert [same(one, two) for one, two in zip(kept, before, strict=True)] == [True] * 6
        other = connection.queue("other")
        ran = cli("import", "other", str(file), "--json")
        assert ran.facts == {"queue": "other", "imported": 6, "expired": 0}
        found = list(transfer.messages_of(other))
    assert [same(one, two) for one, two in zip(found, before, strict=True)] == [True] * 6
    assert found[1].properties.headers == HEADERS
    assert [type(value) for value in found[1].properties.headers.values()] == [type(v) for v in HEADERS.values()]
    assert [one.properties.headers for one in (found[0], found[2])] == [None, {}]
    assert before[0].redelivered
    assert (before[5].exchange, before[5].routing_key, before[0].routing_key) == ("events", "a.b", None)


def test_what_a_reader_of_a_file_gets(jobs: shmbroker.Queue, broker: shmbroker.Broker, form: str) -> None:
    """All fields, to the nanosecond."""
    with broker.connect() as connection:
        fill(connection, jobs)
    jobs.put(b"later", delay=3600)
    for state in ("ready", "scheduled", "delivering", "dead"):
        with jobs.get():
            before = list(transfer.messages_of(jobs, state=state))
        stream = io.BytesIO()
        transfer.write(stream, before, form)
        stream.seek(0)
        assert list(transfer.read(stream, form)) == before
        assert len(before) == {"ready": 5, "scheduled": 1, "delivering": 1, "dead": 0}[state]


def test_an_empty_queue(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path, form: str) -> None:
    """A file without messages, which can be imported."""
    file = tmp_path / f"jobs.{form}"
    assert cli("export", "jobs", str(file)).lines == ["jobs: 0 messages exported"]
    assert cli("import", "jobs", str(file)).lines == ["jobs: 0 messages imported"]
    assert len(jobs) == 0


def test_standard_streams(jobs: shmbroker.Queue, tmp_path: Path, form: str) -> None:
    """`-` is standard output and standard input; only the messages are on standard output."""
    jobs.put(b"\xff\0", headers=HEADERS)
    command = [sys.executable, "-m", "shmbroker_cli", "--broker", jobs._session.broker_name]  # noqa: SLF001
    out = subprocess.run([*command, "export", "jobs", "-", "--format", form], capture_output=True, check=True)
    assert out.stderr == b""
    file = tmp_path / "jobs"
    file.write_bytes(out.stdout)
    assert (out.stdout[:1] == b"{") == (form == "jsonl")
    back = subprocess.run(
        [*command, "import", "jobs", "-", "--format", form], input=out.stdout, capture_output=True, check=True
    )
    assert back.stdout == b"jobs: 1 message imported\n"
    assert [message.headers for message in jobs.browse()] == [HEADERS, HEADERS]
    assert [bytes(message) for message in jobs.browse()] == [b"\xff\0"] * 2


def test_chosen_messages(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """A selector, a state and a count; JSON lines have bodies that are not UTF-8 in base64."""
    for number in range(5):
        jobs.put(b"%d" % number, headers={"n": number})
    jobs.put(b"\xff", delay=3600)
    file = tmp_path / "jobs.jsonl"

    def exported(*arguments: str) -> list[dict[str, Any]]:
        assert cli("export", "jobs", str(file), *arguments).code == 0
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    assert [one["body"] for one in exported("--selector", "n > 2")] == ["3", "4"]
    assert [one["body"] for one in exported("--count", "2")] == ["0", "1"]
    (later,) = exported("--state", "scheduled")
    assert later["body_base64"] == base64.b64encode(b"\xff").decode()
    assert (later["state"], later["due_at"] > later["timestamp"], later["delivery_count"]) == ("scheduled", True, None)
    assert cli("import", "jobs", str(file)).code == 0
    assert jobs.statistics().scheduled == 2


def test_messages_of_a_queue_with_priorities(broker: shmbroker.Broker) -> None:
    """All lanes of the queue are exported, and traffic that never ends does not keep the export from ending."""
    with broker.connect() as connection:
        queue = connection.queue("ranked", max_priority=9)
        for number in range(20):
            queue.put(b"%d" % number, priority=number % 10)
        found = []
        for message in transfer.messages_of(queue):
            found.append(message.body)
            queue.put(b"more", priority=9)  # each message that is exported brings another one
        assert {b"%d" % number for number in range(20)} <= set(found)


def test_what_others_wrote(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Only the body must be there; empty lines are passed over; the property of a life counts."""
    file = tmp_path / "jobs.ndjson"
    lines = ['{"body":"a"}', "", '{"body":"b","properties":{"expiration":"3600000","priority":4}}']
    file.write_text("\n".join(lines), encoding="utf-8")
    assert cli("import", "jobs", str(file)).lines == ["jobs: 2 messages imported"]
    first, second = jobs.browse()
    assert (bytes(first), first.expires_at, first.properties) == (b"a", None, shmbroker.BasicProperties())
    assert second.expires_at is not None
    assert second.priority == 4


def test_arrow_of_others(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Other widths of texts and numbers, and other units of time."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "body": pa.array(["a", "b"], pa.large_string()),
            "routing_key": pa.array(["k", None], pa.large_string()),
            "expires_at": pa.array([4_000_000_000, None], pa.timestamp("s")),
            "properties": pa.array([{"content_type": "x"}, None]),
        }
    )
    file = tmp_path / "jobs.arrows"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert cli("import", "jobs", str(file)).lines == ["jobs: 2 messages imported"]
    first, second = jobs.browse()
    assert (first.key, first.properties.content_type, second.key) == ("k", "x", None)
    assert first.expires_at == pytest.approx(4_000_000_000, abs=60)
    assert second.expires_at is None


def test_messages_whose_time_is_over(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """They are left out, and counted."""
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"body":"a","expires_at":"2020-01-01T00:00:00Z"}\n{"body":"b"}\n', encoding="utf-8")
    line = "jobs: 1 message imported, 1 message left out: their time is over"
    assert cli("import", "jobs", str(file)).lines == [line]
    assert [bytes(message) for message in jobs.browse()] == [b"b"]


BAD = [
    ("{", "line 2:"),
    ("[]", "line 2: a message: []: an object is allowed"),
    ("{}", "either 'body' or 'body_base64'"),
    ('{"body":"a","body_base64":""}', "either 'body' or 'body_base64'"),
    ('{"body":1}', "body: 1: a text is allowed"),
    ('{"body_base64":"*"}', "body_base64: '*': a text in base64 is allowed"),
    ('{"body":"a","colour":1}', "colour"),
    ('{"body":"a","priority":-1}', "priority: -1: an integer >= 0 or null is allowed"),
    ('{"body":"a","priority":256}', "priority=256"),
    ('{"body":"a","routing_key":1}', "routing_key: 1: a text or null is allowed"),
    ('{"body":"a","expires_at":"soon"}', "'soon' is no time"),
    ('{"body":"a","redelivered":1}', "true, false or null is allowed"),
    ('{"body":"a","headers":[]}', "headers: []: an object or null is allowed"),
    ('{"body":"a","headers":{"a":{"$bytes":"*"}}}', "a text in base64 is allowed"),
    ('{"body":"a","headers":{"a":{"$decimal":"x"}}}', "the text of a decimal number is allowed"),
    ('{"body":"a","headers":{"a":NaN}}', "NaN is no JSON"),
    ('{"body":"a","properties":{"colour":"red"}}', "colour"),
    ('{"body":"a","properties":{"content_type":5}}', "content_type=5"),
    (f'{{"body":"a","routing_key":"{"k" * 256}"}}', "routing_key of 256 bytes"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=[words for _, words in BAD])
def test_a_line_that_is_no_message(
    cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path, line: str, words: str
) -> None:
    """The error names what is wrong; the messages before it are imported, and counted."""
    file = tmp_path / "jobs.jsonl"
    file.write_text(f'{{"body":"good"}}\n{line}\n', encoding="utf-8")
    assert cli("import", "jobs", str(file)).is_refused(words, "(1 imported)")
    assert [bytes(message) for message in jobs.browse()] == [b"good"]


def test_files_that_are_no_arrow(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """One line says so."""
    pa = pytest.importorskip("pyarrow")
    file = tmp_path / "jobs.arrow"
    file.write_bytes(b"no arrow at all")
    assert cli("import", "jobs", str(file)).is_refused("no Arrow stream of messages", "(0 imported)")
    for columns, words in (
        ({"text": ["a"]}, "'body' is needed"),
        ({"body": ["a"], "colour": ["red"]}, "the column 'colour' is not known"),
        ({"body": [None]}, "bytes is allowed"),
        ({"body": ["a"], "headers": ["["]}, "an object of JSON is allowed"),
        ({"body": ["a"], "headers": ["[]"]}, "an object of JSON is allowed"),
        ({"body": ["a"], "sequence": ["x"]}, "column 'sequence': 'x'"),
        ({"body": ["a"], "routing_key": [5]}, "column 'routing_key': 5"),
        ({"body": ["a"], "properties": [{"colour": "red"}]}, "column 'properties': 'colour'"),
    ):
        table = pa.table(columns)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        assert cli("import", "jobs", str(file)).is_refused(words)
    assert len(jobs) == 0


def test_without_pyarrow(
    cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to install, and which format needs nothing. No file is left."""
    jobs.put(b"A")
    file = tmp_path / "jobs.arrow"
    file.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for command in ("export", "import"):
        assert cli(command, "jobs", str(file)).is_refused("needs pyarrow", "'jsonl'")
    assert [one.name for one in tmp_path.iterdir()] == ["jobs.arrow"]


def test_wrong_usage(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """The exit code is 2, or 1 if it depends on what there is."""
    assert cli("export", "jobs", str(tmp_path / "jobs.txt")).is_refused("give --format", ".jsonl", code=2)
    given = ("export", "jobs", str(tmp_path / "a.jsonl"), "--data-dir", str(tmp_path))
    assert cli(*given, "--selector", "n = 1").is_refused("--selector needs a broker", code=2)
    assert cli(*given, "--state", "delivering").is_refused("--state delivering needs a broker", code=2)
    assert cli(*given).is_refused("has no store")
    assert cli("export", "nowhere", str(tmp_path / "a.jsonl")).is_refused("nowhere")
    assert cli("import", "nowhere", str(tmp_path / "a.jsonl")).is_refused("nowhere")
    assert cli("import", "jobs", str(tmp_path / "a.jsonl")).is_refused("No such file")
    assert cli("export", "jobs", str(tmp_path / "no" / "a.jsonl")).is_refused(f"{tmp_path / 'no'}: No such file")
    assert cli("export", "jobs", str(tmp_path), "--format", "jsonl").is_refused("is a folder")
    assert list(tmp_path.iterdir()) == []
    assert len(jobs) == 0


def test_a_queue_that_is_full(cli: Callable[..., Any], broker: shmbroker.Broker, tmp_path: Path) -> None:
    """The import ends, and says how many messages are there."""
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"body":"a"}\n' * 5, encoding="utf-8")
    with broker.connect() as connection:
        queue = connection.queue("small", max_length=3)
        assert cli("import", "small", str(file), "--timeout", "0").is_refused("(3 imported)")
        assert len(queue) == 3


def test_the_messages_of_a_store(cli: Callable[..., Any], broker_name: str, tmp_path: Path, form: str) -> None:
    """Those of a broker that does not run, as they were when it did; what was delivered is ready."""
    store = tmp_path / "store"
    store.mkdir()
    broker = shmbroker.Broker(broker_name, memory="64M", data_dir=store).start()
    try:
        with broker.connect() as connection:
            queue = connection.queue("jobs", durable=True)
            fill(connection, queue)
            queue.put(b"later", delay=3600)
            before = [*transfer.messages_of(queue), *transfer.messages_of(queue, state="scheduled")]
            queue.get()
            file = tmp_path / f"jobs.{form}"
            given = ("export", "jobs", str(file), "--data-dir", str(store))
            assert cli(*given).is_refused(f"in use by broker '{broker_name}'")
    finally:
        broker.stop(purge=True)
    assert cli(*given).lines == ["jobs: 6 messages exported"]
    with file.open("rb") as stream:
        found = list(transfer.read(stream, form))
    assert [one.sequence for one in found] == [one.sequence for one in before[:6]]
    assert [same(one, two) for one, two in zip(found, before[:6], strict=True)] == [True] * 6
    assert [one.delivery_count for one in found] == [1, 0, 0, 0, 0, 0]
    assert cli(*given, "--state", "scheduled").lines == ["jobs: 1 message exported"]
    assert cli(*given, "--count", "2").lines == ["jobs: 2 messages exported"]
    assert cli("export", "no", *given[2:]).is_refused("no queue 'no' in the store")


def test_an_import_waits_for_the_disk(cli: Callable[..., Any], broker_name: str, tmp_path: Path) -> None:
    """Batch by batch: it ends with the first one that the storekeeper does not write in time."""
    file, store = tmp_path / "jobs.jsonl", tmp_path / "store"
    file.write_text('{"body":"a"}\n' * 600, encoding="utf-8")
    store.mkdir()
    broker = shmbroker.Broker(broker_name, memory="64M", data_dir=store).start()
    try:
        with broker.connect() as connection, attachment.attached_to(segments.path_of(broker_name)) as found:
            queue = connection.queue("jobs", durable=True)
            queue.put(b"a")
            keeper = int(native.slow.sb_store_keeper(found.handle))
            os.kill(keeper, signal.SIGSTOP)
            try:
                ran = cli("import", "jobs", str(file), "--timeout", "0.1")
                assert ran.is_refused("has not synced", "(512 imported)")
                assert len(queue) == 513
            finally:
                os.kill(keeper, signal.SIGCONT)
            assert cli("import", "jobs", str(file)).lines == ["jobs: 600 messages imported"]
    finally:
        broker.stop(purge=True)


@pytest.fixture
def many(jobs: shmbroker.Queue) -> Iterator[shmbroker.Queue]:
    """Return a queue with messages for more than one write."""
    jobs.put_many([b"%d" % number + b" " * 1000 for number in range(2000)])
    return jobs


def test_an_interrupted_export_leaves_no_file(
    cli: Callable[..., Any], many: shmbroker.Queue, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before stays."""
    file = tmp_path / f"jobs.{form}"
    file.write_bytes(b"before")
    looked = transfer.messages_of

    def interrupted(*given: Any, **more: Any) -> Iterator[transfer.Exported]:  # noqa: ANN401
        for number, message in enumerate(looked(*given, **more)):
            if number == 1500:
                os.kill(os.getpid(), signal.SIGINT)
            yield message

    monkeypatch.setattr(commands.transfer, "messages_of", interrupted)
    ran = cli("export", many.name, str(file))
    assert (ran.code, ran.out, ran.err) == (130, "", "")
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    assert file.read_bytes() == b"before"


@pytest.mark.parametrize(("arguments", "shown"), [((), b"2000/2000"), (("--count", "9"), b"9/9")])
def test_bars_are_for_a_terminal(
    many: shmbroker.Queue, tmp_path: Path, arguments: tuple[str, ...], shown: bytes
) -> None:
    """An export says how many messages there are; an import does not know."""
    command = [sys.executable, "-m", "shmbroker_cli", "--broker", many._session.broker_name]  # noqa: SLF001
    file = str(tmp_path / "jobs.jsonl")
    for given, words in ((("export", *arguments), shown), (("import",), b"imported")):
        outer, inner = os.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        line = [*command, *given, many.name, file]
        subprocess.run(line, stdout=subprocess.PIPE, stderr=inner, env=environment, check=True)
        os.close(inner)
        seen = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while found := os.read(outer, 65536):
                seen += found
        os.close(outer)
        assert words in seen
        assert b"/0" not in seen


def test_an_interrupted_import_says_how_far_it_came(
    start: Callable[..., Any], finish: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path
) -> None:
    """As many messages as it says are in the queue, or one more. It reads a pipe as it is written."""
    os.mkfifo(tmp_path / "pipe")
    process = start("import", "jobs", "pipe", "--format", "jsonl")
    with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
        pipe.write(b'{"body":"a"}\n' * 600)
        eventually(lambda: len(jobs) >= 512)
        process.send_signal(signal.SIGINT)
        ran = finish(process)
    said = [f"shmbroker: jobs: interrupted after {len(jobs) - more} messages imported\n" for more in (0, 1)]
    assert ran.code == 130
    assert ran.err in said
