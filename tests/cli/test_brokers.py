# SPDX-License-Identifier: Apache-2.0
"""Commands about brokers as a whole."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import attachment, segments
from shmbroker._core.native import slow

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def test_list_shows_a_broker_as_long_as_its_memory_is_there(
    cli: Callable[..., Any], broker: shmbroker.Broker, broker_name: str
) -> None:
    """It is listed with its statistics, and not after it was purged."""
    assert broker_name in cli("list").out
    listed = {one["name"]: one for one in cli("list", "--json").facts}
    assert listed[broker_name]["memory_limit"] == 32 << 20
    broker.stop(purge=True)
    assert broker_name not in cli("list").out


def test_list_tells_what_is_wrong_with_a_broker_and_leaves_out_one_that_has_gone(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broken broker does not hide the others."""

    def statistics(self: shmbroker.Broker) -> shmbroker.BrokerStatistics:
        if self.name == "gone":
            raise shmbroker.BrokerNotFound(404, "gone")
        raise shmbroker.LayoutMismatch(541, "of another version")

    monkeypatch.setattr(shmbroker, "brokers", lambda: ["gone", "old"])
    monkeypatch.setattr(shmbroker.Broker, "statistics", statistics)
    assert cli("list", "--json").facts == [{"name": "old", "problem": "541 of another version"}]
    shown = cli("list")
    assert "of another version" in shown.out
    assert "gone" not in shown.out


