# SPDX-License-Identifier: Apache-2.0
"""The restart of `shmbroker demo`: what clients note, what is killed, what is compared, and a small run."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import files

import shmbroker
import shmbroker_cli.demo.command as demo_command
from shmbroker_cli.demo.analysis import Counts
from shmbroker_cli.demo.restart import run
from shmbroker_cli.demo.restart.killing import kill_all, remove_memory
from shmbroker_cli.demo.restart.notes import Notes, Promises, promises
from shmbroker_cli.demo.restart.plan import (
    ARCHIVE,
    COMPARED,
    DEBITS,
    HIGHEST,
    ORDERS,
    RANKED,
    body_of,
    declare,
    number_in,
    priority_of,
    topology,
)
from shmbroker_cli.demo.restart.report import Found, Restart, compare
from shmbroker_cli.demo.run import Outcome
from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shmbroker_cli.demo.restart.plan import Topology

# ---- notes ----


def test_notes_are_added_up(tmp_path: Path) -> None:
    """Over all clients; a message is due if it was confirmed and no acknowledgement of it has begun."""
    with Notes(tmp_path / "a") as producer, Notes(tmp_path / "b") as consumer:
        producer.write("put", "q", 4)
        producer.write("confirmed", "q", 3)
        producer.write("put", "r", 2)
        consumer.write("ack", "q", 0, 1)
        consumer.write("synced", "q", 0)
    told = promises([tmp_path / "a", tmp_path / "b", tmp_path / "not made yet"])
    assert told == {"q": Promises(4, 3, {0, 1}, {0}), "r": Promises(2)}
    assert told["q"].due == {2}


def test_a_line_that_a_kill_has_cut_short_is_no_line(tmp_path: Path) -> None:
    """What it is about had not begun."""
    (tmp_path / "a").write_text("put q 4\nput q 1", encoding="ascii")
    assert promises([tmp_path / "a"]) == {"q": Promises(4)}


def test_a_body_tells_which_message_it_is() -> None:
    """Whatever its queue; only one queue has priorities."""
    assert [number_in(body_of(name, 70_000)) for name in COMPARED] == [70_000] * len(COMPARED)
    assert len(body_of(ARCHIVE, 1)) > 10 * len(body_of(ORDERS, 1))
    assert {priority_of(RANKED, number) for number in range(8)} == {*range(HIGHEST + 1)}
    assert {priority_of(ORDERS, number) for number in range(8)} == {0}


# ---- comparison ----

SAME: Any = "the topology"


def compared(told: dict[str, Promises], messages: dict[str, list[int]], there: Topology = SAME) -> Restart:
    """Return the comparison of what was found with what was told."""
    return compare({"producer": 1}, told, SAME, Found(messages, there, 1.23456, 32, 40))


def test_what_came_back_is_compared() -> None:
    """What was confirmed and may be gone may be there or not, and so may what was not confirmed."""
    told = {ORDERS: Promises(5, 4, {0, 1}, {0}), RANKED: Promises(8, 8)}
    for orders in ([2, 3], [1, 2, 3], [1, 2, 3, 4]):
        report = compared(told, {ORDERS: orders, RANKED: [3, 7, 2, 6, 1, 5, 0, 4]})
        assert report == Restart(
            killed={"producer": 1}, seconds=1.235, memory=32, deepest=40, confirmed=12, acknowledged=1, due=10,
            there=8 + len(orders), lost=0, twice=0, came_back=0, unknown=0, misplaced=0, transactions=0, halves=0,
            topology=True,
        )  # fmt: skip
        assert report.good


@pytest.mark.parametrize(
    ("orders", "wrong"),
    [
        ([2], {"lost": 1}),
        ([], {"lost": 2}),
        ([2, 2, 3], {"twice": 1}),
        ([0, 2, 3], {"came_back": 1}),
        ([2, 3, 5], {"unknown": 1}),
        ([3, 2], {"misplaced": 1}),
    ],
)
def test_what_is_wrong_is_counted(orders: list[int], wrong: dict[str, int]) -> None:
    """Each kind for itself, and each of them is bad."""
    report = compared({ORDERS: Promises(5, 4, {0, 1}, {0})}, {ORDERS: orders})
    counted = {name: getattr(report, name) for name in ("lost", "twice", "came_back", "unknown", "misplaced")}
    assert {name: count for name, count in counted.items() if count} == wrong
    assert not report.good


def test_a_lower_priority_comes_after_a_higher_one() -> None:
    """And within a priority the order is that of the puts."""
    told = {RANKED: Promises(8, 8)}
    assert compared(told, {RANKED: [3, 7, 2, 6, 1, 5, 0, 4]}).misplaced == 0
    assert compared(told, {RANKED: [7, 3, 2, 6, 1, 5, 0, 4]}).misplaced == 1
    assert compared(told, {RANKED: [*range(8)]}).misplaced > 0


def test_half_a_transaction_is_bad() -> None:
    """One that was not confirmed may be missing, but in both queues."""
    told = {name: Promises(3, 2) for name in COMPARED[3:]}
    whole = compared(told, {key: [0, 1, 2] for key in told})
    assert (whole.transactions, whole.halves, whole.good) == (3, 0, True)
    half = compared(told, {**{key: [0, 1] for key in told}, DEBITS: [0, 1, 2]})
    assert (half.transactions, half.halves, half.lost, half.good) == (2, 1, 0, False)


def test_another_topology_is_bad() -> None:
    """Even if all messages are there."""
    other: Any = "another topology"
    report = compared({}, {}, other)
    assert (report.topology, report.good) == (False, False)


def test_the_topology_has_settings_exchanges_and_bindings(jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """A change of each of them shows."""
    jobs.delete()
    with broker.connect() as connection:
        declare(connection)
        seen = [topology(connection)]
        connection.queue(ORDERS, passive=True).configure(max_delivery_attempts=7)
        seen.append(topology(connection))
        with connection.channel() as channel:
            channel.queue_bind(ORDERS, "ledger", "x")
            seen.append(topology(connection))
            channel.exchange_declare("another", "fanout", durable=True)
            seen.append(topology(connection))
        connection.queue(RANKED, passive=True).delete()
        seen.append(topology(connection))
        assert all(seen[at] != seen[at + 1] for at in range(len(seen) - 1))
        assert topology(connection) == seen[-1]


# ---- killing ----


def test_every_process_of_a_broker_is_killed(broker_name: str, data_dir: Path) -> None:
    """The storekeeper, which has no connection, as well; not this process, and none of another broker."""
    other = f"{broker_name}-2"
    (data_dir / "other").mkdir()
    (data_dir / "one").mkdir()
    brokers = [
        shmbroker.Broker(name, memory="32M", data_dir=data_dir / folder)
        for name, folder in ((broker_name, "one"), (other, "other"))
    ]
    try:
        for one in brokers:
            one.start()
            with one.connect() as connection:
                connection.queue("q", durable=True).put(b"x")  # there is a storekeeper when it returns
        keeper = brokers[1].statistics().housekeeper_pid
        killed = kill_all(broker_name)
        assert killed["storekeeper"] >= 1
        assert killed.total() > killed["storekeeper"]
        assert kill_all(broker_name).total() == 0
        assert brokers[1].statistics().housekeeper_pid == keeper
        assert files(f"{broker_name}.")
        remove_memory(broker_name)
        assert files(f"{broker_name}.") == []
        with brokers[1].connect() as connection:
            connection.queue("q", passive=True).put(b"y")
    finally:
        for one in brokers:
            kill_all(one.name)
            remove_memory(one.name)
            one.stop(purge=True)


CLIENT = "import shmbroker; c = shmbroker.connect(input(), create=False); print('there', flush=True); input()"


def test_a_process_is_known_by_the_memory_or_by_an_argument(broker_name: str) -> None:
    """Such as a client that does not name the broker, and a storekeeper that has only begun."""
    shmbroker.Broker(broker_name, memory="32M").create()
    with (
        subprocess.Popen([sys.executable, "-c", "input()", broker_name], stdin=subprocess.PIPE) as named,
        subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client,
        subprocess.Popen([sys.executable, "-c", "input()", f"{broker_name}-2"], stdin=subprocess.PIPE) as other,
    ):
        try:
            assert client.stdin
            assert client.stdout
            client.stdin.write(f"{broker_name}\n".encode("ascii"))
            client.stdin.flush()
            assert client.stdout.readline() == b"there\n"
            killed = kill_all(broker_name)
            assert killed["other"] == 2
            assert killed.keys() <= {"other", "housekeeper"}
            assert [named.wait(), client.wait(), other.poll()] == [-signal.SIGKILL, -signal.SIGKILL, None]
        finally:
            kill_all(broker_name)
            remove_memory(broker_name)
            for one in (named, client, other):
                one.kill()


# ---- a run ----


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the temporary folders of a run in a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the brokers that are started."""
    names: list[str] = []
    true_start = shmbroker.Broker.start

    def start(self: shmbroker.Broker) -> shmbroker.Broker:
        names.append(self.name)
        return true_start(self)

    monkeypatch.setattr(shmbroker.Broker, "start", start)
    return names


