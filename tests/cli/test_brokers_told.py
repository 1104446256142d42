# SPDX-License-Identifier: Apache-2.0
"""What the commands about brokers print, word for word, and what they ask of a broker."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
from shmbroker._dataclasses import replace
from shmbroker.statistics import Repairs
from shmbroker_cli import brokers as module
from shmbroker_cli.errors import Refused
from shmbroker_cli.processes import ProcessFacts, ProcessId

if TYPE_CHECKING:
    from collections.abc import Callable

STATISTICS = shmbroker.BrokerStatistics(
    name="orders",
    memory_limit=64 << 20,
    memory_used=1536,
    segments=2,
    queue_count=3,
    connection_count=4,
    process_count=5,
    housekeeper_pid=1,
    housekeeper_stopped=False,
    created_at=0.0,
    rescues=6,
    stopped_rescues=7,
    reaped=8,
    stalled=9,
    memory_structures=2048,
    memory_bodies=512,
    repairs=Repairs(room=2),
    explained_repairs=Repairs(counts=1),
    memory_state="warning",
    memory_high_watermark=0.8,
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, shmbroker.BrokerStatistics | Exception]:
    """Give this user the brokers that a test puts here, with their statistics or an error."""
    brokers: dict[str, shmbroker.BrokerStatistics | Exception] = {}

    def statistics(broker: shmbroker.Broker) -> shmbroker.BrokerStatistics:
        found = brokers[broker.name]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(shmbroker, "brokers", lambda: list(brokers))
    monkeypatch.setattr(shmbroker.Broker, "statistics", statistics)
    monkeypatch.setattr(shmbroker.Broker, "connections", lambda _broker: [])
    return brokers


def words(lines: list[str]) -> list[str]:
    """Return lines with single spaces."""
    return [" ".join(line.split()) for line in lines]


def test_the_list_of_brokers(cli: Callable[..., Any], known: dict[str, Any]) -> None:
    """A line for each in the order of names, and no column for problems without one."""
    assert cli("list").lines == ["no brokers"]
    known["orders"] = STATISTICS
    known["idle"] = dataclasses.replace(STATISTICS, name="idle", housekeeper_pid=0)
    known["stuck"] = dataclasses.replace(STATISTICS, name="stuck", housekeeper_stopped=True)
    ran = cli("list")
    assert words(ran.lines[:1] + ran.lines[2:]) == [
        "broker memory queues connections processes housekeeper",
        "idle 1.5 KiB of 64.0 MiB 3 4 5 none",
        "orders 1.5 KiB of 64.0 MiB 3 4 5 1",
        "stuck 1.5 KiB of 64.0 MiB 3 4 5 1 (stopped)",
    ]
    assert cli("list", "--json").facts == [
        dataclasses.asdict(known[name]) for name in ("idle", "orders", "stuck")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (shmbroker.LayoutMismatch(541, "of another version"), "541 of another version"),
        (PermissionError(13, "Permission denied"), "[Errno 13] Permission denied"),
    ],
)
def test_the_list_of_brokers_with_a_problem(
    cli: Callable[..., Any], known: dict[str, Any], error: Exception, text: str
) -> None:
    """It stands in the line of its broker, of which nothing else is known; one that has gone has no line."""
    known.update({"orders": STATISTICS, "old": error, "gone": shmbroker.BrokerNotFound(404, "gone")})
    ran = cli("list")
    assert words(ran.lines[:1] + ran.lines[2:]) == [
        "broker memory queues connections processes housekeeper problem",
        f"old - - - - none {text}",
        "orders 1.5 KiB of 64.0 MiB 3 4 5 1",
    ]
    assert cli("list", "--json").facts == [{"name": "old", "problem": text}, dataclasses.asdict(STATISTICS)]


def test_the_status_of_a_broker(
    cli: Callable[..., Any], known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is known of it, with its creation in the time of this machine."""
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    known["orders"] = STATISTICS
    try:
        assert words(cli("status", "--broker", "orders").lines) == [
            "broker orders",
            "created 1970-01-01 03:00:00+03:00",
            "memory 1.5 KiB of 64.0 MiB",
            "memory state warning",
            "high watermark 80.0%",
            "memory warning none",
            "kept for structures 2.0 KiB",
            "kept for bodies 512 B",
            "segments 2",
            "queues 3",
            "connections 4",
            "processes 5",
            "housekeeper 1",
            "housekeeper processor -",
            "housekeeper memory -",
            "clients 0",
            "clients processor -",
            "clients memory -",
            "rescues 6",
            "rescues of stopped 7",
            "repairs 2 room",
            "explained repairs 1 counts",
            "reaped 8",
            "stalled consumers 9",
        ]
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    nothing = {"processes": 0, "known": 0, "cpu_seconds": 0, "memory": 0, "memory_shared": 0}
    assert cli("status", "--broker", "orders", "--json").facts == {
        **dataclasses.asdict(STATISTICS), "housekeeper": None, "clients": nothing
    }  # fmt: skip


