# SPDX-License-Identifier: Apache-2.0
"""Keys from a terminal, as they are pressed."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

READ_SIZE = 256
NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}
_KEY = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1bO.|.", re.DOTALL)


def split_keys(text: str) -> list[str]:
    r"""Return the keys in what a terminal sent.

    Args:
        text: Characters and escape sequences.

    >>> split_keys("q\x1b[A\r\x1b")
    ['q', 'up', 'enter', 'escape']
    """
    return [NAMES.get(key, key) for key in _KEY.findall(text)]


class Keyboard:
    """The terminal's keyboard. In a `with` block the terminal neither edits lines nor echoes keys."""

    def __init__(self) -> None:
        """Prepare to read from standard input, which must be a terminal."""
        self._fd = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before = termios.tcgetattr(self._fd)

    def __enter__(self) -> Self:
        """Make the terminal deliver each key at once, without echo."""
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the mode that the terminal had before."""
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, deadline: float, signals: int) -> list[str]:
        """Wait for a key and return the keys pressed; an empty list if the wait ended without a key.

        Args:
            deadline: The end of the wait, in seconds of the monotonic clock.
            signals: A descriptor that ends the wait when it is readable. The call reads and drops what it holds.

        Raises:
            EOFError: If the terminal is gone.
        """
        wait = max(0.0, deadline - time.monotonic())
        ready = select.select([self._fd, signals], [], [], wait)[0]
        if signals in ready:
            os.read(signals, READ_SIZE)
        if self._fd not in ready:
            return []
        got = os.read(self._fd, READ_SIZE)
        if not got:
            raise EOFError
        return split_keys(self._decoder.decode(got))
