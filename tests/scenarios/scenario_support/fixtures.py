# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the scenario, unit and property tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import shmbroker
from scenario_support.brokers import files
from scenario_support.nursery import nursery
from scenario_support.waiting import becomes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker(broker_name: str) -> Iterator[shmbroker.Broker]:
    """Run a broker, purge it at the end, and see that nothing stays behind."""
    running = nursery().start(shmbroker.Broker(broker_name))
    try:
        yield running
    finally:
        running.stop(purge=True)
    assert files(broker_name) == []


@pytest.fixture
def connection(broker: shmbroker.Broker) -> Iterator[shmbroker.Connection]:
    """Connect to the broker; at the end everything must be found healthy.

    It becomes so: at the end of the test the dead may not be reaped yet, and what was
    deleted not cleared away.
    """
    with broker.connect() as opened:
        yield opened
        becomes(opened.doctor, [])


@pytest.fixture
def queue(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Declare a queue with default settings."""
    return connection.queue("q")


@pytest.fixture
def channel(connection: shmbroker.Connection) -> shmbroker.Channel:
    """Open a channel; its connection closes it."""
    return connection.channel()


@pytest.fixture
def other(broker: shmbroker.Broker) -> Iterator[shmbroker.Connection]:
    """Connect to the broker a second time."""
    with broker.connect() as opened:
        yield opened
