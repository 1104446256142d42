# SPDX-License-Identifier: Apache-2.0
"""Messages that a publisher holds in the state FRESH: when Python frees one, the core returns it to its place.

So an interrupt anywhere returns them, without any code that runs after it. The traceback of an error keeps the local
variables of a function. Therefore a function that raises keeps no such message in a local variable.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from shmbroker._core import native
from shmbroker._core.transaction import Settlement, commit_waiting
from shmbroker._session.queues import core_of
from shmbroker.message import FRESH, OPEN
from shmbroker.staging.deferred_options import tag_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.transaction import Publication
    from shmbroker.message import Message
    from shmbroker.queue import Queue


def taken(queue: Queue, timeout: float | None) -> Message:
    """Takes the oldest ready message as :meth:`Queue.get` does, but leaves it FRESH."""
    taker, closed = queue._taker, queue._calls_closed  # noqa: SLF001
    message = None if closed else taker.take(queue, False, timeout)  # noqa: FBT003
    if message is None:
        message = queue._get_slowly(native.CLOSED if closed else taker.status, False, timeout)  # noqa: FBT003, SLF001
    return message


def commit(
    connection: CoreConnection,
    publications: Sequence[Publication],
    messages: Sequence[Message],
    until: int,
    memory_until: int | None = None,
) -> None:
    """Publishes and acknowledges FRESH messages in one transaction, and waits as :func:`commit_waiting` does.

    The messages stay FRESH unless the transaction happened, whatever error or interrupt ends this function.
    """
    statuses: list[int] = []
    restored = map(setattr, messages, itertools.repeat("_state"), itertools.repeat(FRESH))
    try:
        settlements = [Settlement(core_of(cast("Queue", one._source)), tag_of(one)) for one in messages]  # noqa: SLF001
        # Not FRESH from here on: the end of a FRESH object returns a message by its tag, and after the commit another
        # message may have that tag.
        list(map(setattr, messages, itertools.repeat("_state"), itertools.repeat(OPEN)))
        commit_waiting(connection, publications, settlements, until, memory_until, statuses)
    finally:
        if native.OK not in statuses:
            # Nothing but this one call of C: Python runs no signal handler between the error and the end of the call.
            list(restored)
        del messages, restored  # a traceback keeps the variables of this function
