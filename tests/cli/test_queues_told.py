# SPDX-License-Identifier: Apache-2.0
"""What the commands about queues, groups and stages print, word for word, and what settings they hand on."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of, core_of
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core.settings import PERSISTENT_PAUSE
from shmbroker._system_queues import schemas
from shmbroker.staging import Stage

if TYPE_CHECKING:
    from collections.abc import Callable


def words(lines: list[str]) -> list[str]:
    """Return lines with single spaces, without the rule below a heading."""
    return [" ".join(line.split()) for line in lines if "\u2500" not in line]


EVERY_SETTING = {
    "--ring-size": ("5", "ring_size", 5),
    "--max-length": ("7", "max_length", 7),
    "--max-bytes": ("4096", "max_bytes", 4096),
    "--overflow": ("drop", "overflow", "drop"),
    "--message-ttl": ("0.5", "message_ttl", 0.5),
    "--expires": ("3600", "expires", 3600.0),
}
FLAGS = {"--durable": "durable", "--auto-delete": "auto_delete", "--single-active-consumer": "single_active_consumer"}


@pytest.mark.parametrize("option", EVERY_SETTING)
def test_each_setting_alone(cli: Callable[..., Any], broker: shmbroker.Broker, option: str) -> None:
    """It is what the queue gets when it is made, and when it is changed; all others are the defaults."""
    given, name, value = EVERY_SETTING[option]
    with broker.connect() as connection:
        expected = {**dataclasses.asdict(connection.queue("plain").settings), name: value}
        made = cli("queue", "create", "made", option, given, "--json").facts
        assert made == {"queue": "made", "settings": expected}
        assert dataclasses.asdict(connection.queue("made", passive=True).settings) == expected
        assert cli("queue", "set", "plain", option, given, "--json").facts == {"queue": "plain", "settings": expected}
        assert dataclasses.asdict(connection.queue("plain", passive=True).settings) == expected


@pytest.mark.parametrize("option", FLAGS)
def test_each_flag_alone(cli: Callable[..., Any], broker: shmbroker.Broker, option: str) -> None:
    """It is what the queue is; a queue that has it need not be given it again."""
    with broker.connect() as connection:
        expected = {**dataclasses.asdict(connection.queue("plain").settings), FLAGS[option]: True}
        assert cli("queue", "create", "made", option).lines == ["made: created"]
        assert dataclasses.asdict(connection.queue("made", passive=True).settings) == expected
        assert cli("queue", "create", "made").lines == ["made: existed already"]
        assert cli("queue", "create", "made", option).lines == ["made: existed already"]
        assert cli("queue", "create", "plain", option).code == 1


@pytest.mark.parametrize(
    ("given", "value"), [("-1", -1), ("100", 100), ("2K", 2048)], ids=["none", "number", "with a unit"]
)
def test_a_limit_of_bytes(cli: Callable[..., Any], broker: shmbroker.Broker, given: str, value: int) -> None:
    """In digits, with a unit, or none."""
    assert cli("queue", "create", "jobs", "--max-bytes", given).code == 0
    with broker.connect() as connection:
        assert connection.queue("jobs", passive=True).settings.max_bytes == value


@pytest.mark.parametrize("given", ["5-", "--5", "-2", "x"])
@pytest.mark.usefixtures("broker")
def test_a_limit_of_bytes_that_is_none(cli: Callable[..., Any], given: str) -> None:
    """It is wrong usage."""
    assert cli("queue", "create", "jobs", "--max-bytes", given).is_refused(code=2)


def test_no_limit_of_time(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """It is -1, also for a new queue; other numbers that may not be are wrong usage."""
    assert cli("queue", "create", "jobs", "--message-ttl", "-1", "--expires", "-1").code == 0
    with broker.connect() as connection:
        settings = connection.queue("jobs", passive=True).settings
    assert (settings.message_ttl, settings.expires) == (None, None)
    assert cli("queue", "set", "jobs", "--expires", "-2").is_refused("expires", code=2)


def test_the_list_of_queues(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """With what is in each, and what was."""
    connection_of(jobs).queue("idle")
    jobs.put_many([b"123", b"45", b"6"])
    jobs.put(b"later", delay=3600)
    jobs.get(timeout=0, auto_ack=True)
    with jobs.get(timeout=0), jobs.consume(prefetch=1):
        eventually(lambda: jobs.statistics().delivering == 2, "the consumer's message")
        assert words(cli("queue", "list").lines) == [
            "queue ready delivering scheduled bytes consumers added acked",
            "idle 0 0 0 0 0 0 0",
            "jobs 0 2 1 8 1 4 1",
        ]
    assert cli("queue", "list", "--broker", connection_of(jobs).broker_name, "--json").facts == [
        dataclasses.asdict(one) for one in connection_of(jobs).queue_statistics()
    ]


def test_a_queue_with_all_that_is_known_of_it(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Its name, settings and counters; the bytes with a unit; its schema, if it has one."""
    jobs.put(bytes(1536))
    jobs.pause()
    settings, statistics = jobs.settings, jobs.statistics()
    assert cli("queue", "show", "jobs", "--json").facts == {
        "queue": "jobs",
        "paused": True,
        "pause_persists": False,
        "settings": dataclasses.asdict(settings),
        "statistics": dataclasses.asdict(statistics),
        "arrow_schema": None,
    }
    counters = dataclasses.asdict(statistics)
    assert counters.pop("memory") is None
    del counters["name"]
    names = ["queue", "paused", *dataclasses.asdict(settings), *counters]
    lines = words(cli("queue", "show", "jobs").lines)
    assert [" ".join(name.split("_")) for name in names] == [
        line[: len(name)] for name, line in zip(names, lines, strict=True)
    ]
    assert {"queue jobs", "paused yes", "bytes 1.5 KiB", "ready 1", "message ttl -", "durable no"} <= {*lines}
    schemas.register(jobs, schemas.Registered(b"x", "id: int64"))
    assert words(cli("queue", "show", "jobs").lines) == [*lines, "arrow schema id: int64"]
    assert cli("queue", "show", "jobs", "--json").facts["arrow_schema"] == "id: int64"


