# SPDX-License-Identifier: Apache-2.0
"""`shmbroker publish`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import shmbroker


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """Return what is in a queue, in order."""
    return [bytes(message) for message in queue.browse()]


def test_a_body_from_the_command_line(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """It is sent as UTF-8."""
    assert cli("publish", "jobs", "héllo").code == 0
    assert bodies(jobs) == ["héllo".encode()]


def test_an_empty_body_is_a_message_too(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """An empty argument is not a missing one."""
    assert cli("publish", "jobs", "").code == 0
    assert bodies(jobs) == [b""]


def test_a_dash_reads_standard_input_as_one_message(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Bytes are sent as they are, line breaks too."""
    assert cli("publish", "jobs", "-", given=b"a\nb\xff\n").code == 0
    assert bodies(jobs) == [b"a\nb\xff\n"]


def test_a_file_is_one_message(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Its content is not changed."""
    path = tmp_path / "body"
    path.write_bytes(b"\x00\r\n\xff")
    assert cli("publish", "jobs", "--file", str(path)).code == 0
    assert bodies(jobs) == [b"\x00\r\n\xff"]


def test_lines_are_a_message_each(cli: Callable[..., Any], jobs: shmbroker.Queue, tmp_path: Path) -> None:
    """Line breaks are left out, empty lines are not, a last line needs no break."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\n\nthree")
    ran = cli("publish", "jobs", "--lines", str(path), "--json")
    assert ran.facts == {"queue": "jobs", "published": 3}
    assert bodies(jobs) == [b"one", b"", b"three"]


