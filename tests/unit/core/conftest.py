# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the core's part of a connection; each file of tests gives the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import Replaced, replace_in_connections
from scenario_support.inside import core_of

from shmbroker._core import examination, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import shmbroker
    from shmbroker._core.connection import CoreConnection


@pytest.fixture
def core(connection: shmbroker.Connection) -> CoreConnection:
    """The core's part of it."""
    return core_of(connection)


@pytest.fixture
def patched(connection: shmbroker.Connection) -> Iterator[pytest.MonkeyPatch]:
    """Replace parts of the package until the connection is closed and the broker examined."""
    assert connection.is_open
    with pytest.MonkeyPatch.context() as context:
        yield context


@pytest.fixture
def other_calls(patched: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let connections call others than the core."""

    def replace(**others: Callable[..., object]) -> None:
        replace_in_connections(patched, **others)
        patched.setattr(examination, "slow", Replaced(native.slow, **others))

    return replace
