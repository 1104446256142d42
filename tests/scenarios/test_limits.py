# SPDX-License-Identifier: Apache-2.0
"""Limits of queues: what is evicted, who waits, and that nobody waits for ever."""

from __future__ import annotations

import contextlib
import queue as standard_queue
import signal
import threading
from typing import TYPE_CHECKING, Self

import pytest
from scenario_support.observing import assert_balanced, assert_counts, listing, numbered, put_each, take
from scenario_support.processes import actors
from scenario_support.waiting import becomes, eventually

import shmbroker
from shmbroker._session.queues import core_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = 900


def waiting(queue: shmbroker.Queue) -> int:
    """Return how many producers wait for room in a queue."""
    return core_of(queue).facts().room_waiting


# ---- evictions ----


def test_q62_by_bytes_as_many_as_needed(connection: shmbroker.Connection) -> None:
    """100 bytes: 20+20+30+30, then 30 more: the two of 20 go, so that 3 messages of 90 bytes are left."""
    queue = connection.queue("q", max_bytes=100, overflow="drop-head")
    put_each(queue, ["a" * 20, "b" * 20, "c" * 30, "d" * 30])
    assert_counts(queue, ready=4, bytes=100, dropped=0)  # Q65: exactly at the limit, nothing goes
    queue.put(b"e" * 30)
    assert [body[0] for body in listing(queue)] == ["c", "d", "e"]
    assert_counts(queue, ready=3, bytes=90, dropped=2)
    assert_balanced(queue)


@pytest.mark.parametrize("settings", [{"ring_size": 2}, {"max_length": 2, "overflow": "drop-head"}])
def test_q63_the_next_oldest_goes(connection: shmbroker.Connection, settings: dict[str, int]) -> None:
    """Max 2, the oldest held by a consumer: the next oldest is dropped, not the held one, not the new one."""
    queue = connection.queue("q", **settings)
    put_each(queue, "AB")
    held = queue.get_nowait()
    put_each(queue, "C")  # what is held does not count
    assert_counts(queue, ready=2, replaced=0, dropped=0)
    put_each(queue, "D")
    assert listing(queue) == ["C", "D"]
    found = queue.statistics()
    assert found.replaced + found.dropped == 1
    assert bytes(held) == b"A"
    held.ack()
    assert_balanced(queue)


@pytest.mark.parametrize("overflow", ["block", "drop", "reject-publish"])
@pytest.mark.parametrize("settings", [{"max_length": 3}, {"max_bytes": 6}])
def test_q65_exactly_at_the_limit(connection: shmbroker.Connection, overflow: str, settings: dict[str, int]) -> None:
    """Exactly as much as the limit fits; one more does not, and nothing that is ready goes for it."""
    queue = connection.queue("q", overflow=overflow, **settings)
    put_each(queue, ["aa", "bb", "cc"], timeout=0)
    with contextlib.suppress(standard_queue.Full):
        queue.put(b"dd", timeout=0)
    assert listing(queue) == ["aa", "bb", "cc"]
    assert_counts(queue, dropped=int(overflow == "drop"))
    assert_balanced(queue)


