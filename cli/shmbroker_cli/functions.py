# SPDX-License-Identifier: Apache-2.0
"""Functions that are named on the command line, as `module:function`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmbroker_cli.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmbroker


def see_working_directory() -> None:
    """Let modules of the working directory be imported, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def find_function(target: str) -> Callable[[shmbroker.Message], Any]:
    """Import what `module:function` names.

    Args:
        target: A module's full name, a colon, and a name in it (dots allowed).

    Returns:
        The function.

    Raises:
        ValueError: If the target is not of that form.
        Refused: If there is no such module or function, or importing it fails.
    """
    module_name, _, path = target.partition(":")
    if not (module_name and path):
        message = f"'{target}' is not of the form module:function"
        raise ValueError(message)
    see_working_directory()
    try:
        found: Any = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:  # importing runs the user's code, which may raise anything
        message = f"cannot load {target}: {describe(error)}"
        raise Refused(message) from error
    if not callable(found):
        message = f"cannot load {target}: it is not a function"
        raise Refused(message)
    function: Callable[[shmbroker.Message], Any] = found
    return function


def describe(error: BaseException) -> str:
    """Return an error's type and text in one line.

    Args:
        error: Any error.

    >>> describe(ValueError("too big"))
    'ValueError: too big'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
