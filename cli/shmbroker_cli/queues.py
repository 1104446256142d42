# SPDX-License-Identifier: Apache-2.0
"""Commands about queues: `shmbroker queue ...`."""

import dataclasses
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker._system_queues import schemas
from shmbroker_cli import managing, queue_memory
from shmbroker_cli.options import BrokerOption, JsonOption, QueueArgument, SelectorOption
from shmbroker_cli.output import (
    Column,
    byte_count,
    exact_seconds,
    print_facts,
    print_json,
    print_rows,
    print_table,
    report,
    say,
)
from shmbroker_cli.session import connected, opened
from shmbroker_cli.setting_options import Settings, with_settings

queue_commands = typer.Typer(help="Make, show and change queues.")

Statistics = shmbroker.QueueStatistics


@queue_commands.command()
@with_settings(fixed=True)
def create(
    queue: QueueArgument,
    settings: Settings,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a queue; if it exists, it must have the given settings."""
    with connected(broker) as connection:
        existed = queue in connection.queue_names()
        made = connection.queue(queue, **settings)
        if as_json:
            print_json({"queue": queue, "settings": made.settings})
        else:
            say(f"{queue}: {'existed already' if existed else 'created'}")


@queue_commands.command("list")
def list_queues(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Include the broker's own queues, such as leases of groups.")
    ] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the queues with their messages, bytes and consumers."""
    with connected(broker) as connection:
        found = connection.queue_statistics(all=everything)
    columns: list[Column[Statistics]] = [
        Column("queue", lambda one: one.name),
        Column("ready", lambda one: one.ready),
        Column("delivering", lambda one: one.delivering),
        Column("scheduled", lambda one: one.scheduled),
        Column("bytes", lambda one: one.bytes),
        Column("consumers", lambda one: one.consumers),
        Column("added", lambda one: one.added),
        Column("acked", lambda one: one.acked),
    ]
    print_rows(found, columns, empty="no queues", as_json=as_json)


@queue_commands.command()
def show(queue: QueueArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Show a queue's settings and counters."""
    with opened(broker, queue) as found:
        settings, statistics = found.settings, found.statistics()
        paused, persists = found.paused, found.pause_persists
        schema = schemas.registered(found)
    if as_json:
        print_json(
            {
                "queue": queue,
                "paused": paused,
                "pause_persists": persists,
                "settings": settings,
                "statistics": statistics,
                "arrow_schema": None if schema is None else schema.text,
            }
        )
        return
    facts: dict[str, Any] = dataclasses.asdict(statistics)
    facts.pop("name")
    facts.pop("memory")
    facts["bytes"] = byte_count(statistics.bytes)
    if statistics.memory is not None:
        facts |= queue_memory.shown(statistics.memory)
    batches = {} if schema is None else {"arrow_schema": schema.text}
    shown = "yes, also after a restart" if persists else paused
    print_facts({"queue": queue, "paused": shown, **_shown_settings(settings), **facts, **batches})


def _shown_settings(settings: shmbroker.QueueSettings) -> dict[str, Any]:
    """Return the settings as people like to read them: times to the millisecond, which is what a queue keeps."""
    found = dataclasses.asdict(settings)
    return {name: exact_seconds(value) if isinstance(value, float) else value for name, value in found.items()}


@dataclasses.dataclass(frozen=True)
class _Group:
    """The messages with one value of a property or header, as a line of a table.

    Attributes:
        value: The value; None: the messages do not have it.
        count: How many they are.
    """

    value: Any
    count: int

    @property
    def text(self) -> str:
        """The value as a table shows it."""
        value = self.value
        return "-" if value is None else value if isinstance(value, str) else str(value)


@queue_commands.command("count")
def count_messages(
    queue: QueueArgument,
    *,
    selector: SelectorOption = None,
    group_by: Annotated[
        str | None,
        typer.Option("--group-by", metavar="NAME", show_default=False, help="Count by this property or header."),
    ] = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Count a queue's ready messages, all or those that a selector selects."""
    if group_by is None:
        with opened(broker, queue) as found:
            total = found.count(selector=selector)
        report({"queue": queue, "count": total}, f"{queue}: {managing.messages(total)}", as_json=as_json)
        return
    with opened(broker, queue) as found:
        groups = [_Group(*one) for one in found.count(selector=selector, group_by=group_by).items()]
    if as_json:
        print_json({"queue": queue, "group_by": group_by, "groups": groups})
        return
    columns: list[Column[_Group]] = [
        Column(group_by, lambda one: one.text),
        Column("messages", lambda one: one.count),
    ]
    print_table(groups, columns, empty=f"{queue}: no messages")


@queue_commands.command("set")
@with_settings(fixed=False)
def configure(
    queue: QueueArgument,
    settings: Settings,
    *,
    trim: Annotated[bool, typer.Option("--trim", help="Shrink a ring immediately, not as it drains.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change settings of a queue."""
    if not settings and not trim:
        message = "give at least one setting to change"
        raise typer.BadParameter(message)
    with opened(broker, queue) as found:
        found.configure(trim=trim, **settings)
        changed = found.settings
    if as_json:
        print_json({"queue": queue, "settings": changed})
    else:
        print_facts({"queue": queue, **_shown_settings(changed)})


@queue_commands.command()
def delete(
    queue: QueueArgument,
    *,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only if it has no consumer.")] = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if it has no message.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Delete a queue with its messages."""
    with opened(broker, queue) as found:
        count = found.delete(if_unused=if_unused, if_empty=if_empty)
    managing.report_count(queue, "deleted", count, as_json=as_json)


@queue_commands.command()
def pause(
    queue: QueueArgument,
    *,
    persist: Annotated[bool, typer.Option("--persist", help="Also after a restart, if the queue is on disk.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Stop deliveries from a queue; publishing continues."""
    with opened(broker, queue) as found:
        found.pause(persist=persist)
        persists = found.pause_persists
    text = f"{queue}: paused, also after a restart" if persists else f"{queue}: paused"
    report({"queue": queue, "paused": True, "pause_persists": persists}, text, as_json=as_json)


@queue_commands.command()
def resume(queue: QueueArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Start deliveries from a paused queue again."""
    with opened(broker, queue) as found:
        found.resume()
    report({"queue": queue, "paused": False}, f"{queue}: resumed", as_json=as_json)


for _command in managing.COMMANDS:
    queue_commands.command(_command.__name__.replace("_", "-"))(_command)
