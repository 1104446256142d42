# SPDX-License-Identifier: Apache-2.0
"""The slow path of ``put_many``: puts the messages that the first call of the compiled function did not put."""

from __future__ import annotations

import itertools
import queue as standard_queue
from typing import TYPE_CHECKING, Any

from shmbroker._core import native
from shmbroker._put_options import body_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.queue import CoreQueue, PutOptions

_COUNT = 2**32 - 1


def put_rest(  # noqa: PLR0917 - the arguments of put_many, and the result of its first call
    core: CoreQueue,
    put_many: Callable[[tuple[Any, ...], int, int, bool], int],
    given: tuple[Any, ...],
    result: int,
    options: PutOptions,
    until: int,
) -> int:
    """Puts the remaining bodies, and waits for room; returns how many of all bodies were put in time.

    Args:
        core: the queue.
        put_many: the compiled function of the queue, see ``cffi_src/native/native_put.c``.
        given: all bodies.
        result: the result of the first call of the function.
        options: the options of the put.
        until: the deadline, in nanoseconds of the monotonic clock.

    Raises:
        queue.Full: no message found room in time.
    """
    plain = given if result >= 0 else tuple(body if type(body) is bytes else body_of(body)[0] for body in given)
    done, status = (result & _COUNT, result >> 32) if result >= 0 else (0, native.OK)
    try:
        while done < len(plain):
            if status == native.REJECTED and done > 0:
                break
            if status == native.REJECTED:
                core.put_with(plain[0], len(plain[0]), options, until)  # else the message may become a dead letter
                done = 1
            elif status != native.OK:
                core.put_failed(status, len(plain[done]), until)
            with core.connection.call():
                result = put_many(plain, done, options.address, True)  # noqa: FBT003 - drops the GIL
            if result < 0:
                return _put_each(core, plain, done, options, until)
            done, status = done + (result & _COUNT), result >> 32
    except standard_queue.Full:
        if done == 0:
            raise
    return done


def _put_each(core: CoreQueue, plain: tuple[Any, ...], done: int, options: PutOptions, until: int) -> int:
    for body in itertools.islice(plain, done, None):
        data, size = body_of(body)
        try:
            core.put_with(data, size, options, until)
        except standard_queue.Full:
            if done == 0:
                raise
            break
        done += 1
    return done
