# SPDX-License-Identifier: Apache-2.0
"""`make mutation-package`: tries all faults of the package, or of these files, and says which test finds each."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutations import kept
from tests.mutations.apart import alone, go_apart
from tests.mutations.equivalents import equivalents
from tests.mutations.package.hunt import SOME_TESTS, Hunt
from tests.mutations.package.points import points_of
from tests.mutations.package.survey import STAGES, Surveys, files_of
from tests.mutations.package.workshop import ROOT, begin, left_behind, snapshot, texts
from tests.mutations.pool import say
from tests.mutations.report import SCORE, account, all_found, table, write_section
from tests.mutations.results import RESULTS, Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.point import Point

FOLDER = ROOT / "build" / "mutation-package"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
KEPT = Path(__file__).with_name("known.txt")
SECTION = """`make mutation-package` puts the faults into `shmbroker/`, `cli/` and `pyspark_shmbroker/`, and runs the
tests that come to the statement. A fault that survived has met tests of at most `--budget` seconds, the cheapest first.
`tests/mutations/package/README.md` says what the faults are.

{table}"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.package", description=__doc__)
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="as shmbroker/_housekeeper/auto_delete.py or 'shmbroker/leasing/*'; all, if none is given",
    )
    parser.add_argument("--stage", action="append", choices=STAGES, help="tests to run; can be given more than once")
    parser.add_argument("--tests", action="append", metavar="PATTERN", help="only these files of tests: tests/unit/*")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of tests for a fault (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side (default: %(default)s)")
    parser.add_argument("--fault", default="", help="only faults whose text contains this, or whose function is this")
    parser.add_argument("--again", action="store_true", help="forget the results of these faults first")
    parser.add_argument("--report", action="store_true", help="print what is known, and try nothing")
    parser.add_argument("--page", action="store_true", help=f"write {SCORE.relative_to(ROOT)} and {KEPT.name}")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are (default: %(default)s)")
    return parser.parse_args(arguments)


def chosen(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The files that are asked for, in that order.

    Raises:
        SystemExit: No file has such a name.
    """
    wanted: dict[str, None] = {}
    for pattern in patterns or ["*"]:
        fitting = [name for name in files if fnmatch(name, pattern)]
        if not fitting:
            message = f"there is no {pattern}"
            raise SystemExit(message)
        wanted.update(dict.fromkeys(fitting))
    return list(wanted)


def try_all(hunt: Hunt, points: Sequence[Point], options: argparse.Namespace) -> None:
    """Surveys the tests, and tries these faults."""
    copy = options.folder.absolute() / "copy"
    left_behind(copy.parent)
    snapshot(copy)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, initializer=begin, initargs=(copy,)) as pool:
        hunt.look(pool, options.jobs)
        hunt.hunt(points, pool, options.jobs, options.budget)
    left_behind(copy.parent)


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says. Exit code 0 if no fault that was tried survived."""
    options, package = parse(arguments), texts()
    files = chosen(list(package), options.files)
    every = [point for name in files for point in points_of(name, package[name])]
    points = [p for p in every if options.fault in str(p) or options.fault == p.function]
    options.folder.mkdir(parents=True, exist_ok=True)
    results = Results(options.folder / RESULTS)
    kept.read(KEPT, results)
    stages = options.stage or list(STAGES)[:2]
    tests = [name for stage in STAGES if stage in stages for name in files_of(stage)]
    tests = chosen(tests, options.tests) if options.tests else tests
    surveys = Surveys(results.file, package, files)
    hunt = Hunt(surveys, results, equivalents(every, EQUIVALENT, files), tests)
    if options.page:
        lines = "\n".join(table(every, hunt.known(), all_files=False))
        write_section(SCORE, "The package", SECTION.format(table=lines))
        kept.write(KEPT, every, hunt.known(), passed_by_some=[SOME_TESTS])
        return 0
    if not options.report:
        with alone(options.folder):
            if options.again:
                results.forget(point.key for point in points)
            try_all(hunt, points, options)
    known = hunt.known()
    say("\n".join(account(points, known)))
    return not all_found(points, known)


if __name__ == "__main__":
    go_apart("tests.mutations.package", sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
