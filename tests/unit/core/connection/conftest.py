# SPDX-License-Identifier: Apache-2.0
"""Fixtures for connections of the core to a broker without a housekeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.core_calls import replace_in_connections

import shmbroker
from shmbroker._core import segments
from shmbroker._core.connection import CoreConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def path(broker_name: str) -> str:
    """Make a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="32M").create()
    return segments.path_of(broker_name)


@pytest.fixture
def core(path: str) -> Iterator[CoreConnection]:
    """Connect to it."""
    made = CoreConnection(path, "one")
    yield made
    made.close()


@pytest.fixture
def other_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let connections call others than the core."""

    def replace(**others: Callable[..., object]) -> None:
        replace_in_connections(monkeypatch, **others)

    return replace
