# SPDX-License-Identifier: Apache-2.0
"""Managing messages: arguments, progress, interrupts, other kinds of handles."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import core_of
from scenario_support.interrupting import SIGNALLED_AT
from scenario_support.nursery import served
from scenario_support.processes import run_python

import shmbroker.aio
from shmbroker._choosing import chosen
from shmbroker._core import managing
from shmbroker.exceptions import ConnectionClosed, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: dict[str, Callable[..., Any]] = {
    "browse": lambda queue, **which: list(queue.browse(**which)),
    "purge": lambda queue, **which: queue.purge(**which),
    "move": lambda queue, **which: queue.move("to", **which),
    "copy": lambda queue, **which: queue.copy("to", **which),
    "retry": lambda queue, **which: queue.retry(**which).retried,
    "expire": lambda queue, **which: queue.expire(**which),
    "change_priority": lambda queue, **which: queue.change_priority(1, **which),
    "deliver_scheduled": lambda queue, **which: queue.deliver_scheduled(**which),
}


@pytest.fixture
def ranked(connection: shmbroker.Connection) -> shmbroker.Queue:
    """Make a queue with priorities, and another queue to move messages to."""
    connection.queue("to")
    return connection.queue("ranked", max_priority=2)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("which", "error", "text"),
    [
        ({"ids": "3"}, TypeError, "ids='3': sequence numbers of messages are needed"),
        ({"ids": 3}, TypeError, "ids=3: sequence numbers of messages are needed"),
        ({"ids": [True]}, TypeError, "ids: True is no sequence number of a message: an integer is needed"),
        ({"ids": ["3"]}, TypeError, "ids: '3' is no sequence number of a message: an integer is needed"),
        ({"ids": [-1]}, ValueError, "ids: -1 is no sequence number of a message: 0 to 1152921504606846975 is allowed"),
        ({"ids": [2**60]}, ValueError, "ids: 1152921504606846976 is no sequence number"),
        ({"limit": -1}, ValueError, "limit=-1: an integer >= 0, or None for all, is allowed"),
        ({"limit": 1.5}, ValueError, "limit=1.5: an integer >= 0"),
        ({"selector": 3}, TypeError, "selector=3"),
        ({"selector": "n ="}, shmbroker.InvalidSelector, "selector"),
    ],
)
def test_what_is_not_allowed(
    ranked: shmbroker.Queue, call: str, which: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error names the argument, the value and what is allowed, and nothing happens."""
    ranked.put(b"A")
    with pytest.raises(error) as caught:
        CALLS[call](ranked, **which)
    assert text in str(caught.value)
    assert [message.priority for message in ranked.browse()] == [0]


@pytest.mark.parametrize("call", [name for name in CALLS if name != "browse"])
def test_a_progress_that_cannot_be_called(ranked: shmbroker.Queue, call: str) -> None:
    """The error says what is needed."""
    with pytest.raises(TypeError, match="progress=3: something that can be called with a number"):
        CALLS[call](ranked, progress=3)


@pytest.mark.parametrize("state", ["held", ["ready"], None])
def test_a_state_that_does_not_exist(queue: shmbroker.Queue, state: Any) -> None:  # noqa: ANN401 - any value is given
    """The error names the value and the states, whatever the value is."""
    shown = re.escape(f"state={state!r}: ")
    with pytest.raises(ValueError, match=f"{shown}one of 'ready', 'scheduled', 'delivering', 'dead' is allowed"):
        queue.browse(state=state)
    for end in (queue.purge, queue.expire):
        with pytest.raises(ValueError, match=f"{shown}'ready' or 'scheduled' is allowed"):
            end(state=state)


def test_ids_become_ranges(queue: shmbroker.Queue) -> None:
    """Ids that follow each other are one range, whatever their order, and each counts once."""
    found = chosen(core_of(queue), None, [9, 3, 8, 4, 3], 9)
    assert found == managing.Chosen(b"", ((3, 5), (8, 10)), 9)
    assert chosen(core_of(queue), None, iter([]), None).spans == ()


@pytest.mark.parametrize("call", ["purge", "move", "copy", "expire", "change_priority", "deliver_scheduled"])
def test_progress_is_told(ranked: shmbroker.Queue, call: str) -> None:
    """After every thousand messages or more often, and at last with the number of all."""
    for _ in range(3000):
        ranked.put(b"A", delay=3600 if call == "deliver_scheduled" else None)
    told: list[int] = []
    assert CALLS[call](ranked, progress=told.append) == 3000
    assert told == sorted(told)
    assert told[-1] > 2900


@pytest.mark.parametrize("call", CALLS)
def test_a_queue_that_was_deleted_or_a_handle_that_was_closed(
    connection: shmbroker.Connection, ranked: shmbroker.Queue, call: str
) -> None:
    """The calls raise what others raise."""
    ranked.delete()
    with pytest.raises(NotFound, match="ranked"):
        CALLS[call](ranked, ids=[1])
    closed = connection.queue("closed", max_priority=1)
    closed.close()
    with pytest.raises(ConnectionClosed, match="closed"):
        CALLS[call](closed)


