# SPDX-License-Identifier: Apache-2.0
"""The two modules of cffi, and the mapping from a status to an exception.

``fast`` keeps the GIL: it serves short operations, which wait for nothing but the lock of their connection. ``slow``
drops the GIL: it serves waits, batches, long copies, and most other calls. Both modules are built from the same
declarations and share one core, but each has its own cffi types. Therefore `cast_fast` casts a handle that ``slow``
returned before ``fast`` gets it.
"""

from __future__ import annotations

import os
import queue
import resource
import time
from typing import TYPE_CHECKING, Any, NoReturn

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error, not_found

try:
    from shmbroker import _native, _native_fast, _native_message
except ImportError as error:
    folder = os.path.dirname(exceptions.__file__)  # noqa: PTH120 - pathlib is slow to import
    msg = (
        f"shmbroker was found in {folder}, which has no compiled modules: it may be a checkout, beside an installed "
        "package. Start Python in another folder, or with -P, or install the checkout in place, with "
        "pip install --editable"
    )
    raise ImportError(msg) from error
from shmbroker._native_message import Batch as Batch  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import ChannelCalls as ChannelCalls  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import ConsumerCalls as ConsumerCalls  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Finalized as Finalized  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import InFlight as InFlight  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Messages as Messages  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Properties as Properties  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Publisher as Publisher  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import QueueCalls as QueueCalls  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Receiver as Receiver  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Record as Record  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Route as Route  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Sender as Sender  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import Writable as Writable  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import check_timeout as check_timeout  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import read_in_place as read_in_place  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import run_finalizer as run_finalizer  # noqa: PLC0414 - for the layers above
from shmbroker._native_message import untracked_type as untracked_type  # noqa: PLC0414 - for the layers above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

slow: Any = _native.lib
fast: Any = _native_fast.lib
ffi: Any = _native.ffi
fast_ffi: Any = _native_fast.ffi

FOR_EVER = 2**64 - 1
NANOSECONDS = 1_000_000_000
MAX_BODY: int = slow.SB_MAX_BODY
MAX_SLOT, MAX_GENERATION = (1 << slow.SB_SLOT_BITS) - 1, (1 << slow.SB_GENERATION_BITS) - 1
CLOSED_BY_BROKER = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"

OK: int = slow.SB_OK
EMPTY: int = slow.SB_EMPTY
FULL: int = slow.SB_FULL
NO_MEMORY: int = slow.SB_NO_MEMORY
GROW: int = slow.SB_GROW
NOT_FOUND: int = slow.SB_NOT_FOUND
DELETED: int = slow.SB_DELETED
EXISTS: int = slow.SB_EXISTS
TIMEOUT: int = slow.SB_TIMEOUT
INTERRUPTED: int = slow.SB_INTERRUPTED
CLOSED: int = slow.SB_CLOSED
STOPPING: int = slow.SB_STOPPING
TOO_LARGE: int = slow.SB_TOO_LARGE
SETTLED: int = slow.SB_SETTLED
IN_USE: int = slow.SB_IN_USE
NOT_EMPTY: int = slow.SB_NOT_EMPTY
NO_HOUSEKEEPER: int = slow.SB_NO_HOUSEKEEPER
LAYOUT: int = slow.SB_LAYOUT
TICK: int = slow.SB_TICK
FORKED: int = slow.SB_FORKED
ACCESS: int = slow.SB_ACCESS
READY: int = slow.SB_READY
REJECTED: int = slow.SB_REJECTED
DUPLICATE: int = slow.SB_DUPLICATE
UNDECIDED: int = slow.SB_UNDECIDED
SYSTEM: int = slow.SB_SYSTEM
LIMIT: int = slow.SB_LIMIT
UNLOCKED: int = slow.SB_UNLOCKED
NO_SEAT: int = slow.SB_NO_SEAT
STAYS: int = slow.SB_STAYS
DONE: int = slow.SB_DONE
STORE_FULL: int = slow.SB_STORE_FULL

# The dispositions of a message.
ACK: int = slow.SB_ACK
REQUEUE: int = slow.SB_REQUEUE
REJECT: int = slow.SB_REJECT
UNDELIVER: int = slow.SB_UNDELIVER

# Constants of the compiled module: the kinds of objects for which a Receiver can be made, the states of a message, the
# maximum number of messages in a batch and of queues in a route, and the bytes of the longest record of a taken
# message.
OF_QUEUE: int = _native_message.OF_QUEUE
OF_CONSUMER: int = _native_message.OF_CONSUMER
OF_CHANNEL: int = _native_message.OF_CHANNEL
STATES: tuple[int, int, int, int] = (
    _native_message.OPEN, _native_message.SETTLED, _native_message.BROWSED, _native_message.FRESH,
)  # fmt: skip
MOST_MESSAGES: int = _native_message.MOST_MESSAGES
MOST_QUEUES: int = _native_message.MOST_QUEUES
LONGEST_EXPIRATION_MS: int = _native_message.LONGEST_EXPIRATION_MS
RECORD_BYTES: int = _native_message.RECORD_BYTES


