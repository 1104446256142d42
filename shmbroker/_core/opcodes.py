# SPDX-License-Identifier: Apache-2.0
"""The instructions of compiled selectors, as the core numbers them (`sb_program.h`)."""

from __future__ import annotations

from shmbroker._core import native

_core = native.slow

HEADER = bytes((_core.SB_PROGRAM_VERSION,))
"""What a program begins with."""
DEPTH: int = _core.SB_PROGRAM_DEPTH
PATTERN_BYTES: int = _core.SB_PATTERN_BYTES
PATTERN_ANY = bytes((_core.SB_PATTERN_ANY,))
PATTERN_CHARACTER = bytes((_core.SB_PATTERN_CHARACTER,))

_PREFIX = "SB_OP_"
OPCODES = {
    name.removeprefix(_PREFIX): bytes((getattr(_core, name),)) for name in dir(_core) if name.startswith(_PREFIX)
}
"""The byte of each instruction, by its name, such as ``"ADD"`` or ``"HEADER_TEXT8"``."""

_PROPERTY = "SB_PROPERTY_"
PROPERTIES = {
    name.removeprefix(_PROPERTY).lower(): bytes((getattr(_core, name),))
    for name in dir(_core)
    if name.startswith(_PROPERTY)
}
"""The operand of ``PROPERTY_U8`` for each property, by its name, such as ``"content_type"`` or ``"jms_timestamp"``."""
