# SPDX-License-Identifier: Apache-2.0
"""The modules of pamqp, each loaded when it is first used: most programs use no tables and no properties.

An `import` in a function that is called for each message would cost ten times as much as one of these calls.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


@functools.cache
def encoder() -> ModuleType:
    """Returns ``pamqp.encode``."""
    from pamqp import encode  # noqa: PLC0415

    return encode


@functools.cache
def decoder() -> ModuleType:
    """Returns ``pamqp.decode``."""
    from pamqp import decode  # noqa: PLC0415

    return decode


@functools.cache
def commands() -> ModuleType:
    """Returns ``pamqp.commands``."""
    from pamqp import commands as found  # noqa: PLC0415

    return found