def deadline(timeout: float | None) -> int:
    """Converts a timeout in seconds to a deadline in nanoseconds of CLOCK_MONOTONIC; ``None``: no deadline.

    Raises:
        ValueError: the timeout is negative or not a number.
    """
    if timeout is None:
        return FOR_EVER
    check_timeout(timeout)
    return min(time.monotonic_ns() + int(timeout * NANOSECONDS), FOR_EVER) if timeout < 10**9 else FOR_EVER


def signal_check_intervals() -> Iterator[int]:
    """Yields how long to sleep, in nanoseconds, before the next check for signals.

    A signal that arrives just before the sleep does not end it, so the first check comes soon.
    """
    yield 10_000_000
    while True:
        yield NANOSECONDS


def cast_fast(handle: Any, ctype: str) -> Any:  # noqa: ANN401 - cffi has no types
    """Casts a handle for the module that keeps the GIL."""
    return fast_ffi.cast(ctype, int(ffi.cast("uintptr_t", handle)))


def _address_space() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - see above
        used = int(file.read().split()[0]) * resource.getpagesize()
    return (
        f": the address space of this process is limited to {limit} bytes (ulimit -v), {used} are used, and the whole "
        "limit of a broker is reserved in it"
    )


def _layout() -> str:
    return f"{slow.SB_LAYOUT_MAJOR}.{slow.SB_LAYOUT_MINOR}"


# The exception of each status; ``what`` is the object concerned, and may be empty.
_ERRORS: dict[int, Callable[[str], Exception]] = {
    FORKED: lambda _: exceptions.ForkedConnectionError(
        text="this connection was opened before a fork: open another one in this process, with shmbroker.connect()"
    ),
    CLOSED: lambda what: exceptions.ConnectionClosed(text=f"{what or 'the connection'} is closed"),
    STOPPING: lambda _: exceptions.ConnectionClosedByBroker(320, CLOSED_BY_BROKER),
    DELETED: not_found,
    NOT_FOUND: not_found,
    EMPTY: lambda _: queue.Empty(),
    NO_MEMORY: lambda what: exceptions.OutOfMemory(f"{what or 'the broker'}: no memory is left"),
    FULL: queue.Full,
    SETTLED: lambda _: amqp_error(
        exceptions.MessageSettled, "the message was acknowledged, rejected or returned already"
    ),
    slow.SB_CORRUPT: lambda what: exceptions.CorruptSegment(
        text=f"{what or 'the broker'}: shared memory contradicts itself; run `shmbroker doctor`"
    ),
    slow.SB_ADDRESS_SPACE: lambda what: exceptions.OutOfMemory(
        f"{what or 'the broker'}: its memory cannot be mapped{_address_space()}"
    ),
    slow.SB_LIMIT: lambda what: amqp_error(
        exceptions.NotAllowed, f"{what or 'the broker'}: a limit of the broker is reached"
    ),
    STAYS: lambda _: exceptions.NotImplementedByBroker(
        540, "NOT_IMPLEMENTED - get not supported by non-destructive queues, whose messages stay: consume or browse"
    ),
    slow.SB_ACCESS: lambda what: amqp_error(
        exceptions.AccessRefused, f"{what or 'the broker'}: its shared memory belongs to another user"
    ),
    TIMEOUT: exceptions.Timeout,
    LAYOUT: lambda what: exceptions.LayoutMismatch(
        text=f"{what or 'the broker'}: a file of its shared memory is shorter than layout {_layout()} requires"
    ),
    slow.SB_SYSTEM: lambda what: exceptions.BrokerError(
        541, f"{what or 'the broker'}: a system call failed: {os.strerror(ffi.errno) if ffi.errno else 'no memory'}"
    ),
    slow.SB_INVALID: lambda what: exceptions.BrokerError(541, f"{what or 'the broker'}: a value is out of its range"),
}


def raise_for(status: int, what: str = "") -> NoReturn:
    """Raises the exception of a status.

    Args:
        status: any status but OK.
        what: the object concerned, such as ``queue 'jobs'``.
    """
    error = _ERRORS.get(status)
    if error is None:
        raise exceptions.BrokerError(541, f"{what or 'the broker'}: operation failed (status {status})")
    raise error(what)