def connection(number: int, pid: int, namespace: int = 7) -> shmbroker.ConnectionInfo:
    """Return what a broker says of a connection of a process."""
    return shmbroker.ConnectionInfo(
        id=number, name="c", pid=pid, created_at=0.0, consumers=0, holding=0, channels=0, start_ticks=pid * 10,
        pid_namespace=namespace,
    )  # fmt: skip


def process(seconds: float, memory: int) -> ProcessFacts:
    """Return what the system says of a process."""
    return ProcessFacts("p", ("p", "-x"), 1.0, 100.0, seconds, seconds, memory, memory // 4)


def test_the_status_has_what_processes_use(
    cli: Callable[..., Any], known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the housekeeper, and the sums of the others: a process with several connections counts once."""
    known["orders"] = STATISTICS
    connections = [connection(1, 1), connection(2, 20), connection(3, 20), connection(4, 30), connection(5, 40)]
    facts = {
        ProcessId(1, 10, 7): process(1234.5, 4 << 20),
        ProcessId(20, 200, 7): process(1.0, 8 << 20),
        ProcessId(30, 300, 7): process(2.0, 4 << 20),
    }
    monkeypatch.setattr(shmbroker.Broker, "connections", lambda _broker: connections)
    monkeypatch.setattr(module, "look_at", lambda asked: {one: facts[one] for one in asked if one in facts})
    assert words(cli("status", "--broker", "orders").lines)[12:18] == [
        "housekeeper 1",
        "housekeeper processor 1,234.5 s",
        "housekeeper memory 4.0 MiB, 1.0 MiB of it shared",
        "clients 3, 2 of them visible",
        "clients processor 3.0 s",
        "clients memory 12.0 MiB, 3.0 MiB of it shared",
    ]
    told = cli("status", "--broker", "orders", "--json").facts
    assert told["housekeeper"] == {**dataclasses.asdict(facts[ProcessId(1, 10, 7)]), "command": ["p", "-x"]}
    assert told["clients"] == {
        "processes": 3, "known": 2, "cpu_seconds": 3.0, "memory": 12 << 20, "memory_shared": 3 << 20
    }  # fmt: skip
    facts[ProcessId(40, 400, 7)] = process(1.0, 0)
    assert "clients 3" in words(cli("status", "--broker", "orders").lines)


def test_a_housekeeper_whose_pid_two_namespaces_have_has_no_facts(
    cli: Callable[..., Any], known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known which of the two processes it is."""
    known["orders"] = STATISTICS
    monkeypatch.setattr(shmbroker.Broker, "connections", lambda _broker: [connection(1, 1), connection(2, 1, 8)])
    monkeypatch.setattr(module, "look_at", lambda _asked: {ProcessId(1, 10, 7): process(1.0, 4 << 20)})
    told = cli("status", "--broker", "orders", "--json").facts
    assert (told["housekeeper"], told["clients"]["processes"]) == (None, 0)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]) -> list[tuple[str, dict[str, object]]]:
    """Return what brokers are made with to be served; they are not, and `taken` is one that exists."""
    made: list[tuple[str, dict[str, object]]] = []
    known["taken"] = STATISTICS

    class Recorded(shmbroker.Broker):
        def __init__(self, name: str, **given: Any) -> None:  # noqa: ANN401 - those of a broker
            super().__init__(name, **given)
            if given:
                made.append((self.name, given))

        def serve_forever(self, *, on_ready: Callable[[], None] | None = None) -> None:
            assert on_ready is not None
            on_ready()

    monkeypatch.setattr(shmbroker, "Broker", Recorded)
    return made


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (("new",), {"data_dir": None, "sync": None, "store_full": None, "memory": "1G"}),
        (("taken",), {"data_dir": None, "sync": None, "store_full": None}),
        ((f"{os.getuid()}/taken",), {"data_dir": None, "sync": None, "store_full": None}),
        (("new", "--memory", "64M"), {"data_dir": None, "sync": None, "store_full": None, "memory": "64M"}),
        (("taken", "--memory", "64M"), {"data_dir": None, "sync": None, "store_full": None, "memory": "64M"}),
        (("taken", "--data-dir", "kept/here"), {"data_dir": "kept/here", "sync": None, "store_full": None}),
        (
            ("taken", "--data-dir", "kept/here", "--sync", "none"),
            {"data_dir": "kept/here", "sync": "none", "store_full": None},
        ),
        (
            ("taken", "--data-dir", "kept/here", "--store-full", "refuse"),
            {"data_dir": "kept/here", "sync": None, "store_full": "refuse"},
        ),
    ],
)
def test_serve_makes_a_broker_as_it_is_asked(
    cli: Callable[..., Any],
    served: list[tuple[str, dict[str, object]]],
    options: tuple[str, ...],
    given: dict[str, object],
) -> None:
    """A new one gets 1 GiB if nothing is said; one that exists keeps its limit. It says when it serves."""
    name = options[0].rpartition("/")[2]
    assert cli("serve", *options).lines == [f"{name}: serving"]
    assert served == [(name, given)]


