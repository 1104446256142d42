# SPDX-License-Identifier: Apache-2.0
"""What a client meets whose broker is being purged: 320 or 404, and no contradiction."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest
from scenario_support.brokers import files, segment

import shmbroker
from shmbroker._core import attachment, segments
from shmbroker.exceptions import ConnectionClosedByBroker, CorruptSegment, Timeout


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


HOLDS = """
    import sys
    import shmbroker
    from shmbroker._core.journal import topology_lock

    connection = shmbroker.connect(sys.argv[1], create=False)
    with topology_lock(connection.core, 2**64 - 1, "the test"):
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
        connection.operation_timeout = 0.5
        between = threading.Timer(0.25, let_go, (broker.name,))
        between.start()
        with pytest.raises(Timeout, match=f"held by process {holder.pid}"):
            connection.queue("new")
        between.join()
        holder.communicate()
