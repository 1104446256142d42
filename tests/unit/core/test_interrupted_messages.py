# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that raise while a message is put or taken, or its body is viewed."""

from __future__ import annotations

import json

import pytest
from scenario_support.interrupting import INTERRUPTED_AT, SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing

pytestmark = pytest.mark.exhaustive

# Puts a message, interrupted before the n-th instruction of the package, for each n there is, and looks what is there.
PUT_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    name, way, size = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def reserved():
        with queue.reserve(size, key="k", ttl=60) as memory:  # an option that C does not read: all of it is Python
            memory[:] = body

    def viewed():
        with queue.reserve(size, key="k", ttl=60) as memory:
            memory[:] = body
            kept.append(memory[:1])

    def reserved_in_c():
        with queue.reserve(size, key="k") as memory:
            memory[:] = body

    def taken_over():
        with queue.reserve(size, key="k") as memory:
            memory[:] = body
            kept.append(memory[:1])

    def put():
        queue.put(body, key="k", headers=dict(a=1), timeout=0)

    def put_many():
        queue.put_many([body], key="k", timeout=0)

    def publish():
        channel.basic_publish("", "q", body, shmbroker.BasicProperties(headers=dict(a=1)))

    def commit():
        other.basic_publish("", "q", body)
        other.tx_commit()

    deed, body, kept, number, wrong = globals()[way], b"x" * size, [], 0, []
    connection = shmbroker.connect(name, create=False)
    queue, channel, other = connection.queue("q", max_length=2), connection.channel(), connection.channel()
    other.tx_select()
    while interrupted_at(number, deed):
        other.tx_rollback()  # what was published and not committed
        gc.collect()
        junk = [connection.queue("junk") for _ in range(2)]
        for one in junk:
            one.put(b"!" * size, timeout=0)  # it has what was given back
        found = [bytes(message) for message in queue.browse()]
        if found not in ([], [body]):
            wrong.append([number, len(found), [one[:9].decode() for one in found]])
        queue.put(b"y", timeout=0)  # there is room for two: nothing else is counted
        queue.purge()
        junk[0].purge()
        kept.clear()
        number += 1
    wrong += connection.doctor()
    print(json.dumps([number, [str(one) for one in wrong]]))
"""


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize(
    "way", ["reserved", "viewed", "reserved_in_c", "taken_over", "put", "put_many", "publish", "commit"]
)
def test_what_is_put_is_there_whole_or_not_at_all(broker_name: str, way: str, size: int) -> None:
    """Wherever a signal's handler raises: the message is in the queue as it was put, or its place is free.

    In memory that was given back another message lies by then.
    """
    with shmbroker.testing.broker(broker_name, memory="64M") as broker:
        done = run_python(PUT_AT_EVERY_INSTRUCTION, broker.name, way, str(size))
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert wrong == []
    assert number > (0 if way == "reserved_in_c" else 10)


# Takes messages that are settled at once wherever a signal's handler may raise, and checks whether closing releases the
# connection: a view of a long body that nobody ends keeps it for ever.
TAKEN_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker._core import native

    name, way, number, more, counts = sys.argv[1], sys.argv[2], 0, True, []
    gc.collect()
    gc.disable()
    filled = shmbroker.connect(name, create=False).queue("q")
    while more:
        filled.put_many([bytes(5000), b"A", bytes(5000)])
        connection = shmbroker.connect(name, create=False)
        queue = connection.queue("q", passive=True)
        if way == "waits":
            queue._take_many = lambda *_: native.EMPTY
        more = signalled_at(number, lambda: queue.get_many(3, auto_ack=True))
        connection.close()
        counts.append(shmbroker.Broker(name).statistics().connection_count)
        filled.purge()
        number += 1
    print(json.dumps([number, counts]))
"""


@pytest.mark.parametrize("way", ["takes", "waits"])
def test_an_interrupted_get_of_settled_messages_keeps_no_body(broker_name: str, way: str) -> None:
    """The bodies of messages that the caller never gets are let go with the batch."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(TAKEN_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, counts = json.loads(done.stdout)
    assert number > 1
    assert set(counts) == {2}  # the housekeeper's, and that of the queue which is filled


# Interrupts the taking of a view wherever a signal's handler may raise, and checks whether closing releases the
# connection: a view that nobody ends keeps it for ever.
VIEW_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    from shmbroker._core import native

    name, number, more, counts = sys.argv[1], 0, True, []
    while more:
        connection, views = shmbroker.connect(name, create=False), []
        core, message = connection._session.core, connection.queue("q", passive=True).get(timeout=0)
        what = message._fields.tag, message._fields.sequence, message._fields.body_address
        more = signalled_at(number, lambda: views.append(core.begin_view(*what)))
        for view in views:
            native.slow.sb_view_end(core.handle, view)
        connection.close()
        counts.append(shmbroker.Broker(name).statistics().connection_count)
        number += 1
    print(json.dumps([number, counts]))
"""


def test_an_interrupted_look_at_a_body_keeps_nothing(broker_name: str) -> None:
    """The view that the caller does not get is ended."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        with broker.connect() as connection:
            connection.queue("q").put(bytes(10_000))
        done = run_python(VIEW_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, counts = json.loads(done.stdout)
    assert number > 3
    assert set(counts) == {1}  # the housekeeper's
