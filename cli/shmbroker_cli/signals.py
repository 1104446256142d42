# SPDX-License-Identifier: Apache-2.0
"""Ends a long-running command at SIGINT or SIGTERM, without an error."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Stopper:
    """Handles SIGINT and SIGTERM during a block of `until_told_to_stop`.

    The first signal waits for the end of a block of `finishing`; in a block of `noting` it only sets `told`. Any other
    signal raises KeyboardInterrupt at once.
    """

    def __init__(self) -> None:
        """Begin: no signal has come yet."""
        self._busy = False
        self._told = False

    @property
    def told(self) -> bool:
        """Whether a signal came during a block of `finishing` or `noting`."""
        return self._told

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: If no block of `finishing` or `noting` runs, or this is not the first signal.
        """
        if self._busy and not self._told:
            self._told = True
            return
        raise KeyboardInterrupt

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Finish the block even if a first signal comes during it; a second signal ends the block at once.

        Raises:
            KeyboardInterrupt: At the end of the block, if a signal came meanwhile.
        """
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._told:
            raise KeyboardInterrupt

    @contextmanager
    def noting(self) -> Iterator[int]:
        """Let a first signal during the block only set `told`, which the block checks; a second one ends it at once.

        Yields:
            A descriptor that each signal makes readable: a select or poll that includes it ends at a signal.
        """
        readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        handling = threading.current_thread() is threading.main_thread()
        before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False) if handling else -1
        self._busy = True
        try:
            yield readable
        finally:
            self._busy = False
            if handling:
                signal.set_wakeup_fd(before)
            os.close(readable)
            os.close(writable)


@contextmanager
def until_told_to_stop() -> Iterator[Stopper]:
    """Run the block. SIGINT or SIGTERM ends it early, without an error.

    Python handles signals only in the main thread: in any other thread, signals do not
    end the block.
    """
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():
        yield stopper
        return
    before = {number: signal.signal(number, stopper.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopper
    except KeyboardInterrupt:
        pass  # asked for, so not an error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
