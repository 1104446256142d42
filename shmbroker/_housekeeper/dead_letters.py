# SPDX-License-Identifier: Apache-2.0
"""Carries dead messages out: each goes to the queues that the dead-letter exchange of its queue routes it to.

One commit publishes the copies to all these queues, and ends the messages in their own. So a message is in its queue or
in the others, whenever this process is killed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp import deaths
from shmbroker._core import native, syncing
from shmbroker._core.dead import CARRIED_OUT, GIVEN_UP, Batch, Dead
from shmbroker._core.housekeeper import TURN_SECONDS
from shmbroker._core.journal import version
from shmbroker._core.transaction import Publication, Settlement, commit
from shmbroker._housekeeper.copies import Plans
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.dead import DeadMessage
    from shmbroker._core.housekeeper import CoreHousekeeper
    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.selecting import Selected
    from shmbroker._housekeeper.copies import Puts
    from shmbroker._topology.binding import ToQueue

_logger = logging.getLogger("shmbroker")
_AGAIN_SECONDS = 0.1  # before the messages of a queue are tried again, after a target had no room or memory
_MOST_TOLD = 10_000
_CARRIED = frozenset({native.OK, native.SETTLED})


class DeadLetters:
    """Carries out the dead messages of all queues of a broker.

    Args:
        connection: the housekeeper's connection.
        core: the housekeeper in the core, which has the dead messages.
        handle_of: takes the slot of a queue and returns its handle; ``None``: there is no such queue.
        open_queue: the same by the name of the queue.
    """

    def __init__(
        self,
        connection: CoreConnection,
        core: CoreHousekeeper,
        handle_of: Callable[[int], CoreQueue | None],
        open_queue: Callable[[str], CoreQueue | None],
    ) -> None:
        self._connection, self._core, self._handle_of, self._open = connection, core, handle_of, open_queue
        self._dead, self._batch = Dead(connection), Batch(connection)
        self._waiting: dict[int, int] = {}  # the time of the next attempt, in nanoseconds, by the slot of the queue
        self._plans: dict[int, Plans] = {}  # by the slot of the queue
        self._plans_of: object = None  # for which the plans were made
        self._told: set[tuple[int, int]] = set()

    @property
    def due(self) -> int:
        """The time at which :meth:`run` is needed next."""
        return min(self._waiting.values(), default=native.FOR_EVER)

    def add(self, slots: Iterable[int]) -> None:
        """Adds queues that have dead messages. One that waits already keeps its place."""
        for slot in slots:
            self._waiting.setdefault(slot, 0)

    def forget_plans(self) -> None:
        """Forgets the plans. To call before handles of queues are closed, which plans may name."""
        self._plans.clear()

    def run(self, now: int) -> None:
        """Carries messages out for a limited time; :attr:`due` then says whether more are due."""
        until = now + int(TURN_SECONDS * native.NANOSECONDS)
        ready = deque(slot for slot, due in self._waiting.items() if due <= now)
        while ready and time.monotonic_ns() <= until:
            slot = ready.popleft()
            del self._waiting[slot]
            queue = self._handle_of(slot)
            if queue is None or queue.length() < 0:  # it is gone, and its messages are
                continue
            waits = self._carry_out(queue)
            if not self._core.has_dead(queue):
                continue
            again = time.monotonic_ns() + int(_AGAIN_SECONDS * native.NANOSECONDS) if waits else 0
            self._waiting[slot] = again  # behind the others, which have their turn first next time
            if not waits:
                ready.append(slot)

    def _carry_out(self, queue: CoreQueue) -> bool:
        """Carries out the first messages of a queue; returns whether some have to wait."""
        memory_of = self._core.memory_of  # routing may open queues, and so replace what it returned before
        try:
            exact = exchanges_of(self._connection).looks_at_headers(self._connection)
            waits = self._batch.take(queue, memory_of(queue), exact=exact) != native.OK
        except (exceptions.BrokerError, exceptions.OutOfMemory, MemoryError):
            return True
        try:
            self._go(queue, self._plans_for(queue, exact=exact))
        except (exceptions.BrokerError, exceptions.OutOfMemory, MemoryError):
            waits = True
        return self._batch.end(memory_of(queue)) or waits

    def _plans_for(self, queue: CoreQueue, *, exact: bool) -> Plans:
        """Returns the plans for a queue. Those that were made in this second hold while nothing changed."""
        now = int(time.time())
        valid = now, self._core.changes(), version(self._connection)
        if valid != self._plans_of:
            self._plans, self._plans_of = {}, valid
        plans = self._plans.get(queue.slot)
        if plans is None:
            found, _ = queue.settings()
            plans = self._plans[queue.slot] = Plans(queue, found, self._route, now)
        elif exact:
            plans.forget()  # a selector may look at the time
        return plans

    def _go(self, queue: CoreQueue, plans: Plans) -> None:
        """Carries out the messages of the batch: in one commit those that have a plan, the others one by one."""
        batch = self._batch
        alone = []
        for kind, key in enumerate(batch.kinds()):
            plan = plans.plan(key, functools.partial(batch.first, kind))
            batch.plan(kind, plan)
            if plan is None:
                alone.append(kind)
        self._commit(0, len(batch))
        for kind in alone:
            for at in batch.held(kind):
                message = batch.message(at)
                if self._commit_alone(queue, plans.puts(message), message) in _CARRIED:
                    batch.done(at)
        for at, position in batch.apart():
            taken = self._dead.take(queue, position)
            if taken is None or self._commit_apart(queue, plans, taken):
                batch.done(at)

    def _commit_apart(self, queue: CoreQueue, plans: Plans, message: DeadMessage) -> bool:
        """Carries out a message that the batch does not hold, or gives it back."""
        carried = False
        try:
            carried = self._commit_alone(queue, plans.puts(message), message) in _CARRIED
        finally:
            if not carried:
                self._dead.give_back(queue, message)
        return carried

    def _commit(self, first: int, end: int) -> None:
        """Carries out messages of the batch in one commit, if all have room.

        Else each half alone, and so on. If a message alone finds no room, those of its kind wait.
        """
        parts = [(first, end)]
        while parts:
            first, end = parts.pop()
            status = self._batch.carry_out(first, end)
            if status == native.OK:
                continue
            if status == native.NO_MEMORY:
                syncing.ask(self._connection)  # stored messages may leave the memory
            if end - first > 1:
                middle = (first + end) // 2
                parts += [(middle, end), (first, middle)]
            elif status == native.SETTLED:
                self._batch.done(first)
            else:
                self._batch.plan(self._batch.kind_of(first), None)

    def _commit_alone(self, queue: CoreQueue, puts: Puts, message: DeadMessage) -> int:
        body = self._dead.body(message) if puts else b""
        publications = [Publication(body, targets, options) for targets, options in puts]
        end = Settlement(queue, message.header.tag, CARRIED_OUT if puts else GIVEN_UP)
        return commit(self._connection, publications, [end]).status

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
