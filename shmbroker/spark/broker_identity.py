# SPDX-License-Identifier: Apache-2.0
"""The host and broker of a Spark plan: a broker belongs to one host, and tasks planned for it must run there."""

from __future__ import annotations

import dataclasses
import datetime as dt
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker.leasing.lasting import store_of
from shmbroker.spark.attachment import connection_to

if TYPE_CHECKING:
    from shmbroker import Connection, Queue

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class BrokerIdentity:
    """Identifies a broker, even among brokers of the same name; travels from the planner to the workers.

    Attributes:
        broker: the name of the broker.
        host: the name of the host, for error texts.
        boot: the boot id of the host's kernel.
        created_at: the time of the creation of the broker's memory, in seconds since 1970.
    """

    broker: str
    host: str
    boot: str
    created_at: float

    def identity(self, queue: Queue) -> str:
        """What has the leases of a queue, as text for the offsets of a stream (`shmbroker.spark.stream`).

        The leases of a durable queue are in the store, if the broker has one: they are the same after a start from it,
        also on another host or under another name. Those of other queues end with the memory.
        """
        store = store_of(queue)
        return f"store {store:016x}" if store else f"{self.broker}@{self.boot[:8]}-{self.created_at:.6f}"

    @classmethod
    def of(cls, connection: Connection) -> BrokerIdentity:
        """Identifies the broker of a connection."""
        facts = shmbroker.Broker(connection.broker_name).statistics()
        return cls(facts.name, socket.gethostname(), _boot(), facts.created_at)

    def connection(self) -> Connection:
        """Returns this process's connection to the broker that this object identifies.

        Raises:
            BrokerNotFound: this is another host, this host was booted since, or the broker is gone. In the first two
                cases the text names both hosts. If another broker has the name now, it names both creation times.
        """
        here = socket.gethostname()
        if _boot() != self.boot:  # before the connect: this host may have another broker of that name
            text = (
                f"NOT_FOUND - Spark planned the task on host {self.host!r} for the broker {self.broker!r} of that "
                f"host, and runs it on host {here!r}: a broker's messages are read and published on its host"
            )
            raise shmbroker.BrokerNotFound(404, text)
        found = connection_to(self.broker)
        now = BrokerIdentity.of(found)
        if now.created_at != self.created_at:
            text = (
                f"NOT_FOUND - the broker {self.broker!r} of host {here!r} for which Spark planned is gone: that broker "
                f"was made at {_time(self.created_at)}, and the broker with this name now was made at "
                f"{_time(now.created_at)}"
            )
            raise shmbroker.BrokerNotFound(404, text)
        return found


def _boot() -> str:
    return _BOOT.read_text("ascii").strip()


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="milliseconds")
