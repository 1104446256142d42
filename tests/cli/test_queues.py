# SPDX-License-Identifier: Apache-2.0
"""`shmbroker queue ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of

import shmbroker
from shmbroker._system_queues import schemas

if TYPE_CHECKING:
    from collections.abc import Callable


def test_create_makes_a_queue_with_settings(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """What was given is what the queue has; what was not given is the default."""
    made = cli("queue", "create", "jobs", "--ring-size", "5", "--max-bytes", "2K", "--json")
    assert made.code == 0
    expected = {
        "ring_size": 5,
        "max_length": -1,
        "max_bytes": 2048,
        "overflow": "block",
    }
    assert made.facts["settings"].items() >= expected.items()
    with broker.connect() as connection:
        settings = connection.queue("jobs", passive=True).settings
    assert (settings.ring_size, settings.max_bytes) == (5, 2048)


def test_create_takes_every_setting_of_a_queue(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Times in seconds, and what a queue is for its whole life."""
    options = ("--message-ttl", "0.5", "--expires", "60", "--durable", "--auto-delete", "--single-active-consumer")
    assert cli("queue", "create", "jobs", *options).code == 0
    with broker.connect() as connection:
        settings = connection.queue("jobs", passive=True).settings
    assert (settings.message_ttl, settings.expires) == (0.5, 60.0)
    assert (settings.durable, settings.auto_delete, settings.single_active_consumer) == (True, True, True)
    assert settings.exclusive is False
    assert "0.5" in cli("queue", "show", "jobs").out


@pytest.mark.usefixtures("jobs")
def test_times_can_be_set_and_ended(cli: Callable[..., Any]) -> None:
    """-1 is no limit, as for the others."""
    changed = cli("queue", "set", "jobs", "--message-ttl", "2", "--expires", "3600", "--json").facts["settings"]
    assert (changed["message_ttl"], changed["expires"]) == (2.0, 3600.0)
    changed = cli("queue", "set", "jobs", "--message-ttl", "-1", "--json").facts["settings"]
    assert (changed["message_ttl"], changed["expires"]) == (None, 3600.0)


def test_short_times_are_shown_to_the_millisecond(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """A message that lives for 40 ms does not look like one that expires immediately."""
    with broker.connect() as connection:
        connection.queue("jobs", message_ttl=0.04, expires=3600.25)
    for command in (("show", "jobs"), ("set", "jobs", "--max-length", "5")):
        lines = dict(line.rsplit(maxsplit=1) for line in cli("queue", *command).lines)
        assert (lines["message ttl"], lines["expires"]) == ("0.04", "3,600.25")
    changed = cli("queue", "set", "jobs", "--message-ttl", "0", "--expires", "0.001")
    lines = dict(line.rsplit(maxsplit=1) for line in changed.lines)
    assert (lines["message ttl"], lines["expires"]) == ("0.0", "0.001")


@pytest.mark.parametrize("option", ["--durable", "--auto-delete", "--single-active-consumer"])
@pytest.mark.usefixtures("jobs")
def test_what_a_queue_is_for_life_cannot_be_set(cli: Callable[..., Any], option: str) -> None:
    """There is no such option, and an existing queue does not get it by being created again."""
    assert cli("queue", "set", "jobs", option).is_refused(option, code=2)
    assert cli("queue", "create", "jobs", option).is_refused(option.removeprefix("--").replace("-", "_").split("_")[0])


@pytest.mark.usefixtures("jobs")
def test_create_again_is_done_if_the_settings_agree(cli: Callable[..., Any]) -> None:
    """A queue that exists is left as it is."""
    ran = cli("queue", "create", "jobs")
    assert ran.code == 0
    assert "existed" in ran.out


@pytest.mark.usefixtures("broker")
def test_create_again_is_refused_if_the_settings_differ(cli: Callable[..., Any]) -> None:
    """Other settings than the queue has are an error, which names the setting."""
    assert cli("queue", "create", "jobs", "--ring-size", "5").code == 0
    assert cli("queue", "create", "jobs", "--ring-size", "6").is_refused("ring")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ring-size", "0"),
        ("--ring-size", "many"),
        ("--max-length", "-2"),
        ("--max-bytes", "5X"),
        ("--max-bytes", "--5"),
        ("--overflow", "explode"),
        ("--message-ttl", "-2"),
        ("--message-ttl", "soon"),
        ("--expires", "0"),
    ],
)
@pytest.mark.usefixtures("broker")
def test_a_bad_setting_is_wrong_usage(cli: Callable[..., Any], option: str, value: str) -> None:
    """A value that is never allowed is exit code 2, and no queue is made."""
    ran = cli("queue", "create", "jobs", option, value)
    assert ran.is_refused(option.removeprefix("--").split("-")[0], code=2)
    assert cli("queue", "list", "--json").facts == []


