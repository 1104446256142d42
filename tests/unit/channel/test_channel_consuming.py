# SPDX-License-Identifier: Apache-2.0
"""Consumers of a channel: what the core is asked for, how many messages come, and waiting for the end of consumers."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import Inbox, assert_closed, count, publish, refused, taken
from scenario_support.core_calls import Noted
from scenario_support.inside import connection_of, core_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python
from scenario_support.waiting import becomes, eventually

import shmbroker.testing
from shmbroker._core.channel import AUTO_ACK, EXCLUSIVE, NO_LOCAL
from shmbroker.channel.receiving import Waiting
from shmbroker.exceptions import ChannelClosed, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[shmbroker.Channel], object]

HIGHEST = 2**31 - 1
MOST = 65535


def ignore(*_delivery: object) -> None:
    """Leave a message unacknowledged."""


@pytest.fixture
def channel(connection: shmbroker.Connection) -> shmbroker.Channel:
    """Open a channel, and declare its queue."""
    opened = connection.channel()
    opened.queue_declare("q")
    return opened


def asked(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, consume: Operation) -> tuple[int, int, int]:
    """Return the prefetch, priority and flags that the core is asked for by a consumer."""
    noted = Noted(core_of(channel).consume)
    monkeypatch.setattr(core_of(channel), "consume", noted)
    consume(channel)
    ((_queue, prefetch, priority, flags, _place),) = noted.calls
    return prefetch, priority, flags


# ---- starting ----


@pytest.mark.parametrize("how", ["basic_consume", "consume", "_consume_until"])
@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, 0),
        ({"exclusive": True}, EXCLUSIVE),
        ({"no_local": True}, NO_LOCAL),
        ({"exclusive": 1, "no_local": "yes"}, EXCLUSIVE | NO_LOCAL),
        ({"arguments": {"x-priority": 5}}, 0),
    ],
)
def test_a_consumer_is_what_was_asked_for(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, how: str, given: dict[str, Any], flags: int
) -> None:
    """Exclusive, without what its connection published, of a priority; nothing of it if it is not said."""
    more = {"basic_consume": (ignore,), "consume": (), "_consume_until": (ignore, lambda: None)}[how]
    kept = []  # a loop without references ends its consumer
    wanted = (64, 5 if "arguments" in given else 0, flags)
    assert asked(channel, monkeypatch, lambda c: kept.append(getattr(c, how)("q", *more, **given))) == wanted
    (tag,) = channel.consumer_tags
    assert tag.startswith("amq.ctag-")
    (consumer,) = connection_of(channel).consumers("q")
    assert (consumer.priority, consumer.channel) == (wanted[1], channel.number)


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({"auto_ack": True}, AUTO_ACK),
        ({"auto_ack": 1, "exclusive": True}, AUTO_ACK | EXCLUSIVE),
        ({"auto_ack": True, "exclusive": True, "no_local": True}, AUTO_ACK | EXCLUSIVE | NO_LOCAL),
    ],
)
def test_a_consumer_may_settle_what_it_gets(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], flags: int
) -> None:
    """Beside everything else that it is."""
    assert asked(channel, monkeypatch, lambda c: c.basic_consume("q", ignore, **given)) == (64, 0, flags)


@pytest.mark.parametrize(("given", "starts"), [(None, "amq.ctag-"), ("", "amq.ctag-"), ("a\r\nb", "ab")])
def test_a_consumer_has_a_tag(channel: shmbroker.Channel, given: str | None, starts: str) -> None:
    """The one that was given, without line ends, or one that is made up."""
    channel.basic_consume("q", ignore, consumer_tag="another")
    tag = channel.basic_consume("q", ignore, consumer_tag=given)
    assert tag.startswith(starts)
    assert channel.consumer_tags == ["another", tag]


@pytest.mark.parametrize("priority", [HIGHEST, -HIGHEST, 0, 1])
def test_a_priority_has_31_bits(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, priority: int) -> None:
    """And a sign."""
    arguments = {"x-priority": priority}
    assert asked(channel, monkeypatch, lambda c: c.basic_consume("q", ignore, arguments=arguments))[1] == priority


@pytest.mark.parametrize("priority", [HIGHEST + 1, -HIGHEST - 1, True, False, 1.0, "1", None])
def test_everything_else_is_no_priority(channel: shmbroker.Channel, priority: object) -> None:
    """It closes the channel, and there is no consumer."""
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-priority' for queue 'q' in vhost '/'"):
        channel.basic_consume("q", ignore, arguments={"x-priority": priority})
    assert not channel.is_open
    assert connection_of(channel).consumers("q") == []


@pytest.mark.parametrize("priority", [HIGHEST + 1, -HIGHEST - 1])
def test_a_priority_out_of_range_is_told_the_range(channel: shmbroker.Channel, priority: int) -> None:
    """The error has the range and the number; what is no integer is told that."""
    text = f'"expected integer from {-HIGHEST} to {HIGHEST}, got {priority}"'
    with pytest.raises(PreconditionFailed) as refused:
        channel.basic_consume("q", ignore, arguments={"x-priority": priority})
    assert refused.value.text.endswith(text)


def test_the_first_consumer_starts_the_io_thread(channel: shmbroker.Channel) -> None:
    """Which wakes the channel for what comes later."""
    name = f"shmbroker-io-{channel._core_connection.id}"  # noqa: SLF001
    assert name not in {one.name for one in threading.enumerate()}
    channel.basic_consume("q", ignore)
    assert name in {one.name for one in threading.enumerate()}


def test_what_is_there_comes_to_the_first_consumer(channel: shmbroker.Channel) -> None:
    """The channel looks when a consumer was started, with the names of that one."""
    publish(channel, "q", "A")
    inbox = Inbox()
    channel.basic_consume("q", inbox, consumer_tag="tag")
    (delivery,) = inbox.wait(1)
    assert (delivery.text, delivery.consumer_tag, delivery.delivery_tag) == ("A", "tag", 1)


# ---- cancelling, and waiting for the end of consumers ----


class Waited(threading.Condition):
    """A condition that is never waited for: what another thread would do meanwhile is done in the waiting one.

    An act must call those that wait if what they wait for is so by then; when no act is left they would wait for ever.
    """

    def __init__(self) -> None:
        """Without any act."""
        super().__init__(threading.RLock())
        self.acts: list[Callable[[], object]] = []
        self.called = False

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:  # noqa: ANN401 (as its base has it)
        """Do one act after the other until it is so."""
        assert timeout is None
        self.predicate = predicate
        while not predicate():
            assert self.acts, "it waits for ever"
            self.called = False
            self.release()
            self.acts.pop(0)()
            self.acquire()
            assert self.called == bool(predicate())
        return True

    def notify_all(self) -> None:
        """Call those that wait: do they find that it is so?"""
        self.called = self.called or bool(self.predicate())

    def predicate(self) -> Any:  # noqa: ANN401 (no caller waits)
        """It is not so."""


@pytest.fixture
def waited(channel: shmbroker.Channel) -> Waited:
    """Have the channel wait for its consumers in the thread of the test."""
    assert core_of(channel).unacked() == 0
    channel._consumers_changed = Waited()  # noqa: SLF001 (else a waiting thread looks like one that is about to wait)
    return channel._consumers_changed  # noqa: SLF001


def test_without_consumers_nobody_waits(connection: shmbroker.Connection) -> None:
    """Also on a channel that never had one, where there is nothing to stop either."""
    channel = connection.channel()
    channel.stop_consuming()
    channel.start_consuming()
    channel.stop_consuming()
    assert channel.consumer_tags == []


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_channel_consumes_nothing(channel: shmbroker.Channel, *, used: bool) -> None:
    """To wait for its consumers is an error; to stop them is none."""
    if used:
        channel.basic_consume("q", ignore)
    channel.close()
    channel.stop_consuming()
    with pytest.raises(ChannelClosed):
        channel.start_consuming()


def test_start_consuming_waits_for_the_end_of_each_consumer(channel: shmbroker.Channel, waited: Waited) -> None:
    """The first one that is cancelled leaves the others at work; so does a tag that there is not."""
    for tag in ("a", "b", "c"):
        channel.basic_consume("q", ignore, consumer_tag=tag)
    left = []
    for tag in ("b", "missing", "a", "c"):
        waited.acts.append(lambda tag=tag: channel.basic_cancel(tag) or left.append(channel.consumer_tags))  # type: ignore[misc]
    channel.start_consuming()
    assert waited.acts == []
    assert left == [["a", "c"], ["a", "c"], ["c"], []]
    assert connection_of(channel).consumers("q") == []


def test_start_consuming_waits_for_a_queue_that_is_deleted(channel: shmbroker.Channel, waited: Waited) -> None:
    """Its consumer ends with it, which the dispatcher of the channel finds."""
    cancelled: list[str] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("q", ignore, consumer_tag="tag")

    def delete() -> None:
        channel.queue_delete("q")
        eventually(lambda: waited.called)

    waited.acts.append(delete)
    channel.start_consuming()
    becomes(lambda: cancelled, ["tag"])


def test_stop_consuming_ends_the_wait_and_the_consumers(channel: shmbroker.Channel, waited: Waited) -> None:
    """It ends the wait also if another consumer is started just then; the next wait is a wait again."""
    channel._consume_until("q", ignore, lambda: channel.basic_consume("q", ignore, consumer_tag="late"))  # noqa: SLF001
    waited.acts.append(channel.stop_consuming)
    channel.start_consuming()
    assert channel.consumer_tags == ["late"]
    waited.acts.append(channel.stop_consuming)
    channel.start_consuming()
    assert (waited.acts, channel.consumer_tags) == ([], [])


def test_closing_the_channel_ends_the_wait(channel: shmbroker.Channel, waited: Waited) -> None:
    """It is no error, if no error has closed it."""
    channel.basic_consume("q", ignore)
    waited.acts.append(channel.close)
    channel.start_consuming()
    assert not channel.is_open


def test_a_consumer_that_came_too_late_keeps_nobody_waiting(
    channel: shmbroker.Channel, waited: Waited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may close the channel when the core has started a consumer, and before the channel knows it.

    The consumer is refused.
    """
    consume = core_of(channel).consume

    def close(*arguments: Any, **options: Any) -> int:  # noqa: ANN401
        number = consume(*arguments, **options)
        channel.close()
        return number

    channel.basic_consume("q", ignore)
    monkeypatch.setattr(core_of(channel), "consume", close)

    def begin() -> None:
        with refused(ChannelClosed):
            channel.basic_consume("q", ignore)

    waited.acts.append(begin)
    channel.start_consuming()
    assert not channel.is_open
    assert connection_of(channel).consumers("q") == []


