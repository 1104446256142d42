# SPDX-License-Identifier: Apache-2.0
"""What a lease may have where memory is scarce."""

from __future__ import annotations

import contextlib

import pytest

import shmbroker
from shmbroker.leasing.room import scarce_bytes

MIB = 1 << 20


def fill(queue: shmbroker.Queue) -> None:
    """Until a plain put finds no memory."""
    for size in (64 * 1024, 4096):
        with contextlib.suppress(shmbroker.OutOfMemory):
            while True:
                queue.put(bytes(size), timeout=0)


def test_a_broker_that_grows_has_no_bound(broker_name: str) -> None:
    """What the limit allows and is not there yet is room."""
    with shmbroker.Broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        connection.queue("q").put(b"x")
        assert scarce_bytes(connection) is None


@pytest.mark.parametrize(("memory", "least"), [("32M", MIB // 4), ("64M", MIB // 2)])
def test_a_full_broker_leaves_what_its_reserve_has_for_leases(broker_name: str, memory: str, least: int) -> None:
    """The 128th part of the memory, 1 MiB at most; a third of what is free as soon as there is more."""
    with shmbroker.Broker(broker_name, memory=memory) as broker, broker.connect() as connection:
        queue = connection.queue("q")
        fill(queue)
        scarce = scarce_bytes(connection)
        assert isinstance(scarce, int)
        assert least <= scarce <= 3 * MIB
        queue.purge()
        free = scarce_bytes(connection)
        assert isinstance(free, int)
        assert scarce < free <= broker.statistics().memory_limit // 3


def test_a_queue_that_may_be_in_the_store_has_a_bound(broker_name: str) -> None:
    """To lease its messages is to bring them into the memory: a third of what is free there, also while it can grow."""
    with shmbroker.Broker(broker_name, memory="64M") as broker, broker.connect() as connection:
        connection.queue("q").put(b"x")
        scarce = scarce_bytes(connection, stored=True)
        assert scarce is not None
        assert 10 * MIB < scarce < 22 * MIB
