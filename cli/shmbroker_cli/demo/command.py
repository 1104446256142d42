# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: real work, real kills, and a check that nothing is missing."""

from dataclasses import asdict
from typing import Annotated

import typer

from shmbroker_cli.demo.analysis import Counts, count
from shmbroker_cli.demo.files import library, source_files
from shmbroker_cli.demo.progress import bar
from shmbroker_cli.demo.report import Report, compare
from shmbroker_cli.demo.run import run
from shmbroker_cli.demo.serial import run_serially
from shmbroker_cli.errors import REFUSED, Refused
from shmbroker_cli.options import JsonOption
from shmbroker_cli.output import (
    Column,
    print_facts,
    print_json,
    print_table,
    say,
)


def _print(report: Report) -> None:
    print_facts(
        {
            "files": report.files,
            "killed": ", ".join(report.killed) or "nothing",
            "lost": report.lost,
            "duplicated": f"{report.duplicated} (counted once)",
            "redelivered": report.redelivered,
            "messages/s": report.messages_per_second,
            "speed-up": f"{report.speed_up:.2f} with {report.workers} workers "
            f"({report.serial_seconds:.1f} s alone, {report.seconds:.1f} s together)",
        }
    )
    totals, serial = asdict(report.totals), asdict(report.serial_totals)
    columns: list[Column[str]] = [
        Column("counted", lambda name: name),
        Column("through the broker", lambda name: totals[name]),
        Column("alone", lambda name: serial[name]),
    ]
    print_table(asdict(Counts()), columns, empty="")
    if report.good:
        say("nothing lost, all counts right")


def demo(
    *,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Worker processes.")] = 4,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no process.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Analyse the standard library in worker processes, and kill some half-way.

    Exit code 1 if a file was lost or the totals differ from a serial run.
    """
    root = library()
    paths = source_files(root)
    if not paths:
        message = f"no source files in {root}"
        raise Refused(message)
    with bar("workers", len(paths)) as progress:
        outcome = run(root, paths, workers=workers, kill=not no_kill, progress=progress)
    with bar("alone", len(paths)) as progress:
        serial = run_serially(root, paths, count, progress)
    report = compare(outcome, serial, workers)
    if as_json:
        print_json({**asdict(report), "good": report.good})
    else:
        _print(report)
    if not report.good:
        raise typer.Exit(REFUSED)
