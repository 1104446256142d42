# SPDX-License-Identifier: Apache-2.0
"""The IO thread of a connection, which serves its consumers in the core without the GIL."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from shmbroker import exceptions
from shmbroker._core import native
from shmbroker._core.bodies import Bodies
from shmbroker._process import locks

if TYPE_CHECKING:
    from collections.abc import Callable

slow = native.slow
_POLL_SECONDS = 0.5
_IO_PAUSE_SECONDS = 0.1
# What the IO thread does in Python, by the status with which the core asks for it.
_IO_WORK = {
    native.NO_HOUSEKEEPER: "have a housekeeper started",
    native.READY: "wake a channel",
    native.GROW: "add a segment",
}
_log = logging.getLogger("shmbroker")


class IoThread(Bodies):
    """Starts the IO thread, and does in that thread the work that the core leaves to Python.

    Attributes:
        id: the number of the connection.
    """

    id: int

    def __init__(self) -> None:
        self._calls_lock = locks.lock()  # reentrant: the end of a view takes it, perhaps in the thread that holds it
        self._io: threading.Thread | None = None
        self._polled_at = 0.0
        self.on_stopping: Callable[[], None] = lambda: None
        self.on_housekeeper_missing: Callable[[], None] = lambda: None
        self.on_ready: Callable[[int], None] = lambda _: None  # called with the number of a ready channel

    def polled(self) -> None:
        """Notes that a call found no message and does not wait for one.

        A call more than half a second after the first one starts the IO thread, as a wait does. The thread notices a
        housekeeper that died or is stopped. Once there is a thread, this call is unnecessary.
        """
        if self.has_io:
            return
        now = time.monotonic()
        if not self._polled_at:
            self._polled_at = now
        elif now - self._polled_at > _POLL_SECONDS:
            self.start_io()

    def start_io(self) -> None:
        """Starts the IO thread, which runs in the core without the GIL, unless there is one."""
        if self._io is None and not self.closed:
            threading.Thread(target=self._run_io, name=f"shmbroker-io-{self.id}", daemon=True).start()

    def _run_io(self) -> None:
        # The thread sets `_io` itself, since a signal may interrupt `start_io` anywhere. It checks `_io` again, since
        # two callers of `start_io` may have started a thread each.
        with self._calls_lock:
            if self._io is not None or self.closed:
                return
            self._io = threading.current_thread()
            self.has_io = True
            self.calls += 1
        said: dict[int, str] = {}
        try:
            while (status := self._io_turn(said)) in _IO_WORK:
                pass
            if status == native.STOPPING:
                self.on_stopping()
        finally:
            self.leave()

    def _io_turn(self, said: dict[int, str]) -> int:
        """Runs the IO thread in the core until there is work for Python, and does that work; returns the status.

        Work may fail for want of a descriptor, a thread or memory of this process. The thread must not end for that: no
        other thread would serve the consumers of the connection. So it logs the error, and goes on after a moment. The
        core asks again for a segment or a housekeeper as long as it needs one. It does not repeat the number of a
        channel whose ``on_ready`` raised.

        Args:
            said: the error of each kind of work that failed last time, by status. It is logged once.
        """
        status = int(slow.sb_connection_run_io(self.handle))
        try:
            if status == native.NO_HOUSEKEEPER:
                self.on_housekeeper_missing()
            elif status == native.READY:
                while channel_number := int(slow.sb_connection_next_ready(self.handle)):
                    self.on_ready(channel_number)
            elif status == native.GROW:
                self.attachment.grow()
        except exceptions.ConnectionClosedByBroker:
            return native.STOPPING
        except Exception as error:  # noqa: BLE001 - see above
            if said.get(status) != str(error):
                said[status] = str(error)
                text = "the IO thread of connection %d to broker %r could not %s, and goes on: %s: %s"
                _log.warning(text, self.id, self.attachment.name, _IO_WORK[status], type(error).__name__, error)
            time.sleep(_IO_PAUSE_SECONDS)
        else:
            said.pop(status, None)
        return status
