# SPDX-License-Identifier: Apache-2.0
"""How the housekeeper carries dead messages out, turn by turn: batches, targets without room, faults on the way."""

# ruff: noqa: SLF001 (its parts are what is tested)

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.observing import assert_counts, listing

import shmbroker
from shmbroker import BasicProperties, exceptions
from shmbroker._core import dead, native
from shmbroker._housekeeper import dead_letters
from shmbroker._housekeeper.copies import Plans, _encoded
from shmbroker._housekeeper.housekeeper import Housekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Keeper = Any  # a Housekeeper, into which these tests look
SECOND = native.NANOSECONDS


class Clock:
    """A time that the test sets; it passes by itself as little as the test says."""

    def __init__(self, step: int = 0) -> None:
        self.now, self.step = 1000 * SECOND, step

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        self.now += self.step
        return self.now

    def time(self) -> float:
        """Seconds since the epoch."""
        return self.now / SECOND


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have dead letters see a clock that stands still."""
    still = Clock()
    monkeypatch.setattr(dead_letters, "time", still)
    return still


@pytest.fixture
def keeper(broker: shmbroker.Broker, connection: shmbroker.Connection) -> Iterator[Keeper]:
    """Be the housekeeper, whose turns the test makes."""
    assert connection.is_open
    broker.stop()
    one: Keeper = Housekeeper(broker.name)
    assert one.begin()
    yield one
    one.close()
    broker.start()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note which messages of the batch each commit is to carry out: the first one, and the one behind the last."""
    noted: list[tuple[int, int]] = []
    call: Callable[..., int] = dead.Batch.carry_out

    def carry_out(batch: Any, first: int, end: int) -> int:  # noqa: ANN401
        noted.append((first, end))
        return call(batch, first, end)

    monkeypatch.setattr(dead.Batch, "carry_out", carry_out)
    return noted


def queue_of_dead(connection: shmbroker.Connection, name: str = "jobs", key: str | None = "dead") -> shmbroker.Queue:
    """Return a queue whose dead messages go to the queue of that name."""
    return connection.queue(name, dead_letter_exchange="", dead_letter_routing_key=key)


def reject(queue: shmbroker.Queue, count: int) -> None:
    """Put messages 0, 1, ... and reject them."""
    queue.put_many([b"%d" % number for number in range(count)])
    for message in queue.get_many(count):
        message.nack(requeue=False)


def found(keeper: Keeper) -> Any:  # noqa: ANN401
    """Have the housekeeper find what has timers, and return its dead letters."""
    keeper._watch()
    keeper._run_timers(dead_letters.time.monotonic_ns())
    return keeper._dead_letters


def test_a_batch_goes_in_one_commit(
    keeper: Keeper, connection: shmbroker.Connection, commits: list[tuple[int, int]]
) -> None:
    """Up to 256 messages of a queue go in one commit, in their order."""
    dead_queue, jobs = connection.queue("dead"), queue_of_dead(connection)
    reject(jobs, 400)
    letters = found(keeper)
    assert letters.due == 0
    letters._carry_out(keeper._by_slot[next(iter(letters._waiting))])
    assert commits == [(0, dead.MOST)]
    letters.run(dead_letters.time.monotonic_ns())
    assert commits == [(0, 256), (0, 144)]
    assert listing(dead_queue) == [str(number) for number in range(400)]
    assert letters.due == native.FOR_EVER
    assert jobs.statistics().dead_lettered == 400


def test_other_work_has_its_turn(
    keeper: Keeper, connection: shmbroker.Connection, clock: Clock, commits: list[tuple[int, int]]
) -> None:
    """A turn ends after 10 ms; two queues take turns, and the one that had to wait comes first in the next turn."""
    connection.queue("dead")
    for name in "a", "b":
        reject(queue_of_dead(connection, name), 520)
    letters = found(keeper)
    clock.step = SECOND // 100
    slots = list(letters._waiting)
    letters.run(clock.now)
    assert commits == [(0, 256)]
    assert letters.due == 0
    assert list(letters._waiting) == slots[::-1]
    letters.run(clock.now)
    assert list(letters._waiting) == slots
    clock.step = 0
    letters.run(clock.now)
    assert [count for _, count in commits] == [256, 256, 256, 256, 8, 8]


