# SPDX-License-Identifier: Apache-2.0
"""Processes of a broker are killed while messages flow: nothing is lost, nobody else stops."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shmbroker
import shmbroker.testing
from shmbroker._broker import connecting

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTORS = Path(__file__).with_name("actors.py")
MESSAGES = 1_000_000
KILLS = 24
INTERVALS = 10  # of a tenth of a second or more: the IO thread looks before the seventh is over


class Team:
    """Producers and consumers of one queue, each with a log of its own; whoever is killed is replaced."""

    def __init__(self, broker: str, logs: Path, chance: random.Random) -> None:
        self._broker, self._logs, self._chance = broker, logs, chance
        self._started = 0
        self.producers: list[subprocess.Popen[bytes]] = []
        self.consumers: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts an actor of some kind, with a new log."""
        self._started += 1
        log = self._logs / f"{kind}-{self._started}"
        log.touch()
        command = [sys.executable, str(ACTORS), kind, self._broker, "jobs", str(log), *arguments]
        return subprocess.Popen(command)

    def producer(self) -> subprocess.Popen[bytes]:
        """Another producer."""
        return self.start("produce", str(self._started), "100000000")

    def consumer(self) -> subprocess.Popen[bytes]:
        """Another consumer: one that gets, or one that consumes."""
        return self.start("take", self._chance.choice(["get", "consume"]))

    def kill_one(self) -> None:
        """Kills anybody with SIGKILL, and starts a new one in that place."""
        team, replace = self._chance.choice([(self.producers, self.producer), (self.consumers, self.consumer)])
        victim = self._chance.randrange(len(team))
        end(team[victim])
        team[victim] = replace()

    def lines(self, kind: str) -> Iterator[list[str]]:
        """The whole lines of each log of a kind; a kill may have cut the last one short."""
        for log in self._logs.glob(f"{kind}-*"):
            yield log.read_text().split("\n")[:-1]


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, and gone."""
    process.kill()
    process.wait()


@pytest.mark.timeout(1800)
def test_killing_everybody_during_a_million_messages(broker_name: str, tmp_path: Path) -> None:
    """Housekeeper, producers and consumers are killed with SIGKILL again and again while a million messages flow.

    Every message whose put returned is acknowledged or still there; none is acknowledged twice; only messages that
    somebody held when it died come again; statistics add up and the doctor finds nothing.
    """
    chance = random.Random(2)
    with shmbroker.testing.broker(broker_name, memory="1G") as broker, broker.connect() as connection:
        jobs = connection.queue("jobs")
        team = Team(broker_name, tmp_path, chance)
        try:
            team.producers = [team.producer() for _ in range(2)]
            team.consumers = [team.consumer() for _ in range(2)]
            for kill in range(KILLS):
                goal = MESSAGES * (kill + 1) // KILLS
                await_added(jobs, goal)
                team.kill_one()
                if kill % 6 == 3:
                    kill_housekeeper(broker)
        finally:
            for process in team.producers + team.consumers:
                end(process)
        await_housekeeper(broker)
        rest = drain(connection, jobs)
        check(team, rest)
        await_rest(jobs)
        found = jobs.statistics()
        gone = found.acked + found.expired + found.killed + found.replaced + found.dropped + found.moved
        assert found.added == gone + found.message_count
        assert found.message_count == 0
        assert broker.statistics().rescues == 0  # the queue's counter includes rescues that a kill explains
        assert_healthy(connection)


def await_added(jobs: shmbroker.Queue, goal: int) -> None:
    """Until so many messages were put in all."""
    while jobs.statistics().added < goal:
        time.sleep(0.02)


def kill_housekeeper(broker: shmbroker.Broker) -> None:
    """SIGKILL to the housekeeper, if one is there."""
    pid = broker.statistics().housekeeper_pid
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def await_housekeeper(broker: shmbroker.Broker) -> None:
    """Until a housekeeper serves and only we and it are attached: everybody dead has been reaped."""
    broker.start()
    while broker.statistics().process_count > 2:
        time.sleep(0.02)


def drain(connection: shmbroker.Connection, jobs: shmbroker.Queue) -> list[str]:
    """Everything that is left, with ``again`` or ``first``."""
    rest = []
    with contextlib.suppress(queue.Empty):
        while True:
            for message in (batch := jobs.get_many(1024, timeout=0)):
                rest.append(bytes(message).decode() + (" again" if message.redelivered else " first"))
            batch.ack()
    assert connection.is_open
    return rest


def check(team: Team, rest: list[str]) -> None:
    """The oracle: what the logs say against what must be."""
    accepted = {line for lines in team.lines("produce") for line in lines}
    acked: collections.Counter[str] = collections.Counter(line.split()[0] for line in rest)
    held_at_death: set[str] = set()
    seen_again: set[str] = {line.split()[0] for line in rest if line.endswith("again")}
    for lines in team.lines("take"):
        for line in lines:
            what, body, order = line.split()
            acked[body] += what == "ack"
            if what == "got" and order == "again":
                seen_again.add(body)
        if lines and lines[-1].startswith("got"):
            held_at_death.add(lines[-1].split()[1])  # killed between taking it and logging the ack
    assert accepted - acked.keys() <= held_at_death
    assert [body for body, count in acked.items() if count > 1] == []
    killed_consumers = sum(1 for _ in team.lines("take"))
    assert len(seen_again) <= killed_consumers * 33  # at most the prefetched messages of the killed consumers


def await_rest(jobs: shmbroker.Queue) -> None:
    """Until the statistics stop moving."""
    while (found := jobs.statistics()).message_count != 0 or found.interested or found.notified:
        time.sleep(0.05)


def assert_healthy(connection: shmbroker.Connection) -> None:
    """The doctor finds nothing once the housekeeper has had its ticks."""
    until = time.monotonic() + 20
    while (words := connection.doctor()) and time.monotonic() < until:
        time.sleep(0.1)
    assert words == []


def test_a_killed_housekeeper_is_replaced_while_messages_flow(broker_name: str) -> None:
    """A client that waits notices a dead housekeeper and starts another one; messages flow meanwhile."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as one, broker.connect() as other:
        jobs = one.queue("jobs")
        consumer = other.queue("jobs").consume()
        first = broker.statistics().housekeeper_pid
        os.kill(first, signal.SIGKILL)
        while (now := broker.statistics().housekeeper_pid) in {0, first}:
            jobs.put(b"x")
            consumer.get().ack()
        assert now != first
        consumer.close()


