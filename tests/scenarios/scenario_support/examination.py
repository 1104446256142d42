# SPDX-License-Identifier: Apache-2.0
"""The doctor looks at a test's broker before its memory goes, and repairs that nothing explains are findings."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import shmbroker

if TYPE_CHECKING:
    import pytest

SECONDS_OF_PATIENCE = 240.0
PAUSE_SECONDS = 0.05  # asleep for most of the time: a process that is awake may explain what upkeep repairs


def before_purging(monkeypatch: pytest.MonkeyPatch, *, repairs: bool = False) -> list[str]:
    """Have every broker that this process purges examined first.

    Args:
        monkeypatch: Takes it back.
        repairs: Whether upkeep may have mended what nobody should have left so.

    Returns:
        Where the findings go; the brokers are purged all the same.
    """
    findings: list[str] = []
    stop = shmbroker.Broker.stop

    @functools.wraps(stop)
    def examined(broker: shmbroker.Broker, purge: bool = False) -> None:  # noqa: FBT001, FBT002 (as stop has it)
        if purge and broker.name in shmbroker.brokers():
            findings.extend(f"{broker.name}: {finding}" for finding in _at_rest(broker))
            if not repairs:
                findings.extend(f"{broker.name}: {finding}" for finding in _repaired(broker))
        stop(broker, purge)

    monkeypatch.setattr(shmbroker.Broker, "stop", examined)
    return findings


def _repaired(broker: shmbroker.Broker) -> list[str]:
    """Return how often upkeep mended what no stopped and no dead process explains."""
    try:
        seen = broker.statistics()
    except shmbroker.BrokerError:
        return []  # another process purges it, or it is damaged
    rescued = f"{seen.rescues} notifications came from the housekeeper's check alone"
    mended = f"upkeep mended what nobody should have left so: {seen.repairs}"
    return [rescued] * (seen.rescues > 0) + [mended] * (seen.repairs.total > 0)


def _at_rest(broker: shmbroker.Broker) -> list[str]:
    """Return what the doctor finds, and still finds when a housekeeper has cleared up after the dead."""
    try:
        with shmbroker.connect(broker.name, create=False, client_name="examination") as connection:
            found = connection.doctor()
            if found:
                broker.start()
            deadline = time.monotonic() + SECONDS_OF_PATIENCE
            while found and time.monotonic() < deadline:
                time.sleep(PAUSE_SECONDS)
                found = connection.doctor()
            return found
    except (shmbroker.ConnectionClosedByBroker, shmbroker.BrokerNotFound, shmbroker.Timeout):
        return []  # another process purges it, or began to
    except (shmbroker.BrokerError, shmbroker.OutOfMemory) as error:
        return [f"not examined: {error}"]
