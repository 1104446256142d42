# SPDX-License-Identifier: Apache-2.0
"""The protocols of the core, searched by Spin."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.check import runs_of
from tests.models.mirrors import line_of, mirrored

CHECK = Path(__file__).with_name("check.py")
MODELS = sorted(path.name for path in CHECK.parent.glob("*.pml"))


@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("spin") is None, reason="there is no spin (on Debian: apt install spin)")
@pytest.mark.parametrize("model", MODELS)
def test_model(model: str) -> None:
    """Quick searches end as they should: exhausted without errors, or with one where a rule is taken away.

    They come to as many states as the README says, so that its figures are those of the model as it is.
    """
    command = [sys.executable, str(CHECK), str(CHECK.with_name(model))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    readme = CHECK.with_name("README.md").read_text("utf-8")
    found = re.findall(r"pml (\S.*?): errors: 0, exhausted, ([0-9,]+) states", done.stdout)
    rows = [f"| `{model}` | `{options.replace('-D', '')}` | quick | {states} |" for options, states in found]
    assert rows
    assert [row for row in rows if row not in readme] == []


@pytest.mark.parametrize("model", MODELS)
def test_the_readme_has_each_search(model: str) -> None:
    """With its states, or among those that were not run to their end."""
    readme = " ".join(CHECK.with_name("README.md").read_text("utf-8").split())
    searches = [run for run in runs_of(CHECK.with_name(model)) if run.kind in {"quick", "full"}]
    assert searches
    options = [" ".join(one[2:] for one in run.options if one.startswith("-D")) for run in searches]
    texts = (f"`{model}` | `{one}` |" for one in options), (f"`{model}` `{one}`" for one in options)
    assert [row for row, named in zip(*texts, strict=True) if row not in readme and named not in readme] == []


@pytest.mark.parametrize("model", MODELS)
def test_what_a_model_mirrors_is_there(model: str) -> None:
    """Each function that the comment at its top names stands in that file of the core."""
    functions = mirrored(CHECK.with_name(model))
    assert len(functions) > 5
    assert [function for function in functions if line_of(*function) is None] == []
