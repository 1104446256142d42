# SPDX-License-Identifier: Apache-2.0
"""Consumers that make no progress, although they have credit and messages are there: the housekeeper warns, once each.

A consumer that has no credit waits for its application, and gets no warning, whatever is in its queue.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from shmbroker._core import native

if TYPE_CHECKING:
    from shmbroker._core.housekeeper import CoreHousekeeper
    from shmbroker.statistics import ConsumerInfo

SECONDS = 10.0
"""For how long a consumer makes no progress before the warning."""
_WHY = {
    "load": "its next message is in the store only, and has not been loaded",
    "dispatch": "a message for it may be in the memory, and it has not taken it",
}
_log = logging.getLogger("shmbroker")


def warn(broker: str, core: CoreHousekeeper) -> None:
    """Warns of the consumers that have become such since the last call; call it after a tick.

    Args:
        broker: the name of the broker.
        core: its housekeeper.
    """
    for one in core.tell_still(time.monotonic_ns() - int(SECONDS * native.NANOSECONDS)):
        if one.waits_for in _WHY:  # else it has just gone on
            _log.warning("%s", text_of(broker, one))


def text_of(broker: str, one: ConsumerInfo) -> str:
    """The warning: which consumer, for how long, and what it waits for."""
    channel = f", channel {one.channel}" if one.channel else ""
    return (
        f"broker {broker!r}, queue {one.queue!r}: the consumer of connection {one.connection}{channel} in process "
        f"{one.pid} has credit, and has made no progress for {one.stalled_seconds:.0f} s: {_WHY[one.waits_for]}"
    )
