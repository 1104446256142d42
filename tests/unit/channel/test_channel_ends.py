# SPDX-License-Identifier: Apache-2.0
"""The end of a channel or its connection, while somebody works for it, waits in it, or holds messages of it."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import count, publish
from scenario_support.inside import core_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.observing import listing
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS, becomes, eventually

import shmbroker.testing
from shmbroker import BasicProperties, exceptions
from shmbroker._core import journal, native
from shmbroker.channel import receiving

if TYPE_CHECKING:
    from collections.abc import Callable

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


def raised(call: Callable[[], object], do: Callable[[], object], waits: Callable[[], bool]) -> BaseException | None:
    """What a call raises in another thread, when something is done while it waits."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is what we look at
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(waits, "the call to wait")
    do()
    thread.join(WATCHDOG_SECONDS)
    assert not thread.is_alive()
    return errors[0] if errors else None


def test_a_closed_channel_says_so_to_a_get_that_waits(connection: shmbroker.Connection) -> None:
    """Closing the channel ends a waiting get with ChannelClosed, not with the connection's error."""
    channel, queue = connection.channel(), connection.queue("q")
    error = raised(
        lambda: channel.basic_get("q", timeout=None), channel.close, lambda: queue.statistics().interested == 1
    )
    assert isinstance(error, exceptions.ChannelClosed)
    assert connection.is_open


@pytest.mark.parametrize("transactional", [False, True], ids=["publish", "commit"])
def test_a_closed_channel_says_so_to_who_waits_for_room(
    connection: shmbroker.Connection, *, transactional: bool
) -> None:
    """Closing the channel ends a publish, or a commit, that waits for room; nothing is published."""
    channel, queue = connection.channel(), connection.queue("q", max_length=1, overflow="block")
    queue.put(b"first")

    def send() -> None:
        if transactional:
            channel.tx_select()
        channel.basic_publish("", "q", b"second")
        if transactional:
            channel.tx_commit()

    error = raised(send, channel.close, lambda: core_of(queue).facts().room_waiting == 1)
    assert isinstance(error, exceptions.ChannelClosed)
    assert connection.is_open
    assert listing(queue) == ["first"]
    assert core_of(queue).facts().room_waiting == 0


def test_a_get_that_waits_says_that_its_queue_is_gone(connection: shmbroker.Connection) -> None:
    """With the text of a get from a queue that was not there."""
    channel, queue = connection.channel(), connection.queue("q")
    error = raised(
        lambda: channel.basic_get("q", timeout=None), queue.delete, lambda: queue.statistics().interested == 1
    )
    assert isinstance(error, exceptions.NotFound)
    assert error.text == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_a_closed_channel_says_so_to_its_deliveries(connection: shmbroker.Connection) -> None:
    """A message that is settled by itself after its channel was closed raises ChannelClosed, and is in its queue."""
    queue = connection.queue("q")
    with connection.channel() as channel:
        channel.basic_publish("", "q", b"A")
        message = channel.basic_get("q")
    assert message is not None
    with pytest.raises(exceptions.ChannelClosed):
        message.ack()
    assert queue.statistics().ready == 1


