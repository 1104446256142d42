# SPDX-License-Identifier: Apache-2.0
"""Messages and clients as tables and as JSON, whole."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli import processes
from shmbroker_cli.messages import facts, preview
from shmbroker_cli.processes import ProcessFacts

if TYPE_CHECKING:
    from collections.abc import Callable


def words(lines: list[str]) -> list[str]:
    """Return the heading and the rows of a table with single spaces."""
    return [" ".join(line.split()) for line in lines[:1] + lines[2:]]


@pytest.fixture
def messages(jobs: shmbroker.Queue) -> shmbroker.Queue:
    """Put a plain message, a binary one with all properties that are shown, and have one redelivered."""
    jobs.put(b"first")
    with jobs.get(timeout=0) as first:
        first.nack()
    properties = shmbroker.BasicProperties(
        message_id="7", content_type="a/b", correlation_id="8", reply_to="back", app_id="not shown"
    )
    jobs.put(b"\xff\x00", properties=properties)
    return jobs


def test_a_message_as_json(cli: Callable[..., Any], messages: shmbroker.Queue) -> None:
    """Its properties that are set, and a body of text or of base 64."""
    numbers = [message.sequence for message in messages.browse()]
    lines = cli("browse", "jobs", "--json").lines
    assert [json.loads(line) for line in lines] == [
        {
            "queue": "jobs", "sequence": numbers[0], "bytes": 5, "priority": 0, "redelivered": True,
            "delivery_count": 0, "body": "first",
        },
        {
            "queue": "jobs", "sequence": numbers[1], "bytes": 2, "priority": 0, "redelivered": False,
            "delivery_count": 0, "message_id": "7", "content_type": "a/b", "correlation_id": "8", "reply_to": "back",
            "body_base64": "/wA=",
        },
    ]  # fmt: skip
    assert facts(next(iter(messages.browse())))["body"] == "first"


def test_messages_as_a_table(cli: Callable[..., Any], messages: shmbroker.Queue) -> None:
    """What was delivered before is marked, and bytes that are no text are shown as escapes."""
    first, second = (message.sequence for message in messages.browse())
    table = words(cli("browse", "jobs").lines)
    assert table == ["sequence bytes again id body", f"{first} 5 yes first", f"{second} 2 7 \\xff\\x00"]
    assert len(cli("browse", "jobs", "--count", "1").lines) == 3


def test_an_empty_queue_as_a_line(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """For people; for programs it is nothing at all."""
    assert cli("browse", jobs.name).lines == ["jobs: no messages"]
    assert cli("browse", jobs.name, "--json").out == ""


def test_a_long_body_is_shown_in_part(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Sixty characters, however many bytes each has, the last of them an ellipsis; all of a body of sixty."""
    for body in ("x" * 60, "x" * 61, "\U0001d11e" * 60, "\U0001d11e" * 61, "x" * 59 + "\U0001d11e\U0001d11e"):
        jobs.put(body.encode())
    shown = [line.split()[-1] for line in cli("browse", "jobs").lines[2:]]
    assert shown == [
        "x" * 60,
        "x" * 59 + "…",
        "\U0001d11e" * 60,
        "\U0001d11e" * 59 + "…",
        "x" * 59 + "…",
    ]


def test_a_preview_reads_no_more_of_a_body_than_it_shows() -> None:
    """A character that is cut off beyond it is no reason for escapes."""
    assert preview(b"") == ""
    assert preview(b"x" * 60) == "x" * 60
    assert preview(b"x" * 61) == "x" * 59 + "…"
    assert preview("\U0001d11e".encode() * 1000) == "\U0001d11e" * 59 + "…"
    assert preview(b"\xff" * 15) == r"\xff" * 15


