# SPDX-License-Identifier: Apache-2.0
"""A broker for tests, which leaves nothing behind."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from shmbroker.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def broker(name: str | None = None, **options: Any) -> Iterator[Broker]:  # noqa: ANN401
    """Yields a started broker, with a random name by default; purges it at the end. Options: see :class:`Broker`."""
    made = Broker(name or f"test-{secrets.token_hex(6)}", **options)
    try:
        yield made.start()
    finally:
        made.stop(purge=True)
