# SPDX-License-Identifier: Apache-2.0
"""The heap of the workers keeps its pages.

A consumer of `bytes` frees a window of 256 of them at once. Where such a window lies at the top of the heap, glibc
gives its pages back to the system, and the next window faults them in again: 60 page faults for 256 messages of 1 KiB,
which take as long as the messages. Whether a window lies at the top depends on what the process allocated earlier. So
it differs between two versions of a program, and between two programs. No measurement of ours is about that.
"""

from __future__ import annotations

import os

KEPT = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),  # the most that glibc takes
}
"""Variables of glibc's allocator: no page at the heap's top goes back before 256 MiB of them lie free."""


def keep_heap() -> None:
    """Let every process that this one starts from now on keep the pages of its heap."""
    os.environ.update(KEPT)
