# SPDX-License-Identifier: Apache-2.0
"""Evidence: the programs and tests that can find a fault, in stages, and one run of them."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations.core.tree import ROOT, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

STAGES = ("quick", "kills", "orders", "long", "python")
TABLE = re.compile(
    r"^(?:static )?const (?:test_case CASES|operation OPERATIONS|scenario SCENARIOS)\[\] = \{(.*?)^\};",
    re.DOTALL | re.MULTILINE,
)
ENTRY = re.compile(r'^    \{"([^"]+)",', re.MULTILINE)
NO_STEP = "100000"  # the operation comes back before: what it leaves is looked at all the same
SAMPLE = "29"  # one step of so many is killed
MOST = "300"  # schedules of a scenario
RUNS = "100"  # random ones
SHM = Path("/dev/shm")  # noqa: S108 -- the runner has mounted one of its own
APART = "SHMBROKER_MUTATION_APART"
CONTROL_FACTOR, CONTROL_SECONDS = 8, 6.0


@dataclass(frozen=True)
class Evidence:
    """One run that passes on the core as it is.

    Args:
        name: What the results call it.
        stage: One of STAGES.
        command: The program of the C tests and its arguments, or a file of Python tests.
    """

    name: str
    stage: str
    command: tuple[str, ...]


def _entries(*patterns: str) -> list[str]:
    texts = [
        path.read_text(encoding="utf-8")
        for pattern in patterns
        for path in sorted((ROOT / "tests" / "c").glob(pattern))
    ]
    return [name for text in texts for table in TABLE.findall(text) for name in ENTRY.findall(table)]


def all_evidence() -> Iterator[Evidence]:
    """All there is, stage by stage."""
    cases, operations, scenarios = _entries("interleavings/*.c"), _entries("operations.c"), _entries("races/*.c")
    for name in scenarios:
        yield Evidence(f"races -kind plain '{name}'", "quick", ("races", "-kind", "plain", name))
    for name in operations:
        yield Evidence(f"kill_at_step '{name}', no kill", "quick", ("kill_at_step", name, NO_STEP))
    for name in cases:
        yield Evidence(f"interleavings '{name}'", "quick", ("interleavings", name))
    for name in operations:
        yield Evidence(f"kill_at_step -every {SAMPLE} '{name}'", "kills", ("kill_at_step", "-every", SAMPLE, name))
    for kind in ("orders", "delays", "random", "kills"):
        for name in scenarios:
            bounds = ("-most", MOST, "-random", RUNS)
            yield Evidence(f"races -kind {kind} '{name}'", "orders", ("races", *bounds, "-kind", kind, name))
    yield Evidence("segments", "long", ("segments",))
    yield Evidence("stress 100", "long", ("stress", "100"))
    yield Evidence("fuzz -count 20", "long", ("fuzz", "-count", "20"))
    for folder in ("unit", "scenarios", "property"):
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            name = str(path.relative_to(ROOT))
            yield Evidence(name, "python", (name,))


@dataclass(frozen=True)
class Run:
    """How a run ended: `passed`, or it failed, or took longer than `limit` seconds."""

    passed: bool
    hung: bool
    seconds: float


class Runner:
    """Runs evidence on the mutated core, in the namespace of this process.

    Args:
        tree: The folder that holds the programs.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def run(self, evidence: Evidence, *, mutant: int = 0, seen: Path | None = None, limit: float = 600.0) -> Run:
        """Runs it once, with this fault or none; what it leaves is removed."""
        environment = os.environ | {"SB_MUTANT": str(mutant)}
        if seen is not None:
            environment["SB_MUTANT_SEEN"] = str(seen)
        command = [str(self.tree.programs / evidence.command[0]), *evidence.command[1:]]
        if evidence.stage == "python":
            environment["LD_LIBRARY_PATH"] = str(self.tree.library.parent)
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
            command += evidence.command
        begin, hung = time.monotonic(), False
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_limit,  # noqa: PLW1509 -- this process has one thread
        ) as process:
            try:
                process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                hung = True
            _end(process.pid)
        _clear()
        return Run(process.returncode == 0 and not hung, hung, time.monotonic() - begin)

    def finds(self, evidence: Evidence, mutant: int, seconds: float) -> bool:
        """Whether it fails with this fault, or does not end.

        A run that takes too long is compared with one without a fault, so that a busy machine finds nothing.

        Args:
            evidence: What is run.
            mutant: The number of the fault.
            seconds: How long it took without a fault.
        """
        limit = CONTROL_FACTOR * seconds + CONTROL_SECONDS
        run = self.run(evidence, mutant=mutant, limit=limit)
        while run.hung and self.run(evidence, limit=limit).seconds > limit / 2:
            limit *= 4
            run = self.run(evidence, mutant=mutant, limit=limit)
        return not run.passed


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end(group: int) -> None:
    """Ends what a run has started, stopped processes too."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _clear() -> None:
    if os.environ.get(APART):
        for path in SHM.iterdir():
            path.unlink(missing_ok=True)


def go_apart(arguments: list[str]) -> None:
    """Starts this program again with a /dev/shm of its own, at the lowest priority; returns there.

    Raises:
        OSError: The system has no `unshare`.
    """
    if os.environ.get(APART):
        return
    os.environ[APART] = "1"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = f'mount -t tmpfs -o size=2g tmpfs {SHM} && exec nice -n 19 "$@"'
    command = ["unshare", "--mount", *user, "sh", "-c", mount, "sh", sys.executable, "-m", "tests.mutations.core"]
    os.execvp("unshare", [*command, *arguments])  # noqa: S606, S607
