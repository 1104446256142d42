# SPDX-License-Identifier: Apache-2.0
"""Leases of consumer groups: what is in them, and what they say when it is gone."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.groups import attached, content, own
from scenario_support.inside import core_of
from scenario_support.observing import listing, put_each
from scenario_support.waiting import becomes

import shmbroker
import shmbroker.testing
from shmbroker import exceptions
from shmbroker.columns import Columns
from shmbroker.leasing import reading

if TYPE_CHECKING:
    from collections.abc import Callable


def bodies_by_column(
    connection: shmbroker.Connection,
    group: shmbroker.Group,
    start: int = 0,
    stop: int | None = None,
    *,
    dense: bool = True,
) -> str:
    """The bodies of lease 1, read by column; also as one whose places have gaps."""
    lease = group._find(1)[1]._replace(dense=dense)  # noqa: SLF001
    core, found, more = reading.opened(core_of(connection), 1, lease), "", True
    with reading.reading(core, 1, lease):
        source = reading.ByColumn(core, 1, lease, range(*slice(start, stop).indices(lease.length)))
        while more:
            columns, bodies, ends = Columns(), bytearray(100), array.array("i", [0] * 3)
            columns.set_text("body", ends, bodies)
            count, more = source.fill(columns, 2)
            found += bodies[: ends[count]].decode()
    return found


def test_a_lease_has_the_oldest_messages(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Leases are numbered from 1; what is leased is not in the queue any more, and is read as often as one likes."""
    put_each(queue, "ABCDE")
    group = attached(connection)
    assert (group.acked, group.leased) == (0, 0)
    assert group.lease(0, max_messages=3) == 1
    assert listing(queue) == ["D", "E"]
    assert group.size(1) == 3
    assert [content(group, 1), content(group, 1)] == ["ABC", "ABC"]
    assert group.lease(1) == 2
    assert content(group, 2) == "DE"
    assert (group.acked, group.leased) == (0, 2)
    assert group.lease(2) == 2
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("span", "expected"),
    [((0,), "ABCD"), ((1,), "BCD"), ((1, 3), "BC"), ((2, 2), ""), ((3, 99), "D"), ((9,), ""), ((-1,), "D")],
)
def test_a_part_of_a_lease(
    connection: shmbroker.Connection, queue: shmbroker.Queue, span: tuple[int, ...], expected: str
) -> None:
    """By place in the lease, as slices are."""
    put_each(queue, "ABCD")
    group = attached(connection)
    group.lease(0)
    assert content(group, 1, *span) == expected
    assert bodies_by_column(connection, group, *span) == expected
    assert bodies_by_column(connection, group, *span, dense=False) == expected


@pytest.mark.parametrize("dense", [True, False])
def test_a_message_keeps_its_sequence(connection: shmbroker.Connection, queue: shmbroker.Queue, *, dense: bool) -> None:
    """In a lease it is what it was in the queue, however it is read; no two messages of a group have the same one."""
    put_each(queue, "ABCDE")
    queue.get(auto_ack=True)
    group = attached(connection)
    group.lease(0, max_messages=2)
    group.lease(1)
    assert [[one.sequence for one in group.messages(number)] for number in (1, 2)] == [[1, 2], [3, 4]]
    assert [one.sequence for one, _ in group.places(2)] == [3, 4]
    lease, rows = group._find(2)[1]._replace(dense=dense), array.array("q", [0] * 2)  # noqa: SLF001
    core, columns = reading.opened(core_of(connection), 2, lease), Columns()
    columns.set_row("sequence", rows)
    with reading.reading(core, 2, lease):
        assert reading.ByColumn(core, 2, lease, range(2)).fill(columns, 2) == (2, False)
    assert list(rows) == [3, 4]


