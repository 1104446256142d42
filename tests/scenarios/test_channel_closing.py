# SPDX-License-Identifier: Apache-2.0
"""How channels and connections end, with threads at work and in forked children (B07 and B11)."""

from __future__ import annotations

import json
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, Rounds, count, exists, publish
from scenario_support.processes import OUTCOME_OF_A_USE, run_python
from scenario_support.waiting import WATCHDOG_SECONDS, eventually

if TYPE_CHECKING:
    import shmbroker


def test_b07_the_users_executor_survives_the_connection(broker: shmbroker.Broker) -> None:
    """An executor passed by the user is still usable when the connection is closed."""
    inbox = Inbox()
    with ThreadPoolExecutor(2) as executor:
        with broker.connect(executor=executor) as connection, connection.channel() as channel:
            channel.queue_declare("q")
            channel.basic_consume("q", inbox, auto_ack=True)
            publish(channel, "q", "AB")
            inbox.wait(2)
        assert not connection.is_open
        assert executor.submit(sum, [1, 2]).result(WATCHDOG_SECONDS) == 3


def test_b07_without_an_executor_the_threads_go_with_the_connection(broker: shmbroker.Broker) -> None:
    """A connection that was given no executor leaves no thread behind when it is closed."""
    before = set(threading.enumerate())
    inbox = Inbox()
    with broker.connect() as connection, connection.channel() as channel:
        channel.queue_declare("q")
        channel.basic_consume("q", inbox, auto_ack=True)
        publish(channel, "q", "AB")
        inbox.wait(2)
        assert set(threading.enumerate()) - before
    eventually(lambda: not set(threading.enumerate()) - before, "the connection's threads ended")


CLOSES_AMONG_CALLBACKS = """
    import json, sys
    import shmbroker

    sys.setswitchinterval(1e-6)
    errors = []
    for _ in range(200):
        with shmbroker.connect(sys.argv[1], create=False, on_callback_error=errors.append) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.basic_consume("q", lambda *_: None, auto_ack=True)
            for _ in range(20):
                channel.basic_publish("", "q", b"A")
    print(json.dumps([repr(error) for error in errors]))
"""


def test_b07_a_connection_may_be_closed_among_callbacks(broker: shmbroker.Broker) -> None:
    """Closed while its threads are at work it ends in peace; the hook hears of callbacks, and none has raised."""
    done = run_python(CLOSES_AMONG_CALLBACKS, broker.name)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


FORKS = """
    import json, os, sys, threading
    import shmbroker

    name, end = sys.argv[1:]
    connection = shmbroker.connect(name, create=False)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.queue_declare("held")
    channel.basic_publish("", "held", b"held")
    held = channel.basic_get("held")
    received, arrived = [], threading.Semaphore(0)

    def take(channel, method, properties, body):
        received.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        arrived.release()

    channel.basic_consume("q", take)
    channel.basic_publish("", "q", b"before")
    assert arrived.acquire(timeout=60)
    waiting = connection.channel()
    waiting.queue_declare("waited")
    waiter = threading.Thread(target=waiting.basic_get, args=("waited", True), kwargs={"timeout": None})
    waiter.start()
    while connection.queue("waited").statistics().interested == 0:
        pass
    readable, writable = os.pipe()
    uses = {
        "turn of another thread": lambda: waiting.queue_purge("waited"),
        "start_consuming": channel.start_consuming,
        "channel": connection.channel,
        "queue_declare": lambda: channel.queue_declare("q"),
        "basic_publish": lambda: channel.basic_publish("", "q", b"x"),
        "basic_get": lambda: channel.basic_get("held"),
        "basic_ack": lambda: channel.basic_ack(held.delivery_tag),
        "basic_nack": lambda: channel.basic_nack(held.delivery_tag),
        "Message.ack": held.ack,
        "basic_consume": lambda: channel.basic_consume("q", take),
        "basic_qos": lambda: channel.basic_qos(prefetch_count=1),
        "queue_purge": lambda: channel.queue_purge("q"),
        "exchange_declare": lambda: channel.exchange_declare("x"),
    }

    pid = os.fork()
    if pid == 0:
        seen = {use: outcome(uses[use]) for use in uses}
        seen["open"] = connection.is_open, channel.is_open
        seen["close channel"] = outcome(channel.close)
        seen["close"] = outcome(connection.close)
        with shmbroker.connect(name, create=False) as fresh:
            fresh.channel().basic_publish("", "q", b"from the child")
        os.write(writable, json.dumps(seen).encode())
        if end == "exit":
            sys.exit(0)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    seen = json.loads(os.read(readable, 65536))
    channel.basic_publish("", "waited", b"")
    waiter.join(timeout=60)
    channel.basic_publish("", "q", b"after")
    assert arrived.acquire(timeout=60)
    assert arrived.acquire(timeout=60)
    channel.basic_ack(held.delivery_tag)
    print(json.dumps({"status": status, "seen": seen, "received": received, "doctor": connection.doctor()}))
    connection.close()
"""


@pytest.mark.parametrize("end", ["exit", "_exit"])
def test_b11_a_forked_child_cannot_use_a_channel(broker: shmbroker.Broker, end: str) -> None:
    """In the child every use raises ForkedConnectionError; the parent's deliveries go on."""
    done = run_python(OUTCOME_OF_A_USE + FORKS, broker.name, end)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    seen = report["seen"]
    assert seen.pop("open") == [False, False]
    assert {seen.pop("close"), seen.pop("close channel")} <= {"no error", "forked"}
    assert seen == dict.fromkeys(seen, "forked")
    assert len(seen) == 13
    assert report["status"] == 0
    assert report["received"] == ["before", "from the child", "after"]
    assert report["doctor"] == []


class Refusing(ThreadPoolExecutor):
    """An executor that refuses what is submitted by the IO thread once."""

    refused = False

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:  # noqa: ANN401 (as its base has it)
        """Refuse, or submit."""
        if not self.refused and threading.current_thread().name.startswith("shmbroker-io"):
            self.refused = True
            raise queue.Full
        return super().submit(*arguments, **options)


def test_an_executor_may_refuse(broker: shmbroker.Broker) -> None:
    """Whatever it raises, the hook is told, and the other channels of the connection go on."""
    errors: list[BaseException] = []
    with Refusing(1) as executor, broker.connect(executor=executor, on_callback_error=errors.append) as connection:
        for name in ("refused", "other"):
            channel, inbox = connection.channel(), Inbox(ack=True)
            channel.queue_declare(name)
            channel.basic_consume(name, inbox)
            executor.submit(lambda: None).result(WATCHDOG_SECONDS)  # the channel has looked, and rests
            publish(channel, name, "A")
            eventually(lambda: errors, "the refusal to be told")
        inbox.wait(1)
        assert [type(error) for error in errors] == [queue.Full]


def test_closing_a_channel_takes_nothing_from_the_others(connection: shmbroker.Connection) -> None:
    """A channel that ends by an error or by close leaves the connection's other channels at work."""
    inbox = Inbox(ack=True)
    lasting, brief = connection.channel(), connection.channel()
    lasting.queue_declare("q")
    lasting.basic_consume("q", inbox)
    brief.basic_consume("q", Inbox())
    brief.close()
    brief.close()
    assert not brief.is_open
    publish(lasting, "q", "AB")
    assert [delivery.text for delivery in inbox.wait(2)] == ["A", "B"]
    Rounds(connection).go()
    assert count(lasting, "q") == 0
    assert exists(connection, queue="q")
