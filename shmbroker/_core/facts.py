# SPDX-License-Identifier: Apache-2.0
"""Facts of queues, their consumers, and brokers, copied out of the structures in which the core describes them.

This module has no ``from __future__ import annotations``. It would make each annotation a string, and a named tuple
compiles each string, which makes the import slower.
"""

import operator
import time
from typing import Any, NamedTuple

from shmbroker._core import native
from shmbroker.statistics import (
    BrokerStatistics,
    ConsumerInfo,
    QueueMemory,
    QueueStatistics,
    Repairs,
    StoreStatistics,
)

ffi, slow = native.ffi, native.slow
_STATES = {
    slow.SB_NODE_REMOVED: "removed",
    slow.SB_NODE_NOT_INTERESTED: "not_interested",
    slow.SB_NODE_INTERESTED: "interested",
    slow.SB_NODE_NOTIFIED: "notified",
    slow.SB_NODE_NON_ACQUIRING: "non_acquiring",
}
_WAITS_FOR = {
    slow.SB_WAITS_CONSUMER: "consumer",
    slow.SB_WAITS_PRODUCER: "producer",
    slow.SB_WAITS_LOAD: "load",
    slow.SB_WAITS_DISPATCH: "dispatch",
}
_UNKNOWN = 2**64 - 1  # of a sequence number: UINT64_MAX
_STORE_STATES = {
    slow.SB_STORES_RESTORING: "restoring",
    slow.SB_STORES_UNVERIFIED: "verifying",
    slow.SB_STORES_READY: "ready",
    slow.SB_STORES_DAMAGED: "damaged",
}
_MEMORY_STATES = {
    slow.SB_MEMORY_NORMAL: "normal",
    slow.SB_MEMORY_WARNING: "warning",
    slow.SB_MEMORY_BLOCKED: "blocked",
}
WHOLE = 1000
"""The core stores shares of the memory in thousandths."""
_COUNTED, _DIRECT = slow.SB_NODE_COUNTED, slow.SB_NODE_DIRECT


class SettingsFacts(NamedTuple):
    """The settings of a queue in the core's form.

    Attributes:
        values: the numeric settings. The constants ``SB_SETTING_...`` are the indexes; -1 = none.
        flags: bits ``SB_QUEUE_...``.
        texts_length: the bytes of the encoded table of the settings that the core stores as strings; 0: there are none.
    """

    values: list[int]
    flags: int
    texts_length: int


class QueueFacts(NamedTuple):
    """A queue at one moment. It has those fields of ``sb_queue_facts`` that serve for more than statistics.

    Attributes:
        owner: the connection of an exclusive queue; 0: none.
        locked: 1 if another connection owns the queue.
        tail: about the number of messages that were put or moved into the queue so far. In a queue without limits, it
            may lag behind by up to seven. It also counts positions without a message, such as those of undone commits.
        used_ns: a monotonic time in nanoseconds: at least the creation of the queue, and the last end of a consumer.
        had_consumer: 1 if any consumer was ever registered.
    """

    name: str
    settings: SettingsFacts
    slot: int
    incarnation: int
    ready: int
    delivering: int
    scheduled: int
    bytes: int
    added: int
    acked: int
    moved: int
    delivered: int
    tail: int
    created_ns: int
    used_ns: int
    owner: int
    locked: int
    had_consumer: int
    consumers: int
    interested: int
    notified: int
    room_waiting: int


class BrokerFacts(NamedTuple):
    """A broker at one moment. It has those fields of ``sb_broker_facts`` that serve for more than statistics.

    Sizes are in bytes.
    """

    memory_limit: int
    memory_used: int
    memory_structures: int
    memory_bodies: int
    memory_room: int
    instance: int
    created_ns: int
    ticks: int
    segments: int
    segments_limit: int
    chunks_per_segment: int
    queues: int
    stopped: int
    connections: int
    processes: int
    housekeeper_pid: int
    closing: int
    mode: int
    housekeeper_stopped: int


_queue_numbers = operator.attrgetter(*QueueFacts._fields[2:])
# The fields without the first two and the last: the name is no number, the count is the sum of three other fields, and
# `memory` has its own structure.
_STATISTICS = QueueStatistics.__match_args__[2:-1]
_REGIONS = QueueMemory.__match_args__[:5]
_broker_numbers = operator.attrgetter(*BrokerFacts._fields)
# Where ``sb_broker_facts`` has the statistics of a broker. A field that is not listed here has the same name there.
_NAMES_IN_CORE = {
    "queue_count": "queues",
    "connection_count": "connections",
    "process_count": "processes",
    "created_at": "created_ns",
}
_BROKER_STATISTICS = {name: _NAMES_IN_CORE.get(name, name) for name in BrokerStatistics.__match_args__[1:-1]}


def _name(found: Any) -> str:  # noqa: ANN401 - cffi has no types
    return bytes(ffi.buffer(found.name, found.name_length)).decode(errors="replace")