def leaves_nothing(made: list[str], folders: Path) -> bool:
    """Whether neither memory, nor processes, nor folders are left of the brokers of a run."""
    return not any(files(name) or kill_all(name) for name in made) and not list(folders.iterdir())


def test_all_comes_back(folders: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once and in order, after everything was killed; nothing is left of both brokers."""
    monkeypatch.setattr(run, "DEEP", 1_000)
    told: list[int] = []
    report = run.restart(told.append)
    assert report.good, report
    assert {"producer": 4, "consumer": 3}.items() <= report.killed.items()
    assert {"housekeeper", "storekeeper"} <= report.killed.keys()
    assert report.due >= 1_000
    assert report.there >= report.due
    assert report.acknowledged >= sum(run.BUSY.values())
    assert report.transactions >= run.TRANSACTIONS
    assert report.memory == 32 << 20
    assert told[-1] >= 1_000
    assert len({*made}) == 2
    assert leaves_nothing(made, folders)


def test_what_is_taken_away_is_missed(folders: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose store loses a message between the two brokers is bad."""
    monkeypatch.setattr(run, "DEEP", 100)
    true_found = run._found  # noqa: SLF001 (between the two brokers)

    def found(broker: shmbroker.Broker, seconds: float) -> Found:
        with broker.connect() as connection:
            connection.queue(ARCHIVE, passive=True).get(timeout=1, auto_ack=True)
            connection.queue(DEBITS, passive=True).get(timeout=1, auto_ack=True)
        return true_found(broker, seconds)

    monkeypatch.setattr(run, "_found", found)
    report = run.restart(lambda _: None)
    assert not report.good
    assert report.halves == 1
    assert leaves_nothing(made, folders)


def test_a_client_that_fails_is_an_error(folders: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what the client said, and nothing is left."""
    monkeypatch.setattr(run, "declare", lambda connection: connection.queue(ORDERS, durable=True))
    with pytest.raises(Refused, match=r"the clients ended with exit code 1: .*NOT_FOUND"):
        run.restart(lambda _: None)
    assert leaves_nothing(made, folders)


def test_clients_that_do_too_little_are_given_up(
    folders: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what they did."""
    monkeypatch.setattr(run, "PATIENCE", 0.0)
    with pytest.raises(Refused, match="did not do enough in 0 seconds"):
        run.restart(lambda _: None)
    assert leaves_nothing(made, folders)


# ---- the command ----

GOOD = Restart(
    killed={"producer": 4, "storekeeper": 1}, seconds=0.25, memory=32 << 20, deepest=40 << 20, confirmed=1234,
    acknowledged=200, due=1000, there=1010, lost=0, twice=0, came_back=0, unknown=0, misplaced=0, transactions=77,
    halves=0, topology=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"lost": 1},
        {"twice": 2},
        {"came_back": 3},
        {"unknown": 4},
        {"misplaced": 5},
        {"halves": 6},
        {"topology": False},
    ],
    ids=str,
)
def test_the_restart_decides_on_the_exit_code(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int]
) -> None:
    """What is wrong is told, and only a good one has the last line."""
    (tmp_path / "a.py").write_text("import os\n", encoding="ascii")
    monkeypatch.setattr(demo_command, "library", lambda: tmp_path)
    outcome = Outcome({"a.py": Counts(lines=1, imports=1)}, seconds=1.0)
    monkeypatch.setattr(demo_command, "run", lambda *_, **__: outcome)
    monkeypatch.setattr(demo_command, "restart", lambda _: dataclasses.replace(GOOD, **wrong))
    ran = cli("demo")
    assert (ran.code, ran.err) == (int(bool(wrong)), "")
    assert any(line.split() == ["killed", "4", "producers,", "1", "storekeeper"] for line in ran.lines)
    assert "40.0 MiB of messages, in 32.0 MiB of memory" in ran.out
    assert ("all that was confirmed and not acknowledged came back" in ran.out) == (not wrong)
    for name, count in wrong.items():
        told = {"topology": "another one", "halves": f"{count} in part", "unknown": "no producer put"}
        assert told.get(name, f"{count}") in ran.out
    facts = cli("demo", "--json").facts
    assert facts["good"] is not bool(wrong)
    assert facts["restart"] == dataclasses.asdict(dataclasses.replace(GOOD, **wrong))
    assert cli("demo", "--json", "--no-kill").facts["restart"] is None
