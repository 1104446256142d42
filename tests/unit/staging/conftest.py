# SPDX-License-Identifier: Apache-2.0
"""What tests of stages start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shmbroker.staging import Stage

if TYPE_CHECKING:
    import shmbroker


@pytest.fixture
def out(connection: shmbroker.Connection) -> shmbroker.Queue:
    """A target."""
    return connection.queue("out")


@pytest.fixture
def stage(connection: shmbroker.Connection) -> Stage:
    """A stage."""
    return Stage(connection, "query")
