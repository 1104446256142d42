# SPDX-License-Identifier: Apache-2.0
"""A broker for each module; each test damages its memory, and has to have it put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenario_support.patient import Patient, admitted

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def healthy() -> Iterator[Patient]:
    """Run a broker with something in it."""
    with admitted() as patient:
        yield patient


@pytest.fixture
def patient(healthy: Patient) -> Iterator[Patient]:
    """Give the test a healthy broker; what it does to the memory is undone."""
    yield healthy
    healthy.recover()
