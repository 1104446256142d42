# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo-spark`: from queue to queue through Spark, a driver that gets killed, and a check of the results."""

from dataclasses import asdict
from typing import Annotated

import typer

from shmbroker_cli.demo.files import library, source_files
from shmbroker_cli.demo.serial import run_serially
from shmbroker_cli.demo_spark import needs
from shmbroker_cli.demo_spark.measures import Measures, measure
from shmbroker_cli.demo_spark.report import Report, compare
from shmbroker_cli.demo_spark.run import Drive, run
from shmbroker_cli.errors import REFUSED, Refused
from shmbroker_cli.options import JsonOption
from shmbroker_cli.output import Column, print_facts, print_json, print_table, say
from shmbroker_cli.progress import bar


def _print(report: Report) -> None:
    print_facts(
        {
            "files": report.files,
            "killed": "the driver" if report.killed else "nothing",
            "lost": report.lost,
            "duplicated": report.duplicated,
            "left": ", ".join(f"{count} {kind}" for kind, count in report.left.items()),
            "seconds": f"{report.seconds:.1f} with Spark's start, {report.serial_seconds:.1f} alone",
        }
    )
    columns: list[Column[tuple[int, Drive]]] = [
        Column("driver", lambda one: f"{one[0]}, killed" if one[1].killed else f"{one[0]}"),
        Column("micro-batches", lambda one: one[1].batches),
        Column("run again", lambda one: one[1].again),
        Column("results", lambda one: one[1].results),
        Column("seconds", lambda one: one[1].seconds),
        Column("of a batch", lambda one: one[1].batch_seconds),
    ]
    print_table(enumerate(report.drives, start=1), columns, empty="")
    totals, serial = asdict(report.totals), asdict(report.serial_totals)
    measured: list[Column[str]] = [
        Column("measured", lambda name: name),
        Column("through Spark", lambda name: totals[name]),
        Column("alone", lambda name: serial[name]),
    ]
    print_table(asdict(Measures()), measured, empty="")
    if report.good:
        say("each file once, all totals right, nothing left")


def demo_spark(
    *,
    files: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Use only N files, chosen evenly.", show_default=False)
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no process.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Analyse the standard library in Spark, and kill its driver half-way.

    Exit code 1 unless each file has its result once, all results are those of a serial run, nothing is left behind, and
    the driver was killed (without --no-kill).
    """
    needs.check()
    root = library()
    paths = source_files(root)
    if not paths:
        message = f"no source files in {root}"
        raise Refused(message)
    chosen = min(files or len(paths), len(paths))
    paths = [paths[len(paths) * number // chosen] for number in range(chosen)]
    with bar("Spark", len(paths)) as progress:
        outcome = run(root, paths, kill=not no_kill, progress=progress)
    with bar("alone", len(paths)) as progress:
        serial = run_serially(root, paths, measure, progress)
    report = compare(outcome, serial, to_kill=not no_kill)
    if as_json:
        print_json({**asdict(report), "good": report.good})
    else:
        _print(report)
    if not report.good:
        raise typer.Exit(REFUSED)