def test_an_error_ends_the_wait_and_is_told(channel: shmbroker.Channel, waited: Waited) -> None:
    """If it was not told yet, as that of a publish; else ChannelClosed says that it was."""
    channel.basic_consume("q", ignore)
    waited.acts.append(lambda: channel.basic_publish("missing", "k", b""))
    with refused(NotFound):
        channel.start_consuming()
    assert_closed(channel, because="no exchange 'missing'")


def test_a_cancelled_consumer_gets_nothing_more(channel: shmbroker.Channel) -> None:
    """The others of its queue get the rest; what it holds can be acknowledged."""
    first, second = Inbox(), Inbox()
    tag = channel.basic_consume("q", first)
    publish(channel, "q", "A")
    (delivery,) = first.wait(1)
    channel.basic_consume("q", second)
    channel.basic_cancel(tag)
    publish(channel, "q", "BC")
    second.wait(2)
    channel.basic_ack(delivery.delivery_tag)
    assert (first.texts(), second.texts(), len(channel.consumer_tags)) == (["A"], ["B", "C"], 1)


# ---- iterating ----


@pytest.mark.parametrize(("timeout", "kind"), [("soon", TypeError), (True, TypeError), (-1, ValueError)])
def test_an_iteration_with_a_wrong_timeout_is_not_begun(
    channel: shmbroker.Channel,
    timeout: Any,  # noqa: ANN401
    kind: type[Exception],
) -> None:
    """It starts no consumer."""
    with pytest.raises(kind, match="timeout"):
        channel.consume("q", inactivity_timeout=timeout)
    assert channel.consumer_tags == []


