# SPDX-License-Identifier: Apache-2.0
"""What processes of multiprocessing do with queues they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shmbroker


def answer(requests: shmbroker.Queue, replies: shmbroker.Queue, count: int) -> None:
    """Answer each request with the request twice."""
    for _ in range(count):
        with requests.get() as message:
            replies.put(bytes(message) * 2)
