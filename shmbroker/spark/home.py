# SPDX-License-Identifier: Apache-2.0
"""Where a plan was made: a broker is of one host, and what was planned there cannot be read elsewhere."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import shmbroker

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
        return cls(facts.name, socket.gethostname(), _BOOT.read_text("ascii").strip(), facts.created_at)

    def check(self, connection: Connection) -> None:
        """Is it the broker of this connection, too?

        Raises:
            BrokerNotFound: it is not; the text says where it was, and where we are.
        """
        here = Home.of(connection)
        if here.boot != self.boot:
            text = f"NOT_FOUND - planned for broker {self.broker!r} of host {self.host!r}, run on {here.host!r}"
            raise shmbroker.BrokerNotFound(404, text)
        if here != dataclasses.replace(self, host=here.host):
            text = f"NOT_FOUND - broker {self.broker!r} that was planned for is gone; another one has its name since"
            raise shmbroker.BrokerNotFound(404, text)