def test_a_busy_client_misses_a_killed_housekeeper(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IO thread that sends acknowledgements by interval looks for the housekeeper meanwhile, twice a second.

    It is the clock: nothing wakes it, and each of its intervals takes a tenth of a second at least, on a slow machine
    longer. So it has looked before a few of them are over, each of which sent an acknowledgement.
    """
    missed = threading.Event()
    start_another = connecting.ensure_housekeeper

    def note_then_start(name: str) -> None:
        missed.set()
        start_another(name)

    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        monkeypatch.setattr(connecting, "ensure_housekeeper", note_then_start)
        jobs = connection.queue("jobs")
        jobs.put_many([b"x"] * INTERVALS)
        first = broker.statistics().housekeeper_pid
        consumer = jobs.consume(prefetch=2 * INTERVALS, ack_batch=2 * INTERVALS, ack_interval=0.1)
        os.kill(first, signal.SIGKILL)
        while broker.statistics().housekeeper_pid == first:
            time.sleep(0.001)
        for sent in range(INTERVALS):
            consumer.get().ack()
            while jobs.statistics().acked == sent:  # now and then longer than one interval
                time.sleep(0.001)
        assert missed.is_set()
        while broker.statistics().housekeeper_pid in {0, first}:
            time.sleep(0.01)
        consumer.close()


def test_a_stopped_process_keeps_nobody_from_a_housekeeper(broker_name: str, tmp_path: Path) -> None:
    """The one whose turn it is to miss a dead housekeeper is stopped: another one has a new one started."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        jobs = connection.queue("jobs")
        team = Team(broker_name, tmp_path, random.Random(1))
        for count in range(2):
            team.consumers.append(team.start("take", "consume"))
            while jobs.statistics().consumers == count:
                time.sleep(0.01)
        first = broker.statistics().housekeeper_pid
        stopped_with(team.consumers[0], jobs)
        try:
            os.kill(first, signal.SIGKILL)
            while broker.statistics().housekeeper_pid in {0, first}:
                time.sleep(0.01)
        finally:
            for process in team.consumers:
                end(process)
        await_housekeeper(broker)
        assert_healthy(connection)


def test_a_stopped_consumer_holds_nobody_up(broker_name: str, tmp_path: Path) -> None:
    """SIGSTOP is not death: the stopped consumer keeps what it holds, all other messages go to others, none is lost."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        jobs = connection.queue("jobs")
        team = Team(broker_name, tmp_path, random.Random(1))
        process = team.start("take", "consume")
        try:
            while jobs.statistics().consumers == 0:
                time.sleep(0.01)
            assert stopped_with(process, jobs) == 0  # until it has stopped, it would take some of what comes next
            for number in range(1000):
                jobs.put(f"9:{number}".encode())
            taken = [bytes(jobs.get(auto_ack=True)) for _ in range(1000)]
            assert taken == [f"9:{number}".encode() for number in range(1000)]
            process.send_signal(signal.SIGCONT)
            jobs.put(b"9:last")
            while jobs.statistics().acked < 1001:
                time.sleep(0.01)
        finally:
            end(process)
        await_housekeeper(broker)
        assert_healthy(connection)


def test_the_living_do_not_wait_for_the_reaping(broker_name: str, tmp_path: Path) -> None:
    """A consumer dies with messages in hand, and the housekeeper is stopped: all but these go to another one."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        jobs = connection.queue("jobs")
        team = Team(broker_name, tmp_path, random.Random(1))
        victim = team.start("take", "consume")
        while stopped_with(victim, jobs) == 0:
            victim.send_signal(signal.SIGCONT)
            jobs.put_many([b"9:before"] * 500)
        housekeeper = broker.statistics().housekeeper_pid
        os.kill(housekeeper, signal.SIGSTOP)
        try:
            end(victim)
            other = team.start("take", "consume")
            for number in range(5000):
                jobs.put(f"9:{number}".encode())
            while jobs.statistics().ready > 0:  # what the dead held is still `delivering`
                time.sleep(0.01)
        finally:
            os.kill(housekeeper, signal.SIGCONT)
        while (found := jobs.statistics()).acked < found.added:
            time.sleep(0.01)
        end(other)
        await_housekeeper(broker)
        assert_healthy(connection)


def stopped_with(process: subprocess.Popen[bytes], jobs: shmbroker.Queue) -> int:
    """Stops a consumer, the only one; how many messages it has in hand."""
    process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.001)
    return jobs.statistics().delivering
