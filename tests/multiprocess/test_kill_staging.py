# SPDX-License-Identifier: Apache-2.0
"""Processes are killed while they stage and publish: each batch is in the target once, in full or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shmbroker
import shmbroker.testing
from shmbroker.staging import Stage, stages
from tests.multiprocess import staging_actors as actors

ACTORS = Path(__file__).with_name("staging_actors.py")
BATCH = 4096


def contents(queue: shmbroker.Queue) -> list[bytes]:
    """Everything in a queue, acknowledged; long bodies without what they are filled with."""
    found: list[bytes] = []
    while len(queue) > 0:
        batch = queue.get_many(BATCH, timeout=0)
        found += [bytes(message).rstrip(b"\0") for message in batch]
        batch.ack()
    return found


def expected(batches: int) -> list[bytes]:
    """The first so many batches, in order."""
    return [
        body.rstrip(b"\0")
        for batch in range(batches)
        for partition in range(actors.PARTITIONS)
        for body in actors.bodies(batch, partition)
    ]


def assert_healthy(connection: shmbroker.Connection) -> None:
    """The doctor finds nothing once the housekeeper has had its ticks."""
    until = time.monotonic() + 20
    while (words := connection.doctor()) and time.monotonic() < until:
        time.sleep(0.1)
    assert words == []


def assert_complete(connection: shmbroker.Connection, stage: Stage) -> int:
    """The target holds each batch up to the last one, each message once, in order; returns how many batches."""
    last = stage.published
    batches = 0 if last is None else last + 1
    out = connection.queue(actors.OUT)
    assert contents(out) == expected(batches)
    facts = out.statistics()
    assert facts.added == facts.acked == batches * actors.PARTITIONS * actors.COUNT
    return batches


@pytest.mark.timeout(900)
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("how", list(actors.AT_ONCE))
def test_killed_drivers(broker_name: str, tmp_path: Path, how: str, same: bool) -> None:  # noqa: FBT001
    """Two drivers of one query stage and publish, under different numbers or the same; again and again one is killed.

    What a driver was told to be published is in the target; each batch is there once. What is published at once is
    there in full as soon as the dead are reaped, what is moved is when somebody publishes again. Then nothing is left
    in the stage.
    """
    chance = random.Random(f"{how} {same}")
    with shmbroker.testing.broker(broker_name, memory="256M") as broker, broker.connect() as connection:
        connection.queue(actors.OUT)
        stage = Stage(connection, actors.PUBLICATION, at_once=actors.AT_ONCE[how])
        log = tmp_path / "log"
        log.touch()

        def start(worker: int) -> subprocess.Popen[bytes]:
            attempt = "7" if same else str(worker)
            return subprocess.Popen([sys.executable, str(ACTORS), "drive", broker_name, how, str(log), attempt])

        def await_growth(lines: int) -> None:
            begin = log.read_bytes().count(b"\n")
            while log.read_bytes().count(b"\n") < begin + lines:
                assert all(process.poll() is None for process in team)
                time.sleep(0.0001)

        team = [start(worker) for worker in range(2)]
        try:
            for worker in range(2, 16):
                await_growth(1 + chance.randrange(20))
                time.sleep(chance.random() / 200)
                victim = chance.randrange(2)
                team[victim].kill()
                team[victim].wait()
                team[victim] = start(worker)
            await_growth(3)
        finally:
            for process in team:
                process.kill()
                process.wait()
        while broker.statistics().process_count > 2:  # everybody dead has been reaped
            time.sleep(0.02)
        told = {int(line) for line in log.read_text().split()}
        if how == "at once":
            assert_complete_at_once(connection, stage)
        publish_next(stage)
        batches = assert_complete(connection, stage)
        assert told <= set(range(batches))
        assert stages(connection) == []
        assert_healthy(connection)


def assert_complete_at_once(connection: shmbroker.Connection, stage: Stage) -> None:
    """The batches are there in full, although nobody has gone on."""
    last = stage.published
    found = [bytes(message).rstrip(b"\0") for message in connection.queue(actors.OUT).browse()]
    assert found == expected(0 if last is None else last + 1)


def publish_next(stage: Stage) -> None:
    """One batch more; what was begun before is finished with it."""
    last = stage.published
    batch = 0 if last is None else last + 1
    stage.publish(batch, actors.staged(stage, batch, 99, {}), actors.OUT)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("how", "what"),
    [("at once", "found"), ("at once", "publish"), ("moved", "publish"), ("timed", "publish"), ("timed", "stage")],
)
def test_killed_at_each_step(broker_name: str, tmp_path: Path, how: str, what: str) -> None:
    """A driver dies at a step of staging or of publishing, the next one stages and publishes the same batch again.

    It publishes all of it, the rest of what was begun, or nothing, and the target has it once.
    """
    log = tmp_path / "log"
    log.touch()
    with shmbroker.testing.broker(broker_name, memory="256M") as broker, broker.connect() as connection:
        out = connection.queue(actors.OUT)
        command = [sys.executable, str(ACTORS), "step_by_step", broker_name, how, str(log), what]
        subprocess.run(command, check=True)
        counts = [int(line) for line in log.read_text().split()]
        whole = actors.PARTITIONS * actors.COUNT
        assert len(counts) > 10
        assert counts[0] == whole
        assert what == "stage" or counts[-1] == 0
        assert how != "at once" or set(counts) <= {0, whole}
        assert how != "moved" or not set(counts) <= {0, whole}
        assert contents(out) == expected(len(counts) + 1)
        assert out.statistics().added == (len(counts) + 1) * whole
        assert what == "found" or stages(connection) == []
        assert_healthy(connection)
