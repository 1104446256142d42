# SPDX-License-Identifier: Apache-2.0
"""A queue's handle goes to other processes, and is the same queue there."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
from scenario_support import pickled
from scenario_support.observing import assert_balanced, assert_counts, take

import shmbroker
import shmbroker.testing
from shmbroker.exceptions import BrokerNotFound, NotFound


def copied(queue: shmbroker.Queue) -> shmbroker.Queue:
    """Return what comes out of a pickle of the handle."""
    copy: shmbroker.Queue = pickle.loads(pickle.dumps(queue))  # noqa: S301 (our own)
    return copy


def test_a_copy_is_the_same_queue(connection: shmbroker.Connection, broker_name: str) -> None:
    """What is put through one handle is got through the other; settings stay."""
    queue = connection.queue("q", ring_size=2)
    other = copied(queue)
    for body in (b"A", b"B", b"C"):
        other.put(body)
    assert take(queue, 2) == ["B", "C"]
    assert other.name == "q"
    assert broker_name in repr(other)


def test_copies_share_one_connection(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """All that is loaded in a process goes over one connection of that process."""
    queues = [connection.queue(f"q{number}") for number in range(5)]
    before = broker.statistics().connection_count
    copies = [copied(queue) for queue in queues for _ in range(3)]
    assert broker.statistics().connection_count <= before + 1
    assert len(copies) == 15


def test_a_copy_declares_nothing(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Loading re-attaches passively: a queue that is gone is NotFound."""
    queue = connection.queue("q")
    data = pickle.dumps(queue)
    queue.delete()
    with pytest.raises(NotFound):
        pickle.loads(data)  # noqa: S301 (our own)
    assert broker.statistics().queue_count == 0


def test_a_copy_makes_no_broker(broker_name: str) -> None:
    """Loading where the broker is gone is BrokerNotFound."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        data = pickle.dumps(connection.queue("q"))
    with pytest.raises(BrokerNotFound):
        pickle.loads(data)  # noqa: S301 (our own)


def test_a_copy_after_the_broker_was_made_anew(broker_name: str) -> None:
    """A purged broker of the same name made again: loading goes to the new one."""
    for body in (b"of the first", b"of the second"):
        with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
            queue = connection.queue("q")
            copied(queue).put(body)
            assert bytes(queue.get(auto_ack=True)) == body


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_queue_as_argument_of_a_process(connection: shmbroker.Connection, method: str) -> None:
    """A queue passed to a process of multiprocessing works there."""
    requests, replies = connection.queue("requests"), connection.queue("replies")
    context = multiprocessing.get_context(method)
    process = context.Process(target=pickled.answer, args=(requests, replies, 10))
    process.start()
    try:
        for number in range(10):
            requests.put(f"{number}".encode())
            assert take(replies, 1) == [f"{number}{number}"]
        process.join()
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        process.close()
    assert_counts(requests, message_count=0, acked=10)
    assert_balanced(replies)
