# SPDX-License-Identifier: Apache-2.0
"""The queues and the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.roles import Role

if TYPE_CHECKING:
    import shmbroker

PLAIN, SECOND, DEEP = "plain", "second", "deep"
QUEUES = (PLAIN, SECOND, DEEP)
FLOWING = (PLAIN, SECOND)
MEMORY = "64M"
DEPTH = 4000  # messages that the deep queue has, of 13 KiB each on average: its reader takes only what is above
MOST = 5000  # its producer pauses

CAST = (
    Role("producer", (PLAIN,)),
    Role("producer", (PLAIN,)),
    Role("producer", (SECOND,)),
    Role("producer", (PLAIN, SECOND)),
    Role("filler", (DEEP,)),
    Role("filler", (DEEP,)),
    Role("taker", (PLAIN,)),
    Role("taker", (PLAIN,)),
    Role("taker", (SECOND,)),
    Role("taker", (SECOND, PLAIN)),
    Role("drainer", (DEEP,)),
    Role("looker", (PLAIN, SECOND, DEEP)),
    Role("visitor", (PLAIN, DEEP)),
    Role("forker", (PLAIN, SECOND)),
)
ACTS = {
    "kill": 50,
    "interrupt": 10,
    "stop": 35,
    "kill housekeeper": 3,
    "stop housekeeper": 2,
    "kill storekeeper": 6,
    "stop storekeeper": 3,
}
ACTS_TO_A_LOSS = 20  # one act of so many, by chance, is a loss of everything but the disk


def declare(connection: shmbroker.Connection) -> dict[str, shmbroker.Queue]:
    """Declare the queues; after a loss they are there already."""
    return {name: connection.queue(name, durable=True) for name in QUEUES}
