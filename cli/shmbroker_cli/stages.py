# SPDX-License-Identifier: Apache-2.0
"""Commands about what is staged and not yet published: `shmbroker stages ...`."""

from typing import Annotated

import typer

from shmbroker.staging import Stage, StageInfo, stages
from shmbroker_cli.errors import Refused
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, byte_count, print_rows, report
from shmbroker_cli.session import connected

stage_commands = typer.Typer(help="List staged messages, and drop those that will not be published.")


@stage_commands.callback(invoke_without_command=True)
def list_stages(context: typer.Context, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the staged attempts, by publication, batch and partition, with their messages and bytes.

    An attempt is what one writer has staged of one partition of a batch. A publication is a series of batches: those of
    one streaming query of Spark, of all jobs that write to one queue, or of one application, which Spark's write option
    `txnAppId` names.
    """
    if context.invoked_subcommand is not None:
        return
    with connected(broker) as connection:
        found = stages(connection)
    columns: list[Column[StageInfo]] = [
        Column("publication", lambda one: one.publication),
        Column("batch", lambda one: str(one.batch)),
        Column("partition", lambda one: one.partition),
        Column("attempt", lambda one: one.attempt),
        Column("messages", lambda one: one.count),
        Column("bytes", lambda one: byte_count(one.bytes)),
    ]
    print_rows(found, columns, empty="nothing is staged", as_json=as_json)


@stage_commands.command()
def drop(
    publication: Annotated[
        str, typer.Argument(metavar="PUBLICATION", show_default=False, help="Name of the publication.")
    ],
    *,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="B", show_default=False, help="Only this batch: its number, or a job's id."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Drop the staged messages of a publication for good; published messages stay.

    A batch that is published in part is not dropped. Its publisher was killed, or stopped with an error, and the next
    publisher of this batch needs the rest. A writer's attempt that begins during the command stays, too.
    """
    with connected(broker) as connection:
        found = _staged(stages(connection, publication), batch)
        if not found:
            message = f"nothing is staged for '{publication}'{_of(batch)}"
            raise Refused(message)
        if not yes and not typer.confirm(_question(found, publication, batch), err=True):
            message = f"what is staged for '{publication}'{_of(batch)} was not dropped"
            raise Refused(message)
        stage = Stage(connection, publication)
        dropped = sum(stage.drop(one) for one in dict.fromkeys(attempt.batch for attempt in found))
        kept = {attempt.batch for attempt in found} & {attempt.batch for attempt in stages(connection, publication)}
    if kept:
        which = ", ".join(sorted(map(str, kept)))
        message = f"'{publication}': batch {which} is published in part, or still written to: it was not dropped"
        raise Refused(message)
    line = f"{publication}: {dropped} {'attempt' if dropped == 1 else 'attempts'} dropped"
    report({"publication": publication, "batch": batch, "dropped": dropped}, line, as_json=as_json)


def _staged(found: list[StageInfo], batch: str | None) -> list[StageInfo]:
    return [one for one in found if batch is None or str(one.batch) == batch.lower()]


def _of(batch: str | None) -> str:
    return f", batch {batch}" if batch is not None else ""


def _question(found: list[StageInfo], publication: str, batch: str | None) -> str:
    count = sum(one.count for one in found)
    return f"Drop {count} {'message' if count == 1 else 'messages'} staged for '{publication}'{_of(batch)}, for good?"
