# SPDX-License-Identifier: Apache-2.0
"""Memory that is full: who is told what, and who goes on."""

from __future__ import annotations

import re
import threading

import pytest
from scenario_support.brokers import running
from scenario_support.inside import core_of
from scenario_support.observing import assert_counts, take

import shmbroker
from shmbroker._broker import connecting
from shmbroker.exceptions import OutOfMemory


def test_a_body_that_can_never_fit_is_refused_at_once(broker_name: str) -> None:
    """A body larger than the broker's memory is OutOfMemory, though put may wait."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        with pytest.raises(OutOfMemory):
            queue.put(bytes(33 * 2**20), timeout=None)
        queue.put(b"A")
        assert take(queue, 1) == ["A"]
        assert connection.doctor() == []


def filled(queue: shmbroker.Queue, size: int) -> tuple[str, int]:
    """Put bodies until memory is full; return what the error said, and how many."""
    for count in range(1000):
        try:
            queue.put(bytes(size), timeout=0)
        except OutOfMemory as full:
            return str(full), count
    message = "memory never got full"
    raise AssertionError(message)


def test_out_of_memory_says_who_has_it(broker_name: str) -> None:
    """When memory is full the error names what is used, the limit, the largest queue.

    And the memory is usable again as soon as messages go.
    """
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        small, hoard = connection.queue("small"), connection.queue("hoarder")
        small.put(bytes(100_000))
        said, _ = filled(hoard, 100_000)
        assert "hoarder" in said
        assert "small" not in said
        assert f"of {32 << 20} bytes are used" in said
        kept = re.search(r"(\d+) are kept for structures, (\d+) for bodies, (\d+) are free", said)
        assert kept is not None
        assert sum(map(int, kept.groups())) == 32 << 20
        assert int(kept[2]) >= hoard.statistics().bytes >= 8 << 20
        assert int(kept[3]) == 0
        with pytest.raises(OutOfMemory):
            small.put(bytes(100_000), timeout=0.02)
        kept = hoard.statistics().message_count
        assert kept * 100_000 >= 8 * 2**20
        hoard.get().ack()
        small.put(bytes(100_000), timeout=10)
        hoard.purge()
        for _ in range(kept - 1):
            hoard.put(bytes(100_000), timeout=10)
        assert connection.doctor() == []


SHORT_SLOTS = re.compile(
    r"(?P<chunks>\d+) (?:is|are) kept by slots of 256 bytes "
    r"\((?P<used>\d+) of \d+ in use, (?P<least>at least |)(?P<held>\d+) of them by queue '(?P<queue>\w+)'\)"
)


def kept_by_short_slots(said: str) -> tuple[int, int, int, str, str]:
    """Return what an error says of slots of 256 bytes: chunks, slots in use, those of a queue, which, "at least"."""
    found = SHORT_SLOTS.search(said)
    assert found is not None, said
    return int(found["chunks"]), int(found["used"]), int(found["held"]), found["queue"], found["least"]


def fill_by_turns(*queues: shmbroker.Queue) -> tuple[str, int]:
    """Put empty bodies until memory is full; return what the error said, and how many."""
    put = 0
    try:
        while True:
            queues[put % len(queues)].put(b"", timeout=0)
            put += 1
    except OutOfMemory as full:
        return str(full), put


def test_out_of_memory_says_what_keeps_it(broker_name: str) -> None:
    """A few short messages that stay of many keep most chunks: their size, how many, and their queue are named."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        goes, stays = connection.queue("goes"), connection.queue("stays")
        said, put = fill_by_turns(stays, *[goes] * 4095)
        chunks, used, held, name, least = kept_by_short_slots(said)
        assert (used, name, least) == (put, "goes", "at least ")  # it looks at this many cells, and no more
        assert 10_000 < held < put
        goes.purge()
        left = stays.statistics().ready
        stays.get()  # what is being delivered is kept too
        said, _ = filled(goes, 12_500_000)
        again, *others = kept_by_short_slots(said)
        assert others == [left, left, "stays", ""]
        assert chunks - 1 <= again <= chunks  # a chunk of which nothing is left may go
        assert " kept for pages of queues" in said


def test_out_of_memory_counts_bodies_in_parts_and_in_chunks_of_their_own(broker_name: str) -> None:
    """A body in short slots keeps all of them; one that is longer than any slot keeps chunks."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        parts, whole, goes = connection.queue("parts"), connection.queue("whole"), connection.queue("goes")
        whole.put(bytes(5 << 20))
        stays = connection.queue("stays")
        fill_by_turns(stays, goes)
        goes.purge()
        parts.put(bytes(1_000_000), timeout=0)
        stays.purge()
        said, _ = filled(goes, 10_000_000)
        _, used, held, name, least = kept_by_short_slots(said)
        assert (name, least) == ("parts", "")
        assert used == held > 1_000_000 // 256
        assert "3 are kept by 1 bodies in chunks of their own, 1 of them by queue 'whole'" in said


def test_a_put_that_waits_for_memory_goes_on(broker_name: str) -> None:
    """overflow="block" waits for memory too: it goes on when messages are acked."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue = connection.queue("q")
        _, put = filled(queue, 500_000)
        with broker.connect() as second:
            producer = second.queue("q")
            thread = threading.Thread(target=lambda: producer.put(b"z" * 500_000))
            thread.start()
            queue.get().ack()
            thread.join()
        assert_counts(queue, added=put + 1, message_count=put)


def filled_while_queues_come_and_go(connection: shmbroker.Connection) -> tuple[shmbroker.Queue, int]:
    """Return an empty queue, and how many bodies of 900,000 bytes fit into it before other queues had the memory."""
    queue = connection.queue("bodies")
    _, fit = filled(queue, 900_000)
    queue.purge()
    for number in range(18_000):  # each place of a queue is used five times: its positions need another page then
        connection.queue(f"q{number}").delete()
    return queue, fit


def test_what_deleted_queues_had_serves_what_is_needed_now(broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind of memory that is, and without a housekeeper: queues come and go as fast as one can."""
    monkeypatch.setattr(connecting, "ensure_housekeeper", lambda _name: None)
    shmbroker.Broker(broker_name, memory="32M").create()
    with shmbroker.connect(broker_name, create=False) as connection:
        queue, before = filled_while_queues_come_and_go(connection)
        core_of(connection).let_go(at_once=True)
        said, now = filled(queue, 900_000)
        assert now >= before - 2, said


def test_what_deleted_queues_had_serves_a_put_that_waits(broker_name: str) -> None:
    """A housekeeper that looks at a queue while it is deleted keeps its memory until its next look, and no longer."""
    with running(broker_name, "32M") as broker, broker.connect() as connection:
        queue, before = filled_while_queues_come_and_go(connection)
        for _ in range(before - 2):
            queue.put(bytes(900_000))