def test_a_target_that_does_not_exist(queue: shmbroker.Queue) -> None:
    """It must be another queue of the broker."""
    for call in (queue.copy, queue.move):
        with pytest.raises(NotFound, match="missing"):
            call("missing")
        with pytest.raises(ValueError, match="queue 'q' cannot be"):
            call(queue)
        with pytest.raises(TypeError, match="to=3: a queue, or the name of one, is needed"):
            call(3)  # type: ignore[arg-type]


def test_long_bodies_change_their_priority(ranked: shmbroker.Queue) -> None:
    """Bodies that are read in place are copied."""
    long = [bytes([65 + n]) * 100_000 for n in range(3)]
    for body in long:
        ranked.put(body)
    assert ranked.change_priority(2) == 3
    assert [bytes(message) for message in ranked.browse()] == long


def test_tasks_manage_messages(broker_name: str) -> None:
    """The handles of asyncio have the same methods."""

    async def run() -> list[Any]:
        with served(broker_name):
            async with await shmbroker.aio.connect(broker_name) as connection:
                queue, to = await connection.queue("q", max_priority=1), await connection.queue("to")
                for n in range(6):
                    await queue.put(str(n).encode(), delay=3600 if n == 5 else None)
                return [
                    queue.deliver_scheduled(),
                    queue.copy(to, limit=1),
                    queue.move(to, limit=1),
                    queue.expire(limit=1),
                    queue.purge(limit=1),
                    queue.change_priority(1, limit=1),
                    to.retry().stayed,
                    [bytes(message) for message in queue.browse(limit=2)],
                    list(queue.browse(state="delivering")),
                ]

    assert asyncio.run(run()) == [1, 1, 1, 1, 1, 1, 2, [b"3", b"4"], []]


def _manage(queue: shmbroker.Queue) -> None:
    assert (queue.deliver_scheduled(), queue.expire(limit=1), queue.retry().stayed) == (0, 1, 1)


def test_an_inherited_handle_manages_messages(queue: shmbroker.Queue) -> None:
    """In a forked child, the handle opens itself again."""
    queue.put_many([b"A", b"B"])
    child = multiprocessing.get_context("fork").Process(target=_manage, args=(queue,))
    child.start()
    child.join(240)
    assert child.exitcode == 0
    assert len(queue) == 1


# Interrupts a call wherever a signal's handler may raise, and looks where the messages are.
MANAGE_WHERE_SIGNALS_COME = f"""{SIGNALLED_AT}
    gc.disable()  # finalizers are not interrupted
    name, how = sys.argv[1:]
    connection = shmbroker.connect(name, create=False)
    to = connection.queue("to")
    calls = {{
        "change_priority": lambda queue: queue.change_priority(1),
        "copy": lambda queue: queue.copy("to"),
        "deliver_scheduled": lambda queue: queue.deliver_scheduled(),
        "expire": lambda queue: queue.expire(),
        "move": lambda queue: queue.move("to", ids=[message.sequence for message in queue.browse()]),
        "retry": lambda queue: queue.retry(),
    }}
    number, more, wrong = 0, True, []
    while more:
        queue = connection.queue(f"q{{number}}", max_priority=1)
        target = to if how != "retry" else connection.queue(f"t{{number}}")
        deaths = {{"x-death": [{{"queue": target.name, "reason": "rejected", "count": 1}}]}}
        for body in (b"A", b"B"):
            queue.put(body, headers=deaths, delay=3600 if how == "deliver_scheduled" else None)
        more = signalled_at(number, lambda: calls[how](queue))
        states = [queue.browse(), queue.browse(state="scheduled"), target.browse()]
        found = [bytes(message).decode() for state in states for message in state]
        facts = queue.statistics()
        gone = facts.expired
        if how == "copy":
            good = found[:2] == ["A", "B"] and found[2:] == ["A", "B"][: len(found) - 2]
        else:
            good = len(found) == 2 - gone and set(found) == set("AB"[gone:])
        if not good or facts.delivering:
            wrong.append([number, found, facts.delivering, gone])
        target.purge()
        queue.delete()
        number += 1
    print(json.dumps([number, wrong, [str(finding) for finding in connection.doctor()]]))
"""


@pytest.mark.parametrize("how", ["change_priority", "copy", "deliver_scheduled", "expire", "move", "retry"])
def test_an_interrupt_leaves_each_message_in_one_place(broker: shmbroker.Broker, how: str) -> None:
    """Wherever the exception comes, each message is as it was or dealt with, and the connection holds none."""
    done = run_python(MANAGE_WHERE_SIGNALS_COME, broker.name, how)
    assert done.returncode == 0, done.stderr
    number, wrong, damage = json.loads(done.stdout)
    assert number > 10
    assert (wrong, damage) == ([], [])
