# SPDX-License-Identifier: Apache-2.0
"""Message bodies, and the proof that exactly these bodies arrived.

A producer sends the bodies of one `Pool` over and over, in order. The receiving
side adds what it got, one window (a list of messages) at a time, to a tally; the
tally's `Receipt` must equal the one computed from the pool and the count.

The check runs inside the measured time, so it must be cheap: comparing a window
with the expected bytes costs about 10 ns for a 64-byte message, against 140 ns
for a CRC of each message. The checksum is then summed from CRCs computed before.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Body: TypeAlias = bytes | bytearray | memoryview
Mark: TypeAlias = Callable[[Body], int]

MAX_PERIOD = 256
POOL_BYTES = 1 << 20
MIN_PERIOD = 4
STRIDE = 4096
CHECKSUM_MASK = (1 << 64) - 1


def touch(body: Body) -> int:
    """Read one byte of every page of `body` where it lies, without copying it.

    Args:
        body: Any contiguous buffer of bytes.

    Returns:
        The sum of every 4,096th byte.

    >>> touch(bytes([7]) + bytes(8191))
    7
    """
    return sum(memoryview(body)[::STRIDE])


def total(body: Body) -> int:
    """Read each byte of `body` once where it lies, as fast as memory allows.

    Args:
        body: Any contiguous buffer of a multiple of 8 bytes.

    Returns:
        The sum of its 64-bit words, modulo 2**64.

    >>> total(bytes([7]) + bytes(8191))
    7
    """
    import numpy as np  # noqa: PLC0415 (takes a tenth of a second, and most workers do without)

    return int(np.frombuffer(body, np.uint64).sum())


@dataclass(frozen=True)
class Receipt:
    """What arrived: the same for two streams that carried the same messages.

    Attributes:
        count: Number of messages.
        checksum: Sum of the messages' CRC-32 (or of other marks), modulo 2**64.
        in_order: Whether they came in the order in which they were sent; always
            true where the topology promises no order.
    """

    count: int
    checksum: int
    in_order: bool = True

    def __add__(self, other: Receipt) -> Receipt:
        """Return the receipt of both streams together."""
        return Receipt(
            self.count + other.count,
            (self.checksum + other.checksum) & CHECKSUM_MASK,
            self.in_order and other.in_order,
        )


@dataclass(frozen=True)
class Pool:
    """The distinct bodies that one producer sends in turn.

    Attributes:
        size: Length of each body in bytes, at least 8.
        producer: Number of the producer; pools of different producers differ.
    """

    size: int
    producer: int = 0
    bodies: list[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the bodies: the same ones in every process."""
        period = max(MIN_PERIOD, min(MAX_PERIOD, POOL_BYTES // self.size))
        source = random.Random(f"{self.size}/{self.producer}")  # noqa: S311 (bodies, not secrets)
        bodies = [source.randbytes(self.size) for _ in range(period)]
        object.__setattr__(self, "bodies", bodies)

    def __reduce__(self) -> tuple[type[Pool], tuple[int, int]]:
        """Pickle as the two numbers it is made from."""
        return Pool, (self.size, self.producer)

    @property
    def period(self) -> int:
        """Number of distinct bodies: also the largest window."""
        return len(self.bodies)

    def marks(self, mark: Mark = zlib.crc32) -> list[int]:
        """Return each body's contribution to the checksum.

        Args:
            mark: What the receiver computes of each body.
        """
        return [mark(body) for body in self.bodies]

    def receipt(self, count: int, mark: Mark = zlib.crc32) -> Receipt:
        """Return the receipt that `count` messages of this pool must give.

        Args:
            count: Number of messages sent.
            mark: What the receiver computes of each body.
        """
        rounds, rest = divmod(count, self.period)
        marks = self.marks(mark)
        total = rounds * sum(marks) + sum(marks[:rest])
        return Receipt(count, total & CHECKSUM_MASK)


class Tally(Protocol):
    """Collects what arrives, window by window."""

    def add(self, window: Sequence[Any]) -> None:
        """Take in one window, at most one pool period long."""

    def receipt(self) -> Receipt:
        """Return what has arrived so far."""


class OrderedTally:
    """For one producer and one consumer: content and order are compared exactly."""

    def __init__(self, pool: Pool) -> None:
        """Prepare the expected bytes of `pool`, twice over, so that windows wrap."""
        self._size = pool.size
        self._period = pool.period
        self._expected = b"".join(pool.bodies) * 2
        marks = pool.marks()
        self._sums = list(itertools.accumulate(marks + marks, initial=0))
        self._count = 0
        self._checksum = 0
        self._in_order = True

    def add(self, window: Sequence[Body]) -> None:
        """Take in one window, at most one pool period long."""
        joined = b"".join(window)
        start = self._count % self._period
        number = len(window)
        if len(joined) == number * self._size and self._expected.startswith(joined, start * self._size):
            self._checksum += self._sums[start + number] - self._sums[start]
        else:
            self._in_order = False
            self._checksum += sum(map(zlib.crc32, window))
        self._count += number

    def receipt(self) -> Receipt:
        """Return what has arrived so far."""
        return Receipt(self._count, self._checksum & CHECKSUM_MASK, self._in_order)


class MarkedTally:
    """For bodies read in place: a window holds the marks of the bodies, not the bodies."""

    def __init__(self, pool: Pool, mark: Mark) -> None:
        """Prepare the marks of `pool`, twice over, so that windows wrap."""
        self._period = pool.period
        self._expected = pool.marks(mark) * 2
        self._count = 0
        self._checksum = 0
        self._in_order = True

    def add(self, window: Sequence[int]) -> None:
        """Take in one window, at most one pool period long."""
        start = self._count % self._period
        if list(window) != self._expected[start : start + len(window)]:
            self._in_order = False
        self._checksum += sum(window)
        self._count += len(window)

    def receipt(self) -> Receipt:
        """Return what has arrived so far."""
        return Receipt(self._count, self._checksum & CHECKSUM_MASK, self._in_order)


class CountedTally:
    """For several producers or consumers: every body is counted, in any order."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._seen: Counter[bytes] = Counter()

    def add(self, window: Sequence[bytes]) -> None:
        """Take in one window of bodies."""
        self._seen.update(window)

    def receipt(self) -> Receipt:
        """Return what has arrived so far."""
        total = sum(zlib.crc32(body) * times for body, times in self._seen.items())
        return Receipt(self._seen.total(), total & CHECKSUM_MASK)
