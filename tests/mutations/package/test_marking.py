# SPDX-License-Identifier: Apache-2.0
"""A marked module does what it did, and notes the statements that it came to."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.mutations.package.marking import Places, marked

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '''"""Module."""
from __future__ import annotations

def f(a: Unknown):
    """Function."""
    if a == 1:
        return 1
    elif a == 2:
        try:
            return g()
        finally:
            a = 3
    return [
        a]

def g():
    import os
    os.kill(os.getpid(), 9)
'''


def reached(tmp_path: Path, call: str) -> tuple[int, list[int]]:
    """Return how a process ends that makes this call, and the lines that it came to."""
    places, seen, module = Places.of({"other.py": "\n", "a.py": TEXT}), tmp_path / "seen", tmp_path / "a.py"
    seen.write_bytes(bytes(places.size))
    module.write_text(marked(TEXT, places.first["a.py"], seen), encoding="utf-8")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import a; {call}"
    run = subprocess.run([sys.executable, "-I", "-c", program], env={}, check=False)
    first = places.first["a.py"]
    return run.returncode, [nth - first for nth, byte in enumerate(seen.read_bytes()) if byte]


def test_what_is_reached_is_noted(tmp_path: Path) -> None:
    """Statements of functions are noted by their first line, the others not; so is a condition that fails."""
    assert reached(tmp_path, "assert a.f(1) == 1") == (0, [6, 7])
    assert reached(tmp_path, "assert a.f(5) == [5]") == (0, [6, 8, 13])
    assert reached(tmp_path, "assert (a.__doc__, a.f.__doc__) == ('Module.', 'Function.')") == (0, [])


def test_a_killed_process_has_noted_what_it_did(tmp_path: Path) -> None:
    """Nothing needs an orderly end."""
    code, lines = reached(tmp_path, "a.f(2)")
    assert code == -9
    assert lines == [6, 8, 9, 10, 17, 18]


def test_processes_share_the_marks(tmp_path: Path) -> None:
    """A child that was forked notes in the same file."""
    call = "import os; os.fork() or (a.f(5), os._exit(0)); os.wait()"
    assert reached(tmp_path, call) == (0, [6, 8, 13])