def test_a_message_keeps_its_sequence_from_lease_to_lease(
    connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """What an earlier user had begun to lease is leased again under its old sequence; released, it gets a new one."""
    put_each(queue, "ABCD")
    queue.get(auto_ack=True)
    earlier = attached(connection)
    assert queue.move(connection.queue(earlier._attached_state().filling, passive=True), limit=2) == 2  # noqa: SLF001
    group = attached(connection)
    group.lease(0)
    assert [(bytes(one), one.sequence) for one in group.messages(1)] == [(b"B", 1), (b"C", 2), (b"D", 3)]
    group.release()
    assert [(bytes(one), one.sequence) for one in queue.browse()] == [(b"B", 4), (b"C", 5), (b"D", 6)]


def test_leases_of_many_pages_keep_sequences(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Also where pages are used again for other leases, and where messages are not leased in their order."""
    queue.put_many([b"%d" % at for at in range(1000)])
    held = queue.get_many(200)
    group, found = attached(connection), []
    for number in range(10):
        group.lease(number, max_messages=100)
        found += [(int(bytes(one)), one.sequence) for one in group.messages(number + 1)]
        group.ack(number + 1)
        if number == 3:
            held.nack()
    assert [one for one, _ in found] == [*range(200, 600), *range(200), *range(600, 1000)]
    assert all(one == sequence for one, sequence in found)


def test_a_lease_that_is_there_is_returned_as_it_is(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Asked for the one after an earlier one, whatever the limits and whatever came meanwhile."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0, max_messages=1)
    put_each(queue, "CD")
    assert group.lease(0, max_messages=9) == 1
    assert content(group, 1) == "A"


@pytest.mark.parametrize(("size", "expected"), [(1, "AA"), (2, "AA"), (3, "AABBB"), (5, "AABBB"), (6, "AABBBC")])
def test_a_limit_on_bytes(connection: shmbroker.Connection, queue: shmbroker.Queue, size: int, expected: str) -> None:
    """The message that reaches it is the last one."""
    put_each(queue, ["AA", "BBB", "C", "D"])
    group = attached(connection)
    assert group.lease(0, max_bytes=size) == 1
    assert content(group, 1) == expected


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 4), (7, 5), (9, 5)])
def test_a_limit_on_bytes_with_what_was_begun(
    connection: shmbroker.Connection, queue: shmbroker.Queue, size: int, expected: int
) -> None:
    """What an earlier user had begun to lease counts, as the messages behind it do."""
    put_each(queue, ["AA", "BB", "C", "D", "E"])
    earlier = attached(connection)
    assert queue.move(connection.queue(earlier._attached_state().filling, passive=True), limit=2) == 2  # noqa: SLF001
    group = attached(connection)
    group.lease(0, max_bytes=size)
    assert content(group, 1) == "".join(["AA", "BB", "C", "D", "E"][:expected])


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_limit_on_messages_with_what_was_begun(
    connection: shmbroker.Connection, queue: shmbroker.Queue, most: int
) -> None:
    """The same of their number."""
    put_each(queue, "ABCDE")
    earlier = attached(connection)
    assert queue.move(connection.queue(earlier._attached_state().filling, passive=True), limit=2) == 2  # noqa: SLF001
    group = attached(connection)
    group.lease(0, max_messages=most)
    assert content(group, 1) == "ABCDE"[:most]


def test_nothing_is_leased_of_a_queue_that_is_empty_or_paused(
    connection: shmbroker.Connection, queue: shmbroker.Queue
) -> None:
    """And nothing is written: the register stays as it is."""
    group = attached(connection)
    versions = len(connection.queue("amq.group.g", passive=True))
    assert group.lease(0) == 0
    put_each(queue, "A")
    queue.pause()
    assert group.lease(0) == 0
    queue.resume()
    assert len(connection.queue("amq.group.g", passive=True)) == versions
    assert group.lease(0) == 1


def test_messages_are_what_was_put(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """With key, headers, properties, time and redelivery mark; they say which queue they come from."""
    properties = shmbroker.BasicProperties(content_type="text/plain")
    queue.put(b"A", key="k", headers={"h": 1}, properties=properties, priority=3, ttl=60)
    queue.put(b"B" * 100_000)
    queue.get().nack()
    before = next(queue.browse())
    group = attached(connection)
    group.lease(0)
    first, second = group.messages(1)
    assert (first.key, first.headers, first.properties.content_type, first.priority) == ("k", {"h": 1}, "text/plain", 3)
    assert (first.redelivered, second.redelivered) == (True, False)
    assert (first.timestamp, first.queue) == (before.timestamp, "q")
    assert first.expires_at is not None
    assert bytes(second) == b"B" * 100_000
    with pytest.raises(exceptions.MessageSettled):
        first.ack()


def test_leased_messages_do_not_expire(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """A replay has to be equal; they expire when they are given back."""
    queue.put(b"A", ttl=3.0)
    queue.put(b"B")
    group = attached(connection)
    group.lease(0)
    queue.put(b"later", ttl=3.0)
    becomes(lambda: queue.statistics().expired, 1)
    assert content(group, 1) == "AB"
    assert group.release() == 2
    assert listing(queue) == ["B"]


def test_ack_ends_leases_and_can_be_repeated(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """All up to that one; it says how many messages those were."""
    put_each(queue, "ABCDEF")
    group = attached(connection)
    for number in range(3):
        group.lease(number, max_messages=2)
    assert group.ack(0) == 0
    assert group.ack(2) == 4
    assert group.ack(2) == 0
    assert (group.acked, group.leased) == (2, 3)
    assert content(group, 3) == "EF"
    assert len(own(connection, "amq.lease.")) == 2  # the third, and the one to be filled
    for number in (0, 1, 2, 4):
        with pytest.raises(exceptions.LeaseNotFound, match=f"lease {number}"):
            group.messages(number)


def test_going_back_is_refused(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Behind what is acknowledged there is nothing; before what is leased neither."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0, max_messages=1)
    group.lease(1, max_messages=1)
    group.ack(2)
    for rewound in (group.lease, group.ack):
        with pytest.raises(
            exceptions.GroupRewound, match=r"acknowledged lease 2: (lease|ack)\(1\) is before it, 2 to 2 is allowed"
        ):
            rewound(1)
    for unknown in (group.lease, group.ack, group.size):
        with pytest.raises(exceptions.LeaseNotFound, match="lease 3"):
            unknown(3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda group: group.lease("1"), TypeError),
        (lambda group: group.lease(bool(1)), TypeError),
        (lambda group: group.ack(None), TypeError),
        (lambda group: group.size(1.0), TypeError),
        (lambda group: group.lease(0, max_messages=0), ValueError),
        (lambda group: group.lease(0, max_bytes=-1), ValueError),
        (lambda group: group.lease(0, max_bytes=1.5), ValueError),
    ],
)
def test_bad_arguments(
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    call: Callable[[shmbroker.Group], Any],
    error: type[Exception],
) -> None:
    """Nothing happens."""
    put_each(queue, "A")
    group = attached(connection)
    with pytest.raises(error):
        call(group)
    assert group.leased == 0


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "ä"])
def test_bad_names(connection: shmbroker.Connection, name: str) -> None:
    """1 to 64 of letters, digits and three signs."""
    with pytest.raises(ValueError, match="group name"):
        shmbroker.Group(connection, "q", name)
    with pytest.raises(TypeError, match="group name"):
        shmbroker.Group(connection, "q", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["delete", "purge"])
def test_a_lease_that_is_gone_is_an_error(connection: shmbroker.Connection, queue: shmbroker.Queue, how: str) -> None:
    """When it is read, and not when it is acknowledged."""
    put_each(queue, "AB")
    group = attached(connection)
    group.lease(0)
    lease = connection.queue(own(connection, "amq.lease.g.1.")[0], passive=True)
    reading = group.messages(1)
    next(reading)
    getattr(lease, how)()
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        next(reading)
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        list(group.messages(1))
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        bodies_by_column(connection, group)
    assert group.ack(1) == 2


def test_a_lease_that_lacks_a_message_is_an_error(connection: shmbroker.Connection, queue: shmbroker.Queue) -> None:
    """Also in the middle."""
    put_each(queue, "ABC")
    group = attached(connection)
    group.lease(0)
    lease = connection.queue(own(connection, "amq.lease.g.1.")[0], passive=True)
    first, second = lease.get(), lease.get()
    second.ack()
    first.nack()
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        list(group.messages(1))
    for dense in (True, False):
        with pytest.raises(exceptions.LeaseNotFound, match="gone"):
            bodies_by_column(connection, group, dense=dense)
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        bodies_by_column(connection, group, 0, 2)  # the third has not taken its place
    with pytest.raises(exceptions.LeaseNotFound, match="gone"):
        bodies_by_column(connection, group, 3, dense=False)
