# SPDX-License-Identifier: Apache-2.0
"""The package itself: what is imported when it is first used, and what it does not have."""

from __future__ import annotations

import sys

import pytest

import shmbroker
import shmbroker.aio


def test_the_asyncio_twin_is_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported when it is first asked for."""
    monkeypatch.delattr(shmbroker, "aio")
    assert shmbroker.aio is sys.modules["shmbroker.aio"]


def test_what_the_package_does_not_have() -> None:
    """The error names it."""
    with pytest.raises(AttributeError, match="module 'shmbroker' has no attribute 'nothing'"):
        shmbroker.nothing  # noqa: B018 (the look is what is tested)