def facts_of_queue(found: Any) -> QueueFacts:  # noqa: ANN401 - cffi has no types
    """Copies an ``sb_queue_facts``."""
    settings = SettingsFacts(list(found.settings.values), found.settings.flags, found.settings.texts_length)
    return QueueFacts(_name(found), settings, *_queue_numbers(found))


def memory_of_queue(found: Any, regions: Any) -> QueueMemory:  # noqa: ANN401 - cffi has no types
    """Copies an ``sb_regions``; `found` is the ``sb_queue_facts`` of the queue, which was read before."""
    sizes = {name: getattr(regions, name) for name in _REGIONS}
    away = max(0, found.bytes - sum(sizes.values())) if regions.has_watermark else 0
    hits = max(0, found.delivered - found.misses)
    watermark = regions.watermark if regions.has_watermark else None
    return QueueMemory(**sizes, away=away, hits=hits, misses=found.misses, watermark=watermark)


def statistics_of_queue(found: Any, regions: Any = None) -> QueueStatistics:  # noqa: ANN401 - cffi has no types
    """Copies the statistics of a queue out of an ``sb_queue_facts``, which has the same names for them.

    While a consumer moves from one list of the queue to another, a list's length may be negative: it counts as 0.
    `regions`: the ``sb_regions`` of a stored queue.
    """
    values = {name: max(0, getattr(found, name)) for name in _STATISTICS}
    count = values["ready"] + values["delivering"] + values["scheduled"]
    values["delivering"] += found.reading  # these messages are ready, too
    memory = None if regions is None else memory_of_queue(found, regions)
    return QueueStatistics(_name(found), count, **values, memory=memory)


def consumer_of(queue: str, fact: Any, now: int) -> ConsumerInfo:  # noqa: ANN401 - cffi has no types
    """Copies an ``sb_consumer_facts``; `now` is the time in nanoseconds of the monotonic clock."""
    is_known = fact.reached != _UNKNOWN
    return ConsumerInfo(
        queue=queue,
        connection=fact.connection,
        channel=fact.channel,
        pid=fact.pid,
        state=_STATES.get(fact.state, "unknown"),
        priority=fact.priority,
        prefetch=fact.prefetch,
        unacked=fact.unacked,
        delivered=fact.delivered,
        waiting=not fact.flags & _COUNTED,
        prefetch_bytes=fact.prefetch_bytes,
        waits_for=_WAITS_FOR[fact.waits_for],
        reached=fact.reached if is_known else None,
        watermark=fact.watermark if fact.watermark != _UNKNOWN else None,
        scan_lag=fact.lag if is_known else None,
        stalled_seconds=max(0, now - fact.still_ns) / native.NANOSECONDS if fact.still_ns else 0.0,
        stalled=bool(fact.still_ns and fact.told),
    )


def consumers_in(queue: str, found: Any) -> list[ConsumerInfo]:  # noqa: ANN401 - cffi has no types
    """Copies the facts of a queue's consumers, and of the threads that wait in a get for its messages.

    ``found`` has an entry for each node of the queue (``sb_nodes.h``): consumers, waiting calls, and watches, which are
    left out.
    """
    now = time.monotonic_ns()
    return [
        consumer_of(queue, fact, now)
        for fact in found
        if fact.flags & _COUNTED or (fact.flags & _DIRECT and _STATES.get(fact.state) in {"interested", "notified"})
    ]


def facts_of_broker(found: Any) -> BrokerFacts:  # noqa: ANN401 - cffi has no types
    """Copies an ``sb_broker_facts``."""
    return BrokerFacts(*_broker_numbers(found))


def statistics_of_store(
    data_dir: str,
    stores: int,
    sync: str,
    policy: str,
    found: Any,  # noqa: ANN401 - cffi has no types
    *,
    full: bool,
) -> StoreStatistics:
    """Copies the statistics of a store out of an ``sb_store_facts``; `stores` is one of ``SB_STORES_``."""
    seconds = found.sync_ns / native.NANOSECONDS
    left = found.left, found.came_back
    return StoreStatistics(
        data_dir, _STORE_STATES[stores], sync, found.keeper, found.turns, seconds, found.messages, *left, policy, full
    )


def statistics_of_broker(
    name: str,
    found: Any,  # noqa: ANN401 - cffi has no types
    store: StoreStatistics | None,
) -> BrokerStatistics:
    """Copies the statistics of the broker ``name`` out of an ``sb_broker_facts``."""
    values = {field: getattr(found, of_core) for field, of_core in _BROKER_STATISTICS.items()}
    values["created_at"] /= native.NANOSECONDS
    values["housekeeper_stopped"] = bool(values["housekeeper_stopped"])
    values["repairs"] = Repairs(*values["repairs"])
    values["memory_state"] = _MEMORY_STATES[values["memory_state"]]
    for mark in ("memory_high_watermark", "memory_warning"):
        values[mark] = values[mark] / WHOLE if values[mark] else None
    values["explained_repairs"] = Repairs(*values["explained_repairs"])
    return BrokerStatistics(name, **values, store=store)
