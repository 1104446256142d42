# SPDX-License-Identifier: Apache-2.0
"""A channel of the core for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.core_channel import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmbroker


@pytest.fixture
def channel(connection: shmbroker.Connection) -> Iterator[Channel]:
    """A channel of the test's connection."""
    made = Channel(connection)
    yield made
    made.core.close()
