# SPDX-License-Identifier: Apache-2.0
"""Handles that end while another thread closes their connection: the broker stays mapped until the core is through."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Replaced

from shmbroker._core import channel, consumer, native, queue, segments, watch
from shmbroker._core.channel import CoreChannel
from shmbroker._core.connection import CoreConnection
from shmbroker._core.consumer import CoreConsumer
from shmbroker._core.queue import CoreQueue, declare
from shmbroker._core.watch import CoreWatch
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

    Maker = Callable[[CoreConnection], Any]

NAME = "beside"


def a_queue(core: CoreConnection) -> CoreQueue:
    """Open a queue."""
    declare(core, NAME, QueueSettings(), native.FOR_EVER)
    return CoreQueue(core, NAME, core.queue_slot(NAME))


def a_channel(core: CoreConnection) -> CoreChannel:
    """Open a channel."""
    return CoreChannel(core, 1)


def a_consumer(core: CoreConnection) -> CoreConsumer:
    """Consume from a queue."""
    return CoreConsumer(core, [a_queue(core)], 1, 0, ack_batch=1, ack_interval=0)


def a_watch(core: CoreConnection) -> CoreWatch:
    """Watch a queue."""
    descriptor = os.eventfd(0)
    try:
        return CoreWatch(a_queue(core), descriptor, room=False)
    finally:
        os.close(descriptor)


ENDS: list[tuple[Maker, Any, str, bool]] = [
    (a_channel, channel, "sb_channel_close", True),
    (a_channel, channel, "sb_channel_free", False),
    (a_watch, watch, "sb_watch_close", True),
    (a_watch, watch, "sb_watch_free", False),
    (a_consumer, consumer, "sb_consumer_free", False),
    (a_queue, queue, "sb_queue_free", False),
]


@pytest.mark.parametrize(("make", "module", "call", "closes"), ENDS, ids=[end[2] for end in ENDS])
def test_the_broker_stays_mapped_until_a_handle_has_ended(  # noqa: PLR0917 (what an end is)
    broker: shmbroker.Broker,
    monkeypatch: pytest.MonkeyPatch,
    make: Maker,
    module: Any,  # noqa: ANN401
    call: str,
    closes: bool,  # noqa: FBT001
) -> None:
    """The core is inside the broker's memory, without the GIL: closing the connection detaches after it."""
    core = CoreConnection(segments.path_of(broker.name), "one")
    attached, seen = core.attachment, []

    made = make(core)
    its_own = made.handle

    def closed_meanwhile(handle: object) -> None:
        if handle == its_own:  # what other tests left may be collected meanwhile
            thread = threading.Thread(target=core.close)
            thread.start()
            thread.join()
            seen.append((core.closed, attached.handle is not None))
        getattr(native.slow, call)(handle)

    monkeypatch.setattr(module, "slow", Replaced(native.slow, **{call: closed_meanwhile}))
    if closes:
        made.close()
    else:
        del made
        gc.collect()
    assert seen == [(True, True)]
    assert attached.handle is None
    assert core.calls == 0


@pytest.mark.parametrize("make", [a_channel, a_watch])
def test_what_is_closed_after_its_connection(broker: shmbroker.Broker, make: Maker) -> None:
    """Closing it is without effect, and may be done again."""
    core = CoreConnection(segments.path_of(broker.name), "one")
    attached, made = core.attachment, make(core)
    core.close()
    for _ in range(2):
        made.close()
    assert attached.handle is None
    assert core.calls == 0
