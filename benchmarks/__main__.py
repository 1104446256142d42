# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`, and the entry of `shmbroker bench`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from benchmarks import machine, report
from benchmarks.harness import DEFAULT_RUNS, QUICK_RUNS, Settings, as_json, measure
from benchmarks.heap import keep_heap
from benchmarks.plan import plan, unknown
from benchmarks.topologies import TOPOLOGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.harness import Result

RESULTS = Path(__file__).parent / "results"
FORMAT = 1
PROGRESS_WIDTH = 78


def _runs(text: str) -> int:
    runs = int(text)
    if runs < 1:
        message = f"{runs} is not a number of runs"
        raise argparse.ArgumentTypeError(message)
    return runs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure shmbroker, and its peers in the same run.",
    )
    add = parser.add_argument
    add("--peers", action="store_true", help="run the peers as well, interleaved")
    add(
        "--quick",
        action="store_true",
        help=f"short runs, {QUICK_RUNS} of each: to see that it works, not to quote",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a measurement, topology or peer (patterns allowed); may be repeated",
    )
    add("--runs", type=_runs, help=f"runs of each contender (default {DEFAULT_RUNS})")
    add("--json", type=Path, metavar="FILE", help="where to write the results")
    add("--list", action="store_true", help="print the topologies and their targets")
    return parser


def _list(out: TextIO) -> None:
    for topology in TOPOLOGIES.values():
        print(f"{topology.name}: {topology.description}", file=out)
        print(f"    computed: {topology.computed}", file=out)
        for name, targets in topology.targets.items():
            wanted = " and ".join(target.text for target in targets) or "no target"
            print(f"    in {name}: {wanted}", file=out)


def _progress(stream: TextIO) -> Callable[[str], None]:
    """Return a function that shows what is being done, on a terminal only."""

    def show(line: str) -> None:
        if stream.isatty():
            stream.write("\r" + line[:PROGRESS_WIDTH].ljust(PROGRESS_WIDTH))
            stream.write("\r" if not line else "")
            stream.flush()

    return show


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks.

    Args:
        argv: Arguments, without the program's name; those of the process if None.

    Returns:
        0 if something ran and every run verified its own result, else 1; 2 if the
        arguments are wrong.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as request:  # argparse has said what is wrong
        return int(request.code or 0)
    out = sys.stdout
    if options.list:
        _list(out)
        return 0
    strange = unknown(options.only)
    if strange:
        sys.stderr.write(f"no such name: {', '.join(strange)} (see --list)\n")
        return 2
    runs = options.runs or (QUICK_RUNS if options.quick else DEFAULT_RUNS)
    settings = Settings(runs=runs, quick=options.quick, peers=options.peers)
    now = datetime.now(UTC)
    stem = now.strftime("%Y%m%dT%H%M%SZ")
    path = options.json or RESULTS / f"{stem}.json"
    keep_heap()
    with _ending_in_order():
        results, complete = _run(settings, options.only, path, now, out)
    return 0 if complete and _verified(results) else 1


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Make SIGTERM an exception meanwhile, so that brokers and servers are cleaned up."""

    def interrupt(number: int, frame: object) -> NoReturn:  # noqa: ARG001 (the signature of a handler)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _verified(results: Sequence[Result]) -> bool:
    """Return whether something ran, and nothing that ran went wrong."""
    statuses = {one.status for result in results for one in result.outcomes}
    return "ok" in statuses and statuses <= {"ok", "not run"}


def _run(settings: Settings, only: Sequence[str], path: Path, now: datetime, out: TextIO) -> tuple[list[Result], bool]:
    measurements = plan(settings, only)
    needed = max((one.processes for one in measurements), default=0)
    warnings = machine.warnings(needed)
    if settings.quick or settings.runs < DEFAULT_RUNS:
        warnings.append("a quick run: its numbers are not to be quoted")
    facts = machine.describe()
    print(", ".join(f"{name}: {value}" for name, value in facts.items()), file=out)
    for warning in warnings:
        print(f"warning: {warning}", file=out)
    progress = _progress(sys.stderr)
    results: list[Result] = []
    with contextlib.suppress(KeyboardInterrupt):
        for measurement in measurements:
            result = measure(measurement, settings.runs, progress)
            results.append(result)
            progress("")
            print(f"\n{report.text(result)}", file=out, flush=True)
    complete = len(results) == len(measurements)
    if not results:
        return results, complete
    document = {
        "format": FORMAT,
        "taken": now.isoformat(timespec="seconds"),
        "complete": complete,
        "machine": facts,
        "versions": machine.versions(),
        "settings": dataclasses.asdict(settings),
        "warnings": warnings,
        "measurements": [as_json(result) for result in results],
    }
    report.write_json(path, document)
    goals = report.goals(results)
    tables = "\n\n".join([*(report.text(result) for result in results), *([goals] if goals else [])])
    path.with_suffix(".txt").write_text(tables + "\n", "utf-8")
    if goals:
        print(f"\n{goals}", file=out)
    print(f"\nresults: {path.name}", file=out)
    print(report.plot(path.with_suffix(".png"), results), file=out)
    return results, complete


if __name__ == "__main__":
    sys.exit(main())
