# SPDX-License-Identifier: Apache-2.0
"""Locks that survive a fork and signal handlers.

A fork copies the state of a lock: a lock that another thread of the parent holds is held in the child for ever. A
signal handler runs inside the code that it interrupts, in the same thread: a lock that is not reentrant deadlocks
there.
"""

from __future__ import annotations

import _thread
import os
import threading
from typing import Any

from shmbroker._process.living import Living

_made = Living[Any]()


def lock() -> Any:  # noqa: ANN401 - the type of a reentrant lock has no public name
    """Makes a reentrant lock that is free in every forked child."""
    made = threading.RLock()
    _made.add(made)
    return made


def condition(of: Any = None) -> threading.Condition:  # noqa: ANN401
    """Makes a condition with a lock; if none is given, with a new lock that is free in every forked child."""
    return threading.Condition(lock() if of is None else of)


# Makes a cheaper reentrant lock, which stays held in a forked child if another thread held it. It is for objects of
# which a program makes thousands. Their methods check first whether the process was forked: no child takes the lock.
unnoted = _thread.RLock


def _after_fork() -> None:
    for made in _made:
        made._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own locks


os.register_at_fork(after_in_child=_after_fork)
