# SPDX-License-Identifier: Apache-2.0
"""Objects that were never made to the end: a signal's handler raised inside `__init__`, at any instruction."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

import shmbroker


def _with_destructors() -> list[type]:
    folder = Path(shmbroker.__file__).parent
    paths = [path.relative_to(folder.parent) for path in folder.rglob("*.py") if "spark" not in path.parts]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    modules = [importlib.import_module(name) for name in names]
    classes = {one for module in modules for _, one in inspect.getmembers(module, inspect.isclass)}
    own = [one for one in classes if one.__module__.startswith("shmbroker.") and "__del__" in vars(one)]
    return sorted(own, key=lambda one: one.__qualname__)


@pytest.mark.parametrize("cls", _with_destructors())
def test_what_has_no_attributes_yet_goes_silently(cls: type) -> None:
    """The destructor of an object whose `__init__` did nothing finds nothing to do, and the program prints nothing."""
    half_made = object.__new__(cls)
    vars(cls)["__del__"](half_made)


def test_there_are_such_objects() -> None:
    """The test above looks at attachments, connections and handles."""
    names = {one.__name__ for one in _with_destructors()}
    assert {"Attachment", "MappingReference", "CoreConnection", "Session", "CoreQueue"} <= names
