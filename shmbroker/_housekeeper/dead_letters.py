# SPDX-License-Identifier: Apache-2.0
"""Carries dead messages out: each goes to the queues that the dead-letter exchange of its queue routes it to.

One commit publishes the copies to all these queues, and ends the messages in their own. So a message is in its queue or
in the others, whenever this process is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp import deaths
from shmbroker._core import native
from shmbroker._core.dead import CARRIED_OUT, GIVEN_UP, Dead, DeadMessage
from shmbroker._core.transaction import Publication, Settlement, commit
from shmbroker._housekeeper.copies import Plan, Plans
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.selecting import Selected
    from shmbroker._topology.binding import ToQueue

_logger = logging.getLogger("shmbroker")
_AT_ONCE = 64  # messages of one commit
_TURN_SECONDS = 0.01  # of work before other work gets its turn
_AGAIN_SECONDS = 0.1  # before the messages of a queue are tried again, after a target had no room or memory
_MOST_TOLD = 10_000


class _Waiting:
    """The dead messages of one queue that wait.

    Attributes:
        positions: of the messages, in the order of their deaths.
        due: the time of the next attempt, in nanoseconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.positions: OrderedDict[int, None] = OrderedDict()
        self.due = 0


class DeadLetters:
    """Carries out the dead messages of all queues of a broker.

    Args:
        connection: the housekeeper's connection.
        handle_of: takes the slot of a queue and returns its handle; ``None``: there is no such queue.
        open_queue: the same by the name of the queue.
        look_again: takes the slot of a queue and positions of messages at which the housekeeper is to look soon.
    """

    def __init__(
        self,
        connection: CoreConnection,
        handle_of: Callable[[int], CoreQueue | None],
        open_queue: Callable[[str], CoreQueue | None],
        look_again: Callable[[int, list[int]], None],
    ) -> None:
        self._connection, self._handle_of, self._open = connection, handle_of, open_queue
        self._look_again = look_again
        self._dead = Dead(connection)
        self._waiting: dict[int, _Waiting] = {}
        self._told: set[tuple[int, int]] = set()

    @property
    def due(self) -> int:
        """The time at which :meth:`run` is needed next."""
        return min((waiting.due for waiting in self._waiting.values()), default=native.FOR_EVER)

    def add(self, slot: int, position: int) -> None:
        """Adds a dead message to those that wait. One that waits already keeps its place."""
        waiting = self._waiting.get(slot)
        if waiting is None:
            waiting = self._waiting[slot] = _Waiting()
        waiting.positions[position] = None

    def run(self, now: int) -> None:
        """Carries messages out for a limited time; :attr:`due` then says whether more are due."""
        until = now + int(_TURN_SECONDS * native.NANOSECONDS)
        ready = deque(slot for slot, waiting in self._waiting.items() if waiting.due <= now)
        while ready and time.monotonic_ns() <= until:
            slot = ready.popleft()
            waiting = self._waiting[slot]
            self._batch(slot, waiting)
            del self._waiting[slot]
            if waiting.positions:
                self._waiting[slot] = waiting  # behind the others, which have their turn first next time
                if waiting.due <= now:
                    ready.append(slot)

    def _batch(self, slot: int, waiting: _Waiting) -> None:
        """Carries out the first messages of a queue. If some have to wait, so does the queue."""
        queue = self._handle_of(slot)
        if queue is None or queue.length() < 0:  # it is gone, and its messages are
            waiting.positions.clear()
            return
        held: dict[int, DeadMessage] = {}
        done: list[int] = []
        waits = False
        try:
            for position in tuple(itertools.islice(waiting.positions, _AT_ONCE)):
                message = self._dead.take(queue, position)
                if message is None:  # it is gone, or another housekeeper has it: one of the two was stopped
                    del waiting.positions[position]
                    self._look_again(slot, [position])
                else:
                    held[position] = message
            if held:
                self._carry_out(queue, held, done)
        except (exceptions.BrokerError, exceptions.OutOfMemory, MemoryError):
            waits = True
        for position in done:
            del held[position], waiting.positions[position]
        for message in held.values():
            self._dead.give_back(queue, message)
        if held or waits:
            waiting.due = time.monotonic_ns() + int(_AGAIN_SECONDS * native.NANOSECONDS)

    def _carry_out(self, queue: CoreQueue, held: dict[int, DeadMessage], done: list[int]) -> None:
        """Carries out messages that the connection holds. Adds the positions of those that are done to a list.

        First all in one commit. If that fails, each alone, but for those that go where another one found no room.
        """
        found, _ = queue.settings()
        plans = Plans(queue, found, self._route)
        each = {position: (plans.plan(message), message) for position, message in held.items()}
        if self._commit(queue, list(each.values())) == native.OK:
            done += held
            return
        full: list[Plan] = []
        for position, one in each.items():
            if one[0] in full:
                continue
            if self._commit(queue, [one]) in {native.OK, native.SETTLED}:
                done.append(position)
            else:
                full.append(one[0])

    def _commit(self, queue: CoreQueue, messages: Sequence[tuple[Plan, DeadMessage]]) -> int:
        publications, ends = [], []
        for plan, message in messages:
            body = self._dead.body(message) if plan else b""
            publications += [Publication(body, targets, options) for targets, options in plan]
            ends.append(Settlement(queue, message.header.tag, CARRIED_OUT if plan else GIVEN_UP))
        return commit(self._connection, publications, ends).status

    def _route(
        self,
        queue: CoreQueue,
        to: tuple[str, str],
        headers: dict[str, Any],
        keys: tuple[str, ...],
        selected: Selected,
    ) -> list[CoreQueue]:
        """Returns the queues that the exchange leads to, without those that the message was dead in before."""
        exchange, routing_key = to
        routed: Sequence[ToQueue] = ()
        with contextlib.suppress(exceptions.NotFound):  # the exchange need not exist
            exchanges = exchanges_of(self._connection)
            routed = exchanges.route(self._connection, exchange, routing_key, headers, keys, selected.by)
        opened = [self._reach(to) for to in routed if not deaths.closes_circle(headers, to.name)]
        targets = [target for target in opened if target is not None]
        if not targets:
            self._tell(queue, exchange, routing_key)
        return targets

    def _reach(self, to: ToQueue) -> CoreQueue | None:
        queue = self._open(to.name)
        return queue if queue is not None and to.incarnation in {0, queue.incarnation} else None

    def _tell(self, queue: CoreQueue, exchange: str, routing_key: str) -> None:
        of = queue.slot, queue.incarnation
        if of not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(of)
            text = "queue %r: a dead message was dropped: exchange %r leads it, with key %r, to no queue (said once)"
            _logger.warning(text, queue.name, exchange, routing_key)
