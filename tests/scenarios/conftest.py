# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the scenarios tests; makes `scenario_support` importable."""

from __future__ import annotations

import sys
from pathlib import Path

SUPPORT = str(Path(__file__).parents[1] / "scenarios")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

from scenario_support.fixtures import (  # noqa: E402 (the path comes first)
    broker,
    channel,
    connection,
    other,
    queue,
)

__all__ = ["broker", "channel", "connection", "other", "queue"]
