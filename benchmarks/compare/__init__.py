# SPDX-License-Identifier: Apache-2.0
"""The other ways to move messages between processes that we measure ourselves by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.compare.fasterfifo import FasterFifo
from benchmarks.compare.iceoryx import Iceoryx2
from benchmarks.compare.mp_pipe import MultiprocessingPipe
from benchmarks.compare.mp_queue import MultiprocessingQueue
from benchmarks.compare.mp_simple_queue import MultiprocessingSimpleQueue
from benchmarks.compare.posix_mq import PosixMessageQueue
from benchmarks.compare.redis_list import RedisList
from benchmarks.compare.zmq_ipc import ZeroMQ

if TYPE_CHECKING:
    from benchmarks.compare.protocol import Peer

PEERS: tuple[Peer, ...] = (
    MultiprocessingQueue(),
    MultiprocessingSimpleQueue(),
    MultiprocessingPipe(),
    FasterFifo(),
    ZeroMQ(),
    PosixMessageQueue(),
    Iceoryx2(),
    RedisList(),
)
"""All peers, in the order in which they are run and printed."""

__all__ = ["PEERS"]
