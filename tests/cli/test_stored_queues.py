# SPDX-License-Identifier: Apache-2.0
"""What the commands print of stored queues: where their messages are, and what their consumers wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker_cli import queue_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUMBERS = ("direct", "head", "pending", "acquired", "scheduled", "away", "hits", "misses")


@pytest.fixture
def stored(broker_name: str, tmp_path: Path) -> Iterator[shmbroker.Connection]:
    """A connection to a broker with a store, and two queues with messages, one of which is held."""
    with shmbroker.Broker(f"{broker_name}-stored", memory="32M", data_dir=tmp_path) as broker:
        try:
            with broker.connect() as connection:
                connection.queue("plain").put(bytes(5000))
                connection.queue("jobs", durable=True).put_many([bytes(1024)] * 3)
                connection.queue("mails", durable=True).put(bytes(512), delay=3600)
                held = connection.queue("jobs").get()
                yield connection
                held.ack()
        finally:
            broker.stop(purge=True)


def words(lines: list[str]) -> set[str]:
    """Return lines with single spaces."""
    return {" ".join(line.split()) for line in lines}


def test_a_queue_tells_where_its_messages_are(cli: Callable[..., Any], stored: shmbroker.Connection) -> None:
    """With units for people; the watermark is a dash if all are in the memory."""
    name = stored.broker_name
    facts = cli("queue", "show", "jobs", "--broker", name, "--json").facts["statistics"]["memory"]
    expected = dict.fromkeys(NUMBERS, 0) | {"head": 2048, "acquired": 1024, "hits": 1, "watermark": None}
    assert facts == expected
    shown = words(cli("queue", "show", "jobs", "--broker", name).lines)
    assert {"bytes direct 0 B", "bytes head 2.0 KiB", "bytes pending 0 B", "bytes acquired 1.0 KiB"} <= shown
    assert {"bytes scheduled 0 B", "bytes away 0 B", "hits 1", "misses 0", "watermark -"} <= shown
    plain = cli("queue", "show", "plain", "--broker", name)
    assert "hits 0" not in words(plain.lines)
    assert cli("queue", "show", "plain", "--broker", name, "--json").facts["statistics"]["memory"] is None


def test_the_status_has_sums(cli: Callable[..., Any], stored: shmbroker.Connection, broker: shmbroker.Broker) -> None:
    """Over all stored queues; a broker without a store has none."""
    name = stored.broker_name
    facts = cli("status", "--broker", name, "--json").facts
    sums = dict.fromkeys(NUMBERS, 0) | {"head": 2048, "acquired": 1024, "scheduled": 512, "hits": 1}
    assert facts["memory_of_queues"] == sums
    line = "stored messages direct 0 B, head 2.0 KiB, pending 0 B, acquired 1.0 KiB, scheduled 512 B, away 0 B"
    assert {line, "hits 1", "misses 0", "stalled consumers 0"} <= words(cli("status", "--broker", name).lines)
    assert "memory_of_queues" not in cli("status", "--broker", broker.name, "--json").facts


def test_the_status_without_a_connection(
    cli: Callable[..., Any], stored: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the broker has as many as it can have, the status tells the rest."""

    def refused(_name: str) -> shmbroker.Connection:
        raise shmbroker.exceptions.NotAllowed(text="too many")

    monkeypatch.setattr(queue_memory, "connected", refused)
    name = stored.broker_name
    assert cli("status", "--broker", name, "--json").facts["memory_of_queues"] is None
    shown = cli("status", "--broker", name)
    assert shown.code == 0
    assert "stored messages" not in shown.out


def test_top_has_tables_of_both(cli: Callable[..., Any], stored: shmbroker.Connection) -> None:
    """What each consumer waits for, and the memory of each stored queue."""
    name = stored.broker_name
    with stored.queue("mails").consume(prefetch=7):
        facts = cli("top", "--broker", name, "--json", "--interval", "0.1").facts
        (row,) = facts["consumers"]
        assert (row["queue"], row["waits_for"], row["prefetch"], row["stalled"]) == ("mails", "producer", 7, None)
        assert {one["queue"]: one["head"] for one in facts["memory"]} == {"jobs": 2048, "mails": 0}
        shown = cli("top", "--broker", name, "--table", "memory", "--interval", "0.1").out
        assert "2.0 KiB" in shown
        shown = cli("top", "--broker", name, "--table", "consumers", "--interval", "0.1").out
        assert "producer" in shown


def test_the_doctor_tells_of_a_consumer_without_progress(
    cli: Callable[..., Any], jobs: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of which the housekeeper has warned; the others are none of its business."""
    given: dict[str, Any] = {
        "queue": "q", "connection": 5, "channel": 0, "pid": 77, "state": "interested", "priority": 0, "prefetch": 1,
        "unacked": 0, "delivered": 0, "waiting": False, "waits_for": "load", "stalled_seconds": 12.3,
    }  # fmt: skip
    found = [shmbroker.ConsumerInfo(**given), shmbroker.ConsumerInfo(**given, stalled=True)]
    monkeypatch.setattr(shmbroker.Connection, "consumers", lambda _self, _queue=None: found)
    ran = cli("doctor")
    assert ran.code == 1
    text = "queue 'q': the consumer of connection 5, process 77, has credit, and has made no progress for 12 s"
    assert [line.partition(": ")[2] for line in ran.lines] == [f"{text}; it waits for load"]
    assert jobs.name == "jobs"
