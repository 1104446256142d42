# SPDX-License-Identifier: Apache-2.0
"""What a client meets whose broker is being purged: 320 or 404, and no contradiction."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scenario_support.brokers import files, segment
from scenario_support.inside import session_of

import shmbroker
from shmbroker._core import attachment, native, segments
from shmbroker.exceptions import ConnectionClosedByBroker, CorruptSegment, Timeout

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@pytest.mark.damaged
@pytest.mark.parametrize("closing", [True, False])
def test_a_segment_is_missing_already(broker_name: str, closing: bool) -> None:  # noqa: FBT001
    """Who purges says so before the files go: that is 320, and anything else a contradiction. A purge goes through."""
    broker = shmbroker.Broker(broker_name, memory="32M").create()
    if closing:
        attached = attachment.acquire(segments.path_of(broker_name))
        attached.set_closing()
        attachment.release(attached)
    segment(broker_name, 1).unlink()
    with pytest.raises(ConnectionClosedByBroker if closing else CorruptSegment):
        broker.statistics()
    broker.stop(purge=True)
    assert files(broker_name) == []


@pytest.mark.damaged
def test_the_journal_is_gone_already(broker_name: str) -> None:
    """Who declares an exchange then is told of the purge, and not of a file."""
    broker = shmbroker.Broker(broker_name, memory="32M").create()
    with broker.connect() as connection, connection.channel() as channel:
        segments.remove(segments.path_of(broker_name), segments.identity(segments.path_of(broker_name)))
        with pytest.raises(ConnectionClosedByBroker):
            channel.exchange_declare("e", "fanout")


@pytest.mark.parametrize("transaction", [False, True])
def test_an_acknowledgement_comes_too_late(
    connection: shmbroker.Connection,
    queue: shmbroker.Queue,
    transaction: bool,  # noqa: FBT001
) -> None:
    """Who acknowledges then is told of the purge, not of an unknown delivery tag, at once or at a commit."""
    queue.put(b"A")
    channel = connection.channel()
    if transaction:
        channel.tx_select()
    delivery = channel.basic_get("q")
    assert delivery is not None
    attached = session_of(connection).core.attachment
    attached.set_closing()
    with pytest.raises(ConnectionClosedByBroker):
        channel.basic_ack(delivery.delivery_tag)
    native.slow.sb_broker_set_closing(attached.handle, 0)


def purge_files(name: str, but: Path | None) -> None:
    """Removes the files of a broker, as another process does that purges it; all but one that comes later."""
    for file in map(Path(segments.DIRECTORY).joinpath, files(name)):
        if file != but:
            file.unlink()


@pytest.mark.parametrize("suffix", ["lock", "journal-0", "journal-1", "0"])
def test_what_is_being_made_goes(broker_name: str, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """A purge removes files that are not linked into place yet: `connect` goes on, and makes the broker."""
    link, purged = os.link, []

    def purged_before(source: str, target: str) -> None:
        if target == segments.file_of(segments.path_of(broker_name), suffix) and not purged:
            purged.append(target)
            os.unlink(source)  # noqa: PTH108 - the package gives a string
        link(source, target)

    monkeypatch.setattr(os, "link", purged_before)
    with shmbroker.connect(broker_name) as connection:
        connection.queue("q").put(b"A")
    assert len(purged) == 1
    shmbroker.Broker(broker_name).stop(purge=True)


@pytest.mark.parametrize("later", [False, True], ids=["begun", "not begun"])
def test_a_segment_that_is_being_made_goes(broker_name: str, monkeypatch: pytest.MonkeyPatch, later: bool) -> None:  # noqa: FBT001
    """Who makes one for a call that needs more memory is told that the broker is gone, and leaves nothing."""
    shmbroker.Broker(broker_name, memory="32M").create()
    attached = attachment.acquire(segments.path_of(broker_name))
    link = os.link

    def purged_before(source: str, target: str) -> None:
        purge_files(broker_name, Path(source) if later else None)
        link(source, target)

    monkeypatch.setattr(os, "link", purged_before)
    with pytest.raises(ConnectionClosedByBroker):
        attached.grow()
    assert files(broker_name) == []
    attachment.release(attached)


@pytest.mark.parametrize("suffix", ["lock", "journal-0", "journal-1"])
def test_a_file_goes_before_it_is_looked_at(broker_name: str, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Who makes a broker looks whose files it found there; a purge may have removed one of them meanwhile."""
    open_file, looks = segments.open_file, []

    def purged_before(path: str, wanted: int | str, flags: int) -> AbstractContextManager[int]:
        if wanted == suffix and not looks:
            looks.append(wanted)
            Path(segments.file_of(path, wanted)).unlink()
        return open_file(path, wanted, flags)

    monkeypatch.setattr(segments, "open_file", purged_before)
    shmbroker.Broker(broker_name, memory="32M").create()
    assert looks == [suffix]


def test_a_purge_without_a_lock_file(broker_name: str) -> None:
    """Another purge has removed it, and was killed: this one removes the rest."""
    broker = shmbroker.Broker(broker_name, memory="32M").create()
    Path(segments.file_of(segments.path_of(broker_name), "lock")).unlink()
    broker.stop(purge=True)
    assert files(broker_name) == []


def test_a_broker_of_others_goes_while_brokers_are_listed(broker_name: str) -> None:
    """It is none that can be used."""
    path = f"/shmbroker-{os.getuid() + 1}.{broker_name}"
    assert not segments._is_usable(path)  # noqa: SLF001


HOLDS = """
    import sys
    import shmbroker
    from shmbroker._core.journal import topology_lock

    connection = shmbroker.connect(sys.argv[1], create=False)
    with topology_lock(connection._session.core, 2**64 - 1, "the test"):
        print("held", flush=True)
        sys.stdin.read()
"""


TOPOLOGY_PID = 120  # in the header, see docs/reference/shm-format.md


def let_go(broker: str) -> None:
    """Has no process be noted as the holder of the topology lock, as between two."""
    with segment(broker, 0).open("r+b") as file:
        file.seek(TOPOLOGY_PID)
        assert int.from_bytes(file.read(4), "little") != 0
        file.seek(TOPOLOGY_PID)
        file.write(bytes(4))


def test_who_waited_in_vain_for_the_topology_lock_is_told_who_had_it(
    broker: shmbroker.Broker, connection: shmbroker.Connection
) -> None:
    """Also if at the end of the wait no process has it, because it goes from one to the next."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDS), broker.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        session_of(connection).operation_timeout = 0.5
        between = threading.Timer(0.25, let_go, (broker.name,))
        between.start()
        with pytest.raises(Timeout, match=f"held by process {holder.pid}"):
            connection.queue("new")
        between.join()
        holder.communicate()
