# SPDX-License-Identifier: Apache-2.0
"""iceoryx2: publish-subscribe in shared memory, through its Python binding.

The subscriber polls, which keeps a core busy: the binding's blocking wait is a
separate event service. Nothing is overwritten: the publisher waits for room. While
the subscriber is still attaching, though, `send` drops what does not fit and tells
so by returning zero; such a message is sent again. A body is read where it lies, and
copied out unless it is only touched.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.protocol import Peer, module
from benchmarks.links import Inlet, Link, Outlet, outlet
from benchmarks.payload import STRIDE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

DEPTH = 256
BORROWED = 4
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where iceoryx2 puts its segments)


@dataclass(frozen=True)
class IceoryxLink:
    """A service under a prefix of its own, so that it meets nobody else's."""

    directory: str
    prefix: str
    size: int

    def _service(self, iceoryx2: ModuleType) -> tuple[Any, Any]:
        iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
        config = iceoryx2.config.default()
        config.global_cfg.prefix = iceoryx2.FileName.new(self.prefix)
        config.global_cfg.root_path = iceoryx2.Path.new(self.directory)
        builder = iceoryx2.NodeBuilder.new().config(config)
        node = builder.create(iceoryx2.ServiceType.Ipc)
        service = (
            node.service_builder(iceoryx2.ServiceName.new("benchmark"))
            .publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)  # noqa: FBT003 (positional in the binding)
            .subscriber_max_buffer_size(DEPTH)
            .subscriber_max_borrowed_samples(BORROWED)
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()
        )
        return node, service

    @contextmanager
    def sending(self) -> Iterator[Outlet]:
        """Loan a slice, copy the body into it, send it."""
        iceoryx2 = module("iceoryx2")
        node, service = self._service(iceoryx2)
        publisher = (
            service.publisher_builder()
            .initial_max_slice_len(self.size)
            .backpressure_strategy(iceoryx2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        loan, copy, size = publisher.loan_slice_uninit, ctypes.memmove, self.size

        def send(body: bytes) -> None:
            delivered = 0
            while not delivered:
                sample = loan(size)
                copy(sample.payload_ptr, body, size)
                delivered = sample.assume_init().send()

        try:
            yield outlet(send)
        finally:
            publisher.delete()
            del publisher, service, node

    @contextmanager
    def receiving(self) -> Iterator[Inlet]:
        """Poll for a sample; copy it out, or touch it where it lies."""
        node, service = self._service(module("iceoryx2"))
        subscriber = service.subscriber_builder().buffer_size(DEPTH).create()
        poll, copy_out, size = subscriber.receive, ctypes.string_at, self.size
        whole = (ctypes.c_uint8 * size).from_address

        def receive() -> bytes:
            while (sample := poll()) is None:
                pass
            body = copy_out(sample.payload_ptr, size)
            sample.delete()
            return body

        def receive_many(limit: int) -> list[bytes]:
            return [receive() for _ in range(limit)]

        def mark_many(limit: int) -> list[int]:
            touches = []
            for _ in range(limit):
                while (sample := poll()) is None:
                    pass
                touches.append(sum(whole(sample.payload_ptr)[::STRIDE]))
                sample.delete()
            return touches

        try:
            yield Inlet(receive, receive_many, mark_many)
        finally:
            subscriber.delete()
            del subscriber, service, node

    def close(self) -> None:
        """Remove what the service left behind."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in SHARED_MEMORY.glob(f"{self.prefix}*"):
            path.unlink(missing_ok=True)


class Iceoryx2(Peer):
    """Zero-copy shared memory for one publisher and one subscriber."""

    name = "iceoryx2"
    short = "iceoryx2"
    distribution = "iceoryx2"
    module_name = "iceoryx2"
    waiting = "spinning"

    def available(self) -> str | None:
        """Return why it cannot run here: older versions name things differently."""
        reason = super().available()
        if reason is None and not hasattr(module("iceoryx2"), "BackpressureStrategy"):
            return "not installed (version 0.10 or newer is needed)"
        return reason

    def link(self, size: int, consumers: int = 1) -> Link:  # noqa: ARG002 (one interface)
        """Choose a prefix."""
        directory = tempfile.mkdtemp(prefix="benchmark-iceoryx2-")
        return IceoryxLink(directory, f"bench{uuid.uuid4().hex[:12]}_", size)
