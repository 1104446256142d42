# SPDX-License-Identifier: Apache-2.0
"""A consumer group; see :mod:`shmbroker.leasing`."""

from __future__ import annotations

import contextlib
import queue as standard_queue
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._checks import integer, is_integer
from shmbroker._session.queues import core_of
from shmbroker._system_queues import queues
from shmbroker.leasing import reading
from shmbroker.leasing.group_state import GroupState, Lease, lease_of, look, register_of
from shmbroker.leasing.membership import Membership
from shmbroker.queue import Queue, open_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmbroker._session.session import Session
    from shmbroker.body_references import Place
    from shmbroker.message import Message


class Group(Membership):
    """A consumer group of a queue. Safe to use from several threads.

    Leases have numbers, from 1. The leases from :attr:`acked` + 1 to :attr:`leased` exist. Any user can read these two
    attributes, and call :meth:`attach`, :meth:`size`, :meth:`messages`, :meth:`by_column` and :meth:`places`. Only the
    user that attached the group last can use :attr:`begun` and the other methods.

    Args:
        connection: The connection of this user.
        queue: The queue to lease from, or its name.
        name: 1 to 64 of ``A-Z a-z 0-9 _ . -``.

    Attributes:
        name: The name of the group.
        queue_name: The name of the queue.
    """

    # ---- leasing ----

    @property
    def begun(self) -> int:
        """The number of messages in strays, which earlier users left: the next lease begins with these messages."""
        with self._lock:
            self._attached_state()
            return sum(map(_length, self._strays))

    def lease(self, after: int, *, max_messages: int | None = None, max_bytes: int | None = None) -> int:
        """Leases ready messages, the oldest first. If there are none, the call only reads counters of queues.

        Args:
            after: the number of the last lease that the caller knows; the call does not acknowledge it. If the lease
                ``after`` + 1 exists already, the call leases nothing and returns the number of that lease.
            max_messages: the most messages; ``None`` = all that are ready now.
            max_bytes: the lease ends with the message at which its bodies reach this total; ``None`` = no such limit.

        Returns:
            The number of the lease, ``after`` + 1; or ``after``: no message is ready, or the queue is paused.

        Raises:
            GroupInUse: another user has the group, or no user has attached it.
            GroupRewound: the lease ``after`` + 1 was acknowledged already.
            LeaseNotFound: the group has no lease ``after``: the group was released, or the lease is of another broker.
            NotFound: the queue was deleted.
            OutOfMemory: the broker has no memory for the call; messages already moved are in the next lease.
            Timeout: the topology lock was not free in time; messages already moved are in the next lease.
        """
        for option, given in (("max_messages", max_messages), ("max_bytes", max_bytes)):
            if given is not None:
                integer(option, given, 1, none="for no limit")
        with self._lock:
            state = self._attached_state()
            self._check(state, after, "lease")
            if after < state.leased:
                return after + 1
            assert self._from is not None  # noqa: S101
            if not (len(self._from) or _length(self._filling) or any(map(_length, self._strays))):
                self._notice_others()
                return after
            state, filling = self._ready_to_fill(state)
            return self._lease(state, self._from, filling, max_messages, max_bytes)

    def _notice_others(self) -> None:
        """Raises GroupInUse if another user has taken the group.

        A user with nothing to lease needs this: it writes nothing to the register, so no refused write tells it.
        """
        assert self._register is not None  # noqa: S101
        try:
            self._unsure = self._register.has_moved()
        except exceptions.NotFound:
            self._fenced()
        self._attached_state()

    def _ready_to_fill(self, state: GroupState) -> tuple[GroupState, Queue]:
        """Returns the state, and the queue to fill, which this state names.

        The attach or the previous lease made the queue. If the previous lease had no memory for it, this call makes it
        and writes its name to the register.
        """
        if self._filling is None:
            made = self._made(lease_of(self.name, state.leased + 1, state.owner))
            state = state.changed(filling=made.name)
            self._change(state)
            return state, made
        return state, self._filling

    def _check(self, state: GroupState, number: int, what: str) -> None:
        if not is_integer(number):
            msg = f"{what}({number!r}): the number of a lease, an integer, is needed"
            raise TypeError(msg)
        if number < state.acked:
            text = (
                f"group '{self.name}' has acknowledged lease {state.acked}: {what}({number}) is before it, "
                f"{state.acked} to {state.leased} is allowed"
            )
            raise amqp_error(exceptions.GroupRewound, text)
        if number > state.leased:
            raise self._missing(state, number)

    def _missing(self, state: GroupState, number: int) -> exceptions.LeaseNotFound:
        has = f"it has {state.acked + 1} to {state.leased}" if state.leases else f"it has none after {state.acked}"
        return amqp_error(exceptions.LeaseNotFound, f"no lease {number} of group '{self.name}': {has}")

    def _lease(self, state: GroupState, source: Queue, filling: Queue, most: int | None, size: int | None) -> int:
        self._fill(filling, [*self._strays, source], most, size)
        facts = core_of(filling).facts()
        if facts.ready == 0:  # the queue is paused, or another client was faster
            self._notice_others()
            return state.leased
        lease = Lease(filling.name, facts.ready, facts.bytes, facts.tail == facts.ready)
        following = self._following(state)
        strays, past = self._prune_strays(state)
        changed = state.changed(
            leases=(*state.leases, lease), filling=following, strays=strays, past=past, done=tuple(self._done)
        )
        try:
            self._change(changed)
        except exceptions.GroupInUse:
            if following:
                queues.delete(self._session, following)
            raise
        return changed.leased

    def _following(self, state: GroupState) -> str:
        """Makes the queue for the lease after the one that is being made now, and returns the name of this queue.

        Returns an empty string if there is no memory: then the next call of :meth:`lease` makes the queue.
        """
        try:
            return self._made(lease_of(self.name, state.leased + 2, state.owner)).name
        except exceptions.OutOfMemory:
            return ""

    def _fill(self, filling: Queue, sources: list[Queue], most: int | None, size: int | None) -> None:
        """Moves messages from the sources into the queue to fill, in the order of the sources, up to the limits.

        The strays come first in ``sources``, because their messages are older. ``most`` messages and ``size`` bytes are
        the limits for the whole queue to fill, with the messages that it has already; ``None`` = no limit.
        """
        for source in sources:
            facts = core_of(filling).facts()
            count = None if most is None else most - facts.ready
            room = None if size is None else size - facts.bytes
            if (count is not None and count <= 0) or (room is not None and room <= 0):
                return
            if not _length(source) or source.paused:
                continue
            try:
                source.move(filling, limit=count, max_bytes=room)
            except exceptions.OutOfMemory:
                if len(filling) == 0:
                    raise
                return

    def _prune_strays(self, state: GroupState) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Deletes the empty strays, but only if no other user can be moving messages into or out of them.

        A message that is being moved is not ready, so a stray that has only such messages looks empty. If the move
        fails, the message returns to the stray, and would be lost with a deleted stray. So the call deletes strays only
        when every earlier user is gone, and the topology lock keeps later users from attaching the group. If this
        process is killed in between, the register names strays that are gone; every user ignores such names.

        Returns:
            The names of the strays that still exist, and the tokens of the earlier users that are not gone.
        """
        past = tuple(one for one in state.past if self._is_there(one))
        filled = {stray.name for stray in self._strays if _length(stray)}
        if past or len(filled) == len(state.strays):
            return state.strays, past
        with self._topology_lock():
            latest = look(self._session, self.name)
            if latest is None or latest.owner != self._token:
                return state.strays, past  # another user has the group: the register refuses the caller's next version
            return tuple(name for name in state.strays if name in filled or not self._delete_stray(name)), ()

    def _delete_stray(self, name: str) -> bool:
        """Deletes a stray; ``False``: it has ready messages. The caller holds the topology lock.

        The caller has made sure that no other user can be moving messages out of the stray.
        """
        try:
            queues.delete(self._session, name, if_empty=True)
        except exceptions.PreconditionFailed:
            return False
        return True

    # ---- acknowledging ----

    def ack(self, through: int) -> int:
        """Acknowledges the leases up to a number. Safe to call again.

        Args:
            through: the number of the last lease to acknowledge.

        Returns:
            The number of messages in the leases that this call acknowledged; 0: they were acknowledged before.

        Raises:
            GroupInUse: another user has the group, or no user has attached it.
            GroupRewound: a later lease was acknowledged before.
            LeaseNotFound: the lease does not exist yet.
            Timeout: the topology lock was not free in ``operation_timeout``. Unless memory was short, the leases are
                acknowledged, and a later call deletes their queues.
        """
        with self._lock:
            state = self._attached_state()
            self._check(state, through, "ack")
            ended = state.leases[: through - state.acked]
            if not ended:
                return 0
            done = (*self._done, *(lease.queue for lease in ended))
            changed = state.changed(acked=through, leases=state.leases[len(ended) :], done=done)
            try:
                self._change(changed, timeout=0)
            except exceptions.OutOfMemory:
                self._ack_without_memory(state, changed)
            self._delete_acked()
            return sum(lease.length for lease in ended)

    def _ack_without_memory(self, state: GroupState, changed: GroupState) -> None:
        """Acknowledges when memory is short: deletes the leases first, to free memory for the changed state.

        Before it deletes anything, checks that the register still has ``state``; raises GroupInUse if not. Holds the
        topology lock until it has acknowledged, if the deletion frees enough memory. A user that attached the group
        between deletion and acknowledgement would find leases in the register whose queues are gone.
        """
        with self._topology_lock():
            if look(self._session, self.name) != state:
                self._fenced()
            for name in changed.done:
                queues.delete(self._session, name)
            with contextlib.suppress(exceptions.OutOfMemory):
                self._change(changed, timeout=0, sync=False)
        if self._state != changed:
            self._change(changed)  # waits for memory without the lock, which others may need in order to free memory
        self._synced()

    # ---- reading ----

    def size(self, number: int) -> int:
        """Returns the number of messages in a lease.

        Raises:
            LeaseNotFound: the lease does not exist, or not any more.
        """
        return self._find(number)[1].length

    def messages(self, number: int, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """Yields private copies of a lease's messages, in order; the same ones at each call, in each process.

        A message's ``queue`` is the queue it was leased from, and its ``sequence`` is the one that it had there.

        Args:
            number: the number of the lease.
            start: the index of the first message, from 0.
            stop: the index after the last message; ``None`` = to the end.

        Raises:
            LeaseNotFound: the lease does not exist, or is incomplete; raised by the call, or during the iteration.
        """
        state, lease = self._find(number)
        span = range(*slice(start, stop).indices(lease.length))
        core = reading.opened(self._session.core, number, lease)
        return reading.messages(core, state.queue, number, lease, span)

    @contextlib.contextmanager
    def by_column(self, number: int, start: int = 0, stop: int | None = None) -> Iterator[reading.ByColumn]:
        """Opens a lease for a ``with`` block that reads its messages into columns, many in one call.

        Arguments and errors are those of :meth:`messages`.
        """
        _, lease = self._find(number)
        core = reading.opened(self._session.core, number, lease)
        with reading.reading(core, number, lease):
            yield reading.ByColumn(core, number, lease, range(*slice(start, stop).indices(lease.length)))

    def places(self, number: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[Message, Place]]:
        """Yields pairs: a message without its body, and the place of the body in the broker's memory.

        A place is valid until the lease is acknowledged; after a release of the group, until the message is settled.
        Arguments and errors are those of :meth:`messages`.
        """
        state, lease = self._find(number)
        span = range(*slice(start, stop).indices(lease.length))
        core = reading.opened(self._session.core, number, lease)
        return reading.places(core, state.queue, number, lease, span)

    def _find(self, number: int) -> tuple[GroupState, Lease]:
        state = self._known()
        if not is_integer(number):
            msg = f"lease {number!r}: an integer is needed"
            raise TypeError(msg)
        if not state.acked < number <= state.leased:
            raise self._missing(state, number)
        return state, state.leases[number - state.acked - 1]

    # ---- the end ----

    def release(self) -> int:
        """Moves all leased messages, the oldest first, to the end of the queue, and ends the group.

        A later group of that name begins at 0. If an earlier user that lost the group still runs, the register is not
        deleted. Attach and release the group again after that user has ended: this deletes the register.

        Returns:
            The number of messages moved back.

        Raises:
            GroupInUse: another user has the group, or no user has attached it.
            queue.Full: the queue has no room for all messages. The rest waits for the next user that attaches the
                group, and leases or releases it.
            Timeout: the topology lock was not free in time. The release may have taken effect nevertheless, so that
                only strays and the register are left.
        """
        with self._lock:
            state = self._attached_state()
            self._delete_acked()
            mine = (
                *(lease.queue for lease in state.leases),
                *state.strays,
                *((state.filling,) if state.filling else ()),
            )
            left = GroupState(state.queue, strays=mine, past=(*state.past, state.owner))
            self._change(left)
            self._state = None
            assert self._from is not None  # noqa: S101
            # Asked before the messages move back: an earlier user that still runs may fill a stray again that this call
            # has emptied, and may end before a later question.
            alone = not any(self._is_there(one) for one in state.past)
            count = _give_back(self._session, self._from, mine)
            if alone:
                self._remove(left)
            return count

    def _remove(self, left: GroupState) -> None:
        """Deletes the empty strays, then the register, unless another user has attached the group since the release.

        That user may be moving messages out of the strays, and deletes them later; see :meth:`_prune_strays`. While
        this call holds the topology lock, no user of another thread can attach the group. After a kill in between, the
        register names strays that are gone.
        """
        with self._topology_lock():
            if look(self._session, self.name) != left:
                return
            gone = [self._delete_stray(name) for name in left.strays]
            # The second look is for a signal handler of this thread, which the lock does not keep out.
            if all(gone) and look(self._session, self.name) == left:
                queues.delete(self._session, register_of(self.name))

    def __repr__(self) -> str:
        how = "attached" if self._state is not None else "not attached"
        return f"<Group {self.name!r} of queue {self.queue_name!r}, {how}>"


def _length(queue: Queue | None) -> int:
    """The number of ready messages in a queue, 0 if it is gone."""
    try:
        return 0 if queue is None else len(queue)
    except exceptions.NotFound:
        return 0


def _give_back(session: Session, to: Queue, names: tuple[str, ...]) -> int:
    count = 0
    for name in names:
        try:
            queue = open_queue(session, name, passive=True)
        except exceptions.NotFound:
            continue
        count += queue.move(to)
        if len(queue) > 0:
            text = f"queue {to.name!r} is full: {count} messages were returned to it, the others are still in {name!r}"
            raise standard_queue.Full(text)
    return count
