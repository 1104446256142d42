# SPDX-License-Identifier: Apache-2.0
"""Room: the storekeeper keeps the memory of a broker from filling with messages that are in the store as well.

Above the high mark, leaves of stored queues leave the memory, until the use is below the low mark: those that consumers
need last, so the newest ones of each queue. Below it, the storekeeper loads what consumers need next.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmbroker._core import managing, native, paging
from shmbroker._storekeeper import loading
from shmbroker.storage import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmbroker._core.attachment import Attachment
    from shmbroker._core.queue import CoreQueue
    from shmbroker._core.storing import CoreStorekeeper
    from shmbroker._storekeeper.expiries import Expiries
    from shmbroker._storekeeper.following import Following
    from shmbroker._storekeeper.loading import Loader

HIGH, LOW = 0.75, 0.6
"""Parts of the memory for messages: leaves leave above the one, until the use is below the other."""
BEGIN = 0.4
"""Above this part, messages are written that are not durable, so that their leaves can leave above the high mark."""
WINDOWS = 64 * rows.LEAF, 8 * rows.LEAF, rows.LEAF
"""So many messages of each lane stay behind its head; the next number holds if that leaves too little room."""
SHORT = 1 / 4
"""If somebody needs messages for which there is no memory, leaves leave until this part more of it is free."""
LEAVES_AHEAD, AHEAD = 256, 1 / 8
"""How many leaves behind the head of a lane are loaded before they are needed, and which part of the memory at most."""
FEW_AHEAD = 8
"""The same, if the use is between the two marks."""
_EXPIRED = 8  # leaves that are loaded between two looks at the use
_FIRST, _MOST = 4, 1024  # leaves of a lane that leave between two looks at the use
_SHARE = 20  # a look at the use takes time in proportion to the memory: it is taken for 1/20 of the time at most ...
_LONGEST_NS = (
    100_000_000  # ... at least ten times a second, even if this process lost its processor in the last look ...
)
_CAME = 1 / 50  # ... unless so much of the memory came meanwhile


class Room:
    """What the storekeeper knows of the use of the memory. One thread uses it.

    Args:
        attached: the attachment of the storekeeper.
        core: the storekeeper in the core.
        loader: loads messages.
        expiries: knows when messages expire that have left the memory.
    """

    def __init__(self, attached: Attachment, core: CoreStorekeeper, loader: Loader, expiries: Expiries) -> None:
        self._attached = attached
        self._core = core
        self._loader = loader
        self._expiries = expiries
        self._again = 0  # when the use is looked at again, in nanoseconds of the monotonic clock
        self._used, self._room = 0.0, 0
        self._came = 0  # bytes of bodies since the last look
        self._wishes = 0
        self._is_short = False  # somebody needs messages for which there is no memory

    def _look(self) -> float:
        """The part of the memory that messages use, of what the structures of the broker leave to them."""
        facts = self._attached.facts(in_full=True)
        self._room = max(1, facts.memory_limit - facts.memory_structures)
        self._used = min(facts.memory_used, facts.memory_bodies) / self._room
        return self._used

    def _is_full(self) -> bool:
        """Whether the use is above the high mark; looks only from time to time."""
        began = time.monotonic_ns()
        if began < self._again and self._came < self._room * _CAME:
            return False
        used = self._look()
        now = time.monotonic_ns()
        self._again = now + min(_SHARE * (now - began), _LONGEST_NS)
        self._came = 0
        return used >= HIGH

    def suffices(self) -> bool:
        """Whether messages that are not durable need not be written yet."""
        if time.monotonic_ns() >= self._again:
            self._look()
        return self._used < BEGIN

    @property
    def is_ample(self) -> bool:
        """Whether transient messages of durable queues need not be written yet, by the last look."""
        return self._used < BEGIN

    def awaits_transients(self, queues: Iterable[Following]) -> bool:
        """Whether the next turn has to write transient messages, so that their leaves can leave."""
        return self._used >= HIGH and any(one.wants_transients for one in queues)

    def came(self, size: int) -> None:
        """Notes that so many bytes of bodies were put."""
        self._came += size

    def make(self, queues: Iterable[Following], commit: Callable[[], None]) -> int:
        """Lets leaves leave if the memory is short; returns how many have left.

        Args:
            queues: the stored queues. What they had before this call is in the store.
            commit: brings everything that is in the store into its database. It is called before a leaf leaves.
        """
        if not self._is_short and not self._is_full():
            return 0
        able = [one for one in queues if not one.has_staged and one.may_leave]
        if not able:
            return 0
        commit()
        if not self._is_short:
            return sum(self._leave(able, ahead, LOW) for ahead in WINDOWS)
        self._is_short = False
        low = min(LOW, self._look() - SHORT)
        return sum(self._leave(able, ahead, low) for ahead in (*WINDOWS, 0))

    def _leave(self, queues: list[Following], ahead: int, low: float) -> int:
        """Lets leaves leave until the use is below `low`, or no other one may; returns how many have left."""
        left, most, gone = 0, _FIRST, 1
        while gone and self._used > low:
            gone, before = 0, self._used
            for one in queues:
                for lane in self._core.lanes(one.queue):
                    some = paging.leave(one.queue, one.transients.behind(lane), ahead, most)
                    gone += some.leaves
                    self._expiries.left(one, some.expiring)
            left += gone
            freed = before - self._look()
            if gone and freed > 0:  # as many as are needed now, if the others are as large as these
                most = int(min(_MOST, max(_FIRST, (self._used - low) / freed * gone / len(queues))))
        return left

    def load_wished(self, queues: Iterable[Following]) -> bool:
        """Loads what processes wish for that do not read the store; returns whether there was a wish."""
        made = paging.wishes(self._attached)
        if made == self._wishes:
            return False
        self._wishes = made  # P46 of `sb_wishes.h`: read before the wishes are taken
        for one in queues:
            wanted = paging.take_wish(one.queue)
            if wanted is not None:
                leaf = rows.leaf_of(wanted)
                status = self._loader.come_back(one.queue, leaf, loading.LEAVES, loading.SIZE)
                self._is_short |= status == native.NO_MEMORY
        return True

    def keep_limits(self, queues: Iterable[Following]) -> bool:
        """Evicts what exceeds the limits of queues, also what is not in the memory; returns whether there may be more.

        A queue that has limits keeps its messages in the memory, but for those that left before it had them. These come
        back for a moment only, so this is done however full the memory is.
        """
        able = [one.queue for one in queues if not one.may_leave]
        return sum(self._keep_limit(queue) for queue in able) > 0

    def _keep_limit(self, queue: CoreQueue) -> bool:
        """The same for one queue, for a limited number of leaves."""
        for _ in range(LEAVES_AHEAD // loading.LEAVES):
            evicted, status = managing.evict(queue, LEAVES_AHEAD * rows.LEAF)
            if status != native.GROW:
                return evicted > 0
            wanted = self._attached.wanted()
            if wanted is None:  # it needs a segment
                self._attached.grow()
                continue
            if wanted[0] != queue.slot:
                return True
            leaf = rows.leaf_of(wanted[1])
            if self._loader.come_back(queue, leaf, loading.LEAVES, loading.SIZE, if_spare=True) == native.NO_MEMORY:
                return evicted > 0
        return True

    def load_expired(self) -> bool:
        """Loads leaves with messages that have expired: the housekeeper then ends these. Returns whether it did."""
        found = self._expiries.due()
        if found is None:
            return False
        one, expired = found
        for count, leaf in enumerate(expired):
            if count % _EXPIRED == 0 and self._look() > HIGH:
                self._expiries.again(one, leaf)
                break
            most = int(self._room * (1 - HIGH) / 2)
            if self._loader.come_back(one.queue, leaf, 1, 0, most=most) == native.NO_MEMORY:
                self._expiries.again(one, leaf)
                break
        return True

    def load_ahead(self, queues: Iterable[Following]) -> bool:
        """Loads what consumers need next, if there is room for it; returns whether it loaded something.

        It loads until the use is at the low mark: what came above it would soon have to leave again. Between the two
        marks it loads only few leaves, so that a consumer never waits for other messages to end.
        """
        leaves, until = LEAVES_AHEAD, LOW
        if self._used > LOW and self._look() > LOW:
            leaves, until = FEW_AHEAD, HIGH
        if self._used > HIGH:
            return False
        some = False
        for one in queues:
            for lane in self._core.lanes(one.queue):
                missing = paging.absent(one.queue, lane.head, lane.head + leaves * rows.LEAF)
                if missing is None:
                    continue
                size, most = int(self._room * min(AHEAD, until - self._used)), int(self._room * (HIGH - self._used) / 2)
                if self._loader.come_back(one.queue, missing.sequence, leaves, size, most=most) == native.NO_MEMORY:
                    return some
                some = True
                if self._look() > HIGH:
                    return some
        return some