@pytest.mark.parametrize("auto_ack", [False, True])
def test_an_iteration_hands_out_messages_and_pauses(channel: shmbroker.Channel, *, auto_ack: bool) -> None:
    """Three times nothing when none came; what it hands out is settled only if that was asked for."""
    publish(channel, "q", "AB")
    deliveries = channel.consume("q", auto_ack, inactivity_timeout=0.001)
    nothing = (None, None, None)
    found = [next(one for one in deliveries if one != nothing) for _ in range(2)]
    assert [(body, method is not None and method.settled) for method, _, body in found] == [
        (b"A", auto_ack),
        (b"B", auto_ack),
    ]
    assert next(deliveries) == nothing
    channel.stop_consuming()
    assert [one for one in deliveries if one != nothing] == []
    channel.close()
    assert connection_of(channel).queue("q").statistics().ready == (0 if auto_ack else 2)


def test_what_a_consumer_hands_over_waits_for_the_loop(channel: shmbroker.Channel) -> None:
    """In order; when the loop was left it goes back unless the loop yielded it, and so does what comes after that."""
    publish(channel, "q", "ABCD")
    messages = taken(channel, "q", 4)
    waiting = Waiting()
    assert waiting.next(0) == (None, None, None)
    for message in messages[:3]:
        waiting.put(channel, message, None, b"")
    waiting.end()
    assert waiting.next(0)[0] is messages[0]
    waiting.taken = []
    assert waiting.next(0)[0] is messages[1]
    assert core_of(channel).unacked() == 4
    waiting.give_back()
    assert (core_of(channel).unacked(), count(channel, "q")) == (2, 2)
    waiting.put(channel, messages[3], None, b"")
    assert (core_of(channel).unacked(), count(channel, "q")) == (1, 3)
    waiting.end()
    assert waiting.next(0) is None


