# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: real work, real kills, and a check that nothing is missing."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shmbroker_cli.demo.analysis import Counts, count
from shmbroker_cli.demo.files import WITH_TEXTS, library, source_files
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
from shmbroker_cli.progress import bar

if TYPE_CHECKING:
    from shmbroker_cli.demo.left import Rejected


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
            "urgent": f"{report.urgent:,}, sent last; {report.overtaken:,} others were done after all of them",
            "log": f"{report.left.lines:,} lines, of which a ring kept the last {len(report.left.last_lines)}",
        }
    )
    totals, serial = asdict(report.totals), asdict(report.serial_totals)
    columns: list[Column[str]] = [
        Column("counted", lambda name: name),
        Column("through the broker", lambda name: totals[name]),
        Column("alone", lambda name: serial[name]),
    ]
    print_table(asdict(Counts()), columns, empty="")
    print_table(report.left.last_lines, [Column("last lines of the log", str)], empty="")
    dead: list[Column[Rejected]] = [
        Column("dead letters", lambda one: one.path),
        Column("reason", lambda one: one.reason),
        Column("what the parser said", lambda one: one.why),
    ]
    print_table(report.left.rejected, dead, empty="no dead letters")
    if report.good:
        say("nothing lost, all counts right, and what cannot be parsed put aside")


def demo(
    *,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Worker processes.")] = 4,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no process.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Analyse the standard library in worker processes, and kill some half-way.

    Urgent files are sent last and done first, files that cannot be parsed become dead letters, and a ring keeps the
    last lines of the log.

    Exit code 1 if a file was lost, the totals differ from a serial run, or a wrong file is a dead letter.
    """
    root = library()
    paths = source_files(root, WITH_TEXTS)
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
