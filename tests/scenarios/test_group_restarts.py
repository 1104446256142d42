# SPDX-License-Identifier: Apache-2.0
"""Consumer groups of durable queues, after the loss of all processes and of the memory: each message is there once."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from scenario_support.lasting import Lasting, absent
from scenario_support.waiting import eventually

import shmbroker
from shmbroker import exceptions
from shmbroker._session.queues import core_of
from shmbroker.body_references import body_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = 3600.0
Seen = list[tuple[bytes, int]]
"""Messages: the body and the sequence number of each."""


@pytest.fixture
def lasting(broker_name: str, tmp_path: Path) -> Iterator[Lasting]:
    """Begin a broker with an empty store."""
    with contextlib.closing(Lasting(broker_name, tmp_path)) as made:
        yield made


def numbers(first: int, end: int) -> list[bytes]:
    """Bodies."""
    return [b"%d" % number for number in range(first, end)]


def filled(lasting: Lasting, count: int, **settings: object) -> shmbroker.Queue:
    """A durable queue with messages."""
    queue = lasting.connection.queue("q", durable=True, **settings)
    queue.put_many(numbers(0, count))
    return queue


def group_of(lasting: Lasting, *, attach: bool = True) -> shmbroker.Group:
    """A user of the group of the queue."""
    group = shmbroker.Group(lasting.connection, "q", "g")
    if attach:
        group.attach()
    return group


def seen(group: shmbroker.Group, number: int) -> Seen:
    """The messages of a lease."""
    return [(bytes(one), one.sequence) for one in group.messages(number)]


def test_leases_are_the_same(lasting: Lasting) -> None:
    """Their numbers, and the bodies and sequence numbers of their messages; the next lease has what comes then."""
    filled(lasting, 10)
    group = group_of(lasting)
    assert (group.lease(0, max_messages=4), group.lease(1, max_messages=3)) == (1, 2)
    before = [seen(group, 1), seen(group, 2)]
    lasting.restart()
    reads = group_of(lasting, attach=False)
    assert (reads.acked, reads.leased, len(lasting.queue())) == (0, 2, 3)
    assert [seen(reads, 1), seen(reads, 2)] == before
    group = group_of(lasting)
    assert group.begun == 0
    assert group.lease(1) == 2
    assert group.lease(2) == 3
    assert [body for number in (1, 2, 3) for body, _ in seen(group, number)] == numbers(0, 10)
    lasting.restart()
    assert [seen(group_of(lasting, attach=False), number) for number in (1, 2)] == before
    assert lasting.connection.doctor() == []


def test_a_message_does_not_expire_in_a_lease(lasting: Lasting) -> None:
    """Its life ended while there was no broker."""
    queue = lasting.connection.queue("q", durable=True)
    queue.put(b"short", ttl=0.3)
    group_of(lasting).lease(0)
    lasting.lose()
    until = time.monotonic() + 0.4
    eventually(lambda: time.monotonic() > until)
    lasting.begin()
    assert [body for body, _ in seen(group_of(lasting), 1)] == [b"short"]


def test_an_acknowledgement_that_returned_counts(lasting: Lasting) -> None:
    """The loss comes immediately after it."""
    filled(lasting, 6)
    group = group_of(lasting)
    for after in range(3):
        group.lease(after, max_messages=2)
    assert group.ack(2) == 4
    lasting.restart()
    group = group_of(lasting)
    assert (group.acked, group.leased) == (2, 3)
    assert [body for body, _ in seen(group, 3)] == numbers(4, 6)
    with pytest.raises(exceptions.LeaseNotFound):
        group.size(2)
    assert [name for name in lasting.connection.queue_names(all=True) if name.startswith("amq.lease.g.2")] == []
    assert group.ack(3) == 2
    assert len(lasting.queue()) == 0


def test_the_user_of_before_has_ended(lasting: Lasting) -> None:
    """Its token does not name this process, which may have its number, and whose connection may."""
    filled(lasting, 3)
    group_of(lasting).lease(0)
    (before,) = shmbroker.groups(lasting.connection)
    lasting.restart()
    (after,) = shmbroker.groups(lasting.connection)
    assert before.pid > 0
    assert (after.pid, after.leases, after.messages) == (0, 1, 3)


def test_what_was_being_leased_comes_first(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease was not complete: its messages are in the next one, once, and in their order; then the queue goes."""
    queue = filled(lasting, 10)
    group = group_of(lasting)

    class KilledError(Exception):
        """Stands for the loss."""

    def die(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(group, "_change", die)
        with pytest.raises(KilledError):
            group.lease(0, max_messages=4)
    assert len(queue) == 6
    lasting.connection.queue("synced", durable=True).put(b"x")
    lasting.restart()
    group = group_of(lasting)
    assert (group.leased, group.begun, len(lasting.queue())) == (0, 4, 6)
    assert group.lease(0, max_messages=7) == 1
    assert [body for body, _ in seen(group, 1)] == numbers(0, 7)
    strays = [name for name in lasting.connection.queue_names(all=True) if name.startswith("amq.lease.g.1")]
    assert len(strays) == 1  # that of the lease: the user of before is gone


def test_a_release_after_a_restart(lasting: Lasting) -> None:
    """All messages are in the queue again, and a restart finds them there and no group."""
    filled(lasting, 5)
    group_of(lasting).lease(0, max_messages=3)
    lasting.restart()
    assert group_of(lasting).release() == 3
    lasting.connection.queue("synced", durable=True).put(b"x")
    lasting.restart()
    assert sorted(bytes(one) for one in lasting.queue().browse()) == numbers(0, 5)
    assert shmbroker.groups(lasting.connection) == []
    assert lasting.connection.doctor() == []


def test_each_step_waits_for_the_disk(lasting: Lasting) -> None:
    """Attaching, leasing and acknowledging do; after a Timeout they are called again, and count once."""
    filled(lasting, 4)
    with lasting.broker.connect(operation_timeout=0.3) as connection:
        group = shmbroker.Group(connection, "q", "g")
        with lasting.keeper_stopped(), pytest.raises(exceptions.Timeout, match="has not synced"):
            group.attach()
        with pytest.raises(exceptions.GroupInUse):
            group.lease(0)
        group.attach()
        with lasting.keeper_stopped():
            for _ in range(2):
                with pytest.raises(exceptions.Timeout, match="has not synced"):
                    group.lease(0, max_messages=2)
        assert group.lease(0, max_messages=1) == 1
        assert group.size(1) == 2
        with lasting.keeper_stopped():
            for _ in range(2):
                with pytest.raises(exceptions.Timeout, match="has not synced"):
                    group.ack(1)
        assert group.ack(1) == 0
        assert (group.acked, group.lease(1), group.size(2)) == (1, 2, 2)


def test_a_stopped_storekeeper_keeps_nobody_from_declaring(lasting: Lasting) -> None:
    """A user that waits for the disk does not hold the lock under which queues are made."""
    filled(lasting, 1)
    group = shmbroker.Group(lasting.connection, "q", "g")
    with lasting.keeper_stopped(), lasting.broker.connect() as other:
        attaching = threading.Thread(target=group.attach)
        attaching.start()
        eventually(lambda: shmbroker.groups(other))
        assert other.queue("new", durable=True).name == "new"
    attaching.join()
    assert group.lease(0) == 1


def test_a_group_of_a_transient_queue_ends_with_the_memory(lasting: Lasting) -> None:
    """It waits for no disk, and nothing of it is stored."""
    queue = lasting.connection.queue("q")
    queue.put_many(numbers(0, 4))
    with lasting.keeper_stopped():
        group = group_of(lasting)
        assert group.lease(0, max_messages=2) == 1
        assert group.ack(1) == 2
    own = lasting.connection.queue_names(all=True)
    assert own
    assert not any(core_of(lasting.connection.queue(name, passive=True)).lasts for name in own)
    lasting.restart()
    assert lasting.connection.queue_names(all=True) == []


class User(threading.Thread):
    """A user that leases, acknowledges and releases until the broker is lost.

    Attributes:
        over: ends it.
        ended: the messages that it acknowledged, and was told so.
        ending: those that it was about to acknowledge.
    """

    def __init__(self, group: shmbroker.Group, seed: float) -> None:
        super().__init__()
        self._group, self._chance = group, random.Random(seed)
        self.over = threading.Event()
        self.ended: set[bytes] = set()
        self.ending: set[bytes] = set()

    def run(self) -> None:
        """Works."""
        with contextlib.suppress(exceptions.BrokerError):
            while not self.over.is_set():
                if self._chance.random() < 0.1:
                    self._group.release()
                    self._group.attach()
                self._group.lease(self._group.leased, max_messages=self._chance.choice((1, 3, 40)))
                if self._chance.random() < 0.3 and self._group.leased > self._group.acked:
                    self._acknowledge(self._group.acked + 1)

    def _acknowledge(self, number: int) -> None:
        self.ending = {body for body, _ in seen(self._group, number)}
        self._group.ack(number)
        self.ended |= self.ending
        self.ending = set()


def test_losses_at_any_moment(lasting: Lasting) -> None:
    """A user leases, acknowledges and releases without end: each message is in the queue, or leased, or acknowledged.

    What it acknowledged, and was told so, is gone; what it was about to acknowledge may be.
    """
    chance, total = random.Random(18), 400
    filled(lasting, total)
    ended: set[bytes] = set()  # acknowledged, and told so
    for _ in range(8):
        user = User(group_of(lasting), chance.random())
        user.start()
        user.over.wait(chance.random() * 0.15)
        lasting.lose()
        user.over.set()
        user.join()
        ended |= user.ended
        lasting.begin()
        group = group_of(lasting)
        found = [body for number in range(group.acked + 1, group.leased + 1) for body, _ in seen(group, number)]
        group.release()
        there = Counter(bytes(one) for one in lasting.queue().browse())
        assert set(found) <= there.keys()
        assert [body for body, count in there.items() if count > 1] == []
        assert there.keys() & ended == set()
        assert set(numbers(0, total)) - there.keys() - ended <= user.ending
        ended = set(numbers(0, total)) - there.keys()


def test_leased_messages_stay_in_the_memory(lasting: Lasting) -> None:
    """After a restart, too, though others leave it: the place of a body is valid until the lease is acknowledged."""
    size = 10_000
    bodies = [b"%d" % number + b" " * size for number in range(300)]
    lasting.connection.queue("q", durable=True).put_many(bodies)
    group_of(lasting).lease(0)
    lasting.restart()
    group = group_of(lasting)
    places = [place for _, place in group.places(1)]
    deep = lasting.connection.queue("deep", durable=True)
    for _ in range(100):
        deep.put_many([b" " * size] * 100)
    assert absent(deep) > 0
    found = [body_at(lasting.connection, place) for place in places]
    assert [bytes(body) for body in found if body is not None] == bodies
    del found
    group.ack(1)
    assert body_at(lasting.connection, places[0]) is None