def test_stop_tells_what_it_did(cli: Callable[..., Any], broker: shmbroker.Broker) -> None:
    """A line for people, which has the name as it was given."""
    assert cli("stop").lines == [f"{broker.name}: stopped"]
    name = f"{os.getuid()}/{broker.name}"
    assert cli("stop", "--broker", name, "--json").facts == {"broker": broker.name, "purged": False}
    assert cli("stop", "--broker", name, "--purge").lines == [f"{name}: purged"]
    assert cli("stop").is_refused(f"no broker '{broker.name}'")


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the doctor find what a test puts here."""
    found: list[str] = []
    monkeypatch.setattr(shmbroker.Connection, "doctor", lambda _self: tuple(found))
    return found


def test_the_doctor_s_words(cli: Callable[..., Any], broker: shmbroker.Broker, problems: list[str]) -> None:
    """A line for each problem and exit code 1, or one that says that there is none."""
    name = broker.name
    ran = cli("doctor")
    assert (ran.code, ran.out) == (0, f"{name}: healthy\n")
    ran = cli("doctor", "--json")
    assert (ran.code, ran.facts) == (0, {"broker": name, "healthy": True, "problems": []})
    problems.extend(["one is off", "two is off"])
    ran = cli("doctor")
    assert (ran.code, ran.out) == (1, f"{name}: one is off\n{name}: two is off\n")
    ran = cli("doctor", "--json")
    assert (ran.code, ran.facts) == (1, {"broker": name, "healthy": False, "problems": ["one is off", "two is off"]})
    problems.clear()


def test_the_doctor_takes_a_name_in_place_of_the_option(
    cli: Callable[..., Any], broker: shmbroker.Broker, problems: list[str]
) -> None:
    """The name wins."""
    problems.append("off")
    for arguments in ((broker.name,), (broker.name, "--broker", "elsewhere"), ("--broker", broker.name)):
        assert cli("doctor", *arguments).lines == [f"{broker.name}: off"]
    problems.clear()


def test_the_doctor_of_a_broker_that_nobody_can_connect_to(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with it is what it finds; that there is none is no finding."""

    def connect(*_arguments: object, **_options: object) -> shmbroker.Connection:
        raise errors.pop()

    errors: list[Exception] = [
        Refused("no such broker"),
        *[shmbroker.exceptions.CorruptSegment(541, "is truncated")] * 2,
    ]
    monkeypatch.setattr(shmbroker, "connect", connect)
    ran = cli("doctor", "b")
    assert (ran.code, ran.out, ran.err) == (1, "b: is truncated\n", "")
    assert cli("doctor", "b", "--json").facts == {"broker": "b", "healthy": False, "problems": ["is truncated"]}
    assert cli("doctor", "b").is_refused("no such broker")


def test_configure_changes_the_marks(
    cli: Callable[..., Any], known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that is not given stays, and 0 removes one."""
    known["orders"] = STATISTICS
    marks: list[dict[str, object]] = []

    def configure(_broker: shmbroker.Broker, **given: object) -> None:
        marks.append(given)
        known["orders"] = replace(known["orders"], **given)

    monkeypatch.setattr(shmbroker.Broker, "configure", configure)
    ran = cli("configure", "--broker", "orders", "--memory-warning", "0.5")
    assert ran.lines == ["orders: high watermark 80.0%, warning 50.0%"]
    told = cli("configure", "--broker", "orders", "--memory-high-watermark", "0", "--json").facts
    assert told == {"broker": "orders", "memory_high_watermark": None, "memory_warning": 0.5}
    assert marks == [{"memory_warning": 0.5}, {"memory_high_watermark": None}]
