# SPDX-License-Identifier: Apache-2.0
"""Channels of an event loop, and loops over their messages, that a signal's handler interrupts."""

from __future__ import annotations

import json

import pytest
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.processes import run_python

import shmbroker.testing

# Calls `main` with a connection and prints what it returns. `step` does what a task does at once: up to its next wait.
IN_A_LOOP = f"""{SIGNALLED_AT}
    import asyncio
    from shmbroker import aio

    def step(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as end:
            return [end.value]
        return []

    async def run():
        async with aio.connect(sys.argv[1], create=False) as connection:
            print(json.dumps(await main(connection)))

    gc.disable()  # finalizers are not interrupted
    package = package, os.path.dirname(asyncio.__file__)  # a handler may raise in what the package uses, too
"""

OPEN_WHERE_SIGNALS_COME = f"""{IN_A_LOOP}
    async def main(connection):
        number, more, wrong = 0, True, []
        while more:
            opened = []
            more = signalled_at(number, lambda: opened.extend(step(connection.channel())))
            for channel in opened:
                channel.close()
            channel = await connection.channel()
            if channel.number != 1:
                wrong.append([number, channel.number])
                break
            channel.close()
            number += 1
        return number, wrong

    asyncio.run(run())
"""


def test_an_interrupted_channel_keeps_no_number(broker_name: str) -> None:
    """Wherever a signal's handler raises: a channel that the program does not have is not open."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(OPEN_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 10
    assert wrong == []


# Interrupts the beginning of a loop over three messages, or one of its steps, wherever a signal's handler may raise.
# The channel stays open.
LOOP_WHERE_SIGNALS_COME = f"""{IN_A_LOOP}
    async def until(condition):
        while not condition():
            await asyncio.sleep(0)

    async def main(connection):
        channel, queue = await connection.channel(), await connection.queue("q")
        core, number, more, wrong = channel._sync._core_channel, 0, True, []
        while more:
            await queue.put_many([b"A", b"B", b"C"])
            got, deliveries = [], channel.consume("q")
            first = anext(deliveries)
            if sys.argv[2] == "begin":
                more = signalled_at(number, lambda: step(first))
                if not more:
                    await until(lambda: core.unacked() == 3)
                    got += step(first)
            else:
                step(first)  # starts the consumer
                await until(lambda: core.unacked() == 3)
                more = signalled_at(number, lambda: got.extend(step(first)))
            await deliveries.aclose()
            if queue.statistics().consumers or channel._sync.consumer_tags:
                wrong.append([number, "consumer", channel._sync.consumer_tags])
                break
            await until(lambda: not core.waiting())
            if (core.unacked(), len(queue)) != (len(got), 3 - len(got)):
                wrong.append([number, len(got), core.unacked(), len(queue)])
            await channel.basic_ack(0, multiple=True)
            queue.purge()
            number += 1
        return number, wrong

    asyncio.run(run())
"""


@pytest.mark.parametrize("deed", ["begin", "step"])
def test_an_interrupted_loop_leaves_no_consumer(broker_name: str, deed: str) -> None:
    """Wherever a signal's handler raises: the consumer has ended, and what the loop was not given is in the queue."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(LOOP_WHERE_SIGNALS_COME, broker.name, deed)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []


# Interrupts the closing of a channel wherever a signal's handler may raise, while a get and a loop wait for messages.
# Then the program closes the channel again.
CLOSE_WHERE_SIGNALS_COME = f"""{IN_A_LOOP}
    async def iterate(channel):
        async for _ in channel.consume("q"):
            pass

    async def main(connection):
        queue, number, more, wrong = await connection.queue("q"), 0, True, []
        while more:
            channel = await connection.channel()
            waits = {{
                asyncio.create_task(channel.basic_get("q", timeout=None), name="get"),
                asyncio.create_task(iterate(channel), name="loop"),
            }}
            while not (channel._getting and queue.statistics().consumers):
                await asyncio.sleep(0)
            more = signalled_at(number, channel.close)
            channel.close()
            ended, left = await asyncio.wait(waits, timeout=10)
            if left:
                wrong.append([number, [task.get_name() for task in left]])
                break
            for task in ended:
                if not isinstance(task.exception(), shmbroker.exceptions.ChannelClosed | None):
                    wrong.append([number, repr(task.exception())])
            number += 1
        return number, wrong

    asyncio.run(run())
"""


def test_an_interrupted_close_can_be_repeated(broker_name: str) -> None:
    """Wherever a signal's handler raises: a second close of the channel ends all that waits in it."""
    with shmbroker.testing.broker(broker_name, memory="32M") as broker:
        done = run_python(CLOSE_WHERE_SIGNALS_COME, broker.name)
    assert done.returncode == 0, done.stderr
    number, wrong = json.loads(done.stdout)
    assert number > 5
    assert wrong == []
