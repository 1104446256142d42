# SPDX-License-Identifier: Apache-2.0
"""Brokers: names, settings, their start and their end."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import files, running
from scenario_support.observing import take, text
from scenario_support.processes import ActorError, actors
from scenario_support.waiting import eventually

import shmbroker
import shmbroker.testing
from shmbroker.exceptions import (
    BrokerNotFound,
    ConnectionClosedByBroker,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BAD_NAMES = ["", "a" * 65, "a b", "a/b", "../a", "a.b", "ä", "a\0b", "a\n", "a:b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_outside_the_rules_is_refused(name: str) -> None:
    """A broker's name is 1 to 64 of A-Z a-z 0-9 _ and -."""
    with pytest.raises(ValueError, match="name"):
        shmbroker.Broker(name).start()
    with pytest.raises(ValueError, match="name"):
        shmbroker.connect(name)


@pytest.mark.parametrize("name", [None, 7, b"bytes"])
def test_a_name_is_text(name: object) -> None:
    """A broker's name is a str."""
    with pytest.raises((TypeError, ValueError)):
        shmbroker.connect(name)


def test_a_name_of_full_length_is_accepted(broker_name: str) -> None:
    """Sixty-four characters of every allowed kind do."""
    name = f"{broker_name}-_aZ9".ljust(64, "x")[:64]
    with shmbroker.testing.broker(name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    assert files(name) == []


@pytest.mark.parametrize("memory", [0, -1, "", "x", "12X", "-1M", 1.5, None])
def test_a_bad_amount_of_memory_is_refused(broker_name: str, memory: object) -> None:
    """Memory is a positive number of bytes or a string such as "256M"."""
    with pytest.raises(ValueError, match="memory"):
        shmbroker.Broker(broker_name, memory=memory).start()
    assert files(broker_name) == []


def test_a_broker_with_other_settings_is_refused(broker_name: str) -> None:
    """A second start must agree with what runs; with the same settings it may."""
    with running(broker_name, "64M") as broker:
        with pytest.raises(PreconditionFailed, match="memory"):
            shmbroker.Broker(broker_name, memory="128M").start()
        with shmbroker.Broker(broker_name, memory="64M") as again:
            assert again.statistics().memory_limit == 64 * 2**20
        assert broker.statistics().memory_limit == 64 * 2**20


def test_no_broker_is_made_unless_asked(broker_name: str) -> None:
    """connect(create=False) to a broker that is not there fails and leaves nothing."""
    with pytest.raises(BrokerNotFound, match=broker_name):
        shmbroker.connect(broker_name, create=False)
    assert files(broker_name) == []


def test_connect_makes_the_broker(broker_name: str) -> None:
    """connect() makes a broker with defaults where there is none."""
    with shmbroker.connect(broker_name) as connection:
        connection.queue("q").put(b"A")
        with shmbroker.connect(broker_name, create=False) as other:
            assert take(other.queue("q"), 1) == ["A"]
    shmbroker.Broker(broker_name).stop(purge=True)
    assert files(broker_name) == []


def test_messages_outlive_the_brokers_processes(broker_name: str) -> None:
    """The end of `with Broker` keeps the memory; purge gives it back."""
    with shmbroker.Broker(broker_name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    assert files(broker_name) != []
    with shmbroker.Broker(broker_name) as broker:
        with broker.connect() as connection:
            queue = connection.queue("q", passive=True)
            assert take(queue, 1) == ["A"]
            assert connection.doctor() == []
        broker.stop(purge=True)
        broker.stop(purge=True)
    assert files(broker_name) == []


def test_stop_leaves_the_clients_alone(broker_name: str) -> None:
    """stop() ends the broker's processes only: clients go on with their messages."""
    with running(broker_name, "64M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        broker.stop()
        for number in range(100):
            queue.put(f"{number}".encode())
        assert take(queue, 100) == [f"{number}" for number in range(100)]
        queue.put(b"late", delay=0.2)
        broker.start()
        assert take(queue, 1) == ["late"]
        assert connection.doctor() == []


def test_a_killed_housekeeper_is_replaced(broker: shmbroker.Broker) -> None:
    """Without the housekeeper messages flow; another takes over and does its work."""
    with broker.connect() as connection:
        queue = connection.queue("q")
        pid = eventually(lambda: broker.statistics().housekeeper_pid)
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        queue.put(b"A")
        assert take(queue, 1) == ["A"]
        queue.put(b"late", delay=0.3)
        assert take(queue, 1) == ["late"]
        eventually(lambda: broker.statistics().housekeeper_pid not in (0, pid))
        assert connection.doctor() == []


def waiting_get(queue: shmbroker.Queue) -> object:
    """Get without end."""
    return queue.get()


def waiting_consumer(queue: shmbroker.Queue) -> object:
    """Consume without end."""
    return queue.consume().get(timeout=None)


def waiting_put(queue: shmbroker.Queue) -> object:
    """Put into a full queue without end."""
    queue.put(b"A")
    return queue.put(b"B")


@pytest.mark.parametrize("wait", [waiting_get, waiting_consumer, waiting_put])
def test_purge_ends_the_waiting_of_clients(broker_name: str, wait: Callable[[shmbroker.Queue], object]) -> None:
    """stop(purge=True): who waits gets ConnectionClosedByBroker 320, at once."""
    errors: list[BaseException] = []
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q", max_length=1)

        def client() -> None:
            try:
                wait(queue)
            except BaseException as error:  # noqa: BLE001 (it is what we look at)
                errors.append(error)

        thread = threading.Thread(target=client)
        thread.start()
        with broker.connect() as observer:
            if wait is waiting_put:
                eventually(lambda: observer.queue("q").statistics().ready == 1)
            else:
                eventually(lambda: observer.consumers("q"))
        broker.stop(purge=True)
        thread.join()
        assert [type(error) for error in errors] == [ConnectionClosedByBroker]
        assert errors[0].code == 320
        connection.close()
    assert files(broker_name) == []


def test_purge_closes_the_connections(broker_name: str) -> None:
    """After a purge every use of a connection says so, in this process and others."""
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q")
        with actors(broker_name, 1) as (client,):
            client.do("put", queue="q", bodies=["A"])
            client.begin("get", queue="q", count=2)
            eventually(lambda: queue.statistics().delivering == 1)
            broker.stop(purge=True)
            with pytest.raises(ActorError, match="ConnectionClosedByBroker"):
                client.result()
            with pytest.raises(ActorError, match="ConnectionClosedByBroker"):
                client.do("put", queue="q", bodies=["B"])
        for use in (lambda: queue.put(b"B"), queue.get_nowait, queue.statistics):
            with pytest.raises(ConnectionClosedByBroker) as end:
                use()
            assert end.value.code == 320
        eventually(lambda: not connection.is_open)
        connection.close()
    assert files(broker_name) == []


def test_a_body_stays_readable_after_the_purge(broker_name: str) -> None:
    """A view of a body keeps its memory although the broker is gone."""
    body = bytes(range(256)) * 4096
    with shmbroker.testing.broker(broker_name) as broker:
        connection = broker.connect()
        queue = connection.queue("q")
        queue.put(body)
        view = queue.get().body
        broker.stop(purge=True)
        assert files(broker_name) == []
        assert bytes(view) == body
        connection.close()
        assert bytes(view) == body


def test_a_name_can_be_used_again_after_a_purge(broker_name: str) -> None:
    """A new broker of the same name has nothing of the old one."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        connection.queue("q").put(b"A")
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        queue = connection.queue("q")
        assert len(queue) == 0
        queue.put(b"B")
        assert text(queue.get()) == "B"