def test_connections_as_a_table(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """Since when there is each, and what it has."""
    jobs.put(b"held")
    with broker.connect(client_name="worker") as connection:
        channel = connection.channel(5)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("jobs", print)
        table = words(cli("connections").lines)
        (known,) = (one for one in cli("connections", "--json").facts if one["name"] == "worker")
    assert table[0] == "id name pid since channels consumers holding cpu s cpu % memory age command"
    (line,) = (line.split() for line in table if "worker" in line)
    day, hour = line.pop(3), line.pop(3)
    assert (len(day), len(hour)) == (10, 8)
    assert line[:6] == [str(known["id"]), "worker", str(os.getpid()), "1", "1", str(known["holding"])]
    seconds, _percent, _size, unit, _age, program = line[6:12]
    assert 0 < float(seconds.replace(",", "")) <= known["process"]["cpu_seconds"] + 0.05  # as it is rounded
    assert unit in {"MiB", "GiB"}
    assert program == Path(known["process"]["command"][0]).name


def test_the_facts_of_a_connection(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """As JSON: those of the broker, and what the system says of the process."""
    with broker.connect(client_name="worker") as connection:
        (known,) = (one for one in cli("connections", "--json").facts if one["name"] == "worker")
        (info,) = (one for one in connection.connections() if one.name == "worker")
    process = known.pop("process")
    assert known == dataclasses.asdict(info)
    assert list(process) == [field.name for field in dataclasses.fields(ProcessFacts)]
    assert process["command"] == psutil.Process().cmdline()
    assert process["started_at"] <= known["created_at"]
    assert process["memory"] > process["memory_shared"] > 0


CLIENT = """
import sys, shmbroker
connection = shmbroker.connect(sys.argv[1], create=False, client_name="worker")
print("ready", flush=True)
input()
"""


def test_a_process_that_has_ended_has_no_facts(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Its connection is listed until it is cleared up; in the place of the facts is a dash, and null."""
    command = [sys.executable, "-c", CLIENT, broker.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            broker.stop()  # so that no process clears up
        finally:
            client.kill()
    (line,) = (line.split() for line in words(cli("connections").lines) if "worker" in line)
    assert line[2] == str(client.pid)
    assert line[-5:] == ["-"] * 5
    (known,) = (one for one in cli("connections", "--json").facts if one["name"] == "worker")
    assert known["process"] is None
    assert known["start_ticks"] > 0
    assert "clients 1, 0 of them visible" in words(cli("status").lines)
    facts = cli("status", "--json").facts
    assert facts["housekeeper"] is None
    assert facts["clients"] == {"processes": 1, "known": 0, "cpu_seconds": 0, "memory": 0, "memory_shared": 0}
    (row,) = (one for one in cli("top", "--interval", "0.1", "--json").facts["clients"] if one["client"] == "worker")
    assert (row["pid"], row["connections"]) == (client.pid, 1)
    assert [row[name] for name in ("cpu_percent", "memory", "memory_shared", "age")] == [None] * 4
    line = words(cli("top", "--interval", "0.1", "--table", "clients", "--filter", "worker").lines)[-1]
    assert line == f"worker {client.pid} 1 0 0 - - - -"


def test_processes_of_another_pid_namespace_have_no_facts(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, jobs: shmbroker.Queue
) -> None:
    """Their numbers may be those of other processes here."""
    monkeypatch.setattr(processes, "_own_pid_namespace", lambda: 1)
    found = cli("connections", "--json").facts
    assert connection_of(jobs).name in {one["name"] for one in found}
    assert {one["process"] for one in found} == {None}
    assert {line.split()[-1] for line in cli("connections").lines[2:]} == {"-"}
    lines = words(cli("status").lines)
    for line in ("housekeeper processor -", "housekeeper memory -", "clients 1, 0 of them visible", "clients memory -"):
        assert line in lines
    assert {one["memory"] for one in cli("top", "--interval", "0.1", "--json").facts["clients"]} == {None}


def test_channels_as_a_table(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """Of one with consumers its number and prefetch; of the others how many they are, and no prefetch."""
    assert cli("channels").lines == ["no channels"]
    assert cli("channels", "--json").facts == []
    with broker.connect(client_name="worker") as connection:
        busy = connection.channel(5)
        connection.channel()
        busy.basic_qos(prefetch_count=7)
        busy.basic_consume(jobs.name, print)
        number = cli("channels", "--json").facts[0]["connection"]
        assert words(cli("channels").lines) == [
            "connection name pid channel consumers prefetch unacked delivered",
            f"{number} worker {os.getpid()} 5 1 7 0 0",
            f"{number} worker {os.getpid()} 1 without consumers 0 - 0 0",
        ]


def at_rest(connection: shmbroker.Connection) -> bool:
    """Whether a consumer has a message, and all wait for more."""
    found = connection.consumers()
    return any(one.unacked for one in found) and all(one.state == "interested" for one in found)


def test_consumers_as_a_table(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """Those without a channel have a dash in its place, and states are words."""
    assert cli("consumers").lines == ["no consumers"]
    with broker.connect() as connection, jobs.consume(prefetch=7), jobs.consume(prefetch=9, timeout=0) as other:
        channel = connection.channel(5)
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume(jobs.name, print)
        jobs.put(b"x")
        while not at_rest(connection):
            time.sleep(0.001)
        facts = cli("consumers", "jobs", "--json").facts
        heading = "queue connection channel pid state priority prefetch unacked delivered waiting"
        expected = [f"{heading} waits for stalled scan lag watermark"]
        expected += [
            f"jobs {one['connection']} {one['channel'] or '-'} {os.getpid()} {one['state'].replace('_', ' ')} 0 "
            f"{one['prefetch']} {one['unacked']} {one['delivered']} {'yes' if one['waiting'] else 'no'} "
            f"producer - {one['scan_lag']} -"
            for one in facts
        ]
        assert words(cli("consumers").lines) == expected
        assert sorted((one["channel"], one["prefetch"]) for one in facts) == [(0, 7), (0, 9), (5, 3)]
        other.cancel()


def test_a_queue_without_consumers_is_one_that_exists(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Asking for them makes none, whatever is asked for."""
    assert cli("consumers", jobs.name).lines == ["no consumers"]
    assert cli("consumers", "nowhere").is_refused("nowhere")
    assert cli("consumers", "amq.nowhere").is_refused("amq.nowhere")
    assert connection_of(jobs).queue_names() == ["jobs"]


def test_a_consumer_that_waits_is_told_from_one_that_does_not(
    cli: Callable[..., Any], broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words; so are states."""
    given: dict[str, Any] = {
        "queue": "q",
        "connection": 1,
        "pid": 2,
        "priority": 4,
        "prefetch": 5,
        "unacked": 6,
        "delivered": 7,
    }
    consumers = [
        shmbroker.ConsumerInfo(channel=0, state="not_interested", waiting=False, **given),
        shmbroker.ConsumerInfo(
            channel=3,
            state="interested",
            waiting=True,
            waits_for="load",
            reached=1,
            watermark=1234,
            scan_lag=5678,
            stalled_seconds=75.0,
            stalled=True,
            **given,
        ),
    ]
    monkeypatch.setattr(shmbroker.Connection, "consumers", lambda _self, _queue=None: iter(consumers))
    assert words(cli("consumers", "--broker", broker.name).lines)[1:] == [
        "q 1 - 2 not interested 4 5 6 7 no producer - - -",
        "q 1 3 2 interested 4 5 6 7 yes load 1m15s 5,678 1,234",
    ]


def test_consumers_of_a_queue_that_is_another_connection_s(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """They can be looked at, as they can among all."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("mine", exclusive=True)
        channel.basic_consume("mine", print)
        facts = cli("consumers", "--json").facts
        assert len(facts) == 1
        assert cli("consumers", "mine", "--json").facts == facts
