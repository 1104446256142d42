# SPDX-License-Identifier: Apache-2.0
"""A broker whose connections, places of processes, or queues are all taken says so."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time

import pytest
from scenario_support.brokers import segment

import shmbroker
from shmbroker import broker as broker_module
from shmbroker._housekeeper import housekeeper
from shmbroker.exceptions import NotAllowed

CONNECTIONS = 4095
PROCESSES = 4096
QUEUES = 49_152
FIRST_PROCESS_LOCK = 64  # the byte of the first process slot in the lock file, see docs/reference/shm-format.md


@pytest.fixture
def no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has connect fail where it would wait before it tries again; other threads, py4j's among them, sleep as ever."""
    here, sleep = threading.get_ident(), time.sleep

    def fail_here(seconds: float) -> None:
        if threading.get_ident() != here:
            sleep(seconds)
            return
        message = f"connect sleeps for {seconds} s, to try again"
        raise AssertionError(message)

    monkeypatch.setattr(broker_module.time, "sleep", fail_here)


@pytest.mark.usefixtures("no_second_try")
def test_all_connections_are_taken(broker_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A connect is refused without a second try, with the limit and how many are open; a housekeeper prints that."""
    broker = shmbroker.Broker(broker_name, memory="256M").create()
    connections = [broker.connect() for _ in range(CONNECTIONS)]
    try:
        for connect in (broker.connect, lambda: shmbroker.connect(broker_name, create=False)):
            with pytest.raises(NotAllowed) as error:
                connect()
            assert error.value.code == 530
            for part in (
                repr(broker_name),
                f"{CONNECTIONS} connections",
                f"{CONNECTIONS} are open, {CONNECTIONS} of them",
            ):
                assert part in error.value.text
        assert housekeeper.main([broker_name]) == 1
        assert f"{CONNECTIONS} connections" in capsys.readouterr().err
        connections.pop().close()
        connections.append(broker.connect())
    finally:
        for one in connections:
            one.close()


@pytest.mark.usefixtures("no_second_try")
def test_all_places_of_processes_are_taken(broker_name: str) -> None:
    """A process more than there are places for is refused with the limit."""
    shmbroker.Broker(broker_name, memory="32M").create()
    with segment(broker_name, 0).with_suffix(".lock").open("r+b") as file:
        every = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, FIRST_PROCESS_LOCK, PROCESSES, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, every)
        with pytest.raises(NotAllowed, match=f"{broker_name}.* {PROCESSES} processes"):
            shmbroker.connect(broker_name, create=False)
    shmbroker.connect(broker_name, create=False).close()


def test_all_queues_are_declared(broker_name: str) -> None:
    """A queue more is refused with the limit and how many there are; after a deletion there is room for one."""
    with shmbroker.Broker(broker_name, memory="512M").create().connect() as connection:
        for number in range(QUEUES):
            queue = connection.queue(f"q{number}")
        with pytest.raises(NotAllowed, match=f"queue 'more' refused.* {QUEUES} queues, .* there are {QUEUES}") as error:
            connection.queue("more")
        assert error.value.code == 530
        queue.delete()
        connection.queue("more")