# Interrupts a loop over three messages wherever a signal's handler may raise. The channel stays open. Callbacks run
# only when this program has them run, so that all three messages wait when the loop begins.
ITERATE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import concurrent.futures, contextlib, time

    class Kept(concurrent.futures.Executor):
        submitted = []

        def submit(self, fn, /, *args):
            self.submitted.append((fn, args))

    def iterate():
        for delivery in deliveries:
            got.append(delivery[2])
            if len(got) == 2:
                break

    name, number, more, wrong = sys.argv[1], 0, True, []
    connection = shmbroker.connect(name, create=False, executor=Kept())
    queue, channel = connection.queue("q"), connection.channel()
    while more:
        queue.put_many([b"A", b"B", b"C"])
        got, deliveries = [], channel.consume("q")
        while channel._core.unacked() < 3:
            time.sleep(0)
            while Kept.submitted:
                fn, args = Kept.submitted.pop(0)
                fn(*args)
        more = signalled_at(number, iterate)
        deliveries.close()
        if got != [b"A", b"B"][: len(got)] or [channel._core.unacked(), len(queue)] != [len(got), 3 - len(got)]:
            wrong.append([number, len(got), channel._core.unacked(), len(queue)])
        channel.basic_ack(0, multiple=True)
        queue.purge()
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_iteration_keeps_no_message(broker_name: str) -> None:
    """Wherever a signal's handler raises: a message that the loop was not given is back in its queue."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(ITERATE_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []


# Interrupts the beginning and the end of a consumer wherever a signal's handler may raise. Then the program ends the
# consumer if it finds one, and starts another one.
CONSUME_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import threading, time

    def take(channel, method, properties, body):
        if not method.settled:
            method.ack()
        came.set()

    def begin():
        channel.basic_consume("q", take, auto_ack=auto_ack)

    def end():
        channel.basic_cancel(channel.consumer_tags[0])

    name, deed, auto_ack = sys.argv[1], sys.argv[2], "auto_ack" in sys.argv
    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(name, create=False)
    queue, channel, number, more, wrong = connection.queue("q"), connection.channel(), 0, True, []
    while more:
        if deed == "end":
            begin()
        more = signalled_at(number, globals()[deed])
        known = queue.statistics().consumers == len(channel.consumer_tags)
        if not known and not (deed == "end" and channel.consumer_tags):  # it can be ended once more
            wrong.append([number, queue.statistics().consumers, channel.consumer_tags])
        came = threading.Event()
        if channel.consumer_tags and deed == "begin":
            queue.put(b"A")  # the consumer that was begun gets it
            if not came.wait(10):
                wrong.append([number, "no callback"])
        while channel.consumer_tags:
            end()
        if queue.statistics().consumers:
            wrong.append([number, "not ended"])
        queue.purge()
        came = threading.Event()
        begin()
        queue.put(b"B")
        if not came.wait(10):
            wrong.append([number, "no callback any more"])
        end()
        if wrong:
            break
        number += 1
    print(json.dumps([number, wrong, [str(one) for one in connection.doctor()]]))
"""


