# SPDX-License-Identifier: Apache-2.0
"""Whether a user has a group, and what the user knows of the group's state; see :mod:`shmbroker.leasing`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from shmbroker import exceptions
from shmbroker._amqp.errors import amqp_error
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._core import journal
from shmbroker._process import locks
from shmbroker._session.queues import core_of
from shmbroker._session.session import session_of
from shmbroker._system_queues import queues
from shmbroker._system_queues.register import Register
from shmbroker.leasing.group_state import (
    GroupState,
    lease_of,
    look,
    new_token,
    opened,
    process_of,
    register_of,
    state_of,
)
from shmbroker.queue import Queue, open_queue

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from shmbroker.connection import Connection

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


class Membership:
    """What one user of a group knows of it, and whether this user has the group.

    The state of the group is in its register. :meth:`attach` writes this user into it as the owner of the group.
    :meth:`_change` writes every later change, and refuses if another user has attached the group meanwhile.
    """

    def __init__(self, connection: Connection, queue: Queue | str, name: str) -> None:
        if not isinstance(name, str):
            msg = f"group name {name!r}: a string is needed"
            raise TypeError(msg)
        if not _NAME.match(name):
            msg = f"group name {name!r}: 1 to 64 of A-Z a-z 0-9 _ . - are allowed"
            raise ValueError(msg)
        self.name = name
        self.queue_name = queue.name if isinstance(queue, Queue) else check_queue_name(queue)
        self._session = session_of(connection)
        self._lock = locks.lock()
        self._register: Register | None = None
        self._token = ""  # of the last attachment
        self._state: GroupState | None = None  # None: not attached
        self._from: Queue | None = None
        self._filling: Queue | None = None
        self._strays: list[Queue] = []
        self._done: list[str] = []  # queues of acknowledged leases that still exist
        # True: the state in the register may differ from `_state`, or an interrupt came while this user adopted it.
        self._unsure = False
        self._unsynced = False  # True: this user has written a state, and does not know that it is in the store

    # ---- attaching ----

    def attach(self) -> None:
        """Takes the group for this user, even if another user has it: that user then gets GroupInUse.

        Raises:
            NotFound: the queue to lease from does not exist.
            PreconditionFailed: the group leases from another queue.
            Timeout: the topology lock was not free in time; or the queue is stored, and the change was not on the disk
                in time: then no user has the group.
        """
        with self._lock:
            source = open_queue(self._session, self.queue_name, passive=True)
            self._state = None
            while (state := self._try_attach(durable=core_of(source).lasts)) is None:
                pass
            self._unsynced = True
            self._synced()  # before a message moves into the queue to fill: a start from the store must know that queue
            self._from, self._unsure = source, True
            self._adopt(state)
            self._delete_acked()

    def _try_attach(self, *, durable: bool) -> GroupState | None:
        register = Register.made(self._session, register_of(self.name), durable=durable)
        token = new_token(self._session)
        try:
            state = self._attached(state_of(register), token)
            counts = False
            try:
                queues.ensure(self._session, state.filling, no_expiry=True, durable=register.lasts)
                with self._topology_lock():
                    register.set_aside()
                    counts = register.replace(state.written(), timeout=0)
            finally:
                if not counts:
                    queues.delete(self._session, state.filling)
        except exceptions.NotFound:  # another user finished releasing the group
            return None
        if not counts:
            return None
        self._register, self._token = register, token
        return state

    def _attached(self, state: GroupState | None, token: str) -> GroupState:
        if state is None:
            state = GroupState(self.queue_name)
        elif state.queue != self.queue_name:
            text = f"group '{self.name}' leases from queue '{state.queue}', not '{self.queue_name}'"
            raise amqp_error(exceptions.PreconditionFailed, text)
        past = tuple(one for one in (*state.past, state.owner) if one not in {"", self._token} and self._is_there(one))
        return state.changed(
            owner=token,
            filling=lease_of(self.name, state.leased + 1, token),
            strays=state.strays + ((state.filling,) if state.filling else ()),
            past=past,
        )

    def _topology_lock(self) -> AbstractContextManager[None]:
        """Locks the topology: while it is locked, no other user can attach a group, or delete its register."""
        deadline = self._session.operation_deadline()
        return journal.topology_lock(self._session.core, deadline, f"group {self.name!r}")

    def _is_there(self, token: str) -> bool:
        return process_of(self._session, token) != 0

    def _adopt(self, state: GroupState) -> None:
        """Adopts the state in the register as the state of this user.

        The caller has set ``_unsure``. It stays set if this call does not come to its end: the next call of this user
        then adopts the state again.
        """
        self._state, self._done = state, list(state.done)
        self._filling = self._opened(state.filling) if state.filling else None
        known = {stray.name: stray for stray in self._strays}
        self._strays = [stray for name in state.strays if (stray := known.get(name) or self._opened(name)) is not None]
        self._unsure = False

    def _opened(self, name: str) -> Queue | None:
        try:
            return open_queue(self._session, name, passive=True)
        except exceptions.NotFound:
            return None

    def _delete_acked(self) -> None:
        while self._done:
            queues.delete(self._session, self._done[-1])
            self._done.pop()

    def _attached_state(self) -> GroupState:
        if self._unsure and self._state is not None and self._register is not None:
            try:
                latest = state_of(self._register)
            except exceptions.NotFound:
                latest = None
            if latest is None or latest.owner != self._token:
                self._fenced()
            self._adopt(latest)
        if self._state is None:
            self._fenced()
        if self._unsynced:
            self._synced()
        return self._state

    def _fenced(self) -> NoReturn:
        self._state = None
        latest = look(self._session, self.name) if self._token else None
        if not self._token:
            why = "is not attached here"
        elif latest is None or not latest.owner:
            why = "was released"
        elif latest.owner == self._token:
            why = "is not attached here: it was before, and the last attempt to attach it again failed"
        else:
            pid = process_of(self._session, latest.owner)
            why = f"was taken over by process {pid}" if pid else "was taken over by a process that has ended"
        raise amqp_error(exceptions.GroupInUse, f"group '{self.name}' {why}")

    def _made(self, name: str) -> Queue:
        """Makes a queue for leases: in the store, if the state of the group is there."""
        assert self._register is not None  # noqa: S101
        return queues.ensure(self._session, name, no_expiry=True, durable=self._register.lasts)

    def _synced(self) -> None:
        """Waits until the state, and all that was moved before, is in the store, if the group is stored.

        Raises:
            Timeout: it is not in time. The state counts nevertheless.
        """
        assert self._register is not None  # noqa: S101
        self._register.synced(self._session.operation_deadline())
        self._unsynced = False

    def _change(self, state: GroupState, *, timeout: float | None = None, sync: bool = True) -> None:
        """Writes a state to the register, and waits until it is in the store, if the group is stored.

        Raises GroupInUse if the state was changed or deleted after this user saw it.

        Args:
            state: the new state.
            timeout: seconds to wait for memory; ``None``: the connection's ``operation_timeout``.
            sync: whether to wait for the store. The caller that holds a lock waits afterwards.
        """
        assert self._register is not None  # noqa: S101
        self._unsure = self._unsynced = True
        try:
            limit = self._session.operation_timeout if timeout is None else timeout
            counts = self._register.replace(state.written(), timeout=limit)
        except exceptions.NotFound:
            counts = False
        if not counts:
            self._fenced()
        if sync:
            self._synced()
        self._adopt(state)

    # ---- the state ----

    @property
    def acked(self) -> int:
        """The number of the last acknowledged lease, 0 = none.

        An attached user gets the number that it knew last, any other user the number in the register.
        """
        return self._known().acked

    @property
    def leased(self) -> int:
        """The number of the last lease, 0 = none.

        An attached user gets the number that it knew last, any other user the number in the register.
        """
        return self._known().leased

    def _known(self) -> GroupState:
        with self._lock:
            if self._state is not None:
                return self._state
            try:
                state = None if self._register is None else state_of(self._register)
            except exceptions.NotFound:
                state = None
            if state is None:
                self._register = opened(self._session, self.name)
                state = None if self._register is None else state_of(self._register)
            return state or GroupState(self.queue_name)
