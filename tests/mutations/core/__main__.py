# SPDX-License-Identifier: Apache-2.0
"""`make mutation`: tries all faults of the C core, or of these files, and says which evidence finds each."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.mutations.core.equivalents import equivalents
from tests.mutations.core.evidence import STAGES, Evidence, Runner, all_evidence, go_apart
from tests.mutations.core.report import PAGE, Known, survivors, table
from tests.mutations.core.results import Results
from tests.mutations.core.tree import ROOT, Core, Tree, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutations.core.points import Point

SCORE = ROOT / "docs" / "explanation" / "mutation-score.md"


def say(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Hunt:
    """Faults, the evidence that reaches each, and what is known of them.

    Args:
        tree: Where programs and results are.
        core: All faults.
        evidence: What is run.
    """

    def __init__(self, tree: Tree, core: Core, evidence: Sequence[Evidence]) -> None:
        self.tree, self.core, self.evidence = tree, core, evidence
        self.numbers = {point.key: number for number, point in enumerate(core.points, 1)}
        self.runner = Runner(tree)
        self.results = Results(tree.folder / "results.sqlite")
        self.equivalent = equivalents(core.points)
        self.reach: dict[str, tuple[float, bytes]] = {}
        files = {point.key: point.file for point in core.points}
        found_in = [(files.get(key), name) for key, name in self.results.killed_by().items()]
        self.merits = Counter(found_in)  # how much this evidence found in this file
        for one in evidence:
            found = self.results.reach(core.digest, one.name)
            if found is not None:
                self.reach[one.name] = found

    def look(self) -> None:
        """Runs all evidence once without a fault, to see what it reaches and how long it takes.

        Raises:
            RuntimeError: It fails without any fault.
        """
        for one in self.evidence:
            if one.name not in self.reach:
                seen = self.tree.folder / "seen"
                seen.unlink(missing_ok=True)
                run = self.runner.run(one, seen=seen)
                if not run.passed:
                    message = f"{one.name} fails without any fault"
                    raise RuntimeError(message)
                self.reach[one.name] = (run.seconds, seen.read_bytes())
                self.results.set_reach(self.core.digest, one.name, *self.reach[one.name])

    def reaching(self, point: Point) -> list[Evidence]:
        """The evidence that comes to this place: of each stage the cheapest first, for what it found in this file."""
        number = self.numbers[point.key]
        able = [one for one in self.evidence if one.name in self.reach and self.reach[one.name][1][number]]

        def price(one: Evidence) -> tuple[int, float]:
            return STAGES.index(one.stage), self.reach[one.name][0] / (1 + self.merits[point.file, one.name])

        return sorted(able, key=price)

    def known(self) -> Known:
        """What is known by now."""
        results = self.results
        return Known(results.killed_by(), results.passed(), self.equivalent, results.unreached())

    def attempt(self, point: Point, passed: set[str], budget: float) -> str:
        """Runs what reaches the fault until something finds it or the time is up; says how that ended."""
        end = time.monotonic() + budget
        able = [one for one in self.reaching(point) if one.name not in passed]
        for one in able:
            if time.monotonic() > end:
                break
            found = self.runner.finds(one, self.numbers[point.key], self.reach[one.name][0])
            self.results.add(point.key, one.name, found=found)
            if found:
                self.merits[point.file, one.name] += 1
                return f"killed by {one.name}"
        if able or passed:
            return "SURVIVED"
        self.results.add_unreached(point.key)
        return "UNREACHED"

    def hunt(self, points: Sequence[Point], budget: float) -> None:
        """Tries those of these faults that were not found yet."""
        killed, passed = self.results.killed_by(), self.results.passed()
        for point in points:
            if point.key in killed or point.key in self.equivalent:
                continue
            begin = time.monotonic()
            ending = self.attempt(point, passed.get(point.key, set()), budget)
            say(f"{point.file}:{point.line} {point.function}: {point}: {ending} {time.monotonic() - begin:.1f} s")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.core", description=__doc__)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="of cffi_src/src, in this order; all, if none is given"
    )
    parser.add_argument("--stage", action="append", choices=STAGES, help="evidence to run; can be given more than once")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds that are spent on one fault at most")
    parser.add_argument("--fault", default="", help="only faults whose text contains this, or whose function is this")
    parser.add_argument("--again", action="store_true", help="forget the results of these faults first")
    parser.add_argument("--report", action="store_true", help="print what is known, and try nothing")
    parser.add_argument("--page", action="store_true", help=f"write {SCORE.relative_to(ROOT)}, and try nothing")
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


def try_all(hunt: Hunt, points: Sequence[Point], stages: set[str], options: argparse.Namespace) -> None:
    """Builds the mutated core and tries these faults."""
    hunt.evidence = [one for one in hunt.evidence if one.stage in stages]
    hunt.tree.write(hunt.core)
    hunt.tree.build_programs()
    if "python" in stages:
        hunt.tree.build_library()
    hunt.look()
    if options.again:
        hunt.results.forget(point.key for point in points)
    hunt.hunt(points, options.budget)


def write_page(hunt: Hunt) -> None:
    """Writes the page of the documentation."""
    known = hunt.known()
    run = set(known.killed.values()).union(*known.passed.values())
    stages = [stage for stage in STAGES if any(one.stage == stage for one in hunt.evidence if one.name in run)]
    lines = "\n".join(table(hunt.core.points, known, all_files=False))
    SCORE.write_text(PAGE.format(stages=", ".join(stages), table=lines), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Does what the command line says. Exit code 0 if no fault that was tried survived."""
    options, tree, core = parse(arguments), Tree(), find()
    points = chosen(core, options.files, options.fault)
    tree.folder.mkdir(parents=True, exist_ok=True)
    hunt = Hunt(tree, core, list(all_evidence()))
    if options.page:
        write_page(hunt)
        return 0
    if not options.report:
        with tree.alone():
            try_all(hunt, points, set(options.stage or STAGES[:-1]), options)
    known = hunt.known()
    say("\n".join(survivors(points, known)))
    say("\n".join(table(points, known, all_files=True)))
    refuted = [point for point in points if point.key in known.equivalent and point.key in known.killed]
    for point in refuted:
        say(f"{point.file} {point.function}: {point} is no equivalent: {known.killed[point.key]} finds it")
    return bool(refuted) or any(known.outcome(point) in {"survived", "unreached"} for point in points)


if __name__ == "__main__":
    go_apart(sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
