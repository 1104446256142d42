# SPDX-License-Identifier: Apache-2.0
# Made by cffi from cffi_src/include/shmbroker.cdef.h, which is the documentation too.
from typing import Any

ffi: Any
lib: Any
