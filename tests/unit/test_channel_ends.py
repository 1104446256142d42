# SPDX-License-Identifier: Apache-2.0
"""The end of a connection, while a channel of it is being worked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS

import shmbroker

CLOSE_AT_ONCE = """
import shmbroker
told = []
for _ in range(150):
    with shmbroker.connect({name!r}, on_callback_error=told.append) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", lambda *delivery: None)
print(told)
"""
"""Each time the channel's first look meets the closing, which for the last connection unmaps the memory."""


def test_a_connection_closes_beside_the_first_look_of_its_channel(broker: shmbroker.Broker) -> None:
    """Nothing is read that is gone, and the hook for errors of callbacks hears of nothing."""
    ended = run_python(CLOSE_AT_ONCE.format(name=broker.name))
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "[]", "")


def test_a_channel_rests_when_its_broker_is_purged(broker_name: str) -> None:
    """The purge is no error of a callback, and does not keep the executor busy."""
    errors: list[BaseException] = []
    entered, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        entered.set()
        go_on.wait(WATCHDOG_SECONDS)

    with (
        ThreadPoolExecutor(1) as pool,
        shmbroker.connect(broker_name, executor=pool, on_callback_error=errors.append) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", wait)
        channel.basic_publish("", "q", b"")
        assert entered.wait(WATCHDOG_SECONDS)
        shmbroker.Broker(broker_name).stop(purge=True)
        go_on.set()
        pool.submit(lambda: None).result(WATCHDOG_SECONDS)  # after the runnable of the channel
        assert errors == []
