# SPDX-License-Identifier: Apache-2.0
"""Commands about queues: `shmbroker queue ...`."""

import dataclasses
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker._system_queues import schemas
from shmbroker_cli.options import BrokerOption, JsonOption, QueueArgument
from shmbroker_cli.output import (
    Column,
    byte_count,
    print_facts,
    print_json,
    print_rows,
    report,
    say,
)
from shmbroker_cli.session import connected, opened

NO_LIMIT = -1

queue_commands = typer.Typer(help="Make, look at and change queues.")

RingSizeOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Keep the newest N pending; -1: all."),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Limit on ready messages; -1: none."),
]
MaxBytesOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Limit on their bodies, such as 64M; -1: none."),
]
OverflowOption = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="At a limit: block, drop or drop-head."),
]
MessageTtlOption = Annotated[
    float | None,
    typer.Option("--message-ttl", metavar="S", help="Seconds that a message lives at most; -1: for ever."),
]
ExpiresOption = Annotated[
    float | None,
    typer.Option(metavar="S", help="Seconds unused after which the queue is deleted; -1: never."),
]
Statistics = shmbroker.QueueStatistics


def _given(**settings: str | float | None) -> dict[str, Any]:
    """Return the settings that were given; sizes in plain digits become numbers, times of -1 none."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if (size := given.get("max_bytes")) is not None and size.removeprefix("-").isdecimal():
        given["max_bytes"] = int(size)
    for name in ("message_ttl", "expires"):
        if given.get(name) == NO_LIMIT:
            given[name] = None
    return given


@queue_commands.command()
def create(
    queue: QueueArgument,
    *,
    ring_size: RingSizeOption = None,
    max_length: MaxLengthOption = None,
    max_bytes: MaxBytesOption = None,
    overflow: OverflowOption = None,
    message_ttl: MessageTtlOption = None,
    expires: ExpiresOption = None,
    durable: Annotated[bool, typer.Option("--durable", help="An attribute that declarations compare.")] = False,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="It goes with its last consumer.")] = False,
    single_active_consumer: Annotated[
        bool, typer.Option("--single-active-consumer", help="One gets everything, until it is gone.")
    ] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a queue; one that exists must have the settings given."""
    settings = _given(
        ring_size=ring_size,
        max_length=max_length,
        max_bytes=max_bytes,
        overflow=overflow,
        message_ttl=message_ttl,
        expires=expires,
        durable=durable or None,
        auto_delete=auto_delete or None,
        single_active_consumer=single_active_consumer or None,
    )
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
        bool, typer.Option("--all", help="Also those of the broker's own, such as leases of groups.")
    ] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the queues with what is in them."""
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
        settings, paused, statistics = found.settings, found.paused, found.statistics()
        schema = schemas.registered(found)
    if as_json:
        print_json(
            {
                "queue": queue,
                "paused": paused,
                "settings": settings,
                "statistics": statistics,
                "arrow_schema": None if schema is None else schema.text,
            }
        )
        return
    facts: dict[str, Any] = dataclasses.asdict(statistics)
    facts.pop("name")
    facts["bytes"] = byte_count(statistics.bytes)
    batches = {} if schema is None else {"arrow_schema": schema.text}
    print_facts({"queue": queue, "paused": paused, **dataclasses.asdict(settings), **facts, **batches})


@queue_commands.command("set")
def configure(
    queue: QueueArgument,
    *,
    ring_size: RingSizeOption = None,
    max_length: MaxLengthOption = None,
    max_bytes: MaxBytesOption = None,
    overflow: OverflowOption = None,
    message_ttl: MessageTtlOption = None,
    expires: ExpiresOption = None,
    trim: Annotated[bool, typer.Option("--trim", help="Shrink a ring at once, not as it drains.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change settings of a queue."""
    settings = _given(
        ring_size=ring_size,
        max_length=max_length,
        max_bytes=max_bytes,
        overflow=overflow,
        message_ttl=message_ttl,
        expires=expires,
    )
    if not settings and not trim:
        message = "give at least one setting to change"
        raise typer.BadParameter(message)
    with opened(broker, queue) as found:
        found.configure(trim=trim, **settings)
        changed = found.settings
    if as_json:
        print_json({"queue": queue, "settings": changed})
    else:
        print_facts({"queue": queue, **dataclasses.asdict(changed)})


def _report(queue: str, verb: str, count: int, *, as_json: bool) -> None:
    """Print how many messages a command has dealt with."""
    line = f"{queue}: {count} {'message' if count == 1 else 'messages'} {verb}"
    report({"queue": queue, verb: count}, line, as_json=as_json)


@queue_commands.command()
def purge(queue: QueueArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Remove a queue's ready messages; delivered ones stay."""
    with opened(broker, queue) as found:
        count = found.purge()
    _report(queue, "purged", count, as_json=as_json)


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
    _report(queue, "deleted", count, as_json=as_json)


@queue_commands.command()
def pause(queue: QueueArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Stop deliveries from a queue; it goes on taking messages."""
    with opened(broker, queue) as found:
        found.pause()
    report({"queue": queue, "paused": True}, f"{queue}: paused", as_json=as_json)


@queue_commands.command()
def resume(queue: QueueArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Start deliveries from a paused queue again."""
    with opened(broker, queue) as found:
        found.resume()
    report({"queue": queue, "paused": False}, f"{queue}: resumed", as_json=as_json)


@queue_commands.command()
def move(
    queue: QueueArgument,
    to: Annotated[str, typer.Argument(metavar="TO", show_default=False, help="Where they go.")],
    *,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many.")] = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move ready messages to another queue, in their order."""
    with opened(broker, queue) as found:
        count = found.move(to, limit=limit)
    _report(queue, "moved", count, as_json=as_json)
