# SPDX-License-Identifier: Apache-2.0
"""What tests of consumer groups have in common."""

from __future__ import annotations

import shmbroker


def attached(connection: shmbroker.Connection, name: str = "g") -> shmbroker.Group:
    """A group of queue q that this user has."""
    group = shmbroker.Group(connection, "q", name)
    group.attach()
    return group


def content(group: shmbroker.Group, number: int, *span: int | None) -> str:
    """The bodies of a lease, one after the other."""
    return "".join(bytes(message).decode() for message in group.messages(number, *span))  # type: ignore[arg-type]


def own(connection: shmbroker.Connection, prefix: str = "amq.") -> list[str]:
    """The broker's own queues."""
    return [name for name in connection.queue_names(all=True) if name.startswith(prefix)]