def test_list_tells_of_a_broker_that_cannot_be_mapped(
    cli: Callable[..., Any], broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `ulimit -v`: one that is too large for the address space of the process does not hide the others."""
    statistics, problem = shmbroker.Broker.statistics, "the broker: its memory cannot be mapped"

    def limited(self: shmbroker.Broker) -> shmbroker.BrokerStatistics:
        if self.name == "large":
            raise shmbroker.OutOfMemory(problem)
        return statistics(self)

    monkeypatch.setattr(shmbroker, "brokers", lambda: ["large", broker.name])
    monkeypatch.setattr(shmbroker.Broker, "statistics", limited)
    ran = cli("list", "--json")
    assert ran.code == 0
    first, second = ran.facts
    assert first == {"name": "large", "problem": problem}
    assert second["name"] == broker.name
    assert problem in cli("list").out


def test_status_tells_what_a_broker_holds(cli: Callable[..., Any], jobs: shmbroker.Queue, broker_name: str) -> None:
    """For people in words, for programs as JSON; also what is kept for structures, and what for bodies."""
    jobs.put(bytes(3 << 20))
    facts = cli("status", "--json").facts
    assert facts["name"] == broker_name
    assert facts["queue_count"] == 1
    assert facts["memory_limit"] == 32 << 20
    assert 3 << 20 <= facts["memory_bodies"] < facts["memory_limit"]
    assert 2 << 20 <= facts["memory_structures"] <= facts["memory_limit"] - facts["memory_bodies"]
    shown = cli("status").out
    assert broker_name in shown
    assert re.search(r"kept for structures +[\d.]+ MiB", shown)
    assert re.search(r"kept for bodies +[\d.]+ MiB", shown)


def test_status_tells_of_a_store(cli: Callable[..., Any], tmp_path: Path, broker_name: str) -> None:
    """Its folder, its storekeeper, what publishers wait for, and how long a sync takes."""
    name = f"{broker_name}-stored"
    with shmbroker.Broker(name, memory="32M", data_dir=tmp_path) as stored, stored.connect() as connection:
        try:
            connection.queue("jobs", durable=True).put(b"1")
            store = cli("status", "--broker", name, "--json").facts["store"]
            assert (store["data_dir"], store["sync"]) == (str(tmp_path), "always")
            assert psutil.pid_exists(store["storekeeper_pid"])
            assert store["turns"] >= 1
            assert store["sync_seconds"] > 0
            shown = cli("status", "--broker", name).out
            assert re.search(rf"storekeeper +{store['storekeeper_pid']}", shown)
            assert re.search(r"publishers wait +always", shown)
            assert re.search(r"sync +[\d.]+ ms, \d+ messages", shown)
        finally:
            stored.stop(purge=True)
    assert "storekeeper" not in cli("status").out


def test_a_stopped_housekeeper_is_shown_as_stopped(
    cli: Callable[..., Any], broker: shmbroker.Broker, broker_name: str
) -> None:
    """In the list of brokers, and in what is told of one."""
    keeper = broker.statistics().housekeeper_pid
    os.kill(keeper, signal.SIGSTOP)
    try:
        eventually(lambda: broker.statistics().housekeeper_stopped, "the housekeeper stopped")
        (listed,) = (line for line in cli("list").lines if line.split()[:1] == [broker_name])
        for shown in (listed, cli("status").out):
            assert f"{keeper} (stopped)" in shown
    finally:
        os.kill(keeper, signal.SIGCONT)


def test_the_broker_can_be_named_in_three_ways(
    cli: Callable[..., Any], broker: shmbroker.Broker, broker_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an option before or after the command, or by the environment."""
    with broker.connect() as connection:
        connection.queue("here")
    monkeypatch.delenv("SHMBROKER_BROKER", raising=False)
    for arguments in (
        ("queue", "list"),
        ("--broker", broker_name, "queue", "list"),
        ("queue", "list", "--broker", broker_name),
        ("--broker", "elsewhere", "queue", "list", "--broker", broker_name),
    ):
        assert "here" in cli(*arguments).out


@pytest.mark.usefixtures("broker")
def test_json_can_stand_before_the_command(cli: Callable[..., Any], broker_name: str) -> None:
    """As well as after it."""
    assert cli("--json", "status").facts["name"] == broker_name


def test_stop_leaves_the_messages(cli: Callable[..., Any], jobs: shmbroker.Queue, broker_name: str) -> None:
    """Only the broker's processes end."""
    jobs.put(b"kept")
    assert "stopped" in cli("stop").out
    with (
        shmbroker.connect(broker_name, create=False) as connection,
        connection.queue("jobs", passive=True).get(timeout=0) as message,
    ):
        assert bytes(message) == b"kept"


def test_stop_with_clients_attached(
    start: Callable[..., Any], finish: Callable[..., Any], cli: Callable[..., Any], jobs: shmbroker.Queue
) -> None:
    """Clients go on without the broker's processes; when its memory goes, each ends with one line."""
    consumer = start("consume", "jobs")
    while not jobs.statistics().consumers:
        os.sched_yield()
    assert cli("stop").code == 0
    jobs.put(b"still flowing")
    assert consumer.stdout.readline() == "still flowing\n"
    assert cli("stop", "--purge").code == 0
    assert finish(consumer).is_refused("320", "CONNECTION_FORCED")


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("purge", [False, True])
def test_stop_as_json(cli: Callable[..., Any], broker_name: str, *, purge: bool) -> None:
    """Which broker it was, and whether its memory went."""
    assert cli("stop", *["--purge"] * purge, "--json").facts == {"broker": broker_name, "purged": purge}


@pytest.mark.usefixtures("broker")
def test_stop_with_purge_removes_the_broker(cli: Callable[..., Any], broker_name: str) -> None:
    """Its memory goes, and its name."""
    assert "purged" in cli("stop", "--purge").out
    assert broker_name not in shmbroker.brokers()


@pytest.mark.usefixtures("broker")
def test_stop_knows_a_broker_by_its_full_name(cli: Callable[..., Any], broker_name: str) -> None:
    """One's own can be named as others name it, with the number of its maker, here as with all commands."""
    full_name = f"{os.getuid()}/{broker_name}"
    assert cli("status", "--broker", full_name).code == 0
    assert cli("stop", "--purge", "--broker", full_name).code == 0
    assert broker_name not in shmbroker.brokers()


def test_stop_with_a_name_that_no_broker_can_have_is_wrong_usage(cli: Callable[..., Any]) -> None:
    """As with all commands."""
    assert cli("stop", "--broker", "a b").is_refused("a b", code=2)


def test_doctor_finds_a_sound_broker_healthy(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """In words, or as JSON."""
    jobs.put(b"x")
    ran = cli("doctor")
    assert (ran.code, "healthy" in ran.out) == (0, True)
    facts = cli("doctor", "--json").facts
    assert (facts["healthy"], facts["problems"]) == (True, [])


@pytest.mark.usefixtures("broker")
def test_doctor_that_finds_something_says_it_and_fails(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each thing that is wrong, and exit code 1."""
    with monkeypatch.context() as patch:
        patch.setattr(shmbroker.Connection, "doctor", lambda _self: ["one is off", "two is off"])
        ran = cli("doctor")
        assert ran.code == 1
        assert [line.split(": ")[1] for line in ran.lines] == ["one is off", "two is off"]
        ran = cli("doctor", "--json")
        assert (ran.code, ran.facts["healthy"]) == (1, False)


def await_housekeeper(process: subprocess.Popen[str], name: str) -> None:
    """Wait until a process is the housekeeper of a broker, or has ended."""
    while process.poll() is None:
        with contextlib.suppress(shmbroker.BrokerNotFound):
            if shmbroker.Broker(name).statistics().housekeeper_pid == process.pid:
                return
        os.sched_yield()
    pytest.fail("it does not serve")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_keeps_house_until_a_signal(
    start: Callable[..., Any], finish: Callable[..., Any], broker_name: str, number: int
) -> None:
    """It is the housekeeper meanwhile, with the memory asked for, and ends cleanly."""
    process = start("serve", broker_name, "--memory", "64M")
    await_housekeeper(process, broker_name)
    assert shmbroker.Broker(broker_name).statistics().memory_limit == 64 << 20
    process.send_signal(number)
    ran = finish(process)
    assert (ran.code, ran.err) == (0, "")


def test_a_second_serve_of_one_name_is_refused(
    start: Callable[..., Any], finish: Callable[..., Any], broker_name: str
) -> None:
    """One clear line, exit code 1; the first goes on."""
    first = start("serve", broker_name)
    await_housekeeper(first, broker_name)
    assert finish(start("serve", broker_name)).is_refused(broker_name, "served already")
    assert first.poll() is None
    assert shmbroker.Broker(broker_name).statistics().housekeeper_pid == first.pid


def test_serve_takes_over_a_broker_as_it_is(start: Callable[..., Any], broker_name: str) -> None:
    """Without `--memory`, one that was made with another limit is served as well."""
    broker = shmbroker.Broker(broker_name, memory="32M").start()
    broker.stop()
    await_housekeeper(start("serve", broker_name), broker_name)
    assert broker.statistics().memory_limit == 32 << 20


def test_serve_takes_over_from_an_automatic_housekeeper(start: Callable[..., Any], broker_name: str) -> None:
    """At once, and says when it serves; the clients of the broker go on."""
    with shmbroker.connect(broker_name) as connection:
        queue = connection.queue("q")
        while (automatic := shmbroker.Broker(broker_name).statistics().housekeeper_pid) == 0:
            os.sched_yield()
        process = start("serve", broker_name)
        assert process.stdout.readline() == f"{broker_name}: serving\n"
        assert automatic != shmbroker.Broker(broker_name).statistics().housekeeper_pid == process.pid
        queue.put(b"later", delay=0.1)
        assert bytes(queue.get(auto_ack=True)) == b"later"


@pytest.mark.parametrize("ends", [True, False])
def test_a_serve_that_is_killed_while_it_waits_leaves_the_broker_a_housekeeper(
    start: Callable[..., Any], broker_name: str, *, ends: bool
) -> None:
    """The automatic one serves on, and if it ends, a client starts another one."""
    with shmbroker.connect(broker_name):
        automatic = eventually(lambda: shmbroker.Broker(broker_name).statistics().housekeeper_pid)
        os.kill(automatic, signal.SIGSTOP)  # so that it does not make way before the other one is killed
        try:
            process = start("serve", broker_name)
            attached = attachment.acquire(segments.path_of(broker_name))
            eventually(
                lambda: slow.sb_housekeeper_is_awaited(attached.handle) or process.poll() is not None,
                "a process to wait",
            )
            process.kill()
            assert process.wait() == -signal.SIGKILL
            if ends:
                os.kill(automatic, signal.SIGKILL)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(automatic, signal.SIGCONT)
        before = attached.facts().ticks
        if ends:
            eventually(attached.housekeeper_missing, "the end of the housekeeper")
        with shmbroker.connect(broker_name):
            eventually(lambda: attached.facts().ticks >= before + 3, "turns of a housekeeper")
        assert (attached.facts().housekeeper_pid == automatic) is not ends
        attachment.release(attached)


def test_serve_does_not_take_over_from_a_started_one(
    start: Callable[..., Any], finish: Callable[..., Any], broker: shmbroker.Broker
) -> None:
    """What Broker.start() began was asked for."""
    before = broker.statistics().housekeeper_pid
    assert finish(start("serve", broker.name)).is_refused(broker.name, "served already")
    assert broker.statistics().housekeeper_pid == before


@pytest.mark.parametrize("arguments", [("a/b",), ("x", "--memory", "lots")])
def test_serve_with_a_bad_name_or_size_is_wrong_usage(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """Nothing is made."""
    assert cli("serve", *arguments).is_refused(code=2)
    assert arguments[0] not in shmbroker.brokers()


@pytest.mark.usefixtures("jobs")
def test_connections_shows_processes(cli: Callable[..., Any]) -> None:
    """This one's are in the list; names can be told apart."""
    facts = cli("connections", "--json").facts
    assert os.getpid() in [one["pid"] for one in facts]
    assert "shmbroker-cli" in cli("connections").out


def test_channels_shows_those_with_consumers_and_sums_up_the_others(
    cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker
) -> None:
    """Whose they are, what their consumers may take and hold."""
    assert cli("channels").lines == ["no channels"]
    with broker.connect(client_name="worker") as connection:
        busy = connection.channel(5)
        connection.channel()
        connection.channel()
        busy.basic_qos(prefetch_count=7)
        busy.basic_consume(jobs.name, print)
        first, second = cli("channels", "--json").facts
        assert (first["connection_name"], first["pid"], first["number"]) == ("worker", os.getpid(), 5)
        assert (first["consumers"], first["prefetch"], first["unacked"]) == (1, 7, 0)
        assert (second["connection"], second["number"], second["count"]) == (first["connection"], 0, 2)
        lines = [line.split() for line in cli("channels").lines[2:]]
        assert lines[0][1:] == ["worker", str(os.getpid()), "5", "1", "7", "0", "0"]
        assert lines[1][3:6] == ["2", "without", "consumers"]
        (connected,) = (one for one in cli("connections", "--json").facts if one["name"] == "worker")
        assert connected["channels"] == 3
        assert [one["channel"] for one in cli("consumers", "--json").facts] == [5]
    assert cli("channels", "--json").facts == []


def test_consumers_shows_who_consumes_which_queue(
    cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker
) -> None:
    """All, or those of one queue."""
    assert "no consumers" in cli("consumers").out
    with broker.connect() as connection, jobs.consume(prefetch=7):
        connection.queue("other")
        (consumer,) = cli("consumers", "--json").facts
        assert (consumer["queue"], consumer["prefetch"]) == ("jobs", 7)
        assert "jobs" in cli("consumers", "jobs").out
        assert cli("consumers", "other", "--json").facts == []
    assert cli("consumers", "nowhere").is_refused("nowhere")
