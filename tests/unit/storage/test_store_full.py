# SPDX-License-Identifier: Apache-2.0
"""What calls do while the disk of the store is full: the storekeeper has said so."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import queue as standard_queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker
import shmbroker.aio
from shmbroker import exceptions
from shmbroker._core import storing
from shmbroker._session.session import session_of
from tests.unit.storage.conftest import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def fill(stored: Stored, *, full: bool = True) -> None:
    """Tell the broker that its disk is full, or has room."""
    storing.CoreStorekeeper(session_of(stored.connection).core, 0).set_full(full=full)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Stored]:
    """Return a broker that refuses messages while its disk is full."""
    with contextlib.closing(Stored(tmp_path, full="refuse")) as made:
        yield made


def put(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Put a message."""
    connection.queue("jobs", durable=True).put(b"1", timeout=timeout)


def put_with(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Put a message with options."""
    connection.queue("jobs", durable=True).put(b"1", timeout=timeout, priority=3, key="x")


def put_many(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Put two messages."""
    connection.queue("jobs", durable=True).put_many([b"1", b"2"], timeout=timeout)


def reserve(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Put a message that is written in place."""
    with connection.queue("jobs", durable=True).reserve(1, timeout=timeout) as room:
        room[:] = b"1"


def publish(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Publish a message."""
    with connection.channel() as channel:
        channel.basic_publish("", "jobs", b"1", timeout=timeout)


def publish_confirmed(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Publish a message in confirm mode."""
    with connection.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"1", timeout=timeout)


def commit(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Publish two messages in a transaction."""
    with connection.channel() as channel:
        channel.tx_select()
        channel.basic_publish("", "jobs", b"1")
        channel.basic_publish("", "quick", b"1")
        channel.tx_commit(timeout=timeout)


def in_a_task(connection: shmbroker.Connection, timeout: float | None) -> None:
    """Put a message from a task."""

    async def main() -> None:
        name = session_of(connection).core.attachment.name
        async with await shmbroker.aio.connect(name, create=False) as other:
            queue = await other.queue("jobs", durable=True)
            await queue.put(b"1", timeout=timeout)

    asyncio.run(main())


CALLS = [put, put_with, put_many, reserve, publish, publish_confirmed, commit, in_a_task]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("timeout", [0, None])
def test_a_put_is_refused(refusing: Stored, call: Callable[..., Any], timeout: float | None) -> None:
    """The error names the queue, the folder and the room on its disk; no queue has the message."""
    jobs, quick = refusing.connection.queue("jobs", durable=True), refusing.connection.queue("quick")
    fill(refusing)
    with pytest.raises(exceptions.StoreRefused) as refused:
        call(refusing.connection, timeout)
    text = str(refused.value)
    assert text.startswith("queue 'jobs' takes no message")
    assert repr(str(refusing.folder)) in text
    assert "bytes are free" in text
    assert jobs.statistics().added == quick.statistics().added == 0
    fill(refusing, full=False)
    call(refusing.connection, 0)
    assert jobs.statistics().added > 0


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_put_waits_for_room(stored: Stored, call: Callable[..., Any]) -> None:
    """Until its time is up, or the disk has room; then it is as any other put."""
    jobs = stored.connection.queue("jobs", durable=True)
    stored.connection.queue("quick")
    fill(stored)
    with pytest.raises(exceptions.StoreFull) as full:
        call(stored.connection, 0)
    assert not isinstance(full.value, exceptions.StoreRefused)
    with pytest.raises(exceptions.StoreFull):
        call(stored.connection, 0.05)
    assert jobs.statistics().added == 0
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            with contextlib.suppress(exceptions.Timeout), stored.broker.connect() as connection:  # nothing syncs here
                call(connection, 20)
        except BaseException as error:  # noqa: BLE001 - the test says which
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        fill(stored, full=False)
        stored.keeper.turn()
        thread.join(0.01)
    assert errors == []
    assert jobs.statistics().added > 0


def test_what_makes_room_goes_on(refusing: Stored) -> None:
    """Gets, acknowledgements, returns and purges do; so do queues that are not stored."""
    jobs, quick = refusing.connection.queue("jobs", durable=True), refusing.connection.queue("quick")
    jobs.put_many([b"%d" % number for number in range(10)], timeout=0)
    refusing.keeper.turn()
    fill(refusing)
    jobs.get(timeout=0).ack()
    jobs.get(timeout=0).nack()
    quick.put(b"1")
    assert jobs.purge() == 9
    assert quick.get(timeout=0).body == b"1"


def test_a_move_leaves_messages_where_they_are(stored: Stored) -> None:
    """It would need room on the disk: what is moved stays, as before a full queue."""
    jobs = stored.connection.queue("jobs", durable=True)
    other = stored.connection.queue("other", durable=True)
    jobs.put_many([b"1", b"2"], timeout=0)
    fill(stored)
    assert jobs.move(other) == 0
    assert (jobs.statistics().ready, other.statistics().ready) == (2, 0)
    fill(stored, full=False)
    assert jobs.move(other) == 2


def test_a_closed_connection_ends_the_wait(stored: Stored) -> None:
    """Its put raises, as one that waits for room in a queue does."""
    fill(stored)
    connection = stored.broker.connect()
    queue, errors = connection.queue("jobs", durable=True), list[BaseException]()

    def wait() -> None:
        try:
            queue.put(b"1")
        except BaseException as error:  # noqa: BLE001 - the test says which
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    connection.close()
    thread.join()
    assert [type(error) for error in errors] == [exceptions.ConnectionClosed]


def test_the_next_storekeeper_looks_anew(stored: Stored) -> None:
    """What a storekeeper said that was killed does not stay."""
    fill(stored)
    assert stored.broker.statistics().store.is_full  # type: ignore[union-attr]
    stored.take_over()
    assert not stored.broker.statistics().store.is_full  # type: ignore[union-attr]
    stored.connection.queue("jobs", durable=True).put(b"1", timeout=0)


def test_the_errors_are_those_of_a_full_queue() -> None:
    """So programs that catch queue.Full go on, and an error crosses processes."""
    assert issubclass(shmbroker.StoreFull, standard_queue.Full)
    error = pickle.loads(pickle.dumps(shmbroker.StoreRefused("why")))  # noqa: S301 - made here
    assert (type(error), str(error)) == (shmbroker.StoreRefused, "why")


@pytest.mark.parametrize("given", ["wait", "", 1, True])
def test_a_policy_that_is_not_allowed(tmp_path: Path, given: Any) -> None:  # noqa: ANN401 - what is refused
    """The error says what is."""
    with pytest.raises(ValueError, match=f"store_full={given!r}: one of 'block', 'refuse' is allowed"):
        shmbroker.Broker("unused", data_dir=tmp_path, store_full=given)


def test_a_policy_without_a_store() -> None:
    """It is refused, as `sync` is."""
    with pytest.raises(ValueError, match="store_full='block': only with data_dir it is allowed"):
        shmbroker.Broker("unused", store_full="block")
