# SPDX-License-Identifier: Apache-2.0
"""Who gets how many: prefetch, turns, priorities, exclusive and local (scenarios B44 to B55)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scenario_support.channels import Inbox, Rounds, assert_closed, content, count, publish, refused, taken
from scenario_support.observing import assert_counts, await_counts, numbered
from scenario_support.waiting import WATCHDOG_SECONDS, becomes

from shmbroker.exceptions import AccessRefused, NotImplementedByBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from scenario_support.channels import Deliver

    import shmbroker

DEFAULT_PREFETCH = 64
IN_USE = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


class Scene:
    """A connection with a channel and a queue, and what its consumers got when nothing more comes."""

    def __init__(self, connection: shmbroker.Connection) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.queue_declare("q")
        self.queue = connection.queue("q", passive=True)
        self.rounds = Rounds(connection)

    def consume(self, channel: shmbroker.Channel | None = None, **options: object) -> Inbox:
        """Consume with an inbox that does not ack."""
        inbox = Inbox()
        (channel or self.channel).basic_consume("q", inbox, **options)
        return inbox

    def shares(self, *inboxes: Inbox, ready: int, total: int) -> list[int]:
        """Wait until so many are ready and so many delivered, see that it stays so; return what each one got."""
        becomes(lambda: (count(self.channel, "q"), sum(len(inbox.deliveries) for inbox in inboxes)), (ready, total))
        self.rounds.go()
        assert count(self.channel, "q") == ready
        shares = [len(inbox.deliveries) for inbox in inboxes]
        assert sum(shares) == total
        return shares


@pytest.fixture
def scene(connection: shmbroker.Connection) -> Scene:
    """Declare the queue."""
    return Scene(connection)


def test_b44_the_default_scope_is_each_consumer(scene: Scene) -> None:
    """Prefetch 2, two consumers of a channel, nine messages: each gets two, five stay ready."""
    scene.channel.basic_qos(prefetch_count=2)
    first, second = scene.consume(), scene.consume()
    publish(scene.channel, "q", "123456789")
    assert scene.shares(first, second, ready=5, total=4) == [2, 2]
    scene.channel.basic_ack(first.deliveries[0].delivery_tag)
    assert scene.shares(first, second, ready=4, total=5) == [3, 2]
    scene.channel.basic_ack(0, multiple=True)
    assert scene.shares(first, second, ready=0, total=9) in ([5, 4], [4, 5])
    scene.channel.basic_ack(0, multiple=True)
    assert_counts(scene.queue, message_count=0, acked=9)


def test_without_qos_each_consumer_has_64(scene: Scene) -> None:
    """Unlimited only if asked for: prefetch 0."""
    publish(scene.channel, "q", numbered(100))
    inbox = scene.consume()
    assert scene.shares(inbox, ready=100 - DEFAULT_PREFETCH, total=DEFAULT_PREFETCH) == [DEFAULT_PREFETCH]
    with scene.connection.channel() as unlimited:
        unlimited.basic_qos(prefetch_count=0)
        second = scene.consume(unlimited)
        rest = 100 - DEFAULT_PREFETCH
        assert scene.shares(inbox, second, ready=0, total=100) == [DEFAULT_PREFETCH, rest]


def test_unlimited_means_at_most_1000_undispatched(broker: shmbroker.Broker) -> None:
    """With prefetch 0 a channel whose callbacks do not keep up takes 1,000 ahead; the rest stays for others."""
    entered, release = threading.Event(), threading.Event()

    def block(_channel: shmbroker.Channel, _method: object, _properties: object, _body: bytes) -> None:
        entered.set()
        assert release.wait(WATCHDOG_SECONDS)

    with ThreadPoolExecutor(2) as executor, broker.connect(executor=executor) as connection:
        scene = Scene(connection)
        scene.channel.basic_qos(prefetch_count=0)
        scene.channel.basic_consume("q", block)
        publish(scene.channel, "q", numbered(3000))
        assert entered.wait(WATCHDOG_SECONDS)
        scene.rounds.go()
        ready = scene.queue.statistics().ready
        assert ready >= 3000 - 1000 - 2, "more than 1,000 were taken ahead"
        assert len(taken(scene.channel, "q", 10)) == 10
        release.set()
        await_counts(scene.queue, ready=0, delivering=3000)


def test_b46_a_slow_consumer_holds_nothing_back(broker: shmbroker.Broker) -> None:
    """Prefetch 1: while one consumer works at its first message, the other gets all the rest."""
    entered, release = threading.Event(), threading.Event()
    slow: list[str] = []

    def work_slowly(channel: shmbroker.Channel, method: Deliver, _properties: object, body: bytes) -> None:
        slow.append(body.decode())
        entered.set()
        assert release.wait(WATCHDOG_SECONDS)
        channel.basic_ack(method.delivery_tag)

    with ThreadPoolExecutor(4) as executor, broker.connect(executor=executor) as connection:
        first, second = connection.channel(), connection.channel()
        first.queue_declare("q")
        for channel in (first, second):
            channel.basic_qos(prefetch_count=1)
        first.basic_consume("q", work_slowly)
        publish(first, "q", ["first"])
        assert entered.wait(WATCHDOG_SECONDS)
        quick = Inbox(ack=True)
        second.basic_consume("q", quick)
        publish(first, "q", numbered(100))
        assert [delivery.text for delivery in quick.wait(100)] == numbered(100)
        assert slow == ["first"]
        release.set()
        await_counts(connection.queue("q", passive=True), message_count=0, acked=101)


def test_b47_a_new_prefetch_is_for_new_consumers(scene: Scene) -> None:
    """In the default scope a consumer keeps the prefetch it was started with."""
    scene.channel.basic_qos(prefetch_count=2)
    early = scene.consume()
    scene.channel.basic_qos(prefetch_count=5)
    publish(scene.channel, "q", numbered(20))
    assert scene.shares(early, ready=18, total=2) == [2]
    late = scene.consume()
    assert scene.shares(early, late, ready=13, total=7) == [2, 5]


def test_b47_the_channels_limit_holds_at_once(scene: Scene) -> None:
    """In the scope of the channel it is shared by its consumers, and a change counts what is unacked already."""
    scene.channel.basic_qos(prefetch_count=0)
    scene.channel.basic_qos(prefetch_count=2, global_qos=True)
    first, second = scene.consume(), scene.consume()
    publish(scene.channel, "q", numbered(20))
    scene.shares(first, second, ready=18, total=2)
    scene.channel.basic_qos(prefetch_count=4, global_qos=True)
    scene.shares(first, second, ready=16, total=4)
    scene.channel.basic_qos(prefetch_count=2, global_qos=True)
    tags = sorted(delivery.delivery_tag for inbox in (first, second) for delivery in inbox.deliveries)
    for tag in tags[:2]:
        scene.channel.basic_ack(tag)
        scene.shares(first, second, ready=16, total=4)
    scene.channel.basic_ack(tags[2])
    scene.shares(first, second, ready=15, total=5)


def test_b47_both_limits_hold(scene: Scene) -> None:
    """Two for each consumer and three for the channel: one gets two, the other one."""
    scene.channel.basic_qos(prefetch_count=2)
    scene.channel.basic_qos(prefetch_count=3, global_qos=True)
    first, second = scene.consume(), scene.consume()
    publish(scene.channel, "q", "123456789")
    assert sorted(scene.shares(first, second, ready=6, total=3)) == [1, 2]


def test_b47_a_limit_of_consumers_ends_that_of_the_channel(scene: Scene) -> None:
    """As in RabbitMQ a later basic_qos of the default scope removes the channel's limit."""
    scene.channel.basic_qos(prefetch_count=1, global_qos=True)
    early = scene.consume()
    publish(scene.channel, "q", "123456789")
    scene.shares(early, ready=8, total=1)
    scene.channel.basic_qos(prefetch_count=2)
    late = scene.consume()
    assert scene.shares(early, late, ready=0, total=9)[0] >= 1


