# SPDX-License-Identifier: Apache-2.0
"""Waits for the store that block no caller: of publisher confirms, and of tasks of an event loop."""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native, syncing
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.connection import CoreConnection

    Tell = Callable[[BaseException | None], object]

_LOOK_SECONDS = 0.5  # until a wait notices that its connection was closed
_REST_SECONDS = 1.0  # after which a thread without a wait ends


class StoreWaits:
    """Tells callers of one connection when what they published is in the store.

    Each call asks for a turn of the storekeeper immediately: the turn has all that was published before. A thread waits
    for these turns, one after the other. The thread is started when it is needed, and ends when it is not.

    Args:
        core: the connection.
    """

    def __init__(self, core: CoreConnection) -> None:
        self._core = core
        self._changed = locks.condition()
        self._waiting: collections.deque[tuple[int | BaseException, Tell]] = collections.deque()
        self._thread: threading.Thread | None = None

    def after(self, tell: Tell) -> None:
        """Calls ``tell`` when all that this process has published is in the store.

        Its argument is ``None``, or the error for which that will not be known. A thread calls it, in the order of the
        calls of this method.
        """
        with self._changed:
            self._waiting.append((self._ask(), tell))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="shmbroker-store-waits", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def synced(self) -> concurrent.futures.Future[None]:
        """A future that is done when all that this process has published is in the store."""
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def tell(error: BaseException | None) -> None:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.after(tell)
        return future

    def _ask(self) -> int | BaseException:
        """Asks for a turn; returns its number, or the error for which there will be none."""
        try:
            return syncing.ask(self._core)
        except exceptions.BrokerError as error:
            return error

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, _REST_SECONDS):
                    self._thread = None
                    return
                turn = self._waiting[0][0]
            error = turn if isinstance(turn, BaseException) else self._wait(turn)
            with self._changed:
                told = []
                while self._waiting and self._waiting[0][0] == turn:
                    told.append(self._waiting.popleft()[1])
            for tell in told:
                tell(error)

    def _wait(self, turn: int) -> BaseException | None:
        try:
            while True:
                try:
                    syncing.wait(self._core, turn, native.deadline(_LOOK_SECONDS))
                except exceptions.Timeout:
                    continue
                return None
        except exceptions.BrokerError as error:
            return error
