# SPDX-License-Identifier: Apache-2.0
"""The commands of `shmbroker queue` that deal with messages, and `shmbroker browse --state`."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.waiting import eventually

from shmbroker_cli import managing

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def put_numbered(queue: shmbroker.Queue, count: int, delay: float | None = None) -> None:
    """Put messages with a header `n`, which is the body, too."""
    for n in range(count):
        queue.put(str(n).encode(), headers={"n": n}, delay=delay)


def bodies(queue: shmbroker.Queue) -> list[bytes]:
    """Return the bodies of the ready messages."""
    return [bytes(message) for message in queue.browse()]


def test_scheduled_messages_are_shown_and_delivered(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """The list says when they are due; the command takes sequence numbers, as the list shows them."""
    put_numbered(jobs, 3, delay=3600)
    shown = [json.loads(line) for line in cli("browse", "jobs", "--state", "scheduled", "--json").lines]
    assert [(one["body"], one["state"]) for one in shown] == [
        ("0", "scheduled"),
        ("1", "scheduled"),
        ("2", "scheduled"),
    ]
    assert all(one["due_at"] > 0 for one in shown)
    assert "due" in cli("browse", "jobs", "--state", "scheduled").lines[0]
    done = cli("queue", "deliver-scheduled", "jobs", "--id", str(shown[2]["sequence"]), "--id", "0", "--json")
    assert done.facts == {"queue": "jobs", "made_ready": 2}
    assert cli("queue", "deliver-scheduled", "jobs", "--selector", "n = 7").out == "jobs: 0 messages made ready\n"
    assert bodies(jobs) == [b"0", b"2"]
    assert cli("queue", "purge", "jobs", "--state", "scheduled").out == "jobs: 1 message purged\n"
    assert [json.loads(line)["body"] for line in cli("browse", "jobs", "--id", "2", "--json").lines] == ["2"]


def test_what_consumers_have_is_shown(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """The list names the connection that holds the message."""
    jobs.put(b"A")
    with jobs.get():
        shown = cli("browse", "jobs", "--state", "delivering")
        assert "held by" in shown.lines[0]
        assert "A" in shown.lines[2]
        assert cli("browse", "jobs", "--state", "delivering", "--json").facts["held_by"] > 0
    assert cli("browse", "jobs", "--state", "dead").out == "jobs: no messages\n"
    assert cli("browse", "jobs", "--state", "gone").is_refused("'gone'", code=2)


def test_dead_letters_are_retried(cli: Callable[..., Any], broker: shmbroker.Broker, jobs: shmbroker.Queue) -> None:
    """The command says how many are back, and how many stayed, and why."""
    with broker.connect() as connection:
        origins = [connection.queue(name, dead_letter_exchange="", dead_letter_routing_key="jobs") for name in "ab"]
        for origin in origins:
            origin.put(b"A")
            origin.get().reject()
        eventually(lambda: len(jobs) == 2)
        origins[1].delete()
        done = cli("queue", "retry", "jobs")
        assert done.lines == ["jobs: 1 message retried", "jobs: 1 message stayed: queue 'b' does not exist"]
        assert bodies(origins[0]) == [b"A"]
        reasons = {"queue 'b' does not exist": 1}
        assert cli("queue", "retry", "jobs", "--json").facts == {
            "queue": "jobs", "retried": 0, "stayed": 1, "reasons": reasons,
        }  # fmt: skip


def test_chosen_messages_are_dealt_with(
    cli: Callable[..., Any], broker: shmbroker.Broker, jobs: shmbroker.Queue
) -> None:
    """Each command takes a selector, ids and a limit, and says with how many messages it dealt."""
    put_numbered(jobs, 8)
    with broker.connect() as connection:
        to = connection.queue("to")
        assert cli("queue", "copy", "jobs", "to", "--id", "1", "--id", "99").out == "jobs: 1 message copied\n"
        assert cli("queue", "move", "jobs", "to", "--selector", "n > 3", "--limit", "2", "--json").facts["moved"] == 2
        assert bodies(to) == [b"1", b"4", b"5"]
        assert cli("queue", "expire", "jobs", "--id", "7").out == "jobs: 1 message expired\n"
        assert cli("queue", "purge", "jobs", "--limit", "2").out == "jobs: 2 messages purged\n"
        assert bodies(jobs) == [b"2", b"3", b"6"]
        assert (jobs.statistics().expired, jobs.statistics().killed) == (1, 2)
    assert cli("queue", "copy", "jobs", "missing").is_refused("missing")
    assert cli("queue", "purge", "jobs", "--id", "-1").is_refused("--id", code=2)


def test_priorities_are_changed(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """The queue must have priorities."""
    with broker.connect() as connection:
        queue = connection.queue("ranked", max_priority=3)
        put_numbered(queue, 3)
        assert (
            cli("queue", "change-priority", "ranked", "3", "--selector", "n = 2").out == "ranked: 1 message changed\n"
        )
        assert bodies(queue) == [b"2", b"0", b"1"]
        assert cli("queue", "change-priority", "ranked", "4").is_refused("0 to 3 is allowed", code=2)


class Terminal(io.StringIO):
    """A text file that says to be a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize(
    ("which", "total"),
    [
        ({}, 5),
        ({"limit": 2}, 2),
        ({"ids": [1, 2, 3]}, 3),
        ({"selector": "n < 4"}, 4),
    ],
)
def test_a_bar_shows_the_progress_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, jobs: shmbroker.Queue, which: dict[str, Any], total: int
) -> None:
    """It says how many of how many messages are done."""
    put_numbered(jobs, 5)
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    given = {"selector": None, "ids": None, "limit": None} | which
    with managing.followed(jobs, "purged", **given) as told:
        jobs.purge(**which, progress=told)
    assert f"{total}/{total}" in out.getvalue()
    assert "purged" in out.getvalue()


def test_an_interrupt_says_how_far_it_came(capsys: pytest.CaptureFixture[str], jobs: shmbroker.Queue) -> None:
    """A person who interrupts reads how many messages were dealt with, and sees no bar if there is no terminal."""

    def run() -> None:
        with managing.followed(jobs, "moved", selector=None, ids=None, limit=None) as told:
            told(7)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert capsys.readouterr().err == "shmbroker: jobs: interrupted after 7 messages moved\n"
