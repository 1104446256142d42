# SPDX-License-Identifier: Apache-2.0
"""Tests of Python find faults of the core, each in a process that is forked from a pytest which has collected them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tree_sitter_c", reason="the group `mutation` of pyproject.toml is not installed")

from tests.mutations.apart import APART, alone
from tests.mutations.core.tree import ROOT, Tree, find

FILE = "tests/scenarios/test_ring.py"
TEST = f"{FILE}::test_r1_the_newest_three_survive[ring]"
PROGRAM = f"""
import json, sys
from pathlib import Path
from tests.mutations.apart import own_shm
from tests.mutations.core.tree import ROOT, Tree
from tests.mutations.core.warm import warm
number, count = int(sys.argv[1]), int(sys.argv[2])
own_shm()
warm = warm(Tree(Path(sys.argv[3])), [{FILE!r}], ROOT)
fault, last = warm.run([{TEST!r}], [number], 600)
plain, _ = warm.run([{TEST!r}], [], 600)
hung, _ = warm.run([{TEST!r}], [], 0)
reach = warm.survey([{TEST!r}], count, 600)
warm.close()
print(json.dumps([fault.passed, last, plain.passed, hung.hung, [list(reach), reach[{TEST!r}][1][number]]]))
"""


@pytest.mark.timeout(1800)
def test_a_test_of_python_finds_a_fault_of_the_core() -> None:
    """A ring that evicts nobody fails a test of rings, which passes without that fault and reaches its place.

    A run that takes longer than its limit is told from one that fails.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    apart = ["unshare", "--mount", *user]
    if subprocess.run([*apart, "true"], check=False).returncode != 0:
        pytest.skip("unshare --mount is not allowed here")
    tree, core = Tree(ROOT / "build" / "mutation-test"), find()
    number = next(i for i, p in enumerate(core.points, 1) if p.function == "enforce_length" and p.kind == "true")
    with alone(tree.folder):
        tree.write(core)
        tree.build_library()
        run = subprocess.run(
            [*apart, sys.executable, "-c", PROGRAM, str(number), str(len(core.points)), str(tree.folder)],
            env=os.environ | {APART: "1"},
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [False, TEST, True, True, [[TEST], 1]]
