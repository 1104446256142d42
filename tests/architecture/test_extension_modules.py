# SPDX-License-Identifier: Apache-2.0
"""The build of the compiled modules: one core, one module releases the GIL, none depends on a Python version."""

from __future__ import annotations

import re
from pathlib import Path

from shmbroker import _native, _native_fast, _native_message

ROOT = Path(__file__).parents[2]
CDEF = ROOT / "cffi_src" / "include" / "shmbroker.cdef.h"


def test_calls_drop_the_gil_in_one_of_them_only() -> None:
    """`_native` releases the GIL around each call, `_native_fast` keeps it."""
    assert b"PyEval_SaveThread" in Path(_native.__file__).read_bytes()
    assert b"PyEval_SaveThread" not in Path(_native_fast.__file__).read_bytes()


def test_both_offer_the_same_functions() -> None:
    """They share one declaration file; it has no preprocessor lines, so C and cffi read the same text."""
    assert dir(_native.lib) == dir(_native_fast.lib)
    assert not re.search(r"^\s*#", CDEF.read_text(encoding="utf-8"), re.MULTILINE)


def test_both_share_one_core() -> None:
    """The process maps one copy of the core, that of the package: process-wide state exists once."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    cores = {Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "libshmbroker_core" in line}
    assert cores == {Path(_native.__file__).resolve().with_name("libshmbroker_core.so")}  # maps have resolved paths


def test_none_contains_the_core() -> None:
    """The modules link to the core's functions, and define none of them."""
    for module in (_native, _native_fast, _native_message):
        assert b"sb_liveness.c" not in Path(module.__file__).read_bytes()


def test_they_serve_all_versions_of_python() -> None:
    """The modules use the stable ABI."""
    for module in (_native, _native_fast, _native_message):
        assert str(module.__file__).endswith(".abi3.so")
