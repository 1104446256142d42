# SPDX-License-Identifier: Apache-2.0
"""Facts are copies: they outlive the structure that they were copied from, and have nothing of cffi."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from scenario_support.inside import core_of

from shmbroker._core import native
from shmbroker._core.facts import (
    BrokerFacts,
    QueueFacts,
    SettingsFacts,
    facts_of_broker,
    facts_of_queue,
    statistics_of_broker,
    statistics_of_store,
)
from shmbroker.statistics import BrokerStatistics, Repairs, StoreStatistics

if TYPE_CHECKING:
    import shmbroker

FFI, LIB = native.ffi, native.slow


def filled(structure: Any, fields: list[str]) -> dict[str, int]:  # noqa: ANN401
    """Give each field another number, and return them."""
    numbers = {field: 10 + at for at, field in enumerate(fields)}
    for field, number in numbers.items():
        setattr(structure, field, number)
    return numbers


def test_facts_of_a_queue() -> None:
    """Each number is that of its name, the name ends where the core says so, and no text is too odd for it."""
    found = FFI.new("sb_queue_facts *")
    found.name, found.name_length = b"\xffname that goes on", 5
    found.settings.values = values = [-1, *range(2, 1 + LIB.SB_SETTINGS)]
    settings = SettingsFacts(values, **filled(found.settings, ["flags", "texts_length"]))
    numbers = filled(found, [field for field in QueueFacts._fields if field not in {"name", "settings"}])
    facts = facts_of_queue(found)
    FFI.release(found)
    assert facts == QueueFacts(name="\N{REPLACEMENT CHARACTER}name", settings=settings, **numbers)
    assert {type(value) for value in facts} == {str, int, SettingsFacts}
    assert {type(value) for value in facts.settings.values} == {int}


def test_facts_of_a_broker() -> None:
    """Each number is that of its name."""
    found = FFI.new("sb_broker_facts *")
    numbers = filled(found, list(BrokerFacts._fields))
    facts = facts_of_broker(found)
    FFI.release(found)
    assert facts == BrokerFacts(**numbers)
    assert {type(value) for value in facts} == {int}


def test_statistics_of_a_broker() -> None:
    """Each number is that of its name, or of the name that the core has for it; repairs are counted by kind."""
    found = FFI.new("sb_broker_facts *")
    kinds = [field.name for field in dataclasses.fields(Repairs)]
    lists = {"repairs": [1, 2, 3, 4, 5, 6], "explained_repairs": [6, 5, 4, 3, 2, 1]}
    found.repairs, found.explained_repairs = lists.values()
    there = {"queue_count": "queues", "connection_count": "connections", "process_count": "processes"}
    marks = {"memory_high_watermark": 500, "memory_warning": 0}  # in thousandths; 0 = none
    other = {"name", "created_at", "housekeeper_stopped", "memory_state", "store", *marks, *lists}
    fields = [field.name for field in dataclasses.fields(BrokerStatistics) if field.name not in other]
    filled(found, [there.get(field, field) for field in fields])
    found.created_ns, found.housekeeper_stopped = 1_500_000_000, 1
    found.memory_high_watermark, found.memory_warning = marks.values()
    store = StoreStatistics("/var/b", "ready", "always", 1, 2, 3.0, 4, 5, 6, "refuse", is_full=True)
    statistics = statistics_of_broker("b", found, store)
    FFI.release(found)
    assert statistics == BrokerStatistics(
        name="b",
        created_at=1.5,
        housekeeper_stopped=True,
        memory_state="normal",
        memory_high_watermark=0.5,
        memory_warning=None,
        store=store,
        **{field: 10 + at for at, field in enumerate(fields)},  # type: ignore[arg-type]
        **{which: Repairs(**dict(zip(kinds, numbers, strict=True))) for which, numbers in lists.items()},
    )
    assert statistics.housekeeper_stopped is True


def test_the_facts_of_what_there_is(connection: shmbroker.Connection) -> None:
    """A queue and its broker are described with their numbers of now."""
    queue = connection.queue("q", max_length=5)
    queue.put(b"four")
    facts = core_of(queue).facts()
    assert (facts.name, facts.ready, facts.bytes) == ("q", 1, 4)
    assert facts.settings.values[LIB.SB_SETTING_MAX_LENGTH] == 5
    assert (core_of(queue).connection.attachment.facts().queues, facts.locked) == (1, 0)


def test_statistics_of_a_store() -> None:
    """Each number is that of its name; the time is in seconds."""
    found = FFI.new("sb_store_facts *")
    filled(found, ["messages", "came_back", "turns", "left", "keeper"])
    found.sync_ns = 1_500_000_000
    statistics = statistics_of_store("/var/b", 3, "interval", "refuse", found, full=True)
    FFI.release(found)
    assert statistics == StoreStatistics(
        data_dir="/var/b",
        state="verifying",
        sync="interval",
        storekeeper_pid=14,
        turns=12,
        sync_seconds=1.5,
        messages_per_turn=10,
        left=13,
        came_back=11,
        store_full="refuse",
        is_full=True,
    )
