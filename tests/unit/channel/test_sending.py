# SPDX-License-Identifier: Apache-2.0
"""What a channel sends: the order of checks, what a mandatory message comes back with, confirms, transactions."""

from __future__ import annotations

import concurrent.futures
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.channels import assert_closed, content, refused, taken
from scenario_support.inside import core_of, session_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python
from scenario_support.waiting import WATCHDOG_SECONDS, becomes

import shmbroker.testing
from shmbroker import BasicProperties
from shmbroker._core import journal
from shmbroker._topology.publisher import PLAIN
from shmbroker.channel import channel_state, transaction
from shmbroker.channel.transaction import Transaction
from shmbroker.exceptions import ChannelClosed, NotFound, OutOfMemory, PreconditionFailed, UnroutableError

if TYPE_CHECKING:
    from collections.abc import Callable

NO_EXCHANGE = "NOT_FOUND - no exchange 'missing' in vhost '/'"


def test_the_exchange_is_looked_for_before_the_properties(channel: shmbroker.Channel) -> None:
    """Where both are wrong, it is the exchange that is told of."""
    channel.basic_publish("missing", "k", b"", BasicProperties(expiration="soon"))
    with refused(NotFound, NO_EXCHANGE):
        channel.queue_declare("q")


@pytest.mark.parametrize("properties", [None, BasicProperties(app_id="a")])
def test_a_transaction_looks_for_the_exchange_when_it_publishes(
    channel: shmbroker.Channel, properties: BasicProperties | None
) -> None:
    """The channel is closed then, not at the commit."""
    channel.tx_select()
    channel.basic_publish("missing", "k", b"", properties)
    assert not channel.is_open
    with refused(NotFound, NO_EXCHANGE):
        channel.tx_commit()


def test_what_follows_a_failed_publish_fails_with_it(channel: shmbroker.Channel) -> None:
    """Until the error was told, the futures of later publishes have it too; numbers are given to what was sent."""
    channel.confirm_delivery()
    assert channel.basic_publish("missing", "k", b"") == 1
    future = channel.publish_confirmed("", "q", b"")
    with refused(NotFound, NO_EXCHANGE):
        future.result(0)
    assert channel.basic_publish("", "q", b"") is None
    with refused(NotFound, NO_EXCHANGE):
        channel.wait_for_confirms()
    with pytest.raises(ChannelClosed):
        channel.wait_for_confirms()


@pytest.mark.parametrize("given", [None, BasicProperties(app_id="a", headers={"n": 1})])
@pytest.mark.parametrize("way", ["publish", "confirmed", "transaction"])
def test_what_a_message_comes_back_with(channel: shmbroker.Channel, given: BasicProperties | None, way: str) -> None:
    """Code, text, exchange, key, properties and body; without properties it has empty ones."""
    returned: list[tuple[object, ...]] = []
    channel.add_on_return_callback(
        lambda _, why, properties, body: returned.append(
            (why.reply_code, why.reply_text, why.exchange, why.routing_key, properties, body)
        )
    )
    if way == "publish":
        channel.confirm_delivery()
        assert channel.basic_publish("amq.direct", "k", bytearray(b"A"), given, mandatory=True) == 1
        assert channel.wait_for_confirms(WATCHDOG_SECONDS)
    elif way == "confirmed":
        with pytest.raises(UnroutableError, match=r"exchange 'amq\.direct' has no queue for key 'k'"):
            channel.publish_confirmed("amq.direct", "k", b"A", given, mandatory=True).result(WATCHDOG_SECONDS)
    else:
        channel.tx_select()
        channel.basic_publish("amq.direct", "k", b"A", given, mandatory=True)
        channel.tx_commit()
    becomes(lambda: list(returned), [(312, "NO_ROUTE", "amq.direct", "k", given or BasicProperties(), b"A")])


def test_a_commit_returns_what_was_mandatory_and_had_no_queue(connection: shmbroker.Connection) -> None:
    """Nothing else, in the order of publishing; a transaction that took no messages has no channel in the core."""
    connection.queue("q")
    transaction = Transaction()
    for number, (key, mandatory) in enumerate((("q", True), ("no", True), ("no", False), ("q", False), ("nor", True))):
        transaction.publish("", key, b"%d" % number, PLAIN, mandatory=mandatory)
    until = session_of(connection).operation_deadline()
    for _ in range(2):  # the second commit has nothing to do
        transaction.commit(session_of(connection).publishing, None, until)
        assert [(one.routing_key, one.body) for one in transaction.returned] == [("no", b"1"), ("nor", b"4")]
        assert [bytes(message) for message in connection.queue("q").browse()] == [b"0", b"3"]


