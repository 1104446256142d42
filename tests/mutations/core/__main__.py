# SPDX-License-Identifier: Apache-2.0
"""`make mutation`: tries all faults of the C core, or of these files, and says which evidence finds each."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from tests.mutations import kept
from tests.mutations.apart import alone, go_apart, own_shm
from tests.mutations.core.evidence import PYTHON, STAGES, all_evidence
from tests.mutations.core.hunt import SOME_PROGRAMS, SOME_TESTS, Hunt
from tests.mutations.core.tree import KEPT, ROOT, Core, Tree, find
from tests.mutations.pool import say
from tests.mutations.report import SCORE, account, all_found, table, write_section
from tests.mutations.results import RESULTS, Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.point import Point

SECTION = """`make mutation` puts the faults into `cffi_src/src`, and runs the C tests that come to each place.
`tests/mutations/core/README.md` says what the faults are. A fault that survived may not have met all
evidence yet: the runner can be ended at any time, and goes on later. Stages of evidence that were run: {stages}.

{table}"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.core", description=__doc__)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="of cffi_src/src, in this order; all, if none is given"
    )
    parser.add_argument("--stage", action="append", choices=STAGES, help="evidence to run; can be given more than once")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side (default: %(default)s)")
    parser.add_argument("--fault", default="", help="only faults whose text contains this, or whose function is this")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only evidence whose name contains this, which may have changed"
    )
    parser.add_argument("--again", action="store_true", help="forget the results of these faults first")
    parser.add_argument("--report", action="store_true", help="print what is known, and try nothing")
    parser.add_argument("--page", action="store_true", help=f"write {SCORE.relative_to(ROOT)} and {KEPT.name}")
    return parser.parse_args(arguments)


def chosen(core: Core, files: Sequence[str], fault: str) -> list[Point]:
    """The faults that are asked for.

    Raises:
        SystemExit: There is no such file.
    """
    unknown = set(files) - set(core.mutated)
    if unknown:
        message = f"there is no {', '.join(sorted(unknown))} in cffi_src/src"
        raise SystemExit(message)
    wanted = [p for p in core.points if (not files or p.file in files) and (fault in str(p) or fault == p.function)]
    return sorted(wanted, key=lambda point: files.index(point.file)) if files else wanted


def try_all(hunt: Hunt, tree: Tree, points: Sequence[Point], options: argparse.Namespace) -> None:
    """Builds the mutated core and tries these faults."""
    stages = set(options.stage or STAGES[:-1])
    hunt.evidence = [one for one in hunt.evidence if one.stage in stages and options.only in one.name]
    tree.write(hunt.core)
    programs = {one.command[0] for one in hunt.evidence if one.stage != PYTHON}
    if programs:
        tree.build_programs(*sorted(programs))
    if any(one.stage == PYTHON for one in hunt.evidence):
        tree.build_library()
    hunt.look(anew=bool(options.only))
    if options.only:
        hunt.results.forget_passed(one.name for one in hunt.evidence)
    if options.again:
        hunt.results.forget(point.key for point in points)
    hunt.hunt(points)


def write_page(hunt: Hunt) -> None:
    """Writes the page of the documentation, and what is known for the next checkout."""
    known = hunt.known()
    run = set(known.killed.values()).union(*known.passed.values())
    run |= {name.partition("::")[0] for name in run}  # of a test its file
    stages = [stage for stage in STAGES if any(one.stage == stage for one in hunt.evidence if one.name in run)]
    lines = "\n".join(table(hunt.core.points, known, all_files=False))
    write_section(SCORE, "The C core", SECTION.format(stages=", ".join(stages), table=lines))
    kept.write(KEPT, hunt.core.points, known, hunt.passed_by_all(), [SOME_PROGRAMS, SOME_TESTS])


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says. Exit code 0 if no fault that was tried survived."""
    options, tree, core = parse(arguments), Tree(), find()
    points, evidence = chosen(core, options.files, options.fault), list(all_evidence())
    tree.folder.mkdir(parents=True, exist_ok=True)
    results = Results(tree.folder / RESULTS)
    names = {one.name for one in evidence} | {SOME_PROGRAMS, SOME_TESTS}
    kept.read(KEPT, results, lambda name: name in names or name.partition("::")[0] in names)
    results.close()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, initializer=own_shm) as pool:
        hunt = Hunt(tree, core, evidence, pool, options.jobs)
        if options.page:
            write_page(hunt)
            return 0
        if not options.report:
            with alone(tree.folder):
                try_all(hunt, tree, points, options)
    known = hunt.known()
    say("\n".join(account(points, known)))
    return not all_found(points, known)


if __name__ == "__main__":
    go_apart("tests.mutations.core", sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
