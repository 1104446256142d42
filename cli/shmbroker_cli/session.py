# SPDX-License-Identifier: Apache-2.0
"""Opens only brokers and queues that exist, so that no command makes one by accident."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def connected(broker: str) -> Iterator[shmbroker.Connection]:
    """Connect to a broker that exists, and close the connection afterwards.

    Args:
        broker: Its name.

    Yields:
        The connection.

    Raises:
        BrokerNotFound: If there is no such broker.
    """
    with shmbroker.connect(broker, create=False, client_name="shmbroker-cli") as connection:
        yield connection


@contextmanager
def opened(broker: str, queue: str) -> Iterator[shmbroker.Queue]:
    """Open a queue that exists, over a connection of its own.

    Args:
        broker: Name of the broker.
        queue: Name of the queue.

    Yields:
        The queue.

    Raises:
        BrokerNotFound: If there is no such broker.
        NotFound: If there is no such queue.
    """
    with connected(broker) as connection:
        yield connection.queue(queue, passive=True)
