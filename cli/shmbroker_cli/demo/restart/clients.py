# SPDX-License-Identifier: Apache-2.0
"""The producers and consumers, each a process: `python -m shmbroker_cli.demo.restart.clients ROLE BROKER NOTES`.

Each works until it is killed. A message is confirmed when it is on the disk. Consumers do not wait for the disk, so a
consumer learns from a receipt that its acknowledgements are there: it puts the receipt into a durable queue after it
acknowledged, and a put returns when all that came before it is on the disk.
"""

from __future__ import annotations

import itertools
import queue as standard_queue
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker_cli.demo.restart.notes import Notes
from shmbroker_cli.demo.restart.plan import (
    ARCHIVE,
    CREDITS,
    DEBITS,
    LEDGER,
    ORDERS,
    RANKED,
    RECEIPTS,
    body_of,
    number_in,
    priority_of,
)
from shmbroker_cli.demo_spark.parent import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 64  # messages
BACKLOG = 2_000  # ready messages of a queue at which its producer pauses
PAUSE = 0.01  # seconds
LEISURE = 0.05  # seconds between two batches of the archive's consumer, which is slower than its producer
LOOK = 0.5  # seconds: the longest wait for a message


def put_orders(connection: shmbroker.Connection, notes: Notes) -> None:
    """Put small messages, many with one call."""
    _put_many(connection.queue(ORDERS, passive=True), notes, BACKLOG)


def put_archive(connection: shmbroker.Connection, notes: Notes) -> None:
    """Put large messages, more than the memory has room for."""
    _put_many(connection.queue(ARCHIVE, passive=True), notes, sys.maxsize)


def _put_many(queue: shmbroker.Queue, notes: Notes, backlog: int) -> None:
    for first in itertools.count(0, BATCH):
        _await_room(queue, backlog)
        notes.write("put", queue.name, BATCH)
        notes.write("confirmed", queue.name, queue.put_many([body_of(queue.name, first + at) for at in range(BATCH)]))


def publish_ranked(connection: shmbroker.Connection, notes: Notes) -> None:
    """Publish messages with priorities, and wait for the confirms of a batch."""
    queue = connection.queue(RANKED, passive=True)
    with connection.channel() as channel:
        channel.confirm_delivery()
        for first in itertools.count(0, BATCH):
            _await_room(queue, BACKLOG)
            notes.write("put", RANKED, BATCH)
            for number in range(first, first + BATCH):
                properties = shmbroker.BasicProperties(priority=priority_of(RANKED, number))
                channel.basic_publish("", RANKED, body_of(RANKED, number), properties)
            if channel.wait_for_confirms():
                notes.write("confirmed", RANKED, BATCH)


def commit_transfers(connection: shmbroker.Connection, notes: Notes) -> None:
    """Publish a message to each of two queues, through an exchange, in one transaction."""
    with connection.channel() as channel:
        channel.tx_select()
        for number in itertools.count():
            for name in (DEBITS, CREDITS):
                notes.write("put", name, 1)
                channel.basic_publish(LEDGER, name, body_of(name, number))
            channel.tx_commit()
            for name in (DEBITS, CREDITS):
                notes.write("confirmed", name, 1)


def _await_room(queue: shmbroker.Queue, backlog: int) -> None:
    while len(queue) > backlog:
        time.sleep(PAUSE)


def take_orders(connection: shmbroker.Connection, notes: Notes) -> None:
    """Acknowledge small messages."""
    _take(connection, ORDERS, notes)


def take_ranked(connection: shmbroker.Connection, notes: Notes) -> None:
    """Acknowledge messages with priorities."""
    _take(connection, RANKED, notes)


def take_archive(connection: shmbroker.Connection, notes: Notes) -> None:
    """Acknowledge the oldest large messages, slowly."""
    _take(connection, ARCHIVE, notes, LEISURE)


def _take(connection: shmbroker.Connection, name: str, notes: Notes, leisure: float = 0.0) -> None:
    """Take messages, acknowledge every other one, return the rest, and wait until that is on the disk."""
    source, receipts = (connection.queue(one, passive=True) for one in (name, RECEIPTS))
    while True:
        try:
            messages = list(source.get_many(BATCH, timeout=LOOK))
        except standard_queue.Empty:
            continue
        done = [number_in(bytes(message)) for message in messages[::2]]
        notes.write("ack", name, *done)
        for message in messages[::2]:
            message.ack()
        for message in messages[1::2]:
            message.nack()
        receipts.put(f"{name}: {len(done)}".encode("ascii"))
        notes.write("synced", name, *done)
        time.sleep(leisure)


ROLES: dict[str, Callable[[shmbroker.Connection, Notes], None]] = {
    "producer-orders": put_orders,
    "producer-archive": put_archive,
    "producer-ranked": publish_ranked,
    "producer-transfers": commit_transfers,
    "consumer-orders": take_orders,
    "consumer-ranked": take_ranked,
    "consumer-archive": take_archive,
}


def main(role: str, broker: str, path: str) -> None:
    """Work until the process is killed, or the one that started it ends.

    Args:
        role: One of `ROLES`.
        broker: The name of the broker.
        path: The file for the notes.
    """
    end_with_parent()
    with Notes(Path(path)) as notes, shmbroker.connect(broker, create=False) as connection:
        ROLES[role](connection, notes)


if __name__ == "__main__":
    main(*sys.argv[1:])
