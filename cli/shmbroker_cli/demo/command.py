# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: real work, real kills, and a check that nothing is missing."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shmbroker_cli.demo.analysis import Counts, count
from shmbroker_cli.demo.files import WITH_TEXTS, library, source_files
from shmbroker_cli.demo.report import Report, compare
from shmbroker_cli.demo.restart.plan import DEEP
from shmbroker_cli.demo.restart.run import restart
from shmbroker_cli.demo.run import run
from shmbroker_cli.demo.serial import run_serially
from shmbroker_cli.errors import REFUSED, Refused
from shmbroker_cli.options import JsonOption
from shmbroker_cli.output import (
    Column,
    byte_count,
    print_facts,
    print_json,
    print_table,
    say,
)
from shmbroker_cli.progress import bar

if TYPE_CHECKING:
    from shmbroker_cli.demo.left import Rejected
    from shmbroker_cli.demo.restart.report import Restart


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


def _print_restart(found: "Restart") -> None:
    killed = (f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in found.killed.items())
    say("")
    print_facts(
        {
            "killed": ", ".join(killed),
            "begun again": f"in {found.seconds:.1f} s, from the disk alone",
            "deepest queue": f"{byte_count(found.deepest)} of messages, in {byte_count(found.memory)} of memory",
            "confirmed": f"{found.confirmed:,}, of which {found.acknowledged:,} were acknowledged",
            "there": f"{found.there:,}, of which {found.due:,} had to be there",
            "lost": found.lost,
            "twice": found.twice,
            "came back": f"{found.came_back} that were acknowledged",
            "misplaced": found.misplaced,
            "transactions": f"{found.transactions:,} over two queues, {found.halves} in part",
            "topology": "queues, settings and bindings as before" if found.topology else "another one",
        }
    )
    if found.unknown:
        say(f"{found.unknown:,} messages that no producer put")
    if found.good:
        say("all that was confirmed and not acknowledged came back from the disk, once and in order")


def demo(
    *,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Worker processes.")] = 4,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill no process, and restart no broker.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Analyse the standard library in worker processes, and kill some half-way.

    Urgent files are sent last and done first, files that cannot be parsed become dead letters, and a ring keeps the
    last lines of the log.

    In the end all processes of another broker, which has a store, are killed, and it begins again from the disk alone.

    Exit code 1 if a file was lost, the totals differ from a serial run, a wrong file is a dead letter, or what came
    back from the disk is not what had to be there.
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
    if not as_json:
        _print(report)
    restarted = None if no_kill else _restart()
    good = report.good and (restarted is None or restarted.good)
    if as_json:
        print_json({**asdict(report), "restart": restarted and asdict(restarted), "good": good})
    elif restarted is not None:
        _print_restart(restarted)
    if not good:
        raise typer.Exit(REFUSED)


def _restart() -> "Restart":
    with bar("restart", DEEP) as progress:
        return restart(progress)
