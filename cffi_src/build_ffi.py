# SPDX-License-Identifier: Apache-2.0
"""Declares two extension modules for `cffi-gen-src`: `native` drops the GIL during a call, `native_fast` keeps it.

Both have the same functions.
"""

from pathlib import Path

from cffi import FFI

DECLARATIONS = Path(__file__).parent / "include" / "shmbroker.cdef.h"
HEADER = '#include "shmbroker.h"\n'

# cffi writes these two macros around each call. If they are empty, the call keeps the GIL.
KEEP_GIL = """
#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS
#define Py_END_ALLOW_THREADS
"""


def _module(name: str, prologue: str) -> FFI:
    ffi = FFI()
    ffi.cdef(DECLARATIONS.read_text(encoding="utf-8"))
    ffi.set_source(name, prologue)
    return ffi


native = _module("shmbroker._native", HEADER)
native_fast = _module("shmbroker._native_fast", HEADER + KEEP_GIL)
