# SPDX-License-Identifier: Apache-2.0
"""Names of queues that the broker reserves.

Clients cannot make a queue whose name begins with ``amq.``: only shmbroker itself makes such queues. Those whose names
begin with ``amq.gen-`` belong to users. Those whose names begin with one of :data:`PREFIXES` are the broker's own:
lists omit them unless the caller asks for them. ``Connection.doctor`` checks all queues, and
``Broker.stop(purge=True)`` removes all.
"""

from __future__ import annotations

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error

RESERVED = "amq."
GROUP, LEASE, SCHEMA, STAGE = (f"{RESERVED}{kind}." for kind in ("group", "lease", "schema", "stage"))
PREFIXES = (GROUP, LEASE, SCHEMA, STAGE)


def is_internal(name: str) -> bool:
    """Whether the queue is one of the broker's own."""
    return name.startswith(PREFIXES)


def check_not_reserved(name: str) -> None:
    """Checks the name of a new queue.

    Raises:
        AccessRefused: the name is reserved.
    """
    if name.startswith(RESERVED):
        text = f"queue name '{name}' contains reserved prefix 'amq.*'"
        raise amqp_error(exceptions.AccessRefused, text)