@pytest.mark.parametrize("options", [[], ["auto_ack"]])
@pytest.mark.parametrize("deed", ["begin", "end"])
def test_an_interrupted_consumer_is_there_or_not(broker_name: str, deed: str, options: list[str]) -> None:
    """Wherever a signal's handler raises: a consumer that the core has is one that the channel knows of, too."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CONSUME_WHERE_SIGNALS_COME, broker.name, deed, *options)
    assert done.returncode == 0, done.stderr
    number, wrong, damage = json.loads(done.stdout)
    assert number > 10
    assert (wrong, damage) == ([], [])


# Interrupts the beginning of a loop wherever a signal's handler may raise.
LOOP_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import time

    def begin():
        loops.append(channel.consume("q"))

    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, channel, number, more, wrong, loops = connection.queue("q"), connection.channel(), 0, True, [], []
    queue.put_many([b"A", b"B", b"C"])
    while more:
        more = signalled_at(number, begin)
        if loops and not queue.statistics().consumers:
            wrong.append([number, "no consumer"])
        while loops:
            loops.pop().close()
        if queue.statistics().consumers or channel.consumer_tags:
            wrong.append([number, channel.consumer_tags])
            break
        while channel._core and (channel._core.waiting() or channel._core.unacked()):
            time.sleep(0)  # a message that a callback has goes back, too
        if len(queue) != 3:
            wrong.append([number, len(queue)])
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_beginning_of_a_loop_leaves_no_consumer(broker_name: str) -> None:
    """Wherever a signal's handler raises: without a loop there is no consumer, and its messages are in the queue."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(LOOP_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# ---- how many ----


@pytest.mark.parametrize("count_of", [0, 1, MOST])
def test_a_prefetch_is_for_the_consumers_that_follow(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch, count_of: int
) -> None:
    """Of any number up to 65,535."""
    channel.basic_qos(prefetch_count=count_of)
    assert asked(channel, monkeypatch, lambda c: c.basic_consume("q", ignore)) == (count_of, 0, 0)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"prefetch_count": MOST + 1}, ValueError, "prefetch_count=65536: 0 to 65535 is allowed"),
        ({"prefetch_count": -1}, ValueError, "prefetch_count=-1: 0 to 65535 is allowed"),
        ({"prefetch_count": True}, TypeError, "prefetch_count=True: an integer is needed"),
        ({"prefetch_count": "5"}, TypeError, "prefetch_count='5': an integer is needed"),
        ({"prefetch_size": None}, TypeError, "prefetch_size=None: an integer is needed"),
        ({"scope": "queue"}, ValueError, "scope='queue': consumer, channel or connection is allowed"),
        ({"scope": ""}, ValueError, "scope='': consumer, channel or connection is allowed"),
    ],
)
def test_a_wrong_prefetch_is_refused(
    channel: shmbroker.Channel,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    kind: type[Exception],
    text: str,
) -> None:
    """The channel goes on, with the prefetch that it had."""
    with pytest.raises(kind) as caught:
        channel.basic_qos(**given)
    assert str(caught.value) == text
    assert asked(channel, monkeypatch, lambda c: c.basic_consume("q", ignore)) == (64, 0, 0)


def test_a_limit_is_set_where_it_is_meant(channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the channel, for the connection, or for consumers: that ends the channel's, once."""
    of_channel, of_connection = Noted(core_of(channel).limit), Noted(channel._core_connection.limit)  # noqa: SLF001
    monkeypatch.setattr(core_of(channel), "limit", of_channel)
    monkeypatch.setattr(channel._core_connection, "limit", of_connection)  # noqa: SLF001
    channel.basic_qos(prefetch_count=1)
    channel.basic_qos(prefetch_count=2, scope="connection")
    channel.basic_qos(prefetch_count=3, scope="connection", global_qos=True)
    channel.basic_qos(prefetch_count=4, scope="consumer", global_qos=True)
    assert (of_channel.calls, of_connection.calls) == ([], [(2,), (3,)])
    channel.basic_qos(prefetch_count=5, global_qos=True)
    channel.basic_qos(prefetch_count=6, scope="channel")
    assert asked(channel, monkeypatch, lambda c: c.basic_consume("q", ignore))[0] == 4
    channel.basic_qos(prefetch_count=7)
    channel.basic_qos(prefetch_count=8)
    assert of_channel.calls == [(5,), (6,), (0,)]
    assert len(of_connection.calls) == 2


def test_a_prefetch_of_consumers_needs_no_channel_in_the_core(connection: shmbroker.Connection) -> None:
    """It is made by the first thing that does."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    assert channel._core is None  # noqa: SLF001 (nothing else shows it)


def test_flow_is_on(channel: shmbroker.Channel) -> None:
    """The answer says so."""
    assert channel.flow(active=True) is True
