# SPDX-License-Identifier: Apache-2.0
"""Tests of Python on the mutated core, from a pytest that is warm: the plugin that chooses faults of the library."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutations.warm import Warm, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.core.tree import Tree

CORE = "libshmbroker_core.so"


def warm(tree: Tree, files: Sequence[str], root: Path) -> Warm:
    """A pytest that runs tests with the mutated library.

    Args:
        tree: Where that is.
        files: Of tests, below the root.
        root: The checkout.
    """
    environment = {"LD_LIBRARY_PATH": str(tree.native.parent), "SB_MUTANT": ""}
    return Warm(__name__, files, root, tree.folder, environment)


# ---- the plugin ----


def _choose(mutants: Sequence[int], seen: str) -> mmap.mmap | None:
    """Puts these faults in force, here and in processes that tests start; returns the file of marks, if it is named."""
    core = ctypes.CDLL(CORE)
    chosen = ctypes.POINTER(ctypes.c_ubyte).in_dll(core, "sb_mutant_chosen")
    for number in mutants:
        chosen[number] = 1
    os.environ["SB_MUTANT"] = " ".join(map(str, mutants))
    if not seen:
        return None
    os.environ["SB_MUTANT_SEEN"] = seen
    with Path(seen).open("r+b") as file:
        marks = mmap.mmap(file.fileno(), 0)
    address = ctypes.addressof((ctypes.c_ubyte * len(marks)).from_buffer(marks))
    ctypes.c_void_p.in_dll(core, "sb_mutant_seen").value = address
    return marks


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Serves, instead of running what was collected."""
    serve(session, _choose)
    return True