def test_many_lines_of_standard_input_keep_their_order(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """More than one batch."""
    expected = [str(number).encode() for number in range(1000)]
    ran = cli("publish", "jobs", "--lines", "-", given=b"\n".join(expected))
    assert "1000 messages published" in ran.out
    assert bodies(jobs) == expected


def test_a_line_waits_for_no_other(jobs: shmbroker.Queue, broker_name: str) -> None:
    """What is written slowly, such as the end of a log, is published line by line, and not before a line is whole."""
    command = [sys.executable, "-m", "shmbroker_cli", "publish", "jobs", "--lines", "-", "--broker", broker_name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        for written, whole in (
            (b"o", b""),
            (b"ne\r", b""),
            (b"\ntwo\n", b"one"),
            (b"th", b"two"),
            (b"ree\n", b"three"),
        ):
            process.stdin.write(written)
            if whole:
                assert bytes(jobs.get(auto_ack=True)) == whole
        process.stdin.write(b"rest")
    assert process.returncode == 0
    assert bodies(jobs) == [b"rest"]


def test_properties_are_sent_along(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """An id and a content type."""
    cli("publish", "jobs", "{}", "--message-id", "7", "--content-type", "text/json")
    (message,) = jobs.browse()
    assert message.properties.message_id == "7"
    assert message.properties.content_type == "text/json"


def test_what_a_message_can_have(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Priority, life, headers (JSON if they parse), group and duplicate id."""
    cli(
        "publish", "jobs", "x", "--priority", "7", "--ttl", "90.5", "--header", "size=3", "--header", "colour=red",
        "--header", "tags=[1]", "--group", "g", "--duplicate-id", "one",
    )  # fmt: skip
    (message,) = jobs.browse()
    assert (message.priority, message.properties.expiration) == (7, "90500")
    assert message.headers == {"size": 3, "colour": "red", "tags": [1], "JMSXGroupID": "g", "x-duplicate-id": "one"}
    assert jobs.count(selector="size = 3 AND JMSPriority = 7") == 1


def test_a_message_for_later(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """It is scheduled, also if it is one of several lines."""
    assert cli("publish", "jobs", "x", "--delay", "3600").code == 0
    assert cli("publish", "jobs", "--lines", "-", "--delay", "3600", given="a\nb\n").code == 0
    assert jobs.statistics().scheduled == 3
    assert cli("publish", "--exchange", "amq.fanout", "x", "--delay", "1").is_refused("--delay needs QUEUE", code=2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--priority", "256"), "--priority"),
        (("--ttl", "-1"), "--ttl"),
        (("--header", "colour"), "--header: 'colour' is not NAME=VALUE"),
        (("--header", "a=1", "--header", "a=2"), "--header: 'a' is given twice"),
    ],
)
def test_what_it_cannot_have(
    cli: Callable[..., Any], jobs: shmbroker.Queue, arguments: tuple[str, ...], text: str
) -> None:
    """A value that is never allowed is wrong usage, and nothing is published."""
    assert cli("publish", "jobs", "x", *arguments).is_refused(text, code=2)
    assert len(jobs) == 0


@pytest.mark.parametrize("arguments", [(), ("x", "--file", "f"), ("x", "--lines", "-")])
def test_exactly_one_source_is_needed(
    cli: Callable[..., Any], jobs: shmbroker.Queue, arguments: tuple[str, ...]
) -> None:
    """None, or two, is wrong usage."""
    assert cli("publish", "jobs", *arguments).is_refused("BODY", code=2)
    assert len(jobs) == 0


@pytest.mark.usefixtures("jobs")
def test_a_missing_file_is_refused(cli: Callable[..., Any]) -> None:
    """The line names the file."""
    assert cli("publish", "jobs", "--file", "/no/such").is_refused("/no/such")
    assert cli("publish", "jobs", "--lines", "/no/such").is_refused("/no/such")


@pytest.mark.usefixtures("broker")
def test_an_unknown_queue_is_refused(cli: Callable[..., Any]) -> None:
    """Publishing does not make queues."""
    assert cli("publish", "nowhere", "x").is_refused("nowhere")
    assert cli("queue", "list", "--json").facts == []


def test_a_full_queue_is_refused_when_time_is_up(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """With `--timeout 0` at once; lines tell how many came through."""
    with broker.connect() as connection:
        queue = connection.queue("jobs", max_length=2)
        full = cli("publish", "jobs", "--lines", "-", "--timeout", "0", given="1\n2\n3")
        assert full.is_refused("2 published")
        assert cli("publish", "jobs", "4", "--timeout", "0").is_refused()
        assert bodies(queue) == [b"1", b"2"]


@pytest.fixture
def events(broker: shmbroker.Broker, jobs: shmbroker.Queue) -> shmbroker.Queue:
    """Make a topic exchange, which has one key for a queue."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("events", "topic")
        channel.queue_bind("jobs", "events", "new.*")
    return jobs


def test_an_exchange_finds_the_queues(cli: Callable[..., Any], events: shmbroker.Queue) -> None:
    """By the key; the first argument is the body then."""
    ran = cli("publish", "--exchange", "events", "--key", "new.a", "one")
    assert (ran.code, ran.lines) == (0, ["events: 1 message published"])
    facts = cli("publish", "--exchange", "events", "--key", "new.b", "--lines", "-", "--json", given="two\nthree").facts
    assert facts == {"exchange": "events", "key": "new.b", "published": 2}
    found = [(bytes(one), one.exchange, one.routing_key) for one in events.browse()]
    assert found == [(b"one", "events", "new.a"), (b"two", "events", "new.b"), (b"three", "events", "new.b")]


def test_the_default_exchange_takes_the_key_for_the_queue(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Its name is empty; properties and standard input go with it too."""
    ran = cli("publish", "--exchange", "", "--key", "jobs", "-", "--message-id", "7", given=b"\xff\n")
    assert ran.lines == ["(default): 1 message published"]
    (one,) = jobs.browse()
    assert (bytes(one), one.properties.message_id) == (b"\xff\n", "7")


def test_what_no_queue_gets_is_refused_if_mandatory(cli: Callable[..., Any], events: shmbroker.Queue) -> None:
    """Without `--mandatory` it is dropped, as AMQP has it."""
    address = ("publish", "--exchange", "events", "--key", "old")
    assert cli(*address, "x").code == 0
    assert cli(*address, "x", "--mandatory").is_refused("NO_ROUTE", "events", "old")
    assert cli(*address, "--lines", "-", "--mandatory", given="1\n2").is_refused("NO_ROUTE", "0 published")
    assert cli("publish", "--exchange", "events", "--key", "new.a", "x", "--mandatory").code == 0
    assert bodies(events) == [b"x"]


def test_an_unknown_or_internal_exchange_is_refused(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Publishing does not make exchanges."""
    assert cli("publish", "--exchange", "nowhere", "x").is_refused("no exchange 'nowhere'")
    with broker.connect() as connection:
        connection.channel().exchange_declare("inside", internal=True)
    assert cli("publish", "--exchange", "inside", "x").is_refused("internal")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("jobs", "x", "--exchange", "events"), "BODY without QUEUE"),
        (("--exchange", "events"), "BODY"),
        (("x", "--exchange", "events", "--lines", "-"), "BODY"),
        (("jobs", "x", "--key", "k"), "--exchange"),
        (("jobs", "x", "--mandatory"), "--exchange"),
        (("--exchange", "events", "--key", "k" * 256, "x"), "255"),
        ((), "QUEUE"),
    ],
)
def test_a_queue_or_an_exchange_and_not_both(
    cli: Callable[..., Any], events: shmbroker.Queue, arguments: tuple[str, ...], word: str
) -> None:
    """Anything else is wrong usage."""
    assert cli("publish", *arguments).is_refused(word, code=2)
    assert len(events) == 0


def test_a_full_queue_behind_an_exchange_is_refused_when_time_is_up(
    cli: Callable[..., Any], broker: shmbroker.Broker
) -> None:
    """As without an exchange; lines tell how many came through."""
    with broker.connect() as connection:
        queue = connection.queue("jobs", max_length=2)
        connection.channel().queue_bind("jobs", "amq.fanout", "")
        full = cli("publish", "--exchange", "amq.fanout", "--lines", "-", "--timeout", "0", given="1\n2\n3")
        assert full.is_refused("2 published")
        assert cli("publish", "--exchange", "amq.fanout", "4", "--timeout", "0").is_refused()
        assert bodies(queue) == [b"1", b"2"]
