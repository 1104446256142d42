# SPDX-License-Identifier: Apache-2.0
"""A process keeps nothing of names that are gone in its own memory: no object, and nothing of the compiled part.

This file is also the program whose memory is measured: no other test has left anything in it, or at work.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys

import pytest

import shmbroker

NAMES = 200  # of each turn
TURNS = 5  # of each third
LENGTH = 200  # bytes of a name: the names of a third of them would take more than twice the allowed memory
BLOCKS = NAMES * TURNS // 2  # of Python's
BYTES = BLOCKS * LENGTH // 2
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class MallocFacts(ctypes.Structure):
    """What mallinfo2 returns."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def allocated() -> tuple[int, int]:
    """How many blocks Python's allocator has given out, and how many bytes malloc has, where it says so."""
    gc.collect()
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return sys.getallocatedblocks(), 0
    mallinfo2.restype = MallocFacts
    facts = mallinfo2()
    return sys.getallocatedblocks(), facts.uordblks + facts.hblkhd


def least(found: list[tuple[int, int]]) -> tuple[int, int]:
    """The least of each."""
    return min(blocks for blocks, _ in found), min(size for _, size in found)


def a_queue(connection: shmbroker.Connection, name: str) -> None:
    """Through a handle."""
    with connection.queue(name) as queue:
        queue.put(b"x")
        queue.get(timeout=0).ack()
        queue.delete()


def a_queue_of_a_channel(connection: shmbroker.Connection, name: str) -> None:
    """Without a handle, by name, and a consumer with a tag."""
    with connection.channel() as channel:
        channel.queue_declare(name)
        channel.basic_publish("", name, b"x")
        channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        channel.basic_cancel(name)
        channel.queue_delete(name)


def an_exchange(connection: shmbroker.Connection, name: str) -> None:
    """With a binding by that name."""
    with connection.channel() as channel:
        channel.exchange_declare(name, "topic")
        channel.queue_bind("stays", name, name)
        channel.basic_publish(name, name, b"x")
        channel.queue_unbind("stays", name, name)
        channel.exchange_delete(name)
    assert connection.queue("stays").purge() == 1


def a_connection(connection: shmbroker.Connection, name: str) -> None:
    """Another one, which consumes."""
    with (
        shmbroker.connect(connection.broker_name, create=False, client_name=name) as other,
        other.queue("stays") as queue,
        queue.consume(),
    ):
        pass


USES = {use.__name__: use for use in (a_queue, a_queue_of_a_channel, an_exchange, a_connection)}


def main(broker: str, use: str) -> None:
    """Prints what is allocated after each turn."""
    with shmbroker.connect(broker) as connection:
        connection.queue("stays")
        found = []
        for turn in range(3 * TURNS + 1):
            for number in range(NAMES):
                USES[use](connection, f"{turn}-{number}-".ljust(LENGTH, "x"))
            found.append(allocated())
    sys.stdout.write(json.dumps(found))


@pytest.mark.parametrize("use", USES)
def test_a_process_keeps_nothing_of_a_name(broker: shmbroker.Broker, use: str) -> None:
    """However many names there were.

    What is kept for a while, as routes are, goes up and down: its least counts. A table that grows is one step: only
    who keeps names has more in the last third than in the second one, and there more than in the first.
    """
    run = subprocess.run([sys.executable, "-P", __file__, broker.name, use], stdout=subprocess.PIPE, check=True)
    found = json.loads(run.stdout)
    first, second, last = (least(found[third * TURNS + 1 :][:TURNS]) for third in range(3))
    for more, was, became, then in zip((BLOCKS, BYTES), first, second, last, strict=True):
        assert min(became - was, then - became) < more, found


if __name__ == "__main__":
    main(*sys.argv[1:])
