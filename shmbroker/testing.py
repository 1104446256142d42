# SPDX-License-Identifier: Apache-2.0
"""For tests: a broker that leaves nothing behind."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from shmbroker.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def broker(name: str | None = None, **options: Any) -> Iterator[Broker]:  # noqa: ANN401
    """A started broker that is purged at the end; options as :class:`Broker`."""
    made = Broker(name or f"test-{secrets.token_hex(6)}", **options)
    try:
        yield made.start()
    finally:
        made.stop(purge=True)