def test_list_shows_each_queue_once_in_order_of_names(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """The table has a heading and a line for each queue, JSON all counters."""
    assert "no queues" in cli("queue", "list").out
    with broker.connect() as connection:
        for name in ("b", "a"):
            connection.queue(name).put(b"12345")
    shown = cli("queue", "list")
    assert [line.split()[:2] for line in shown.lines[2:]] == [["a", "1"], ["b", "1"]]
    facts = cli("queue", "list", "--json").facts
    assert [(one["name"], one["ready"], one["bytes"]) for one in facts] == [
        ("a", 1, 5),
        ("b", 1, 5),
    ]


def test_show_tells_settings_and_counters(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Both for people and for programs."""
    jobs.put(b"x")
    facts = cli("queue", "show", "jobs", "--json").facts
    assert facts["queue"] == "jobs"
    assert facts["paused"] is False
    assert facts["settings"]["ring_size"] == -1
    assert facts["statistics"]["ready"] == 1
    assert facts["arrow_schema"] is None
    shown = cli("queue", "show", "jobs").out
    assert "ring size" in shown
    assert "arrow schema" not in shown


def test_show_tells_of_an_arrow_schema(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Of a queue that was given one; Arrow itself need not be there."""
    schemas.register(jobs, schemas.Registered(b"as Arrow writes it", "id: int64, word: string"))
    assert cli("queue", "show", "jobs", "--json").facts["arrow_schema"] == "id: int64, word: string"
    assert "arrow schema" in cli("queue", "show", "jobs").out
    assert [one["name"] for one in cli("queue", "list", "--json").facts] == ["jobs"]


@pytest.mark.usefixtures("jobs")
def test_set_changes_a_setting_and_leaves_the_others(cli: Callable[..., Any]) -> None:
    """Only what is given changes."""
    assert cli("queue", "set", "jobs", "--max-length", "7").code == 0
    changed = cli("queue", "set", "jobs", "--ring-size", "3", "--json").facts
    assert changed["settings"]["max_length"] == 7
    assert changed["settings"]["ring_size"] == 3


def test_set_with_trim_shrinks_a_ring_at_once(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Without `--trim` a ring that got smaller shrinks as it drains."""
    jobs.put_many([b"1", b"2", b"3"])
    assert cli("queue", "set", "jobs", "--ring-size", "1", "--trim").code == 0
    assert len(jobs) == 1


@pytest.mark.usefixtures("jobs")
def test_set_without_a_setting_is_wrong_usage(cli: Callable[..., Any]) -> None:
    """There is nothing to do."""
    assert cli("queue", "set", "jobs").is_refused("setting", code=2)


def test_purge_tells_how_many_messages_went(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """The queue is empty afterwards."""
    jobs.put_many([b"1", b"2"])
    assert "2 messages purged" in cli("queue", "purge", "jobs").out
    assert cli("queue", "purge", "jobs", "--json").facts == {
        "queue": "jobs",
        "purged": 0,
    }


def test_delete_removes_the_queue(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """It tells how many messages went with it."""
    jobs.put(b"1")
    assert "1 message deleted" in cli("queue", "delete", "jobs").out
    with broker.connect() as connection:
        assert connection.queue_names() == []


def test_delete_if_empty_is_refused_while_a_message_is_there(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """The queue stays."""
    jobs.put(b"1")
    assert cli("queue", "delete", "jobs", "--if-empty").is_refused("jobs")
    assert len(jobs) == 1


def test_delete_if_unused_is_refused_while_it_has_a_consumer(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """The queue stays."""
    with jobs.consume():
        assert cli("queue", "delete", "jobs", "--if-unused").is_refused("jobs")
    assert cli("queue", "delete", "jobs", "--if-unused").code == 0


def test_pause_and_resume(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """A paused queue says so, until it is resumed."""
    assert cli("queue", "pause", "jobs", "--json").facts["paused"] is True
    assert jobs.paused
    assert cli("queue", "show", "jobs", "--json").facts["paused"] is True
    assert "resumed" in cli("queue", "resume", "jobs").out
    assert not jobs.paused


def test_move_takes_the_oldest_first(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """`--limit` bounds how many."""
    jobs.put_many([b"1", b"2", b"3"])
    with broker.connect() as connection:
        other = connection.queue("other")
        moved = cli("queue", "move", "jobs", "other", "--limit", "2", "--json")
        assert moved.facts == {"queue": "jobs", "moved": 2}
        assert [bytes(message) for message in other.browse()] == [b"1", b"2"]
    assert len(jobs) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nowhere"),
        ("set", "nowhere", "--ring-size", "1"),
        ("purge", "nowhere"),
        ("delete", "nowhere"),
        ("pause", "nowhere"),
        ("resume", "nowhere"),
        ("move", "nowhere", "jobs"),
        ("move", "jobs", "nowhere"),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_a_queue_that_does_not_exist_is_refused(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """One line names it; no queue is made by looking at it."""
    assert cli("queue", *arguments).is_refused("nowhere")
    assert [one["name"] for one in cli("queue", "list", "--json").facts] == ["jobs"]


def test_queues_of_the_brokers_own_are_listed_with_all(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Leases of groups are queues; nobody asked for them by listing queues."""
    jobs.put(b"x")
    group = shmbroker.Group(connection_of(jobs), jobs, "g")
    group.attach()
    group.lease(0)
    assert [one["name"] for one in cli("queue", "list", "--json").facts] == ["jobs"]
    names = [one["name"] for one in cli("queue", "list", "--all", "--json").facts]
    assert names[0] == "amq.group.g"
    assert len(names) == 4


def test_no_queue_is_made_with_a_name_of_the_brokers(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """Names that begin with amq. are refused."""
    assert cli("queue", "create", "amq.mine").is_refused("amq.mine", "reserved")
    assert broker.statistics().queue_count == 0


def test_messages_are_counted(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """All of them, those of a selector, or by a property or header; as a line, as a table, or as JSON."""
    for number in range(5):
        jobs.put(b"", headers={"region": "eu" if number else "us", "share": 0.5, "urgent": number < 2})
    jobs.put(b"")
    assert cli("queue", "count", "jobs").out == "jobs: 6 messages\n"
    assert cli("queue", "count", "jobs", "--selector", "region = 'us'").out == "jobs: 1 message\n"
    assert cli("queue", "count", "jobs", "--selector", "region = 'eu'", "--json").facts == {"queue": "jobs", "count": 4}
    lines = [line.split() for line in cli("queue", "count", "jobs", "--group-by", "region").lines]
    assert [line for line in lines if len(line) == 2] == [["region", "messages"], ["eu", "4"], ["us", "1"], ["-", "1"]]
    found = cli("queue", "count", "jobs", "--group-by", "urgent", "--selector", "region = 'eu'", "--json").facts
    groups = [{"value": False, "count": 3}, {"value": True, "count": 1}]
    assert found == {"queue": "jobs", "group_by": "urgent", "groups": groups}
    assert "0.5" in cli("queue", "count", "jobs", "--group-by", "share").out
    assert cli("queue", "count", "jobs", "--group-by", "share", "--selector", "FALSE").out == "jobs: no messages\n"


def test_browsing_with_a_selector(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """Only selected messages are shown, and only they count for --count."""
    for number in range(5):
        jobs.put(f"body {number}".encode(), headers={"number": number})
    shown = cli("browse", "jobs", "--selector", "number > 1", "--count", "2", "--json")
    assert ["body 2" in line for line in shown.lines] == [True, False]
    assert "body 3" in shown.lines[1]
    assert "body 4" not in cli("browse", "jobs", "--selector", "number < 3").out


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("command", [("browse", "jobs"), ("queue", "count", "jobs")])
def test_a_selector_that_is_wrong(cli: Callable[..., Any], command: tuple[str, ...]) -> None:
    """It is wrong usage, in one line that names the place."""
    ran = cli(*command, "--selector", "region = 'eu")
    assert ran.is_refused("line 1, column 10", "has no end", code=2)
    assert cli("queue", "count", "jobs", "--group-by", "a b").is_refused("group_by='a b'", "line 1, column 3", code=2)


def test_selected_messages_are_moved_and_purged(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """`queue move` and `queue purge` take a selector."""
    for number in range(5):
        jobs.put(str(number).encode(), headers={"number": number})
    assert cli("queue", "create", "other").code == 0
    moved = cli("queue", "move", "jobs", "other", "--selector", "number > 1", "--limit", "2")
    assert moved.out == "jobs: 2 messages moved\n"
    assert cli("queue", "purge", "jobs", "--selector", "number = 0").out == "jobs: 1 message purged\n"
    assert [bytes(message) for message in jobs.browse()] == [b"1", b"4"]