def test_q67_exact_across_processes(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Eight processes put at the same time into a queue that rejects: exactly as many as fit are in it."""
    queue = connection.queue("q", max_length=100, overflow="reject-publish")
    with actors(broker.name, 8) as producers:
        for producer in producers:
            producer.begin("put_until_full", queue="q")
        put = [producer.result() for producer in producers]
    assert (sum(put), len(queue)) == (100, 100)
    assert_balanced(queue)


# ---- blocked producers ----


@contextlib.contextmanager
def blocked(broker: shmbroker.Broker, body: bytes = b"late") -> Iterator[list[BaseException | None]]:
    """Let a thread with its own connection put into the full queue; at the end, the list has its outcome."""
    outcome: list[BaseException | None] = []
    with broker.connect() as connection:
        queue = connection.queue("q", passive=True)

        def put() -> None:
            try:
                queue.put(body)
                outcome.append(None)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                outcome.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        becomes(lambda: waiting(queue) + len(outcome) > 0, expected=True)
        yield outcome
        thread.join()


def test_q69_three_and_a_half(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Bytes for three and a half messages: the fourth waits, a new producer waits at once; one get lets it go on."""
    queue = connection.queue("q", max_bytes=35)
    put_each(queue, ["a" * 10, "b" * 10, "c" * 10], timeout=0)
    with blocked(broker, b"d" * 10) as outcome:
        with pytest.raises(standard_queue.Full):
            queue.put(b"e" * 10, timeout=0)
        assert outcome == []
        queue.get_nowait(auto_ack=True)
    assert outcome == [None]
    assert [body[0] for body in listing(queue)] == ["b", "c", "d"]


@pytest.mark.parametrize(("limit", "low", "high"), [("max_length", 1, 2), ("max_bytes", 8, 9)])
def test_q69_a_higher_limit_resumes(
    broker: shmbroker.Broker, connection: shmbroker.Connection, limit: str, low: int, high: int
) -> None:
    """Raising the limit lets a blocked producer go on."""
    queue = connection.queue("q", **{limit: low})
    queue.put(b"first")
    with blocked(broker) as outcome:
        queue.configure(**{limit: high})
    assert outcome == [None]
    assert listing(queue) == ["first", "late"]


@pytest.mark.parametrize("resume_at", [100, 50])
def test_q69_a_deletion_ends_the_wait(
    broker: shmbroker.Broker, connection: shmbroker.Connection, resume_at: int
) -> None:
    """Deleting the queue ends the wait of a blocked producer with NotFound, also while it waits for `resume_at`."""
    queue = connection.queue("q", max_length=1, resume_at=resume_at)
    queue.put(b"first")
    with blocked(broker) as outcome:
        queue.delete()
    assert [type(one) for one in outcome] == [shmbroker.NotFound]


def test_q70_drained_while_it_blocks(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A consumer that drains the queue beside the calls that block leaves no producer blocked."""
    connection.queue("q", max_length=2)
    bodies = numbered(600)
    with broker.connect() as other:
        producer = other.queue("q", passive=True)
        thread = threading.Thread(target=lambda: put_each(producer, bodies))
        thread.start()
        assert take(connection.queue("q"), len(bodies)) == bodies
        thread.join()
    assert_counts(connection.queue("q"), ready=0, added=600)


def test_t58_a_producer_goes_on_whenever_there_is_room(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """A process puts 1,200 messages into a queue of 100, which blocks it: the consumer gets all of them in order."""
    queue = connection.queue("q", max_length=100)
    bodies = numbered(1200)
    with actors(broker.name, 1) as (producer,):
        producer.begin("put", queue="q", bodies=bodies)
        becomes(lambda: waiting(queue), 1)
        assert_counts(queue, ready=100)
        assert take(queue, 1200) == bodies
        producer.result()
    assert_balanced(queue)


def test_t58_a_closed_session_ends_the_wait(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A producer that is blocked ends with an error when its connection is closed; nothing of it stays."""
    queue = connection.queue("q", max_length=1)
    queue.put(b"first")
    outcome: list[BaseException] = []
    other = broker.connect()
    producer = other.queue("q", passive=True)

    def put() -> None:
        try:
            producer.put(b"late")
        except shmbroker.ConnectionClosed as error:
            outcome.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    becomes(lambda: waiting(queue), 1)
    other.close()
    thread.join()
    assert len(outcome) == 1
    assert waiting(queue) == 0
    assert listing(queue) == ["first"]


def test_a_blocked_producer_can_be_interrupted(connection: shmbroker.Connection) -> None:
    """A signal whose handler raises ends the wait of a blocked producer, and nothing is put."""
    queue = connection.queue("q", max_length=1)
    queue.put(b"first")
    main = threading.main_thread().ident

    def interrupt(*_: object) -> None:
        raise InterruptedError

    def send() -> None:
        becomes(lambda: waiting(queue), 1)
        assert main is not None
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        with pytest.raises(InterruptedError):
            queue.put(b"late")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert listing(queue) == ["first"]
    assert waiting(queue) == 0


# ---- turns ----


class Stream:
    """A thread that keeps a queue full of small messages: it takes one only when it has no room for the next one."""

    def __init__(self, broker: shmbroker.Broker) -> None:
        self._broker, self._over = broker, threading.Event()
        self.put, self.large = 0, 0
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        with self._broker.connect() as connection:
            queue = connection.queue("q", passive=True)
            while not self._over.is_set():
                try:
                    queue.put(b"x" * 10, timeout=0)
                    self.put += 1
                except standard_queue.Full:
                    with contextlib.suppress(standard_queue.Empty):
                        self.large += len(queue.get_nowait(auto_ack=True)) == LARGE

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_large_message_is_not_passed_for_ever(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Small messages come without end, and a large one waits: it takes its turn, and gets its room."""
    queue = connection.queue("q", max_bytes=1000)
    put_each(queue, ["x" * 10] * 90)
    with Stream(broker) as stream:
        before = eventually(lambda: stream.put, "small messages")
        queue.put(b"L" * LARGE)
        eventually(lambda: stream.large, "the large message")
        after = stream.put
        eventually(lambda: stream.put > after, "small messages afterwards")
    assert after >= before
    assert_balanced(queue)


def test_a_killed_producer_gives_its_turn_up(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """A producer is killed while it has its turn: the small messages that waited for it go on."""
    queue = connection.queue("q", max_bytes=1000)
    put_each(queue, ["x" * 10] * 99)
    with actors(broker.name, 1) as (victim,):
        victim.begin("put", queue="q", bodies=["L" * LARGE])
        becomes(lambda: waiting(queue), 1)

        def refused() -> bool:
            queue.get_nowait(auto_ack=True)  # room for a small one, which passes until the turn is taken
            try:
                queue.put(b"x" * 10, timeout=0)
            except standard_queue.Full:
                return True
            return False

        eventually(refused, "the turn")
        victim.kill()
        queue.put(b"after")
    assert listing(queue)[-1] == "after"
    assert_balanced(queue)