def test_changed_settings_as_a_table(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """All of them, of the queue."""
    lines = words(cli("queue", "set", "jobs", "--max-length", "7").lines)
    assert lines[0] == "queue jobs"
    assert "max length 7" in lines
    assert len(lines) == 1 + len(dataclasses.asdict(jobs.settings))


def test_trim_alone_is_something_to_do(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Without it a ring that got smaller keeps what it has."""
    jobs.put_many([b"1", b"2", b"3"])
    assert cli("queue", "set", "jobs", "--ring-size", "1").code == 0
    assert len(jobs) == 3
    assert cli("queue", "set", "jobs", "--trim").code == 0
    assert len(jobs) == 1
    assert cli("queue", "set", "jobs").is_refused("give at least one setting to change", code=2)


def test_what_commands_say_of_messages(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """How many they are, in words that fit."""
    connection_of(jobs).queue("other")
    jobs.put_many([b"1", b"2", b"3", b"4"])
    assert cli("queue", "move", "jobs", "other", "--limit", "1").lines == ["jobs: 1 message moved"]
    assert cli("queue", "move", "jobs", "other").lines == ["jobs: 3 messages moved"]
    assert cli("queue", "purge", "other").lines == ["other: 4 messages purged"]
    assert cli("queue", "purge", "other", "--json").facts == {"queue": "other", "purged": 0}
    jobs.put(b"1")
    assert cli("queue", "delete", "other", "--if-empty", "--if-unused").lines == ["other: 0 messages deleted"]
    assert cli("queue", "delete", "jobs", "--json").facts == {"queue": "jobs", "deleted": 1}


def test_what_commands_say_of_a_pause(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """In a line, or as JSON."""
    assert cli("queue", "pause", "jobs").lines == ["jobs: paused"]
    assert jobs.paused
    assert cli("queue", "pause", "jobs", "--json").facts == {
        "queue": "jobs",
        "paused": True,
        "pause_persists": False,
    }
    assert cli("queue", "resume", "jobs", "--json").facts == {"queue": "jobs", "paused": False}
    assert not jobs.paused
    assert cli("queue", "resume", "jobs").lines == ["jobs: resumed"]
    assert PERSISTENT_PAUSE not in core_of(jobs).given()
    assert cli("queue", "pause", "jobs", "--persist").lines == ["jobs: paused"]
    assert PERSISTENT_PAUSE in core_of(jobs).given()


def test_commands_are_known_by_a_name(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """In the list of connections; queues are made by none of them."""
    (name,) = (one["name"] for one in cli("connections", "--json").facts if one["name"].startswith("shmbroker-"))
    assert name == "shmbroker-cli"
    assert cli("queue", "show", "nowhere").is_refused("nowhere")
    assert connection_of(jobs).queue_names() == ["jobs"]


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (a generator)
    """Have a time zone of its own."""
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


GROUPS = [
    shmbroker.GroupInfo("g", "jobs", 3, 2, 1000, 1536, 0.0, 0),
    shmbroker.GroupInfo("h", "jobs", 4, 1, 1, 5, 0.0, 4711),
]


@pytest.mark.usefixtures("broker", "utc")
def test_the_list_of_groups(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Times as this machine has them; processes are numbers, or gone."""
    monkeypatch.setattr(shmbroker, "groups", lambda _connection: GROUPS)
    assert words(cli("groups").lines) == [
        "group queue acked leases messages bytes used process",
        "g jobs 3 2 1,000 1.5 KiB 1970-01-01 03:00:00 gone",
        "h jobs 4 1 1 5 B 1970-01-01 03:00:00 4711",
    ]
    assert cli("groups", "--json").facts == [dataclasses.asdict(one) for one in GROUPS]


def test_a_group_is_released_and_no_other(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """It says how many messages that was, in words that fit, and asks first, with the process that has it."""
    jobs.put_many([b"1", b"2", b"3"])
    for name, count in (("h", 2), ("g", 1)):
        group = shmbroker.Group(connection_of(jobs), jobs, name)
        group.attach()
        group.lease(0, max_messages=count)
    ran = cli("groups", "release", "h", given="n\n")
    question = f"Return 2 messages of group 'h' to queue 'jobs'; process {os.getpid()} has it? [y/N]:"
    assert ran.code == 1
    assert ran.err.removeprefix(question).strip() == "shmbroker: group 'h' was not released"
    assert cli("groups", "release", "h", "--yes").lines == ["h: 2 messages returned to jobs"]
    assert [one.name for one in shmbroker.groups(connection_of(jobs))] == ["g"]
    assert cli("groups", "release", "g", "--yes", "--json").facts == {"group": "g", "queue": "jobs", "released": 1}
    assert cli("groups").lines == ["no groups"]
    assert cli("groups", "release", "g", "--yes").is_refused("no group 'g'")


def test_a_group_without_a_process(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """The question names none; one message is one."""
    jobs.put(b"1")
    with broker.connect() as connection:
        group = shmbroker.Group(connection, "jobs", "lost")
        group.attach()
        group.lease(0, max_messages=1)
    ran = cli("groups", "release", "lost", given="y\n")
    assert ran.err.startswith("Return 1 message of group 'lost' to queue 'jobs'? [y/N]:")
    assert ran.lines[-1] == "lost: 1 message returned to jobs"


JOB = uuid.UUID("0123456789abcdef0123456789abcdef")


@pytest.fixture
def staged(jobs: shmbroker.Queue) -> Stage:
    """Stage two batches of one message, and one of two."""
    stage = Stage(connection_of(jobs), "query.q")
    for batch, bodies in ((7, [b"A", b"B"]), (8, [b"C"]), (JOB, [b"D"])):
        with stage.attempt(batch, 0, 5) as writer:
            writer.put_many(bodies)
    return stage


@pytest.mark.usefixtures("staged")
def test_dropping_asks_with_the_number_of_messages(cli: Callable[..., Any]) -> None:
    """Of what would be dropped, in words that fit; what was not agreed to is told."""
    for options, what, whose in (
        (("--batch", "8"), "1 message staged", "'query.q', batch 8"),
        (("--batch", "7"), "2 messages staged", "'query.q', batch 7"),
        ((), "4 messages staged", "'query.q'"),
    ):
        ran = cli("stages", "drop", "query.q", *options, given="n\n")
        question, _, rest = ran.err.partition("? [y/N]:")
        assert question == f"Drop {what} for {whose}, for good"
        assert rest.strip() == f"shmbroker: what is staged for {whose} was not dropped"
        assert ran.code == 1


@pytest.mark.usefixtures("staged")
def test_dropping_tells_how_many_attempts_went(cli: Callable[..., Any]) -> None:
    """In words that fit."""
    ran = cli("stages", "drop", "query.q", "--batch", "8", given="y\n")
    assert ran.lines[-1] == "query.q: 1 attempt dropped"
    assert cli("stages", "drop", "query.q", "--batch", str(JOB).upper(), "--yes").code == 0
    assert cli("stages", "drop", "query.q", "--yes", "--json").facts == {
        "publication": "query.q",
        "batch": None,
        "dropped": 1,
    }
    assert cli("stages", "drop", "query.q", "--yes").is_refused("nothing is staged for 'query.q'\n")
    assert cli("stages", "drop", "query.q", "--batch", "7").is_refused("nothing is staged for 'query.q', batch 7\n")
