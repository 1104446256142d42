# SPDX-License-Identifier: Apache-2.0
"""Users of consumer groups are killed and stopped: nothing is lost, nothing is twice, a lease stays what it was."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from scenario_support.waiting import becomes

import shmbroker
import shmbroker.testing

ACTORS = Path(__file__).with_name("group_actors.py")
FENCED = 3
MESSAGES = [b"%d" % number for number in range(10)]
KILLS, STOPS = 25, 12
EACH = 800  # messages that are published before a query starts: more than it is waited for


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts an actor."""
    return subprocess.Popen([sys.executable, str(ACTORS), *arguments])


def own(connection: shmbroker.Connection) -> list[str]:
    """The broker's own queues."""
    return [name for name in connection.queue_names(all=True) if name.startswith("amq.")]


def bodies(group: shmbroker.Group, number: int) -> list[bytes]:
    """What is in a lease."""
    return [bytes(message) for message in group.messages(number)]


def left(group: shmbroker.Group) -> list[bytes]:
    """All that is leased and not acknowledged, and all that can be leased."""
    group.attach()
    number = group.leased
    while (following := group.lease(number)) != number:
        number = following
    return [body for one in range(group.acked + 1, group.leased + 1) for body in bodies(group, one)]


def check_killed(connection: shmbroker.Connection, log: Path) -> None:
    """The oracle for one who was killed at a line."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    leased = {int(line[1]): [body.encode() for body in line[2:]] for line in lines if line[0] == "leased"}
    said = {line[0] for line in lines}
    group = shmbroker.Group(connection, "jobs", "g")
    group.attach()
    if "releasing" not in said:  # else the group may have begun anew
        assert group.acked in ({1} if "acked" in said else {0, 1} if "acking" in said else {0})
        assert group.leased >= max(leased, default=0)
        for number in range(group.acked + 1, max(leased, default=0) + 1):
            assert bodies(group, number) == leased[number]
    acked = leased[1] if group.acked == 1 or "acked" in said or "releasing" in said else []
    assert Counter(left(group) + acked) == Counter(MESSAGES)
    group.release()
    assert [name for name in own(connection) if len(connection.queue(name, passive=True)) > 0] == []
    assert len(own(connection)) <= 1  # one that was made, and not named in the register yet


@pytest.mark.timeout(1800)
def test_killed_at_a_line(broker_name: str, tmp_path: Path) -> None:
    """One user attaches, leases, acknowledges and releases; it is killed at lines from the first to the last."""
    chance = random.Random(5)
    line, ended = 1, False
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        while not ended:
            connection.queue("jobs").put_many(MESSAGES)
            log = tmp_path / f"log-{line}"
            process = start("step", broker_name, str(log), str(line))
            ended = process.wait() == 0
            assert ended or process.returncode == -signal.SIGKILL
            becomes(lambda: broker.statistics().process_count, 2)  # ours and the housekeeper's: the dead is reaped
            check_killed(connection, log)
            for name in ("jobs", *own(connection)):
                connection.queue(name, passive=True).delete()
            becomes(connection.doctor, [])
            line += chance.randrange(9, 27)
    assert line > 300  # it did have lines


def publish(broker: shmbroker.Broker, turn: int) -> None:
    """The messages of a turn."""
    with broker.connect() as connection:
        connection.queue("jobs").put_many([b"%d" % number for number in range(turn * EACH, (turn + 1) * EACH)])


def check_notes(notes: Path, connection: shmbroker.Connection, turns: int) -> None:
    """What was written out is everything, once."""
    written = [body for path in notes.glob("*.out") for body in path.read_bytes().splitlines()]
    assert Counter(written) == Counter(b"%d" % number for number in range(turns * EACH))
    numbers = sorted(int(path.stem) for path in notes.glob("*.done"))
    assert numbers == list(range(1, len(numbers) + 1))
    group = shmbroker.Group(connection, "jobs", "g")
    assert (group.acked, group.leased) == (len(numbers), len(numbers))


def run(broker: shmbroker.Broker, notes: Path, turn: int, *, until: int) -> subprocess.Popen[bytes]:
    """Publishes, and starts a query that waits for more; returns when it has written out so many leases."""
    begin = len(list(notes.glob("*.done")))
    publish(broker, turn)
    process = start("query", broker.name, str(notes), str(turn), "wait")
    while len(list(notes.glob("*.done"))) < begin + until and process.poll() is None:
        time.sleep(0.001)
    return process


@pytest.mark.timeout(900)
def test_killed_queries_write_everything_once(broker_name: str, tmp_path: Path) -> None:
    """A query is killed at any time, and started again from its notes."""
    chance = random.Random(7)
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        for kill in range(KILLS):
            process = run(broker, tmp_path, kill, until=chance.randrange(4))
            time.sleep(chance.random() * 0.01)
            process.kill()
            assert process.wait() == -signal.SIGKILL
        publish(broker, KILLS)
        assert start("query", broker_name, str(tmp_path), "last", "end").wait() == 0
        check_notes(tmp_path, connection, KILLS + 1)
        becomes(lambda: broker.statistics().process_count, 2)
        group = shmbroker.Group(connection, "jobs", "g")
        group.attach()
        assert group.release() == 0
        becomes(connection.doctor, [])


def stop(process: subprocess.Popen[bytes], broker: shmbroker.Broker) -> None:
    """Stops it, but not while it has the topology lock, which it would keep: then nobody makes or deletes a queue."""
    with broker.connect(operation_timeout=0.2) as connection:
        while True:
            process.send_signal(signal.SIGSTOP)
            try:
                connection.queue("probe").delete()
            except shmbroker.Timeout:
                process.send_signal(signal.SIGCONT)
            else:
                return


@pytest.mark.timeout(900)
def test_stopped_queries_that_go_on_change_nothing(broker_name: str, tmp_path: Path) -> None:
    """A query is stopped at any time, another one takes over, then the first goes on: it is fenced."""
    chance = random.Random(11)
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        team: list[subprocess.Popen[bytes]] = []
        try:
            for turn in range(STOPS):
                team.append(run(broker, tmp_path, turn, until=1 + chance.randrange(3)))
                time.sleep(chance.random() * 0.01)
                stop(team[-1], broker)
                if turn > 0:
                    team[-2].send_signal(signal.SIGCONT)
                    assert team[-2].wait() == FENCED
            team.append(run(broker, tmp_path, STOPS, until=1))
            team[-2].send_signal(signal.SIGCONT)
            assert team[-2].wait() == FENCED
            assert start("query", broker_name, str(tmp_path), "last", "end").wait() == 0
            assert team[-1].wait() == FENCED
        finally:
            for process in team:
                process.kill()
                process.wait()
        check_notes(tmp_path, connection, STOPS + 1)
        becomes(connection.doctor, [])
