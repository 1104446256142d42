# SPDX-License-Identifier: Apache-2.0
"""Names of queues that the broker keeps for itself.

Nobody else can make a queue whose name begins with ``amq.``. Some of those are users' (``amq.gen-...``); those of
:data:`PREFIXES` are not, and are left out of lists unless they are asked for. The doctor and a purge see all.
"""

from __future__ import annotations

from shmbroker import exceptions

RESERVED = "amq."
GROUP, LEASE, SCHEMA, STAGE = (f"{RESERVED}{kind}." for kind in ("group", "lease", "schema", "stage"))
PREFIXES = (GROUP, LEASE, SCHEMA, STAGE)


def is_internal(name: str) -> bool:
    """Is it the broker's own?"""
    return name.startswith(PREFIXES)


def check_not_reserved(name: str) -> None:
    """For a queue that is to be made.

    Raises:
        AccessRefused: the name is the broker's.
    """
    if name.startswith(RESERVED):
        text = f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
        raise exceptions.AccessRefused(403, text)
