# SPDX-License-Identifier: Apache-2.0
"""The doctor's visit at the end of each test does not overlook what is there."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
from scenario_support import examination
from scenario_support.brokers import files
from scenario_support.memory import Memory
from scenario_support.processes import Actor
from scenario_support.waiting import becomes

import shmbroker
import shmbroker.statistics
import shmbroker.testing


def test_damage_is_reported_and_the_broker_is_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong before a purge is kept for the end of the test; the memory goes all the same."""
    monkeypatch.setattr(examination, "SECONDS_OF_PATIENCE", 0.0)
    findings = examination.before_purging(monkeypatch)
    with shmbroker.testing.broker() as broker, broker.connect() as connection:
        connection.queue("jobs").put(b"x")
        memory = Memory(broker.name)
        memory.ledger("jobs").counters[memory.lib.SB_COUNT_ADDED] += 1
    assert findings == [f"{broker.name}: queue 'jobs': its counters say 2 messages are ready, its cells 1"]
    assert files(broker.name) == []


def test_the_dead_are_cleared_up_after_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody left who was killed, and whom nobody has reaped, is not damage: a housekeeper sees to it."""
    findings = examination.before_purging(monkeypatch)
    with shmbroker.testing.broker() as broker, broker.connect() as connection:
        connection.queue("jobs").put(b"x")
        with Actor(broker.name) as client:
            client.do("get", queue="jobs")
            client.stop()
            broker.stop()
            os.kill(client.pid, signal.SIGKILL)
    assert findings == []


def test_what_is_not_there_is_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second purge has nothing to look at."""
    findings = examination.before_purging(monkeypatch)
    with shmbroker.testing.broker() as broker:
        broker.stop(purge=True)
    assert findings == []


@pytest.mark.parametrize("kind", [field.name for field in dataclasses.fields(shmbroker.statistics.Repairs)])
def test_a_repair_that_nothing_explains_is_reported(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each kind is a finding, unless the test may bring it about, or a death or a stop explains it."""
    allowed = examination.before_purging(monkeypatch, repairs=True)
    reported = examination.before_purging(monkeypatch)
    number = [field.name for field in dataclasses.fields(shmbroker.statistics.Repairs)].index(kind)
    with shmbroker.testing.broker() as broker, broker.connect() as connection:
        connection.queue("jobs")
        memory = Memory(broker.name)
        memory.header.explained_repairs[number] += 1
        assert getattr(broker.statistics().explained_repairs, kind) == 1
        memory.header.repairs[number] += 2
        assert broker.statistics().repairs.total == 2
    assert reported == [f"{broker.name}: upkeep mended what nobody should have left so: 2 {kind}"]
    assert allowed == []


def test_upkeep_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that was wrong is right again when the doctor looks, and is a finding all the same."""
    findings = examination.before_purging(monkeypatch)
    with shmbroker.testing.broker() as broker:
        with broker.connect() as connection:
            connection.queue("jobs")
        with Actor(broker.name) as client:
            client.do("consume", queue="jobs", prefetch=1)
            memory = Memory(broker.name)
            queue = memory.queue("jobs")
            while not broker.statistics().repairs.counts:  # unless the client was awake when it was looked at
                queue.interested -= 1
                becomes(lambda: queue.interested, 1)
    assert findings == [f"{broker.name}: upkeep mended what nobody should have left so: 1 counts"]


def test_a_rescue_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The housekeeper's check mended what somebody forgot; unless the test may do that, it is a finding."""
    allowed = examination.before_purging(monkeypatch, repairs=True)
    reported = examination.before_purging(monkeypatch)
    with shmbroker.testing.broker() as broker, broker.connect() as connection:
        connection.queue("jobs")
        memory = Memory(broker.name)
        memory.header.rescues += 1
    assert reported == [f"{broker.name}: 1 notifications came from the housekeeper's check alone"]
    assert allowed == []