def test_b47_gets_are_not_limited(scene: Scene) -> None:
    """A get takes a message though the limits of channel and consumer are reached, and takes nothing from them."""
    scene.channel.basic_qos(prefetch_count=1)
    scene.channel.basic_qos(prefetch_count=1, global_qos=True)
    inbox = scene.consume()
    publish(scene.channel, "q", "12345")
    scene.shares(inbox, ready=4, total=1)
    (got,) = taken(scene.channel, "q", 1)
    assert bytes(got) == b"2"
    scene.shares(inbox, ready=3, total=1)
    scene.channel.basic_ack(inbox.deliveries[0].delivery_tag)
    scene.shares(inbox, ready=2, total=2)
    scene.channel.basic_ack(got.delivery_tag)
    scene.shares(inbox, ready=2, total=2)


def test_b47_a_limit_of_the_connection(broker: shmbroker.Broker, scene: Scene) -> None:
    """Our addition: in the scope of the connection the consumers of all its channels share it."""
    with broker.connect() as limited:
        channels = [limited.channel() for _ in range(2)]
        channels[0].basic_qos(prefetch_count=3, scope="connection")
        inboxes = [scene.consume(channel) for channel in channels]
        publish(scene.channel, "q", numbered(10))
        scene.shares(*inboxes, ready=7, total=3)
        for channel in channels:
            channel.basic_ack(0, multiple=True)
        scene.shares(*inboxes, ready=4, total=6)