def test_a_target_without_room_makes_the_queue_wait(
    keeper: Keeper, connection: shmbroker.Connection, clock: Clock, commits: list[tuple[int, int]]
) -> None:
    """What has room goes, by halves; the rest waits in its order, counts as scheduled, and is tried again later."""
    dead_queue, jobs = connection.queue("dead", max_length=2), queue_of_dead(connection)
    reject(jobs, 5)
    letters = found(keeper)
    letters.run(clock.now)
    assert commits == [(0, 5), (0, 2), (2, 5), (2, 3), (3, 5)]  # the last one has nothing to commit any more
    assert letters.due == clock.now + SECOND // 10
    assert_counts(jobs, ready=0, scheduled=3, delivering=0)
    letters.run(letters.due - 1)
    assert len(commits) == 5
    assert [bytes(message) for message in dead_queue.get_many(2, auto_ack=True)] == [b"0", b"1"]
    assert not keeper._core.has_timers()  # each was parked again without an entry, which would wake the housekeeper
    assert found(keeper).due == letters.due
    clock.now = letters.due
    letters.run(clock.now)
    assert listing(dead_queue) == ["2", "3"]
    dead_queue.purge()
    clock.now = letters.due
    letters.run(clock.now)
    assert listing(dead_queue) == ["4"]
    assert letters.due == native.FOR_EVER


def test_one_full_target_does_not_hold_up_messages_to_another(
    keeper: Keeper, connection: shmbroker.Connection, clock: Clock
) -> None:
    """Messages that keep their keys go to different queues: those to a full one wait, those behind them do not."""
    full, free = connection.queue("full", max_length=1), connection.queue("free")
    jobs = connection.queue("jobs", dead_letter_exchange="")
    for number in range(6):
        jobs.put(b"%d" % number, key="full" if number < 3 else "free")
    for message in jobs.get_many(6):
        message.nack(requeue=False)
    found(keeper).run(clock.now)
    assert (listing(full), listing(free)) == (["0"], ["3", "4", "5"])
    assert_counts(jobs, scheduled=2)


@pytest.mark.parametrize("fault", ["take", "plan", "alone"])
def test_without_memory_they_wait(keeper: Keeper, connection: shmbroker.Connection, clock: Clock, fault: str) -> None:
    """Messages that cannot be held, planned or copied wait as before."""
    dead_queue, jobs = connection.queue("dead"), queue_of_dead(connection)
    jobs.put_many([b"0", b"1"])
    jobs.put(b"2", headers={"x-death": "y" * 3000})
    for message in jobs.get_many(3):
        message.nack(requeue=False)
    letters = found(keeper)
    with pytest.MonkeyPatch.context() as context:
        if fault == "take":
            context.setattr(dead.Batch, "take", no_memory)
        elif fault == "plan":
            context.setattr(Plans, "plan", no_memory)
        else:
            context.setattr(letters._dead, "body", no_memory)
        letters.run(clock.now)
    assert letters.due == clock.now + SECOND // 10
    gone = 2 if fault == "alone" else 0
    assert_counts(jobs, scheduled=3 - gone, delivering=0)
    assert listing(dead_queue) == ["0", "1"][:gone]
    clock.now = letters.due
    letters.run(clock.now)
    assert listing(dead_queue) == ["0", "1", "2"]
    assert letters.due == native.FOR_EVER


def no_memory(*_: object, **__: object) -> None:
    """Have no memory."""
    raise exceptions.OutOfMemory(506, "full")


