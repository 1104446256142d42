# SPDX-License-Identifier: Apache-2.0
"""Where a plan was made: a broker is of one host, and what was planned there cannot be read elsewhere."""

from __future__ import annotations

import dataclasses
import datetime as dt
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker
from shmbroker.spark.attachment import connection_to

if TYPE_CHECKING:
    from shmbroker import Connection

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True)
class Home:
    """A broker, so that another one of its name is told from it; travels from the planner to the workers.

    Attributes:
        broker: its name.
        host: the name of the host, for people.
        boot: which run of which kernel.
        created_at: seconds since 1970.
    """

    broker: str
    host: str
    boot: str
    created_at: float

    @property
    def identity(self) -> str:
        """In a word; what offsets say."""
        return f"{self.broker}@{self.boot[:8]}-{self.created_at:.6f}"

    @classmethod
    def of(cls, connection: Connection) -> Home:
        """The broker of a connection."""
        facts = shmbroker.Broker(connection.broker_name).statistics()
        return cls(facts.name, socket.gethostname(), _boot(), facts.created_at)

    def connection(self) -> Connection:
        """This process's connection to that broker.

        Raises:
            BrokerNotFound: we are on another host, or it is gone; the text says where it was, and where we are.
        """
        here = socket.gethostname()
        if _boot() != self.boot:  # before we look for its name: a broker here would be another one
            text = (
                f"NOT_FOUND - planned on host {self.host!r} for its broker {self.broker!r}, run on host {here!r}: what "
                "is in a broker is read, and published, on its host"
            )
            raise shmbroker.BrokerNotFound(404, text)
        found = connection_to(self.broker)
        now = Home.of(found)
        if now.created_at != self.created_at:
            text = (
                f"NOT_FOUND - broker {self.broker!r} of host {here!r} that was planned for is gone: it was made at "
                f"{_time(self.created_at)}, and the one that has its name now at {_time(now.created_at)}"
            )
            raise shmbroker.BrokerNotFound(404, text)
        return found


def _boot() -> str:
    return _BOOT.read_text("ascii").strip()


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="milliseconds")