def test_q82_credit_is_used_and_restored(scene: Scene) -> None:
    """Limit 2: two messages use it, the third is refused until one is settled; each way to settle restores one."""
    scene.channel.basic_qos(prefetch_count=2)
    inbox = scene.consume()
    publish(scene.channel, "q", numbered(5))
    assert scene.shares(inbox, ready=3, total=2) == [2]
    scene.channel.basic_ack(inbox.deliveries[0].delivery_tag)
    assert scene.shares(inbox, ready=2, total=3) == [3]
    scene.channel.basic_reject(inbox.deliveries[1].delivery_tag, requeue=False)
    assert scene.shares(inbox, ready=1, total=4) == [4]
    scene.channel.basic_nack(inbox.deliveries[2].delivery_tag, requeue=False)
    assert scene.shares(inbox, ready=0, total=5) == [5]
    assert inbox.texts() == numbered(5)


def test_q82_a_lowered_limit_needs_as_many_restores(scene: Scene) -> None:
    """Five are unacked when the limit becomes 2: four have to be settled before the next one comes."""
    scene.channel.basic_qos(prefetch_count=5, global_qos=True)
    inbox = scene.consume()
    publish(scene.channel, "q", numbered(10))
    assert scene.shares(inbox, ready=5, total=5) == [5]
    scene.channel.basic_qos(prefetch_count=2, global_qos=True)
    for settled in range(3):
        scene.channel.basic_ack(inbox.deliveries[settled].delivery_tag)
        assert scene.shares(inbox, ready=5, total=5) == [5]
    scene.channel.basic_ack(inbox.deliveries[3].delivery_tag)
    assert scene.shares(inbox, ready=4, total=6) == [6]
    assert inbox.texts() == numbered(6)


def test_q82_there_is_no_limit_in_bytes(scene: Scene, other: shmbroker.Connection) -> None:
    """prefetch_size is refused with 540, as by RabbitMQ. `Queue.consume(prefetch_bytes=)` has such a limit (Q84)."""
    with refused(NotImplementedByBroker, "NOT_IMPLEMENTED - prefetch_size!=0 (30)"):
        other.channel().basic_qos(prefetch_size=30)
    assert not other.is_open
    inbox = scene.consume()
    scene.channel.basic_publish("", "q", b"x" * 30)
    assert scene.shares(inbox, ready=0, total=1) == [1]