def test_a_queue_that_is_deleted_meanwhile(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """Its dead messages are deleted with it, and nothing waits for them."""
    dead_queue, jobs = connection.queue("dead"), queue_of_dead(connection)
    reject(jobs, 3)
    letters = found(keeper)
    jobs.delete()
    letters.run(dead_letters.time.monotonic_ns())
    assert letters.due == native.FOR_EVER
    assert listing(dead_queue) == []


def test_messages_that_are_gone(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """A purge leaves none; and each is looked at once."""
    dead_queue, jobs = connection.queue("dead"), queue_of_dead(connection)
    reject(jobs, 3)
    letters = found(keeper)
    jobs.purge()
    reject(jobs, 1)
    found(keeper).run(dead_letters.time.monotonic_ns())
    assert letters.due == native.FOR_EVER
    assert len(listing(dead_queue)) == 4 - jobs.statistics().killed


@pytest.mark.parametrize("known", [False, True])
def test_what_another_housekeeper_could_not_carry_out_is_found_again(
    keeper: Keeper, broker: shmbroker.Broker, connection: shmbroker.Connection, *, known: bool
) -> None:
    """A stand-in has a dead message in hand, returns it, and ends; the housekeeper, which continues, carries it out.

    The housekeeper looks at the message while the stand-in has it, whether it knows the message from before or not.
    """
    dead_queue, jobs = connection.queue("dead"), queue_of_dead(connection)
    other: Keeper = Housekeeper(broker.name, "stand-in")
    reject(jobs, 1)
    if known:
        assert found(keeper).due == 0
    (slot,) = found(other)._waiting
    queue = other._by_slot[slot]
    batch = other._dead_letters._batch
    assert batch.take(queue, other._core.memory_of(queue), exact=False) == native.OK
    letters = found(keeper)
    letters.run(dead_letters.time.monotonic_ns())
    keeper._run_timers(dead_letters.time.monotonic_ns())
    assert letters.due == native.FOR_EVER
    batch.end(other._core.memory_of(queue))
    other.close()
    keeper._run_timers(dead_letters.time.monotonic_ns() + SECOND)
    letters.run(dead_letters.time.monotonic_ns())
    assert listing(dead_queue) == ["0"]
    assert_counts(jobs, message_count=0, dead_lettered=1)
    keeper._run_timers(dead_letters.time.monotonic_ns() + 2 * SECOND)
    assert keeper._core.looks() == 0


def test_a_target_that_is_younger_than_the_last_look(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """The housekeeper opens it for the message."""
    jobs = queue_of_dead(connection)
    reject(jobs, 1)
    letters = found(keeper)
    dead_queue = connection.queue("dead")
    letters.run(dead_letters.time.monotonic_ns())
    assert listing(dead_queue) == ["0"]
    assert [queue.name for queue in keeper._core.queues].count("dead") == 1


def test_no_target_is_said_once(
    keeper: Keeper, connection: shmbroker.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue whose dead messages go nowhere drops them, and one warning names queue, exchange and key."""
    caplog.set_level(logging.WARNING, "shmbroker")
    jobs = queue_of_dead(connection)
    other = connection.queue("other", dead_letter_exchange="missing")
    for queue in jobs, other:
        reject(queue, 3)
        reject(queue, 1)
    found(keeper).run(dead_letters.time.monotonic_ns())
    text = "queue %r: a dead message was dropped: exchange %r leads it, with key %r, to no queue (said once)"
    assert [record.getMessage() for record in caplog.records] == [
        text % ("jobs", "", "dead"),
        text % ("other", "missing", "other"),
    ]
    for queue in jobs, other:
        assert_counts(queue, scheduled=0, delivering=0)
        assert (queue.statistics().dropped, queue.statistics().dead_lettered) == (4, 0)


def test_a_target_with_a_ttl(keeper: Keeper, connection: shmbroker.Connection) -> None:
    """The copy in a queue that limits the life of its messages expires there, and the other does not."""
    channel = connection.channel()
    channel.exchange_declare("dlx", "fanout")
    short, long = connection.queue("short", message_ttl=3600), connection.queue("long")
    for name in "short", "long":
        channel.queue_bind(name, "dlx")
    jobs = connection.queue("jobs", dead_letter_exchange="dlx")
    jobs.put(b"x", ttl=7200)
    jobs.get().nack(requeue=False)
    found(keeper).run(dead_letters.time.monotonic_ns())
    assert (len(short), len(long)) == (1, 1)
    found(keeper)
    assert keeper._core.looks() == 1
    short.purge()
    keeper._run_timers(dead_letters.time.monotonic_ns() + 3601 * SECOND)
    assert keeper._core.looks() == 0


@pytest.mark.parametrize(
    ("others", "queues", "kept"),
    [
        (0, 3, 3),
        (0, 2000, 1),
        (63_840, 2, 1),
    ],
)
def test_deaths_that_take_too_much_room_are_left_out(others: int, queues: int, kept: int) -> None:
    """All but the latest, and then details of that; the other headers stay."""
    told = [{"queue": f"q{number}", "reason": "expired", "count": 1, "exchange": "e" * 20} for number in range(queues)]
    properties = BasicProperties(headers={"x": "y" * others, "x-death": told})
    headers = shmbroker.properties.decode(_encoded(properties)).headers
    assert headers == {"x": "y" * others, "x-death": told[:kept]}


def test_headers_without_any_room() -> None:
    """What cannot be encoded at all is left out, but for the latest death."""
    told = [{"queue": "q", "reason": "expired", "count": 1, "exchange": "e"}]
    properties = BasicProperties(headers={"x": "y" * 70_000, "x-death": told})
    bare = {"queue": "q", "reason": "expired", "count": 1}
    assert shmbroker.properties.decode(_encoded(properties)).headers == {"x-death": [bare]}
