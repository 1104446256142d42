# SPDX-License-Identifier: Apache-2.0
"""What a broker finds that begins with a folder: read with the modules of the store, or from a real broker.

    python -m tests.power_loss.recovery FOLDER

opens the store as a storekeeper does that begins, and closes it.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import NamedTuple

import shmbroker
from shmbroker._storekeeper import records
from shmbroker.storage import rows, verify
from shmbroker.storage.database import DATA, Database
from shmbroker.storage.reading import Reader
from shmbroker.storage.writer import Writer


class Found(NamedTuple):
    """A queue that came back.

    Attributes:
        max_priority: that setting.
        bodies: of its messages, those of each priority in the order of delivery.
    """

    max_priority: int
    bodies: list[bytes]


def read(folder: Path) -> dict[str, Found]:
    """The queues of a store, read by the modules that a broker begins with; the store is brought up to date by that.

    Raises:
        StoreError: the store is refused.
    """
    if (folder / DATA).exists():
        with Database(folder) as database:
            verify.walk(database)
    with (
        Database(folder, owner="a test") as database,
        contextlib.closing(Writer(database)),
        database.read() as transaction,
    ):
        reader, found = Reader(database, transaction), {}
        for number, encoded in reader.queues().items():
            record = records.decode(encoded)
            assert record.name not in found, f"queue {record.name!r} is there twice"
            found[record.name] = Found(record.settings.max_priority, _bodies(reader, number))
        return found


def _bodies(reader: Reader, number: int) -> list[bytes]:
    found = []
    for tail in reader.tails(number):
        for heads, bodies, ended in reader.in_order(number, tail >> rows.LANE_SHIFT << rows.LANE_SHIFT):
            found += [
                bytes(bodies[message.body : message.body + message.body_length])
                for message in rows.messages_of(heads)
                if not ended >> message.place & 1
            ]
    return found


def read_by_broker(name: str, folder: Path, queues: set[str]) -> dict[str, Found]:
    """The same queues, as the clients of a broker see them that begins with the folder. Its memory is removed then.

    Raises:
        StoreError: the store is refused.
    """
    broker = shmbroker.Broker(name, memory="128M", data_dir=folder, sync="always").create()
    try:
        found = {}
        with broker.connect() as connection:
            for one in queues:
                with contextlib.suppress(shmbroker.NotFound):
                    queue = connection.queue(one, passive=True)
                    found[one] = Found(queue.settings.max_priority, [bytes(message) for message in queue.browse()])
                    _put_again(queue)
                    queue.put(b"the store goes on", timeout=60)
            assert connection.doctor() == []
        return found
    finally:
        broker.stop(purge=True)


def _put_again(queue: shmbroker.Queue) -> None:
    """Puts each message that has a duplicate id once more: the queue knows the ids of all messages that it has."""
    ids = [one for message in queue.browse() if (one := message.headers.get("x-duplicate-id")) is not None]
    for one in ids:
        queue.put(b"again", duplicate_id=one, timeout=0)
    assert queue.statistics().duplicates == len(ids), f"queue {queue.name!r} has messages whose ids it does not know"


if __name__ == "__main__":
    read(Path(sys.argv[1]))
