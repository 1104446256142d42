# SPDX-License-Identifier: Apache-2.0
"""posix_ipc: the kernel's own message queues, ten messages deep by default."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, inlet, outlet

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_BYTES = 8192


@dataclass(frozen=True)
class MessageQueueLink:
    """A queue with a name of its own."""

    name: str

    @contextlib.contextmanager
    def _opened(self, *, write: bool) -> Iterator[Any]:
        queue = module("posix_ipc").MessageQueue(self.name, read=not write, write=write)
        try:
            yield queue
        finally:
            queue.close()

    @contextlib.contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Send to the queue."""
        with self._opened(write=True) as queue:
            yield outlet(queue.send)

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Receive from the queue, leaving the priority aside."""
        with self._opened(write=False) as queue:
            receive = queue.receive

            def receive_many(limit: int) -> list[bytes]:
                return [receive()[0] for _ in range(limit)]

            one = inlet(lambda: receive()[0])
            yield Inlet(one.receive, receive_many, one.mark_many)

    def close(self) -> None:
        """Remove the queue."""
        posix_ipc = module("posix_ipc")
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_message_queue(self.name)


class PosixMessageQueue(Peer):
    """Small bodies only: the kernel's default limit is 8 KiB."""

    name = "posix_ipc.MessageQueue"
    short = "posix mq"
    distribution = "posix_ipc"
    module_name = "posix_ipc"
    largest = LARGEST_BYTES

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one interface)
        """Make a queue as deep as an ordinary user may."""
        posix_ipc = module("posix_ipc")
        name = f"/benchmark-{uuid.uuid4().hex}"
        posix_ipc.MessageQueue(
            name,
            posix_ipc.O_CREX,
            max_messages=posix_ipc.QUEUE_MESSAGES_MAX_DEFAULT,
            max_message_size=size,
        ).close()
        return MessageQueueLink(name)