def test_b49_a_nack_gives_the_credit_back(scene: Scene) -> None:
    """With prefetch 1 a message that is returned comes again at once, and it alone."""
    scene.channel.basic_qos(prefetch_count=1)
    publish(scene.channel, "q", "12")
    inbox = scene.consume()
    for turn in range(1, 6):
        assert scene.shares(inbox, ready=1, total=turn) == [turn]
        scene.channel.basic_nack(inbox.deliveries[-1].delivery_tag)
    scene.shares(inbox, ready=1, total=6)
    assert inbox.texts() == ["1"] * 6
    assert [delivery.redelivered for delivery in inbox.deliveries] == [False] + [True] * 5
    scene.channel.basic_ack(inbox.deliveries[-1].delivery_tag)
    scene.shares(inbox, ready=0, total=7)
    assert inbox.texts()[-1] == "2"


def test_b50_auto_ack_ignores_prefetch(scene: Scene) -> None:
    """Prefetch 1, auto-ack, ten messages: ten are delivered."""
    scene.channel.basic_qos(prefetch_count=1)
    inbox = scene.consume(auto_ack=True)
    publish(scene.channel, "q", numbered(10))
    assert scene.shares(inbox, ready=0, total=10) == [10]
    assert inbox.texts() == numbered(10)
    assert_counts(scene.queue, message_count=0, acked=10)


def test_b50_a_full_channel_gives_auto_ack_nothing(scene: Scene) -> None:
    """The channel's limit, once others have reached it, blocks its auto-ack consumers too."""
    scene.channel.basic_qos(prefetch_count=1, global_qos=True)
    holding = scene.consume()
    publish(scene.channel, "q", "1")
    scene.shares(holding, ready=0, total=1)
    inbox = scene.consume(auto_ack=True)
    publish(scene.channel, "q", "234")
    scene.shares(holding, inbox, ready=3, total=1)
    scene.channel.basic_ack(holding.deliveries[0].delivery_tag)
    becomes(lambda: count(scene.channel, "q") < 3, expected=True)


@pytest.mark.parametrize("channels", ["one channel", "two channels", "two connections"])
def test_b51_two_consumers_take_turns(scene: Scene, other: shmbroker.Connection, channels: str) -> None:
    """Six messages, one after the other: the first consumer gets 1, 3, 5, the second 2, 4, 6."""
    opened = {
        "one channel": lambda: scene.channel,
        "two channels": scene.connection.channel,
        "two connections": other.channel,
    }[channels]()
    first, second = scene.consume(), scene.consume(opened)
    for number in range(1, 7):
        await_counts(scene.queue, interested=2, notified=0)
        publish(scene.channel, "q", str(number))
        becomes(lambda: len(first.deliveries) + len(second.deliveries), number)
    assert (first.texts(), second.texts()) == (["1", "3", "5"], ["2", "4", "6"])


def prioritized(scene: Scene) -> list[Inbox]:
    """Start consumers with the priorities 1, 0 and -1, the lowest first; return them highest first."""
    return [scene.consume(arguments={"x-priority": priority}, consumer_tag=str(priority)) for priority in (-1, 0, 1)][
        ::-1
    ]


def test_b52_the_highest_priority_gets_all(scene: Scene) -> None:
    """Consumers of priority 1, 0 and -1: the first gets all until it is cancelled, then the next one."""
    inboxes = prioritized(scene)
    publish(scene.channel, "q", numbered(20))
    assert scene.shares(*inboxes, ready=0, total=20) == [20, 0, 0]
    scene.channel.basic_cancel("1")
    publish(scene.channel, "q", numbered(20))
    assert scene.shares(*inboxes, ready=0, total=40) == [20, 20, 0]
    scene.channel.basic_cancel("0")
    publish(scene.channel, "q", numbered(20))
    assert scene.shares(*inboxes, ready=0, total=60) == [20, 20, 20]


