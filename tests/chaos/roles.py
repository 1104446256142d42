# SPDX-License-Identifier: Apache-2.0
"""What a process of the chaos is to do."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Role:
    """A kind of process, which says what it does, and the queues that it works with."""

    kind: str
    queues: tuple[str, ...]