def test_nobody_is_told_of_a_message_that_comes_back(channel: shmbroker.Channel) -> None:
    """Without a callback it is confirmed when the publish returns, and no thread is needed for that."""
    future = channel.publish_confirmed("", "nowhere", b"A", mandatory=True)
    assert isinstance(future.exception(0), UnroutableError)
    assert channel._core is None  # noqa: SLF001
    assert channel.publish_confirmed("", "nowhere", b"A").result(0) == 2


class Closing(concurrent.futures.Executor):
    """An executor of callbacks that runs each runnable immediately, after another thread has closed the channel."""

    def __init__(self) -> None:
        """Wait for no thread yet."""
        self.thread: threading.Thread | None = None
        self.submitted = threading.Event()

    def submit(self, runnable: Callable[..., Any], /, *given: Any, **named: Any) -> concurrent.futures.Future[Any]:  # noqa: ANN401
        """Have the closing go on to its end, and run this."""
        self.submitted.set()
        if self.thread is not None:
            self.thread.join(WATCHDOG_SECONDS)
        runnable(*given, **named)
        return concurrent.futures.Future()


def test_a_message_comes_back_while_its_channel_is_closed(broker: shmbroker.Broker) -> None:
    """Another thread has failed the futures, and forgets the events only then: the future is done all the same."""
    executor, failed = Closing(), threading.Event()
    with shmbroker.connect(broker.name, executor=executor) as connection, connection.channel() as channel:
        channel.add_on_return_callback(lambda *_: None)
        channel.confirm_delivery()
        assert core_of(channel).unacked() == 0
        confirms = channel._confirms  # noqa: SLF001
        assert confirms is not None
        begin, close = confirms.begin, confirms.close

        def begin_late(future: concurrent.futures.Future[int] | None = None) -> int:
            executor.thread = threading.Thread(target=channel.close)
            executor.thread.start()
            assert failed.wait(WATCHDOG_SECONDS)
            return begin(future)

        def close_early(error: BaseException) -> None:
            close(error)
            failed.set()
            executor.submitted.wait(WATCHDOG_SECONDS)

        confirms.begin, confirms.close = begin_late, close_early  # type: ignore[method-assign]
        future = channel.publish_confirmed("", "nowhere", b"A", mandatory=True)
        assert isinstance(future.exception(0), UnroutableError)


def test_a_message_comes_back_after_its_connection_was_closed(broker: shmbroker.Broker) -> None:
    """The connection is closed between the publish and the counting of the message: the future is done all the same."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *_: None)
        channel.confirm_delivery()
        assert core_of(channel).unacked() == 0
        confirms = channel._confirms  # noqa: SLF001
        assert confirms is not None
        begin = confirms.begin

        def begin_late(future: concurrent.futures.Future[int] | None = None) -> int:
            connection.close()
            return begin(future)

        confirms.begin = begin_late  # type: ignore[method-assign]
        future = channel.publish_confirmed("", "nowhere", b"A", mandatory=True)
        assert isinstance(future.exception(0), UnroutableError)


def test_a_channel_without_confirms_has_none_to_wait_for(channel: shmbroker.Channel) -> None:
    """406 closes it, and says so once."""
    with refused(PreconditionFailed, "PRECONDITION_FAILED - the channel is not in confirm mode"):
        channel.wait_for_confirms()
    assert_closed(channel, because="not in confirm mode")


def test_a_transaction_that_is_selected_twice_goes_on(channel: shmbroker.Channel) -> None:
    """What waits for its commit is not forgotten."""
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"A")
    channel.tx_select()
    channel.tx_commit()
    assert content(channel, "q") == ["A"]


def test_a_transaction_acks_nothing(channel: shmbroker.Channel) -> None:
    """An ack of all that there is may find nothing; one of a tag, several or one, may not."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"A")
    channel.tx_select()
    taken(channel, "q", 1)
    channel.basic_ack(0, multiple=True)
    channel.basic_ack(0, multiple=True)
    channel.tx_commit()
    with refused(PreconditionFailed, "PRECONDITION_FAILED - unknown delivery tag 1"):
        channel.basic_ack(1, multiple=True)


def test_a_transaction_acks_no_single_message_by_zero(channel: shmbroker.Channel) -> None:
    """Zero stands for all that there is, and only where several may be meant."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"A")
    channel.tx_select()
    taken(channel, "q", 1)
    with refused(PreconditionFailed, "PRECONDITION_FAILED - unknown delivery tag 0"):
        channel.basic_ack(0)


def test_a_queue_that_goes_while_a_commit_waits_for_room(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit finds its routes anew, and happens."""
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"A")
    commit, done = transaction.commit_waiting, list[str]()

    def gone(*_: object, **_options: object) -> None:
        monkeypatch.setattr(transaction, "commit_waiting", commit)
        monkeypatch.setattr(session_of(channel).publishing, "forget_routes", lambda: done.append("forgot"))
        raise NotFound

    monkeypatch.setattr(transaction, "commit_waiting", gone)
    channel.tx_commit()
    assert done == ["forgot"]
    assert content(channel, "q") == ["A"]


