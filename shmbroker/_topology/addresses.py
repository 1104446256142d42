# SPDX-License-Identifier: Apache-2.0
"""Address settings at work, for one connection: changed, applied to queues that exist, and to new queues.

A change is one record in the journal of the topology. Afterwards, the process that made it applies it to the queues
that exist, one by one. If that process is killed before, the housekeeper does the rest: it applies the settings when
they have changed, and when it begins. To apply settings is to compare each queue with the table, so it can be repeated.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker._amqp.names import RESERVED
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import managing
from shmbroker._core import queue as core_queue
from shmbroker._core.journal import topology_lock
from shmbroker._core.settings import ALL_GIVEN, decoded_settings, given_settings
from shmbroker._dataclasses import replace
from shmbroker._setting_conflicts import conflicts
from shmbroker._topology import changes
from shmbroker._topology.address_rows import AUTO_CREATE
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker._topology.address_table import AddressTable
    from shmbroker.settings import QueueSettings

_NOTHING: Mapping[str, Any] = {}


class Addresses:
    """The address settings of a broker, for one connection.

    Args:
        core: the connection.
        open_queue: takes the name of a queue and returns the core's handle of that queue; ``None``: there is no such
            queue. The connection keeps the handle open.
        deadline: returns the deadline of an operation that begins now.
    """

    def __init__(
        self,
        core: CoreConnection,
        open_queue: Callable[[str], CoreQueue | None],
        deadline: Callable[[], int],
    ) -> None:
        self._core, self._open, self._deadline = core, open_queue, deadline

    @property
    def table(self) -> AddressTable:
        """The table as of now."""
        return exchanges_of(self._core).addresses(self._core)

    # ---- changing ----

    def set(self, match: str, given: Mapping[str, Any]) -> None:
        """Gives addresses settings; see `changes.set_address`."""
        until = self._deadline()
        exchanges_of(self._core).change(self._core, until, lambda topology: changes.set_address(topology, match, given))
        self._apply(until)

    def remove(self, match: str, names: tuple[str, ...]) -> None:
        """Removes settings of a match; see `changes.remove_address`."""
        until = self._deadline()
        exchanges_of(self._core).change(
            self._core, until, lambda topology: changes.remove_address(topology, match, names)
        )
        self._apply(until)

    def _apply(self, until: int) -> None:
        # The change is in effect. What lacks memory or the lock now, the housekeeper applies.
        with contextlib.suppress(exceptions.OutOfMemory, exceptions.Timeout):
            apply(self._core, self._open, until)

    # ---- new queues ----

    def declare(
        self,
        name: str,
        given: Mapping[str, Any],
        *,
        otherwise: Mapping[str, Any] = _NOTHING,
        flags: int = 0,
    ) -> bool:
        """Makes a queue, with the settings that its address has, unless it exists. Returns whether it was made.

        Args:
            name: the name of the queue.
            given: the settings that were given for the queue, checked.
            otherwise: the values that replace the table's defaults of queue settings.
            flags: as for `core_queue.declare`.

        Raises:
            ValueError: two of the settings do not go together.
            Timeout: the topology lock is not free in time.
        """
        until = self._deadline()
        # Under the lock, no other process changes the settings between the look at the table and the declaration.
        with topology_lock(self._core, until, f"queue {name!r}"):
            wanted = self.table.for_new_queue(name, given, otherwise)
            return core_queue.declare(self._core, name, wanted, until, flags, frozenset(given))

    def auto_create(self, name: str) -> bool:
        """Makes the queue of an address whose settings say so. Returns whether this call made it."""
        table = self.table
        if not table.creates_queues or name.startswith(RESERVED) or not _may_be_queue(name):
            return False
        if not table.value(name, AUTO_CREATE) or self._core.queue_slot(name) != 0:
            return False
        return self.declare(name, {}, flags=core_queue.AUTO_CREATED)


def _may_be_queue(name: str) -> bool:
    try:
        check_queue_name(name)
    except ValueError:
        return False
    return True


def apply(core: CoreConnection, open_queue: Callable[[str], CoreQueue | None], until: int) -> None:
    """Gives each queue that exists the live settings of its address, except those that were given for the queue.

    Args:
        core: the connection.
        open_queue: returns the handle of a queue, as for `Addresses`.
        until: the deadline of each wait for the topology lock.

    Raises:
        Timeout: another holder keeps the topology lock; some queues may have their settings already.
        OutOfMemory: there is no memory to open a queue; some queues may have their settings already.
    """
    for slot in core.queue_slots():
        facts = core.queue_facts(slot)
        if facts is None or given_settings(facts) >= ALL_GIVEN:
            continue
        current, _ = decoded_settings(facts)
        if not _differing(exchanges_of(core).addresses(core), facts.name, current, given_settings(facts)):
            continue
        queue = open_queue(facts.name)
        with contextlib.suppress(exceptions.NotFound):  # the queue was deleted meanwhile
            if queue is not None:
                _apply_to(core, queue, until)


def _apply_to(core: CoreConnection, queue: CoreQueue, until: int) -> None:
    with topology_lock(core, until, queue.what):
        current, flags = queue.settings()
        given = queue.given()
        differing = _differing(exchanges_of(core).addresses(core), queue.name, current, given)
        if differing:
            queue.configure(replace(current, **differing), flags, trim=False, until=until, given=given)
    if not differing.get("no_expiry", current.no_expiry):
        managing.shorten_lives(queue, current.message_ttl, differing.get("message_ttl"))


def _differing(table: AddressTable, name: str, current: QueueSettings, given: frozenset[str]) -> dict[str, Any]:
    """Returns the live settings that a queue should have, and does not have.

    Those that do not go together with what the queue has are left out: it keeps its own.
    """
    wanted = table.live_settings(name)
    differing = {one: value for one, value in wanted.items() if one not in given and getattr(current, one) != value}
    if differing:
        for conflict in conflicts(name, replace(current, **differing)):
            for one in conflict.names:
                differing.pop(one, None)
    return differing
