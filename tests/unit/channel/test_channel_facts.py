# SPDX-License-Identifier: Apache-2.0
"""What others can see of a connection's channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scenario_support.waiting import becomes, eventually

from shmbroker.statistics import ChannelInfo, ConnectionInfo, ConsumerInfo, channel_infos

if TYPE_CHECKING:
    import shmbroker


MANY = 100  # consumers: some get memory that was used before


def ignore(*_delivery: object) -> None:
    """Leave a message unacknowledged."""


def open_channels(connection: shmbroker.Connection, name: str) -> list[int]:
    """Return how many channels the connections of a name say that they have open."""
    return [one.channels for one in connection.connections() if one.name == name]


def test_open_channels_are_counted(broker: shmbroker.Broker, connection: shmbroker.Connection) -> None:
    """Each that is open, whatever closes it; none of a connection that comes to the same memory."""
    with broker.connect(client_name="tester") as tester:
        assert open_channels(connection, "tester") == [0]
        one, two = tester.channel(), tester.channel(9)
        assert open_channels(connection, "tester") == [2]
        one.close()
        one.close()
        assert open_channels(connection, "tester") == [1]
        two.basic_publish("nowhere", "k", b"")
        assert open_channels(connection, "tester") == [0]
        tester.channel()
    assert open_channels(connection, "tester") == []
    with broker.connect(client_name="tester"):
        assert open_channels(connection, "tester") == [0]


def test_a_consumer_has_the_number_of_its_channel(connection: shmbroker.Connection) -> None:
    """Also one that gets the memory of one of a channel; a consumer of its own has none."""
    queue = connection.queue("q")
    channel = connection.channel(7)
    for _ in range(MANY):
        channel.basic_consume("q", ignore)
    assert [one.channel for one in connection.consumers("q")] == [7] * MANY
    channel.close()
    consumers = [queue.consume(prefetch=1) for _ in range(MANY)]
    assert [one.channel for one in connection.consumers("q")] == [0] * MANY
    for one in consumers:
        one.close()


def test_channels_with_consumers_are_told_apart(connection: shmbroker.Connection, other: shmbroker.Connection) -> None:
    """Anybody sees what their consumers may take, hold and got; the other channels are one line for a connection."""
    connection.queue("q").put_many([b"1", b"2", b"3"])
    connection.queue("r")
    busy = other.channel(5)
    busy.basic_qos(prefetch_count=2)
    busy.basic_consume("q", ignore)
    busy.basic_consume("r", ignore)
    other.channel()
    other.channel()
    eventually(lambda: [one.delivered for one in connection.channels() if one.number == 5] == [2])
    mine = next(one for one in connection.connections() if one.channels)
    assert connection.channels() == [
        ChannelInfo(
            connection=mine.id, connection_name=mine.name, pid=mine.pid, number=5, count=1,
            consumers=2, prefetch=4, unacked=2, delivered=2,
        ),
        ChannelInfo(
            connection=mine.id, connection_name=mine.name, pid=mine.pid, number=0, count=2,
            consumers=0, prefetch=0, unacked=0, delivered=0,
        ),
    ]  # fmt: skip
    busy.close()
    becomes(lambda: [(one.number, one.count) for one in connection.channels()], [(0, 2)])


def consumer(**given: Any) -> ConsumerInfo:  # noqa: ANN401 (of any field)
    """Return a consumer with these values and zeros."""
    values = {"queue": "q", "connection": 1, "channel": 3, "pid": 1, "state": "interested", "priority": 0}
    return ConsumerInfo(**{**values, "prefetch": 0, "unacked": 0, "delivered": 0, "waiting": False, **given})


def test_one_consumer_without_a_limit_makes_a_channel_without_one() -> None:
    """0 is any number, as in `basic_qos`."""
    connection = ConnectionInfo(id=1, name="c", pid=1, created_at=0.0, consumers=2, holding=0, channels=1)
    (channel,) = channel_infos([connection], [consumer(prefetch=0), consumer(prefetch=10)])
    assert (channel.number, channel.consumers, channel.prefetch) == (3, 2, 0)


def test_what_changes_between_two_looks_does_no_harm() -> None:
    """Consumers whose connection has gone are left out; more channels than were counted make no negative rest."""
    connection = ConnectionInfo(id=1, name="c", pid=1, created_at=0.0, consumers=0, holding=0, channels=1)
    found = channel_infos([connection], [consumer(channel=3), consumer(channel=4), consumer(connection=2)])
    assert [(one.connection, one.number) for one in found] == [(1, 3), (1, 4)]


def test_channels_of_several_connections() -> None:
    """By connection and number, each with its own consumers; without calls that wait, and consumers of no channel."""
    connections = [
        ConnectionInfo(
            id=number, name=f"c{number}", pid=number * 10, created_at=0.0, consumers=9, holding=0, channels=3
        )
        for number in (1, 2)
    ]
    consumers = [
        consumer(connection=2, channel=4, prefetch=1, unacked=2, delivered=3),
        consumer(connection=1, channel=7, prefetch=4, unacked=5, delivered=6),
        consumer(connection=1, channel=3, prefetch=7, unacked=8, delivered=9),
        consumer(connection=1, channel=7, prefetch=10, unacked=20, delivered=30),
        consumer(connection=1, channel=7, prefetch=0, waiting=True),
        consumer(connection=1, channel=5, prefetch=0, waiting=True),
        consumer(connection=2, channel=0, prefetch=9),
        consumer(connection=2, channel=0, prefetch=9, waiting=True),
    ]
    assert channel_infos(connections, consumers) == [
        ChannelInfo(1, "c1", 10, number=3, count=1, consumers=1, prefetch=7, unacked=8, delivered=9),
        ChannelInfo(1, "c1", 10, number=7, count=1, consumers=2, prefetch=14, unacked=25, delivered=36),
        ChannelInfo(1, "c1", 10, number=0, count=1, consumers=0, prefetch=0, unacked=0, delivered=0),
        ChannelInfo(2, "c2", 20, number=4, count=1, consumers=1, prefetch=1, unacked=2, delivered=3),
        ChannelInfo(2, "c2", 20, number=0, count=2, consumers=0, prefetch=0, unacked=0, delivered=0),
    ]
