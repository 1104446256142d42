# SPDX-License-Identifier: Apache-2.0
"""Processes that change address settings, or make queues by publishing, are killed: a change happened or did not."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time

import pytest
from scenario_support.inside import core_of
from scenario_support.waiting import becomes

import shmbroker
import shmbroker.testing
from shmbroker.exceptions import NotFound

KILLS = 20
QUEUES = 8
CHANGER = """
import itertools, sys
import shmbroker
connection = shmbroker.connect(sys.argv[1], create=False)
channel = connection.channel()
for number in itertools.count(1):
    connection.settings.set("q.#", default_max_length=number, default_message_ttl=float(number))
    channel.basic_publish("", f"auto.{number % 4}", b"x")
    if number == 1:
        print("ready", flush=True)
    connection.settings.set("q.1", default_max_length=number + 1)
    channel.basic_get(f"auto.{number % 4}", auto_ack=True)
    connection.settings.remove("q.1" if number % 2 else "q.#")
"""


def pairs(connection: shmbroker.Connection) -> list[tuple[int, float | None]]:
    """Return the settings that queues have, and their addresses give, of all queues that were declared."""
    found = []
    for number in range(QUEUES):
        settings = connection.queue(f"q.{number}", passive=True).settings
        found.append((settings.max_length, settings.message_ttl))
    return found


def wanted(connection: shmbroker.Connection) -> list[tuple[int, float | None]]:
    """Return what the addresses of these queues give."""
    every = [connection.settings.explain(f"q.{number}") for number in range(QUEUES)]
    return [(one["default_max_length"].value, one["default_message_ttl"].value) for one in every]


@pytest.mark.timeout(900)
def test_killed_in_the_middle_of_changes(broker_name: str) -> None:
    """After each kill, the queues get the settings that the journal says; a newcomer reads the same journal."""
    chance = random.Random(11)
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        connection.settings.set("auto.#", auto_create_queues=True)
        for number in range(QUEUES):
            connection.queue(f"q.{number}")
        kept = connection.queue("q.kept", max_length=5)
        for _ in range(KILLS):
            changer = subprocess.Popen([sys.executable, "-c", CHANGER, broker_name], stdout=subprocess.PIPE)
            assert changer.stdout is not None
            assert changer.stdout.readline() == b"ready\n"
            with changer:
                time.sleep(chance.random() / 50)  # not to wait for anything: the moment of the kill
                changer.kill()
            becomes(lambda: pairs(connection) == wanted(connection), True)  # noqa: FBT003 - what the comparison gives
            assert kept.settings.max_length == 5
        with broker.connect() as newcomer:
            assert newcomer.settings.list() == connection.settings.list()
            assert pairs(newcomer) == wanted(newcomer)
        connection.settings.set("auto.#", auto_delete_queues_skip_usage_check=True)

        def emptied() -> list[str]:
            """Purge the queues that are left: what the last killed process held may return only now."""
            left = [name for name in connection.queue_names() if name.startswith("auto.")]
            for name in left:
                with contextlib.suppress(NotFound):  # deleted meanwhile
                    connection.queue(name, passive=True).purge()
            return left

        becomes(emptied, [])
        becomes(core_of(connection).doctor, [])
