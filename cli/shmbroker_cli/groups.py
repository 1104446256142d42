# SPDX-License-Identifier: Apache-2.0
"""Commands about consumer groups: `shmbroker groups ...`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

import shmbroker
from shmbroker_cli.errors import Refused
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, byte_count, print_rows, report
from shmbroker_cli.session import connected

group_commands = typer.Typer(help="List consumer groups, and release those that no process will continue.")


@group_commands.callback(invoke_without_command=True)
def list_groups(context: typer.Context, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the consumer groups, their leased messages, and the processes that have them attached.

    A group without a process, but with messages, is an orphan: if its user is not coming back, release it.
    """
    if context.invoked_subcommand is not None:
        return
    with connected(broker) as connection:
        found = shmbroker.groups(connection)
    columns: list[Column[shmbroker.GroupInfo]] = [
        Column("group", lambda one: one.name),
        Column("queue", lambda one: one.queue),
        Column("acked", lambda one: one.acked),
        Column("leases", lambda one: one.leases),
        Column("messages", lambda one: one.messages),
        Column("bytes", lambda one: byte_count(one.bytes)),
        Column("used", lambda one: datetime.fromtimestamp(one.used_at, UTC).astimezone().strftime("%F %T")),
        Column("process", lambda one: str(one.pid or "gone")),
    ]
    print_rows(found, columns, empty="no groups", as_json=as_json)


@group_commands.command()
def release(
    group: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the group.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Return the leased messages of a group to the end of its queue, and end the group.

    A process that uses the group gets an error at its next use. Messages that it had read and not acknowledged will be
    read again.
    """
    with connected(broker) as connection:
        found = next((one for one in shmbroker.groups(connection) if one.name == group), None)
        if found is None:
            message = f"no group '{group}'"
            raise Refused(message)
        if not yes and not typer.confirm(_question(found), err=True):
            message = f"group '{group}' was not released"
            raise Refused(message)
        taken = shmbroker.Group(connection, found.queue, group)
        taken.attach()
        count = taken.release()
    line = f"{group}: {_messages(count)} returned to {found.queue}"
    report({"group": group, "queue": found.queue, "released": count}, line, as_json=as_json)


def _question(group: shmbroker.GroupInfo) -> str:
    who = f"; process {group.pid} has it" if group.pid else ""
    return f"Return {_messages(group.messages)} of group '{group.name}' to queue '{group.queue}'{who}?"


def _messages(count: int) -> str:
    return f"{count} {'message' if count == 1 else 'messages'}"
