# SPDX-License-Identifier: Apache-2.0
"""Channels with confirms in a broker with a store: what a turn of the storekeeper confirms, and what no turn does."""

from __future__ import annotations

import concurrent.futures
import json
import time
from typing import TYPE_CHECKING

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing
from shmbroker import exceptions
from shmbroker._core import attachment, native, segments

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.storage.conftest import Stored

WATCHDOG = 60.0


def confirming(stored: Stored) -> shmbroker.Channel:
    """A channel with confirms, and a stored queue."""
    stored.connection.queue("q", durable=True)
    stored.keeper.turn()
    channel = stored.connection.channel()
    channel.confirm_delivery()
    return channel


def test_a_publish_asks_for_a_turn_immediately(stored: Stored) -> None:
    """The storekeeper does not wait for the thread that waits for it, nor for the wait for the confirms."""
    channel = confirming(stored)
    assert stored.keeper.rest(time.monotonic_ns()) == native.TIMEOUT
    channel.basic_publish("", "q", b"1")
    assert stored.keeper.rest(time.monotonic_ns()) == native.OK
    stored.keeper.turn()
    assert channel.wait_for_confirms(WATCHDOG)
    assert stored.keeper.rest(time.monotonic_ns()) == native.TIMEOUT


def test_a_turn_confirms_what_was_published_before_it_began(stored: Stored) -> None:
    """What is published during a turn is confirmed by a later one, which the end of that turn asks for."""
    channel = confirming(stored)
    before = channel.publish_confirmed("", "q", b"1")
    turn = stored.keeper._core.turn_begin()  # noqa: SLF001
    during = channel.publish_confirmed("", "q", b"2")
    channel.basic_publish("", "q", b"3")
    stored.keeper._core.turn_end(turn)  # noqa: SLF001
    assert before.result(WATCHDOG) == 1
    with pytest.raises(exceptions.Timeout, match="2 messages were not confirmed in time"):
        channel.wait_for_confirms(0.02)
    assert not during.done()
    stored.keeper.turn()
    assert channel.wait_for_confirms(WATCHDOG)
    assert during.result(WATCHDOG) == 2


def test_confirms_come_without_a_wait(stored: Stored) -> None:
    """However many turns they need."""
    channel = confirming(stored)
    futures = [channel.publish_confirmed("", "q", b"%d" % number) for number in range(100)]
    while not futures[-1].done():
        stored.keeper.turn()
        concurrent.futures.wait(futures[-1:], 0.001)
    assert [future.result(0) for future in futures] == [*range(1, 101)]


def test_one_turn_confirms_what_several_channels_published(stored: Stored) -> None:
    """And threads that publish beside each other."""
    channels = [confirming(stored) for _ in range(4)]

    def publish(channel: shmbroker.Channel) -> list[int | None]:
        return [channel.basic_publish("", "q", b"1") for _ in range(50)]

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(publish, channels)) == [[*range(1, 51)]] * 4
    for channel in channels:
        with pytest.raises(exceptions.Timeout, match="50 messages"):
            channel.wait_for_confirms(0)
    stored.keeper.turn()
    assert all(channel.wait_for_confirms(WATCHDOG) for channel in channels)


def test_what_no_queue_got_needs_no_storekeeper(stored: Stored) -> None:
    """A message that a full queue refused, or that came back, is in no queue: there is nothing to store."""
    channel = confirming(stored)
    stored.connection.queue("full", durable=True, max_length=1, overflow="reject-publish").put(b"0", timeout=0)
    assert isinstance(channel.publish_confirmed("", "full", b"1").exception(0), exceptions.NackError)
    returned = channel.publish_confirmed("", "nowhere", b"2", mandatory=True)
    assert isinstance(returned.exception(0), exceptions.UnroutableError)
    assert channel.wait_for_confirms(0) is False
    assert channel.wait_for_confirms(0) is True


def test_a_purge_confirms_nothing(stored: Stored) -> None:
    """A message that was not in the store when the broker was purged is lost: the wait and the future say so."""
    channel = confirming(stored)
    channel.basic_publish("", "q", b"1")
    future = channel.publish_confirmed("", "q", b"2")
    with attachment.attached_to(segments.path_of(stored.name)) as found:
        found.set_closing()
    with pytest.raises(exceptions.ConnectionClosedByBroker):
        channel.wait_for_confirms(WATCHDOG)
    with pytest.raises(exceptions.ConnectionClosedByBroker):
        future.result(WATCHDOG)


def test_a_closed_channel_confirms_nothing_more(stored: Stored) -> None:
    """Its futures fail; the messages are stored, and another channel has its confirm."""
    channel, other = confirming(stored), confirming(stored)
    future = channel.publish_confirmed("", "q", b"1")
    channel.close()
    assert isinstance(future.exception(0), exceptions.ChannelClosed)
    other.basic_publish("", "q", b"2")
    stored.keeper.turn()
    assert other.wait_for_confirms(WATCHDOG)
    stored.restart()
    assert len(stored.connection.queue("q", passive=True)) == 2


FORKS = """
    import os, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    connection.queue("q", durable=True)
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(100):
        channel.basic_publish("", "q", b"1")
    pid = os.fork()
    if pid == 0:
        try:
            channel.wait_for_confirms()
        except shmbroker.exceptions.ForkedConnectionError:
            with shmbroker.connect(sys.argv[1], create=False) as own:
                with own.channel() as another:
                    os._exit(another.publish_confirmed("", "q", b"2").result() != 1)
        os._exit(2)
    assert channel.wait_for_confirms()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_forked_child_has_confirms_of_its_own(broker_name: str, tmp_path: Path) -> None:
    """Those of its parent are refused to it, and come in the parent."""
    with shmbroker.testing.broker(broker_name, memory="32M", data_dir=tmp_path) as broker:
        done = run_python(FORKS, broker.name)
    assert (done.returncode, done.stderr) == (0, "")


# Interrupts a publish wherever a signal's handler may raise. Then the program waits for the confirms.
PUBLISH_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    gc.disable()  # finalizers are not interrupted
    name, way = sys.argv[1:]
    connection = shmbroker.connect(name, create=False)
    connection.queue("q", durable=True)
    number, more, wrong = 0, True, []
    while more:
        more = False
        for awaits in (False, True):  # whether a turn is awaited already
            channel = connection.channel()
            channel.confirm_delivery()
            publish = getattr(channel, way)
            before = [channel.publish_confirmed("", "q", b"A")] if awaits else []
            more = signalled_at(number, lambda: publish("", "q", b"A")) or more
            try:
                channel.wait_for_confirms({WATCHDOG})
                for future in (*before, channel.publish_confirmed("", "q", b"A")):
                    future.result({WATCHDOG})
            except (shmbroker.exceptions.Timeout, TimeoutError) as error:
                wrong.append([number, awaits, str(error)])
            channel.close()
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("way", ["basic_publish", "publish_confirmed"])
def test_an_interrupted_publish_leaves_no_message_unconfirmed(broker_name: str, tmp_path: Path, way: str) -> None:
    """Wherever a signal's handler raises: the wait for the confirms ends, and later messages are confirmed."""
    with shmbroker.testing.broker(broker_name, memory="32M", data_dir=tmp_path) as broker:
        done = run_python(PUBLISH_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []
