# SPDX-License-Identifier: Apache-2.0
"""Processes are killed in the middle of commits: a message is in all of its queues or in none, and so are its acks."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import shmbroker
import shmbroker.testing

ACTORS = Path(__file__).with_name("actors.py")
JOBS = 50_000
BATCH = 1024


def start(broker: str, count: int, log: Path, worker: int) -> subprocess.Popen[bytes]:
    """A process that commits for ever."""
    log.touch()
    return subprocess.Popen([sys.executable, str(ACTORS), "transact", broker, str(count), str(log), f"w{worker}"])


def await_growth(log: Path, lines: int) -> None:
    """Until somebody wrote so much more."""
    begin = log.read_bytes().count(b"\n")
    while log.read_bytes().count(b"\n") < begin + lines:
        time.sleep(0.001)


def drain(queue: shmbroker.Queue) -> Counter[str]:
    """Everything in a queue, acknowledged."""
    found: Counter[str] = Counter()
    while len(queue) > 0:
        batch = queue.get_many(BATCH, timeout=0)
        found.update(bytes(message).decode() for message in batch)
        batch.ack()
    return found


def assert_healthy(connection: shmbroker.Connection) -> None:
    """The doctor finds nothing once the housekeeper has had its ticks."""
    until = time.monotonic() + 20
    while (words := connection.doctor()) and time.monotonic() < until:
        time.sleep(0.1)
    assert words == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "kills", "lines"), [(3, 20, 200), (100, 12, 20)])
def test_killed_commits_happened_or_not(broker_name: str, tmp_path: Path, count: int, kills: int, lines: int) -> None:
    """Two processes publish to some queues, and acknowledge in transactions; again and again one is killed.

    Each queue has the same messages, each once; a commit that returned happened; a job is left exactly if its
    acknowledgement was not published; statistics add up and the doctor finds nothing.
    """
    chance = random.Random(count)
    with shmbroker.testing.broker(broker_name, memory="1G") as broker, broker.connect() as connection:
        jobs = connection.queue("jobs")
        targets = [connection.queue(f"t{place}") for place in range(count)]
        jobs.put_many([b"%d" % job for job in range(JOBS)])
        logs = [tmp_path / f"log-{worker}" for worker in range(kills + 2)]
        team = [start(broker_name, count, logs[worker], worker) for worker in range(2)]
        living = [0, 1]
        try:
            for worker in range(2, kills + 2):
                victim = chance.randrange(2)
                await_growth(logs[living[victim]], chance.randrange(lines))
                team[victim].kill()
                team[victim].wait()
                team[victim] = start(broker_name, count, logs[worker], worker)
                living[victim] = worker
            for worker in living:
                await_growth(logs[worker], 1)
        finally:
            for process in team:
                process.kill()
                process.wait()
        while broker.statistics().process_count > 2:  # everybody dead has been reaped
            time.sleep(0.02)
        returned = {line for log in logs for line in log.read_text().split("\n")[:-1]}
        check(jobs, targets, returned, len(logs))
        assert_healthy(connection)


def check(jobs: shmbroker.Queue, targets: list[shmbroker.Queue], returned: set[str], workers: int) -> None:
    """The oracle."""
    contents = [drain(target) for target in targets]
    assert all(content == contents[0] for content in contents)
    assert set(contents[0].values()) == {1}
    assert returned <= contents[0].keys()
    assert len(contents[0].keys() - returned) <= 2 * workers  # of each killed worker: what its last call published
    numbers = [body.partition(":") for body in contents[0] if ":" in body]
    pairs = Counter((worker, int(number) // 2) for worker, _, number in numbers)
    assert set(pairs.values()) == {2}  # two publications of one commit
    acked = {body.removeprefix("ack ") for body in contents[0] if body.startswith("ack ")}
    left = drain(jobs)
    assert set(left.values()) <= {1}
    assert left.keys() | acked == {str(job) for job in range(JOBS)}
    assert left.keys() & acked == set()
    for queue in (jobs, *targets):
        facts = queue.statistics()
        assert facts.added == facts.acked
        assert (facts.message_count, facts.delivering) == (0, 0)
    assert targets[0].statistics().added == len(contents[0])