@pytest.mark.parametrize("late", [False, True])
def test_what_goes_back_before_its_callback_begins_is_no_error(
    broker: shmbroker.Broker, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """Another thread may return a long message, or close the channel, just then: the callback is not called.

    So it is with a message that comes before its consumer is registered.
    """
    errors: list[BaseException] = []
    called, done = [], threading.Event()
    bytes_of = shmbroker.Delivery.__bytes__

    def went_back(delivery: shmbroker.Delivery) -> None:
        if len(delivery) > 1000:
            channel.basic_nack(delivery.delivery_tag, requeue=False)

    def read_properties(delivery: shmbroker.Delivery) -> BasicProperties:
        went_back(delivery)
        return BasicProperties()

    def read_bytes(delivery: shmbroker.Delivery) -> bytes:
        went_back(delivery)
        return bytes_of(delivery)

    def callback(_channel: shmbroker.Channel, _method: object, _properties: object, body: bytes) -> None:
        called.append(len(body))
        done.set()

    with shmbroker.connect(broker.name, on_callback_error=errors.append) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        if late:
            monkeypatch.setattr(shmbroker.Delivery, "__bytes__", read_bytes)
            monkeypatch.setattr(channel, "_subscriptions", NotAtOnce())
        else:
            monkeypatch.setattr(shmbroker.Delivery, "properties", property(read_properties))
        for body in (bytes(100_000), b"short"):
            connection.queue("q").put(body, headers={"a": 1})
        channel.basic_consume("q", callback)
        assert done.wait(WATCHDOG_SECONDS)
    assert (called, errors) == ([5], [])


class NotAtOnce(dict[int, Any]):
    """Consumers that are not known when their messages come, but a moment later: the native code looks past `get`."""

    def __setitem__(self, number: int, consumer: Any) -> None:  # noqa: ANN401
        self.later = {**getattr(self, "later", {}), number: consumer}

    def get(self, number: int, default: Any = None) -> Any:  # noqa: ANN401
        """Finds them."""
        return self.later.get(number, default)


def test_a_purge_ends_start_consuming_with_its_error(broker_name: str) -> None:
    """Who waits in start_consuming when the broker is purged is told so: 320."""
    with shmbroker.connect(broker_name) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_consume("q", lambda *_: None)
        queue = connection.queue("q")
        error = raised(
            channel.start_consuming,
            lambda: shmbroker.Broker(broker_name).stop(purge=True),
            lambda: queue.statistics().interested == 1,
        )
        assert isinstance(error, exceptions.ConnectionClosedByBroker)
        assert error.code == 320


def test_a_sweep_is_no_change_of_the_topology(connection: shmbroker.Connection) -> None:
    """Freeing what was deleted leaves the version as it is, so nobody forgets routes; a declaration moves it on."""
    core = core_of(connection)
    before = journal.version(core)
    native.slow.sb_housekeeper_sweep(core.handle, native.FOR_EVER)
    assert journal.version(core) == before
    connection.queue("q")
    assert journal.version(core) > before


class Meanwhile(dict[str, Any]):
    """Arguments; something is done when they are looked at, which is in the turn of who gave them."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__({"x-priority": 0})
        self._do = do

    def get(self, name: str, default: object = None) -> object:
        """Do it first."""
        self._do()
        return super().get(name, default)


def test_a_hard_error_waits_for_callbacks_that_wait_for_their_turn(broker: shmbroker.Broker) -> None:
    """A callback that is about to do something with a channel does not hold up the closing of its connection."""
    threads: list[int] = []
    ended = threading.Event()

    def work(mine: shmbroker.Channel, *_: object) -> None:
        threads.append(threading.get_ident())
        with contextlib.suppress(exceptions.BrokerError):  # the connection may be closed by then
            mine.queue_declare("other")
        ended.set()

    def waits() -> bool:
        frames = sys._current_frames()  # noqa: SLF001 - nothing else shows that it waits for its turn
        return bool(threads) and frames[threads[0]].f_code.co_name == "call"

    with broker.connect() as connection:
        channel, publisher = connection.channel(), connection.channel()

        def have_it_wait() -> None:
            publisher.basic_publish("", "q", b"")
            eventually(waits, "the callback to wait for its turn")

        channel.queue_declare("q")
        channel.basic_consume("q", work, consumer_tag="tag")
        with pytest.raises(exceptions.NotAllowed):
            channel.basic_consume("q", work, consumer_tag="tag", arguments=Meanwhile(have_it_wait))
        assert ended.is_set()


END: dict[str, Callable[[shmbroker.Channel], object]] = {
    "stop_consuming": lambda channel: channel.stop_consuming(),
    "queue_delete": lambda channel: channel.queue_delete("q"),
    "close": lambda channel: channel.close(),
}


@pytest.mark.parametrize("end", END)
def test_an_iteration_ends_with_its_consumer(channel: shmbroker.Channel, end: str) -> None:
    """Whatever ends the consumer ends the loop over its messages."""
    channel.queue_declare("q")
    publish(channel, "q", "AB")
    seen = []
    for _method, _properties, body in channel.consume("q"):
        seen.append(body)
        if len(seen) == 2:
            END[end](channel)
    assert seen == [b"A", b"B"]


# Interrupts the closing of a channel wherever a signal's handler may raise, while a thread waits in a loop over its
# messages. Then the program closes the channel again.
CLOSE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import threading

    def iterate(deliveries):
        for _ in deliveries:
            pass

    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, number, more, wrong = connection.queue("q"), 0, True, []
    while more:
        channel = connection.channel()
        thread = threading.Thread(target=iterate, args=[channel.consume("q")], daemon=True)
        thread.start()
        more = signalled_at(number, channel.close)
        channel.close()
        thread.join(10)
        if thread.is_alive():
            wrong.append(number)
            break
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_iteration_ends_with_a_close_that_was_interrupted(broker_name: str) -> None:
    """Wherever a signal's handler raises: a second close of the channel ends the loop of another thread."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []


# Interrupts the closing of a channel that has published, wherever a signal's handler may raise. Then the program closes
# the channel again, and publishes.
CLOSE_BEFORE_A_PUBLISH = f"""{SIGNALLED_AT}
    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, number, more, wrong = connection.queue("q"), 0, True, []
    while more:
        channel = connection.channel()
        channel.basic_publish("", "q", b"")
        queue.purge()
        more = signalled_at(number, channel.close)
        channel.close()
        try:
            channel.basic_publish("", "q", b"")
            wrong.append((number, "published"))
        except shmbroker.ChannelClosed:
            if len(queue):
                wrong.append((number, "put"))
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_a_channel_whose_close_was_interrupted_publishes_no_more(broker_name: str) -> None:
    """Wherever a signal's handler raises: after a second close, the fast path of the publishes is off, too."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_BEFORE_A_PUBLISH, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []


def test_a_consumer_that_begins_beside_a_close_is_refused(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close has told all consumers of the end, and does not know this one: it would wait without end."""
    channel.queue_declare("q")
    core = channel._core_channel  # noqa: SLF001
    consume = core.consume

    def closed_meanwhile(*arguments: object, **options: object) -> int:
        number: int = consume(*arguments, **options)
        closing = threading.Thread(target=channel.close)
        closing.start()
        closing.join()
        return number

    monkeypatch.setattr(core, "consume", closed_meanwhile)
    with pytest.raises(exceptions.ChannelClosed):
        next(channel.consume("q"))
    assert not channel._subscriptions  # noqa: SLF001


def test_an_iteration_that_was_never_begun_can_be_closed(channel: shmbroker.Channel) -> None:
    """Closing the generator ends its consumer, also before its first message was asked for."""
    channel.queue_declare("q")
    publish(channel, "q", "AB")
    channel.consume("q").close()
    assert channel.consumer_tags == []
    becomes(lambda: count(channel, "q"), 2)


def test_an_iteration_acknowledges_what_it_passes_on(channel: shmbroker.Channel) -> None:
    """With auto_ack a message is settled when the loop gets it; what it was handed beyond that goes back."""
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    for method, _properties, body in channel.consume("q", auto_ack=True):
        assert (body, method.settled) == (b"A", True)
        break
    becomes(lambda: count(channel, "q"), 2)


def test_what_reaches_a_loop_that_was_left_goes_back(channel: shmbroker.Channel) -> None:
    """A callback that was chosen before the consumer ended may begin afterwards: nobody keeps its message."""
    channel.queue_declare("q")
    publish(channel, "q", "A")
    waiting = receiving.Waiting()
    waiting.give_back()
    message = channel.basic_get("q")
    waiting.put(channel, message, BasicProperties(), b"A")
    assert count(channel, "q") == 1


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_what_reaches_a_loop_after_the_end_of_its_channel_is_no_error(broker_name: str, end: str) -> None:
    """The end of the channel has requeued the message; the hook for errors of callbacks hears of nothing."""
    with shmbroker.testing.broker(broker_name) as broker, broker.connect() as connection:
        ending = broker.connect()
        channel = ending.channel()
        channel.queue_declare("q")
        publish(channel, "q", "A")
        message = channel.basic_get("q")
        waiting = receiving.Waiting()
        waiting.give_back()
        (channel if end == "channel" else ending).close()
        waiting.put(channel, message, BasicProperties(), b"A")
        assert bytes(connection.queue("q", passive=True).get(timeout=0)) == b"A"
        ending.close()


def test_a_callback_that_raises_stops_no_other(broker: shmbroker.Broker) -> None:
    """All callbacks hear of a message that came back, or a consumer that ended; the hook hears of what they raise."""
    errors: list[BaseException] = []
    told: list[object] = []

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with broker.connect(on_callback_error=errors.append) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for callback in (fail, lambda _channel, _method, _properties, body: told.append(body)):
            channel.add_on_return_callback(callback)
        for callback in (fail, told.append):
            channel.add_on_cancel_callback(callback)
        channel.basic_publish("", "nowhere", b"A", mandatory=True)
        channel.basic_consume("q", lambda *_: None, consumer_tag="tag")
        channel.queue_delete("q")
        becomes(lambda: told, [b"A", "tag"])
        assert [type(error) for error in errors] == [ZeroDivisionError] * 2


@pytest.mark.parametrize("end", ["close", "purge"])
def test_a_close_callback_that_raises_stops_nobody(broker_name: str, end: str) -> None:
    """The hook is told, the others are called, and whoever closes hears of nothing."""
    errors: list[BaseException] = []
    called = threading.Event()
    connection = shmbroker.connect(broker_name, on_callback_error=errors.append)
    connection.add_close_callback(lambda: 1 / 0)
    connection.add_close_callback(called.set)
    with pytest.raises(TypeError, match="callback=None: a callable is needed"):
        connection.add_close_callback(None)  # type: ignore[arg-type]
    core_of(connection).start_io()
    if end == "close":
        connection.close()
    shmbroker.Broker(broker_name).stop(purge=True)
    assert called.wait(WATCHDOG_SECONDS)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    connection.close()


def test_what_is_settled_by_its_tag_does_not_go_back(channel: shmbroker.Channel) -> None:
    """A loop that is left returns what it was handed; not what was acknowledged together with all others."""
    channel.queue_declare("q")
    publish(channel, "q", "ABC")
    for _ in channel.consume("q"):
        eventually(lambda: core_of(channel).delivered() == 3, "all to be handed over")
        channel.basic_ack(0, multiple=True)
        break
    assert count(channel, "q") == 0
    assert channel.is_open