def test_b52_lower_priorities_get_what_the_higher_cannot_take(scene: Scene) -> None:
    """With prefetch 2 the highest gets two, the next two, and so on; who has credit again comes first again."""
    scene.channel.basic_qos(prefetch_count=2)
    high, middle, low = prioritized(scene)
    for number, expected in enumerate(([1, 0, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [2, 2, 1]), start=1):
        publish(scene.channel, "q", str(number))
        assert scene.shares(high, middle, low, ready=0, total=number) == expected
    scene.channel.basic_ack(high.deliveries[0].delivery_tag)
    publish(scene.channel, "q", "6")
    assert scene.shares(high, middle, low, ready=0, total=6) == [3, 2, 1]


def test_b52_consumers_without_a_priority_have_0(scene: Scene) -> None:
    """One without is served before -1 and after 1."""
    low = scene.consume(arguments={"x-priority": -1})
    without = scene.consume(consumer_tag="without")
    publish(scene.channel, "q", "AB")
    assert scene.shares(low, without, ready=0, total=2) == [0, 2]
    high = scene.consume(arguments={"x-priority": 1})
    publish(scene.channel, "q", "CD")
    assert scene.shares(low, without, high, ready=0, total=4) == [0, 2, 2]


def consume_on(scene: Scene, *, exclusive: bool) -> Callable[[], tuple[shmbroker.Channel, str]]:
    """Return what starts a consumer on a channel of its own."""

    def start() -> tuple[shmbroker.Channel, str]:
        channel = scene.connection.channel()
        return channel, channel.basic_consume("q", Inbox(), exclusive=exclusive)

    return start


@pytest.mark.parametrize("second", [False, True])
def test_b53_beside_an_exclusive_consumer_there_is_no_other(
    scene: Scene, other: shmbroker.Connection, *, second: bool
) -> None:
    """A second one, exclusive or not, of whichever connection, is refused with 403; after cancel it is not."""
    channel, tag = consume_on(scene, exclusive=True)()
    for connection in (scene.connection, other):
        refusing = connection.channel()
        with refused(AccessRefused, IN_USE):
            refusing.basic_consume("q", Inbox(), exclusive=second)
        assert_closed(refusing, because="exclusive use")
    assert content(scene.channel, "q") == []
    channel.basic_cancel(tag)
    consume_on(scene, exclusive=second)()


def test_b53_beside_another_consumer_there_is_no_exclusive_one(scene: Scene) -> None:
    """Where there is a consumer an exclusive one is refused with 403; after its cancel it is not."""
    channel, tag = consume_on(scene, exclusive=False)()
    with refused(AccessRefused, IN_USE):
        consume_on(scene, exclusive=True)()
    channel.basic_cancel(tag)
    consume_on(scene, exclusive=True)()


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_b53_exclusive_use_ends_with_its_owner(broker: shmbroker.Broker, scene: Scene, end: str) -> None:
    """When the channel or the connection of an exclusive consumer closes, the queue is free."""
    with broker.connect() as leaving:
        channel = leaving.channel()
        channel.basic_consume("q", Inbox(), exclusive=True)
        (channel if end == "channel" else leaving).close()
        consume_on(scene, exclusive=True)()


def test_b55_a_no_local_consumer_gets_what_others_publish(scene: Scene, other: shmbroker.Connection) -> None:
    """It gets nothing that was published over its own connection, whatever the channel; that stays for others."""
    stranger = other.channel()
    inbox = scene.consume(no_local=True)
    publish(scene.channel, "q", ["own 1"])
    publish(stranger, "q", ["foreign 1"])
    with scene.connection.channel() as second:
        publish(second, "q", ["own 2"])
    publish(stranger, "q", ["foreign 2"])
    assert scene.shares(inbox, ready=2, total=2) == [2]
    assert inbox.texts() == ["foreign 1", "foreign 2"]
    elsewhere = Inbox(ack=True)
    stranger.basic_consume("q", elsewhere, no_local=True)
    assert [delivery.text for delivery in elsewhere.wait(2)] == ["own 1", "own 2"]


def test_b55_a_local_consumer_beside_it_gets_the_rest(scene: Scene) -> None:
    """What a no-local consumer must not have goes to another one of the same connection."""
    inbox, beside = scene.consume(no_local=True), scene.consume()
    publish(scene.channel, "q", numbered(10))
    assert scene.shares(inbox, beside, ready=0, total=10) == [0, 10]
