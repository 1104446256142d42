# SPDX-License-Identifier: Apache-2.0
"""How clients of one broker share its memory, so that hand-overs that wait for each other cannot deadlock.

A generator of mapInArrow is suspended in two places: where it yields, until its successor takes the batch, and where it
asks for its next batch, until its predecessor has one. The successor or predecessor may be another hand-over, which may
be waiting for the memory that the suspended hand-over holds. Therefore:

- A client has a *share*: the limit of the broker's memory divided by 4 * (connections + 1). It has several requests in
  flight only while they, their answers and the two batches that Spark may still read fit the share. The client checks
  this again before it yields, because an answer may have been larger than all earlier ones. If the share is too small
  now, the client copies the answers of everything in flight to private memory. If each client has its own connection,
  the n-th client saw at least n connections, so n shares are at most 1/4 * (1/2 + 1/3 + ... + 1/(n + 1)) of the memory:
  half of it for ten clients, two thirds for twenty.
- A request that does not fit a share goes *alone*: its client waits for the *turn*, which only one client of the whole
  broker has at a time. The client copies the answer, frees the slot of the answer and ends the turn before it yields
  anything. While it waits for the turn, and for memory during the turn, it has nothing in flight, and holds at most its
  share: the batches that Spark still reads.
- A server waits only briefly for room for an answer. Then it answers with a short text that there was no room. The
  slot of the request is freed. The client, which kept the batch, sends the batch again, alone.

So a wait for memory ends: with up to ten clients, the shares of the other clients leave half of the memory, and the one
request that is alone waits only for a server. The guaranteed minimum is therefore that half: a request and its answer
that fit it together succeed. More clients, or other contents of the broker, may take that half away. Then the client
raises an error after `PATIENCE_SECONDS`, and does not wait for ever.
"""

from __future__ import annotations

import bisect
import contextlib
import secrets
import threading
import time
from typing import TYPE_CHECKING

import shmbroker
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TURN = "shmbroker.spark.turn"
PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_FRESH_SECONDS = 0.5
_PARTS = 4
_PIECES = 8
_SLOTS = tuple(size << 10 for size in (80, 96, 112, 128, 160, 192, 224, 256, 340, 408, 512, 682, 1024, 2048))
_PREFIX = 512  # bytes: the part of a slot before the body has at most this size, if the message has no properties
_SEEN_BY_SPARK = 2  # answers: the one just yielded, and the one before it, to which Spark's loop still refers


def taken(size: int) -> int:
    """Returns the bytes of memory that a body takes: one slot of the next larger size, or several of the largest size.

    For a body that fits a slot of the smallest size in ``_SLOTS``, the result is an estimate: a quarter is added.
    """
    size += _PREFIX
    if size > _SLOTS[-1]:
        return -(-size // _SLOTS[-1]) * _SLOTS[-1]
    return size + size // 4 if size <= _SLOTS[0] else _SLOTS[bisect.bisect_left(_SLOTS, size)]


class MemoryShare:
    """The share of the broker's memory that requests and answers of one client may use at the same time.

    Without shares, clients could fill the memory together, and all of them would wait for room. The share shrinks as
    the broker gets more connections.

    Args:
        broker: the broker's name.
    """

    def __init__(self, broker: str) -> None:
        self._broker = shmbroker.Broker(broker)
        self._bytes, self._until = 0, 0.0
        self.limit = self._broker.statistics().memory_limit

    @property
    def bytes(self) -> int:
        """The current share."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + _FRESH_SECONDS
            self._bytes = self.limit // (_PARTS * (self._broker.statistics().connection_count + 1))
        return self._bytes

    def window(self, request: int, answer: int, most: int) -> int:
        """Returns how many requests may be in flight, at most ``most``; 0: the request goes alone.

        Args:
            request: the bytes of each request.
            answer: the bytes of the largest answer so far; an answer counts as at least as large as its request.
            most: the most requests in flight that the caller allows.
        """
        request, answer = taken(request), taken(max(request, answer))
        return max(0, min(most, (self.bytes - _SEEN_BY_SPARK * answer) // (request + answer)))

    def fits(self, requests: Iterable[int], answer: int) -> bool:
        """Whether these requests, an answer of ``answer`` bytes to each, and two that Spark reads, fit the share."""
        one = taken(answer)
        return sum(taken(request) + one for request in requests) + _SEEN_BY_SPARK * one <= self.bytes

    @property
    def most_in_one(self) -> int:
        """The limit of one batch, in bytes; larger batches are cut into pieces."""
        return self.limit // _PIECES


_turns = locks.lock()
_late: list[threading.Thread] = []
"""The thread that ends a turn of this process which could not be ended at once. The holder of `_turns` sets it."""


@contextlib.contextmanager
def exclusive_turn(connection: shmbroker.Connection, look: Callable[[], None]) -> Iterator[None]:
    """Waits for the turn to send alone, and holds it during the block: one client of the broker has it at a time.

    The turn is an exclusive queue: making it takes the turn, deleting it ends the turn. If the process that has the
    turn dies, the turn ends. A deletion needs the broker's topology lock. If another process has that lock at the end
    of the block, a thread ends the turn when the lock is free.

    Args:
        connection: the connection of this process.
        look: called regularly while another client has the turn; raises to end the wait.
    """
    while not _turns.acquire(timeout=_LOOK_SECONDS):
        look()
    try:
        while (taken := _try(connection)) is None:
            look()
            time.sleep(_LOOK_SECONDS * (0.5 + secrets.randbelow(100) / 100))
        try:
            yield
        finally:
            if not _is_ended(taken):
                _late[:] = [threading.Thread(target=_end_late, args=(taken,), name="shmbroker-turn", daemon=True)]
                _late[0].start()
    finally:
        _turns.release()


def _try(connection: shmbroker.Connection) -> shmbroker.Queue | None:
    if any(thread.is_alive() for thread in _late):
        return None  # otherwise the call below would return the queue of the last turn, which that thread deletes
    try:
        return connection.queue(TURN, exclusive=True)
    except (shmbroker.ResourceLocked, shmbroker.NotFound):
        return None


def _is_ended(turn: shmbroker.Queue) -> bool:
    """Ends a turn; ``False``: another process, which may be stopped, keeps the topology lock."""
    try:
        turn.delete()
    except shmbroker.Timeout:
        return False
    return True


def _end_late(turn: shmbroker.Queue) -> None:
    """Ends a turn as soon as the topology lock is free. If the connection ends before, the turn ends with it."""
    with contextlib.suppress(shmbroker.BrokerError):
        while not _is_ended(turn):
            time.sleep(_LOOK_SECONDS)