def test_a_transaction_finds_its_routes_anew(
    channel: shmbroker.Channel, other: shmbroker.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that was deleted before the topology says so is passed over, and the others get their messages."""
    for name in ("gone", "q"):
        channel.queue_declare(name)
        channel.basic_publish("", name, b"A")
    channel.tx_select()
    for name in ("gone", "q"):
        channel.basic_publish("", name, b"B")
    version = journal.version(session_of(channel).core)
    monkeypatch.setattr(journal, "version", lambda _: version)
    other.queue("gone").delete()
    channel.tx_commit()
    monkeypatch.undo()
    assert content(channel, "q") == ["A", "B"]


# An executor that runs callbacks only when this program has it run them.
KEPT = """
    import concurrent.futures

    class Kept(concurrent.futures.Executor):
        submitted = []

        def submit(self, fn, /, *args):
            self.submitted.append((fn, args))

    def run_callbacks():
        while Kept.submitted:
            fn, args = Kept.submitted.pop(0)
            fn(*args)
"""

# Interrupts the end of a transaction wherever a signal's handler may raise, and uses the transaction again. The next
# message may get the holding of the one that the transaction acknowledged.
END_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}{KEPT}
    gc.disable()  # finalizers are not interrupted
    name, end, then = sys.argv[1:]
    connection = shmbroker.connect(name, create=False, executor=Kept())
    queue, target, channel, returned = connection.queue("q"), connection.queue("t"), connection.channel(), []
    channel.add_on_return_callback(lambda *given: returned.append(given[3].decode()))
    channel.tx_select()
    number, more, wrong = 0, True, []
    while more:
        queue.put_many([b"A", b"B"])
        first = channel.basic_get("q")
        first.ack()
        channel.basic_publish("", "t", b"C")
        channel.basic_publish("", "nowhere", b"D", mandatory=True)
        channel.basic_publish("", "nowhere", b"E", mandatory=True)
        more = signalled_at(number, getattr(channel, end))
        committed, rolled_back = len(target) == 1, not first.settled
        if committed + rolled_back + (channel._core.unacked() == 1 and first.settled) != 1:
            wrong.append([number, "halves", committed, rolled_back])
        second = channel.basic_get("q")
        channel.basic_publish("", "t", b"F")
        getattr(channel, then)()
        run_callbacks()
        ended = committed or (then == "tx_commit" and not rolled_back)
        expected = [
            ["C"] * ended + ["F"] * (then == "tx_commit"),
            ["D", "E"] * ended,
            2 - ended,
            [ended, False],
            ended,
        ]
        found = [
            [bytes(message).decode() for message in target.browse()],
            list(returned),
            channel._core.unacked(),
            [first.settled, second.settled],
            queue.statistics().acked,
        ]
        if found != expected:
            wrong.append([number, found, expected])
        channel.close()
        queue.delete()
        queue = connection.queue("q")
        channel = connection.channel()
        channel.add_on_return_callback(lambda *given: returned.append(given[3].decode()))
        channel.tx_select()
        target.purge()
        returned.clear()
        number += 1
    print(json.dumps([number, wrong, [str(one) for one in connection.doctor()]]))
"""


@pytest.mark.parametrize("then", ["tx_commit", "tx_rollback"])
@pytest.mark.parametrize("end", ["tx_commit", "tx_rollback"])
def test_an_interrupted_end_of_a_transaction_happened_whole_or_not_at_all(
    broker_name: str, end: str, then: str
) -> None:
    """Wherever a signal's handler raises: what was committed is not committed again, and acks no other message."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(END_WHERE_SIGNALS_COME, broker.name, end, then)
    assert done.returncode == 0, done.stderr
    number, wrong, damage = json.loads(done.stdout)
    assert number > 10
    assert (wrong, damage) == ([], [])


# Interrupts an ack in a transaction wherever a signal's handler may raise, requeues what is not acked, and commits.
ACK_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(sys.argv[1], create=False)
    queue, channel, number, more, wrong = connection.queue("q"), connection.channel(), 0, True, []
    channel.tx_select()
    while more:
        queue.put_many([b"A", b"B"])
        tags = [channel.basic_get("q").delivery_tag for _ in range(2)]
        more = signalled_at(number, lambda: channel.basic_ack(tags[1], multiple=True))
        channel.basic_recover()
        channel.tx_commit()
        if channel._core.unacked() or len(queue) not in (0, 2):
            wrong.append([number, channel._core.unacked(), len(queue)])
            channel.close()
            channel = connection.channel()
            channel.tx_select()
        queue.purge()
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_ack_waits_for_the_commit_or_did_not_happen(broker_name: str) -> None:
    """Wherever a signal's handler raises: what the commit does not settle, a recovery requeues."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(ACK_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the ack of a delivery in a transaction wherever a signal's handler may raise. Then the program gives back,
# requeues or drops what is not settled, and commits; or it rolls back, and drops everything.
ACK_DELIVERY_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    gc.disable()  # finalizers are not interrupted
    name, then = sys.argv[1:]
    connection = shmbroker.connect(name, create=False)
    queue, number, more, wrong = connection.queue("q"), 0, True, []
    while more:
        channel = connection.channel()
        channel.tx_select()
        queue.put(b"A")
        message, before = channel.basic_get("q"), queue.statistics()
        more = signalled_at(number, message.ack)
        acked = message.settled
        try:
            if then == "tx_rollback":
                channel.tx_rollback()
                message.reject()
                acked = False
            elif not acked:
                getattr(message, then)()
            channel.tx_commit()
        except shmbroker.exceptions.BrokerError as error:
            wrong.append([number, str(error)])
        after = queue.statistics()
        found = after.acked - before.acked, after.dropped - before.dropped, after.ready
        dropped = then in ("reject", "tx_rollback")
        if found != ((1, 0, 0) if acked else (0, int(dropped), int(not dropped))):
            wrong.append([number, acked, found])
        channel.close()
        queue.purge()
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("then", ["give_back", "nack", "reject", "tx_rollback"])
def test_an_interrupted_ack_of_a_delivery_says_whether_it_happened(broker_name: str, then: str) -> None:
    """Wherever a signal's handler raises: the delivery is settled and the commit acks it, or it can be settled."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(ACK_DELIVERY_WHERE_SIGNALS_COME, broker.name, then)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the publish of a mandatory message that is routed to no queue, wherever a signal's handler may raise.
RETURN_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}{KEPT}
    gc.disable()  # finalizers are not interrupted
    name, way = sys.argv[1:]
    connection = shmbroker.connect(name, create=False, executor=Kept())
    number, more, wrong = 0, True, []
    while more:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *_: None)
        channel.confirm_delivery()
        publish = getattr(channel, way)
        more = signalled_at(number, lambda: publish("", "nowhere", b"A", mandatory=True))
        run_callbacks()
        try:
            channel.wait_for_confirms(0)
        except shmbroker.exceptions.Timeout as error:
            wrong.append([number, str(error)])
        future = channel.publish_confirmed("", "nowhere", b"A", mandatory=True)
        run_callbacks()
        if not future.done():
            wrong.append([number, "no callbacks any more"])
        channel.close()
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("way", ["basic_publish", "publish_confirmed"])
def test_an_interrupted_publish_leaves_no_message_unconfirmed(broker_name: str, way: str) -> None:
    """Wherever a signal's handler raises: the wait for the confirms ends, and the next message comes back as well."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(RETURN_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the closing of a channel wherever a signal's handler may raise, while messages wait for their confirms.
# Then the program closes the channel again.
CLOSE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}{KEPT}
    gc.disable()  # finalizers are not interrupted
    connection = shmbroker.connect(sys.argv[1], create=False, executor=Kept())
    number, more, wrong = 0, True, []
    while more:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *_: None)
        futures = [channel.publish_confirmed("", "nowhere", b"A", mandatory=True) for _ in range(2)]
        more = signalled_at(number, channel.close)
        channel.close()
        for future in futures:
            if not future.done() or not isinstance(future.exception(0), shmbroker.exceptions.ChannelClosed):
                wrong.append([number, str(future)])
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_close_leaves_no_message_unconfirmed(broker_name: str) -> None:
    """Wherever a signal's handler raises: after a second close of the channel, each future has its error."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


def test_a_publish_that_cannot_return_its_message_leaves_it_not_unconfirmed(
    channel: shmbroker.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the broker has no memory for the channel in the core, which runs the callbacks: the publish says so."""

    def full(*_: object) -> None:
        raise OutOfMemory

    monkeypatch.setattr(channel_state, "CoreChannel", full)
    channel.add_on_return_callback(lambda *_: None)
    channel.confirm_delivery()
    with pytest.raises(OutOfMemory):
        channel.basic_publish("", "nowhere", b"A", mandatory=True)
    assert channel.wait_for_confirms(0)
