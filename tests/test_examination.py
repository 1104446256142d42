# SPDX-License-Identifier: Apache-2.0
"""The doctor's visit at the end of each test does not overlook what is there."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from scenario_support import examination
from scenario_support.brokers import files
from scenario_support.memory import Memory
from scenario_support.processes import Actor

import shmbroker
import shmbroker.testing

if TYPE_CHECKING:
    import pytest


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
