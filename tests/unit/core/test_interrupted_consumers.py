# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that raise while a consumer, or its descriptor, is made, cleared or ended."""

from __future__ import annotations

import json

import pytest
from scenario_support.interrupting import INTERRUPTED_AT, SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing

pytestmark = pytest.mark.exhaustive

# Interrupts the making of a consumer wherever a signal's handler may raise, and checks what is left of the consumer.
CONSUMER_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    name, number, more, made, wrong = sys.argv[1], 0, True, [], []  # finalizers run when nothing is interrupted
    queue = shmbroker.connect(name, create=False).queue("q")
    queue.put_many([b"A", b"B"])
    while more:
        more = signalled_at(number, lambda: made.append(queue.consume()))
        made.clear()
        gc.collect()
        found = queue.statistics().consumers, len(queue)
        if found != (0, 2):
            wrong.append([number, *found])
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_making_of_a_consumer_leaves_none(broker_name: str) -> None:
    """Else it keeps the messages that it has pulled, and counts as a consumer, until the connection is closed."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CONSUMER_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the end of a consumer or a channel before its n-th instruction, for each n there is, and closes it again.
END_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    import time

    def consumer():
        return connection.consumer(["q"], prefetch=3)

    def channel():
        opened = connection.channel()
        opened.basic_consume("q", lambda *_: None)
        return opened

    name, way = sys.argv[1:]
    other, connection = shmbroker.connect(name, create=False), shmbroker.connect(name, create=False)
    queue, number, more, wrong = other.queue("q"), 0, True, []
    queue.put_many([b"A", b"B", b"C"])
    while more:
        one = globals()[way]()
        while len(queue):
            time.sleep(0)
        more = interrupted_at(number, one.close)
        one.close()
        if len(queue) != 3:
            wrong.append([number, len(queue)])
            connection.close()
            connection = shmbroker.connect(name, create=False)
        number += 1
    wrong += [str(one) for one in other.doctor()]
    print(json.dumps([number, wrong, len(connection.channels())]))
"""


@pytest.mark.parametrize("way", ["consumer", "channel"])
def test_an_interrupted_end_of_a_consumer_is_done_again(broker_name: str, way: str) -> None:
    """A second close of the consumer, or of its channel, returns what the first one left."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(END_AT_EVERY_INSTRUCTION, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong, channels = json.loads(done.stdout)
    assert number > 50
    assert (wrong, channels) == ([], 0)


# Interrupts the making of a consumer's descriptor before its n-th instruction, for each n there is, and asks for the
# descriptor again: first while a message waits, then before one comes.
DESCRIPTOR_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    import select, time

    name, number, more, wrong = sys.argv[1], 0, True, []
    queue = shmbroker.connect(name, create=False).queue("q")
    while more:
        with queue.consume(auto_ack=True) as consumer:
            queue.put(b"A")
            while not consumer.statistics().waiting:
                time.sleep(0)
            more = interrupted_at(number, consumer.fileno)
            descriptor = consumer.fileno()
            if select.select([descriptor], [], [], 0)[0]:
                consumer.get()
                consumer.clear()
                quiet = not select.select([descriptor], [], [], 0)[0]
                queue.put(b"B")
                select.select([descriptor], [], [])
                if not quiet or consumer.fileno() != descriptor or bytes(consumer.get()) != b"B":
                    wrong.append([number, "B"])
            else:
                wrong.append([number, "A"])
        number += 1
    print(json.dumps([number, wrong]))
"""


def test_an_interrupted_making_of_a_descriptor_is_done_again(broker_name: str) -> None:
    """The next call finishes it: the descriptor is readable for the message that waits, and for the next that comes."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(DESCRIPTOR_AT_EVERY_INSTRUCTION, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 50
    assert wrong == []


# Interrupts the end of a consumer that has a descriptor wherever a signal's handler may raise, and ends it again.
DESCRIPTOR_ENDS_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    import time

    name, way = sys.argv[1:]
    queue, number, more, wrong = shmbroker.connect(name, create=False).queue("q"), 0, True, []
    queue.put_many([b"A", b"B"])
    while more:
        opened = len(os.listdir("/proc/self/fd"))
        consumer = queue.consume()
        consumer.fileno()
        while len(queue):
            time.sleep(0)
        end = getattr(consumer, way)
        more = signalled_at(number, end)
        end()
        found = len(os.listdir("/proc/self/fd")) - opened, len(queue)
        if found != (0, 2):
            wrong.append([number, *found])
        consumer.close()
        number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("way", ["close", "cancel"])
def test_an_interrupted_end_of_a_consumer_closes_its_descriptor_later(broker_name: str, way: str) -> None:
    """The second close or cancel does what the first one left: messages return, and the descriptor is closed."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(DESCRIPTOR_ENDS_WHERE_SIGNALS_COME, broker.name, way)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the clearing of a consumer's descriptor before its n-th instruction, for each n there is. Then a message
# comes, or the one that was there stays.
CLEAR_AT_EVERY_INSTRUCTION = f"""{INTERRUPTED_AT}
    import select, time

    name, comes, number, more, wrong = sys.argv[1], sys.argv[2] == "comes", 0, True, []
    queue = shmbroker.connect(name, create=False).queue("q")
    with queue.consume(auto_ack=True) as consumer:
        descriptor = consumer.fileno()
        while more:
            queue.put(b"A")
            select.select([descriptor], [], [])
            if comes:
                consumer.get()
            more = interrupted_at(number, consumer.clear)
            if comes:
                queue.put(b"B")
                while not consumer.statistics().waiting:
                    time.sleep(0)
                consumer._core.arm()  # takes the lock under which the event is written with the message
            if not select.select([descriptor], [], [], 0)[0]:
                wrong.append(number)
            consumer.get()
            consumer.clear()
            number += 1
    print(json.dumps([number, wrong]))
"""


@pytest.mark.parametrize("message", ["comes", "is there"])
def test_an_interrupted_clearing_of_a_descriptor_hides_no_message(broker_name: str, message: str) -> None:
    """The descriptor is readable although the program does not call clear() again."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLEAR_AT_EVERY_INSTRUCTION, broker.name, message)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 20
    assert wrong == []
