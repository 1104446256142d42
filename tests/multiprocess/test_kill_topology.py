# SPDX-License-Identifier: Apache-2.0
"""Processes that declare, bind and delete are killed: every change happened or did not, for everybody alike."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest
from scenario_support.inside import core_of, session_of
from scenario_support.waiting import becomes

import shmbroker
import shmbroker.testing

KILLS = 40
CHANGER = """
import itertools, os, sys
import shmbroker
me = str(os.getpid())
connection = shmbroker.connect(sys.argv[1], create=False)
channel = connection.channel()
channel.queue_declare("q-" + me, exclusive=True)
for number in itertools.count():
    name = f"e-{me}-{number}"
    channel.exchange_declare(name, "topic", auto_delete=number % 2 == 0)
    channel.queue_bind("q-" + me, name, "a." * (number % 50))
    channel.exchange_bind(name, "fixed", f"{me}.{number}")
    channel.queue_bind("q", name, "#")
    if number == 0:
        print("ready", flush=True)
    if number % 3:
        channel.queue_unbind("q", name, "#")
        channel.queue_unbind("q-" + me, name, "a." * (number % 50))
    channel.exchange_delete(name)
"""
OTHER_VIEW = """
import sys
import shmbroker
with shmbroker.connect(sys.argv[1], create=False) as connection:
    session = connection._session
    sys.stdout.buffer.write(session.administration.exchanges.refresh(session.core).snapshot())
"""


def seen_by_a_newcomer(broker: str) -> bytes:
    """The topology as a process replays it that was not there before."""
    return subprocess.run([sys.executable, "-c", OTHER_VIEW, broker], check=True, capture_output=True).stdout


def known(connection: shmbroker.Connection) -> bytes:
    """The same by who was there all the time."""
    return session_of(connection).administration.exchanges.refresh(core_of(connection)).snapshot()


def missing_queues(connection: shmbroker.Connection) -> list[str]:
    """Queues that something is bound to, and that are not there: their connections were killed."""
    topology = session_of(connection).administration.exchanges.refresh(core_of(connection))
    return [to.name for to in topology.bound_queues() if core_of(connection).queue_slot(to.name) == 0]


@pytest.mark.timeout(900)
def test_killed_in_the_middle_of_changes(broker_name: str) -> None:
    """Others publish by the bindings that stay, change on, and see what a newcomer sees; nothing of it piles up."""
    chance = random.Random(7)
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.exchange_declare("fixed", "topic")
        channel.queue_bind("q", "fixed", "mine.#")
        for kill in range(KILLS):
            changer = subprocess.Popen([sys.executable, "-c", CHANGER, broker_name], stdout=subprocess.PIPE)
            assert changer.stdout is not None
            assert changer.stdout.readline() == b"ready\n"
            with changer:
                time.sleep(chance.random() / 50)  # not to wait for anything: the moment of the kill
                changer.kill()
            channel.basic_publish("fixed", "mine.1", b"%d" % kill)
            message = channel.basic_get("q", auto_ack=True)
            assert message is not None
            assert bytes(message) == b"%d" % kill
            channel.exchange_declare("also", "fanout")
            channel.exchange_delete("also")
            if kill % 10 == 0:
                becomes(lambda: seen_by_a_newcomer(broker_name) == known(connection), expected=True)
        becomes(lambda: missing_queues(connection), [])
        topology = session_of(connection).administration.exchanges.refresh(core_of(connection))
        own = [name for name in topology.exchanges if name.startswith("e-")]
        assert len(own) <= KILLS
        becomes(connection.doctor, [])
