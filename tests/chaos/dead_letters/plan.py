# SPDX-License-Identifier: Apache-2.0
"""The queues, with the settings under which messages die or wait in them, and the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.roles import Role

if TYPE_CHECKING:
    import shmbroker

EXCHANGE = "dying"
JOBS, RANKED, RING, HEAD = "jobs", "ranked", "ring", "head"
DEAD, ARCHIVE = "dead", "archive"
SOURCES = (JOBS, RANKED, RING, HEAD)
QUEUES = (*SOURCES, DEAD, ARCHIVE)
HIGHEST = 3
ATTEMPTS = 3
DELAY = 0.005
ROOM = 200  # of the dead-letter queue: when it is full, dead messages wait where they died
LONG, SHORT = 60, 40  # of the rings, and of the queue that drops its head

_MORTAL: dict[str, Any] = {
    "dead_letter_exchange": EXCHANGE,
    "max_delivery_attempts": ATTEMPTS,
    "redelivery_delay": DELAY,
    "redelivery_multiplier": 2,
    "max_redelivery_delay": 0.04,
}
SETTINGS: dict[str, dict[str, Any]] = {
    JOBS: _MORTAL,
    RANKED: {**_MORTAL, "max_priority": HIGHEST},
    RING: {**_MORTAL, "ring_size": LONG, "max_priority": HIGHEST},
    HEAD: {**_MORTAL, "max_length": SHORT, "overflow": "drop-head"},
    DEAD: {"max_length": ROOM},
    ARCHIVE: {"ring_size": LONG},
}

CAST = (
    Role("sender", (JOBS,)),
    Role("sender", (JOBS, RANKED)),
    Role("sender", (RANKED,)),
    Role("sender", (RANKED,)),
    Role("sender", (JOBS,)),
    Role("sender", (RING, HEAD)),
    Role("worker", (JOBS,)),
    Role("worker", (JOBS,)),
    Role("worker", (RANKED,)),
    Role("worker", (RANKED,)),
    Role("worker", (HEAD, RING, JOBS, RANKED)),
    Role("collector", (DEAD,)),
    Role("collector", (DEAD,)),
    Role("collector", (DEAD, ARCHIVE)),
)


def declare(connection: shmbroker.Connection) -> dict[str, shmbroker.Queue]:
    """Declare the queues, and the exchange from which both kinds of dead-letter queues get every dead message."""
    queues = {name: connection.queue(name, **settings) for name, settings in SETTINGS.items()}
    with connection.channel() as channel:
        channel.exchange_declare(EXCHANGE, "fanout")
        for name in (DEAD, ARCHIVE):
            channel.queue_bind(name, EXCHANGE)
    return queues
