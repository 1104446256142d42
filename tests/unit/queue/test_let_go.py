# SPDX-License-Identifier: Apache-2.0
"""Handles of queues that others deleted: a connection lets go of them by itself."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest
from scenario_support.inside import core_of
from scenario_support.layout import compiled
from scenario_support.memory import Memory
from scenario_support.waiting import becomes, eventually

from shmbroker._core.queue import CoreQueue
from shmbroker.exceptions import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

QUEUES = 200
OTHERS = 65536  # bytes: what is there besides, such as the housekeeper's own accounts


def let_go(broker: shmbroker.Broker, before: int) -> None:
    """Waits until the memory of the deleted queues, some KiB each, is free."""
    eventually(lambda: used_by(broker) <= before + OTHERS, "the memory of the deleted queues")


def used_by(broker: shmbroker.Broker) -> int:
    """The bytes in use."""
    return broker.statistics().memory_used


def delete_all(connection: shmbroker.Connection, names: list[str]) -> None:
    """Deletes the queues."""
    for name in names:
        connection.queue(name, passive=True).delete()


OPERATIONS: list[Callable[[shmbroker.Queue], object]] = [
    lambda stays: stays.put(b"x"),
    lambda stays: stays.get(timeout=0).ack(),
    lambda stays: stays.get(timeout=0, auto_ack=True),
    lambda stays: list(stays.browse()),
    lambda stays: stays.purge(),
]


@pytest.mark.parametrize("operate", OPERATIONS, ids=["put", "get and ack", "auto_ack", "browse", "purge"])
def test_an_operation_lets_go(
    broker: shmbroker.Broker,
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    operate: Callable[[shmbroker.Queue], object],
) -> None:
    """A connection without an IO thread lets go of deleted queues in its next operations, whatever those are."""
    stays = other.queue("stays")
    stays.put_many([b"x"] * 20)
    operate(stays)
    before = used_by(broker)
    names = [f"gone-{n}" for n in range(QUEUES)]
    kept = [other.queue(name) for name in names]
    for queue in kept:
        queue.put(b"x")
    delete_all(connection, names)
    for _ in range(QUEUES // 64 + 1):  # each looks at some of the handles
        operate(stays)
    let_go(broker, before)
    for queue in kept:
        with pytest.raises(NotFound):
            queue.put(b"x")
        with pytest.raises(NotFound):
            len(queue)


def test_the_io_thread_lets_go(
    broker: shmbroker.Broker, connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """A connection that consumes, and does nothing else, lets go by itself."""
    with other.queue("stays").consume(prefetch=1):
        before = used_by(broker)
        names = [f"gone-{n}" for n in range(QUEUES)]
        kept = [other.queue(name) for name in names]
        delete_all(connection, names)
        let_go(broker, before)
        assert len(kept) == QUEUES


def test_a_channel_lets_go(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A server that answers to reply queues of others keeps nothing of those that are gone."""
    server = connection.channel()
    server.queue_declare("rpc")
    before = used_by(broker)
    for number in range(QUEUES):
        with broker.connect() as client:
            channel = client.channel()
            replies = channel.queue_declare("", exclusive=True).queue
            server.basic_publish("", replies, b"%d" % number)
            assert channel.basic_get(replies, auto_ack=True) is not None
    server.basic_publish("", "rpc", b"x")
    assert server.basic_get("rpc", auto_ack=True) is not None
    let_go(broker, before)
    gc.collect()
    queues = [one for one in gc.get_objects() if type(one) is CoreQueue]  # isinstance would ask dead proxies, too
    assert sum(one.connection is core_of(connection) for one in queues) < QUEUES


def published_to(other: shmbroker.Connection) -> Callable[[str], None]:
    """A channel of the connection publishes to a queue, of which it needs no handle."""
    channel = other.channel()
    return lambda name: channel.basic_publish("", name, b"x")


def closed_while_held(other: shmbroker.Connection) -> Callable[[str], None]:
    """The connection closes its handle of a queue before it settles what it took through it."""

    def use(name: str) -> None:
        with other.queue(name, passive=True) as queue:
            queue.put(b"x")
            message = queue.get(timeout=0)
        message.ack()

    return use


@pytest.mark.parametrize("way", [published_to, closed_while_held])
def test_a_process_forgets_what_is_gone(
    connection: shmbroker.Connection,
    other: shmbroker.Connection,
    way: Callable[[shmbroker.Connection], Callable[[str], None]],
) -> None:
    """A connection keeps no object in the memory of its process for each queue that it used and another one deleted."""
    use = way(other)
    for number in range(QUEUES):
        with connection.queue(f"gone-{number}") as queue:
            use(queue.name)
            queue.delete()
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is CoreQueue and one.connection is core_of(other)]
    assert len(kept) < QUEUES


def test_what_is_held_keeps_the_handle(
    broker: shmbroker.Broker, connection: shmbroker.Connection, other: shmbroker.Connection
) -> None:
    """A message of a deleted queue can still be settled; then the handle goes."""
    stays = other.queue("stays")
    before = used_by(broker)
    names = [f"gone-{n}" for n in range(QUEUES)]
    messages = []
    for name in names:
        gone = other.queue(name)
        gone.put(b"x")
        messages.append(gone.get(timeout=0))
    delete_all(connection, names)
    for message in messages:
        assert message.body == b"x"
        stays.put(b"x")
        stays.get(timeout=0).ack()
        message.ack()

    def used() -> int:
        stays.put(b"x")
        stays.get(timeout=0).ack()
        return used_by(broker)

    eventually(lambda: used() <= before + OTHERS, "the memory of the deleted queues")


def test_threads_that_use_it(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Threads of a connection browse, get, count and put while others delete the queue: NotFound at worst."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def use(operate: Callable[[shmbroker.Queue], object]) -> None:
        while not ended.is_set():
            try:
                queue = other.queue("comes and goes")
                queue.put(b"x" * 5000)
                operate(queue)
            except NotFound:
                pass
            except BaseException as error:  # noqa: BLE001 (it is what we look at)
                failures.append(error)
                return

    def get(queue: shmbroker.Queue) -> None:
        for message in queue.get_many(3, timeout=None):
            message.ack()

    operations: list[Callable[[shmbroker.Queue], object]] = [lambda queue: list(queue.browse()), len, get]
    threads = [threading.Thread(target=use, args=(operate,)) for operate in operations]
    for thread in threads:
        thread.start()
    for _ in range(300):
        connection.queue("comes and goes").delete()
    ended.set()
    connection.queue("comes and goes").delete()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_directory_forgets_names(
    broker: shmbroker.Broker, broker_name: str, connection: shmbroker.Connection
) -> None:
    """Names that are gone do not make the search for others longer: their entries are empty again."""
    lib = compiled().lib
    for _ in range(3):
        for number in range(QUEUES):
            connection.queue(f"name-{number}").delete()
    memory = Memory(broker_name)

    def states() -> set[int]:
        return {memory.directory[at] & 3 for at in range(lib.SB_DIRECTORY_SIZE)}

    becomes(states, {lib.SB_DIR_EMPTY})
    assert broker.statistics().queue_count == 0
