# SPDX-License-Identifier: Apache-2.0
"""What is said by channels that were closed, by whom they were, or that another process made."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, assert_closed
from scenario_support.observing import await_counts
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS

from shmbroker.exceptions import (
    ChannelClosed,
    ConnectionClosed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker

    Operation = Callable[[shmbroker.Channel], object]

USES: dict[str, Operation] = {
    "queue_declare": lambda c: c.queue_declare("q"),
    "queue_bind": lambda c: c.queue_bind("q", "amq.direct", "k"),
    "queue_unbind": lambda c: c.queue_unbind("q", "amq.direct", "k"),
    "queue_purge": lambda c: c.queue_purge("q"),
    "queue_delete": lambda c: c.queue_delete("q"),
    "exchange_declare": lambda c: c.exchange_declare("x"),
    "exchange_delete": lambda c: c.exchange_delete("x"),
    "exchange_bind": lambda c: c.exchange_bind("x", "amq.direct", "k"),
    "exchange_unbind": lambda c: c.exchange_unbind("x", "amq.direct", "k"),
    "basic_publish": lambda c: c.basic_publish("", "q", b"A"),
    "publish_confirmed": lambda c: c.publish_confirmed("", "q", b"A"),
    "basic_get": lambda c: c.basic_get("q"),
    "basic_consume": lambda c: c.basic_consume("q", print),
    "basic_cancel": lambda c: c.basic_cancel("tag"),
    "basic_ack": lambda c: c.basic_ack(1),
    "basic_nack": lambda c: c.basic_nack(1),
    "basic_reject": lambda c: c.basic_reject(1),
    "basic_recover": lambda c: c.basic_recover(),
    "basic_qos": lambda c: c.basic_qos(prefetch_count=1),
    "confirm_delivery": lambda c: c.confirm_delivery(),
    "tx_select": lambda c: c.tx_select(),
    "tx_commit": lambda c: c.tx_commit(),
    "tx_rollback": lambda c: c.tx_rollback(),
    "flow": lambda c: c.flow(active=True),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_channel_says_so(channel: shmbroker.Channel, use: str) -> None:
    """Whatever is done on it raises ChannelClosed; to close it again is no error."""
    channel.close()
    channel.close()
    with pytest.raises(ChannelClosed, match="channel"):
        USES[use](channel)


@pytest.mark.parametrize("use", USES)
def test_a_channel_of_a_closed_connection_says_so(broker: shmbroker.Broker, use: str) -> None:
    """Whatever is done on it raises, and speaks of the connection."""
    with broker.connect() as connection:
        channel = connection.channel()
    assert not channel.is_open
    with pytest.raises((ConnectionClosed, ChannelClosed), match="connection"):
        USES[use](channel)
    channel.close()


def test_a_closed_connection_opens_no_channels(broker: shmbroker.Broker) -> None:
    """It raises ConnectionClosed."""
    with broker.connect() as connection:
        pass
    with pytest.raises(ConnectionClosed):
        connection.channel()


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_who_waits_in_a_get_hears_of_the_end(broker: shmbroker.Broker, other: shmbroker.Connection, end: str) -> None:
    """A get without a time limit in another thread ends with ChannelClosed when channel or connection are closed."""
    with ThreadPoolExecutor(1) as thread, broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        waiting = thread.submit(channel.basic_get, "q", timeout=None)
        await_counts(other.queue("q", passive=True), interested=1)
        (channel if end == "channel" else connection).close()
        with pytest.raises((ChannelClosed, ConnectionClosed)):
            waiting.result(WATCHDOG_SECONDS)


def test_who_closes_says_why(connection: shmbroker.Connection) -> None:
    """The code and text given to close are what those hear who go on using the channel."""
    channel = connection.channel()
    channel.close(200, "we are done here")
    assert_closed(channel, because="we are done here")


def test_two_threads_may_close_a_channel(connection: shmbroker.Connection) -> None:
    """Both return when it is closed, and its consumers get nothing more."""
    inbox = Inbox()
    together = threading.Barrier(2)
    for _ in range(20):
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", inbox, auto_ack=True)

        def close(channel: shmbroker.Channel = channel) -> bool:
            together.wait(WATCHDOG_SECONDS)
            channel.close()
            return channel.is_open

        with ThreadPoolExecutor(2) as threads:
            closing = [threads.submit(close) for _ in range(2)]
        assert [one.result() for one in closing] == [False, False]
    with connection.channel() as again:
        assert again.queue_declare("q", passive=True).consumer_count == 0


FORKS = """
    import json, os, sys
    import shmbroker

    connection = shmbroker.connect(sys.argv[1], create=False)
    channel = connection.channel()
    channel.queue_declare("q")
    readable, writable = os.pipe()
    if os.fork() == 0:
        seen = []
        publish = lambda: channel.basic_publish("", "q", b"A")
        for use in (connection.channel, lambda: channel.queue_declare("q"), publish):
            try:
                use()
            except shmbroker.ForkedConnectionError as error:
                seen.append(str(error))
        os.write(writable, json.dumps(seen).encode())
        os._exit(0)
    os.wait()
    print(os.read(readable, 65536).decode())
    connection.close()
"""


def test_a_forked_channel_says_so(broker: shmbroker.Broker) -> None:
    """In a forked child the error speaks of the fork."""
    done = run_python(FORKS, broker.name)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == 3
    assert all("fork" in text for text in seen), seen
