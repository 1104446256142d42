# SPDX-License-Identifier: Apache-2.0
"""Brokers for measurements: each under a name of its own, each purged afterwards.

The package is imported when it is first needed, so that the peers can be measured
where the extension is not built.
"""

from __future__ import annotations

import importlib
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker

OPERATION_SECONDS = 60.0


def package() -> Any:  # noqa: ANN401 (the package, imported late)
    """Import and return the package under measurement.

    Raises:
        ImportError: If it, or its extension, is missing.
    """
    return importlib.import_module("shmbroker")


def unavailable() -> str | None:
    """Return the reason why shmbroker cannot run here, or None if it can."""
    try:
        package().Broker  # noqa: B018 (a bare directory would import as well)
    except (ImportError, AttributeError) as error:
        reason = str(error).partition(" (")[0]  # what follows names files
        return f"not installed ({reason})"
    return None


def start_broker(memory: str, **options: object) -> tuple[shmbroker.Broker, str]:
    """Start a broker under a new name.

    Args:
        memory: Its limit, such as `"256M"`.
        **options: Further ones of the broker.

    Returns:
        The broker and its name.
    """
    name = f"bench-{uuid.uuid4().hex[:12]}"
    broker: shmbroker.Broker = package().Broker(name, memory=memory, **options)
    broker.start()
    return broker, name


def connected(broker: str, **options: object) -> shmbroker.Connection:
    """Connect to a running broker.

    Args:
        broker: Its name.
        **options: Of the connection.
    """
    connection: shmbroker.Connection = package().connect(
        broker, create=False, operation_timeout=OPERATION_SECONDS, **options
    )
    return connection


@contextmanager
def opened(broker: str, queue: str, **settings: object) -> Iterator[tuple[shmbroker.Connection, shmbroker.Queue]]:
    """Connect to a running broker and open a queue; disconnect afterwards.

    Args:
        broker: Its name.
        queue: Name of the queue, which is declared if it does not exist.
        **settings: Of the queue.
    """
    with connected(broker) as connection:
        yield connection, connection.queue(queue, **settings)


def grow_to_the_limit(connection: shmbroker.Connection) -> None:
    """Make all the memory exist that the broker may have, for clients that cannot make it grow."""
    attachment = connection._session.core.attachment  # noqa: SLF001 (no user needs this)
    while (facts := attachment.facts()).segments < facts.segments_limit:
        attachment.grow()
