# SPDX-License-Identifier: Apache-2.0
"""Commands about clients: connections, channels, consumers."""

import dataclasses
from datetime import UTC, datetime
from typing import Annotated

import typer

import shmbroker
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, byte_count, duration, print_json, print_rows, print_table
from shmbroker_cli.processes import ProcessFacts, look_at, process_of
from shmbroker_cli.session import connected


@dataclasses.dataclass(frozen=True)
class _Connected:
    """A connection and the facts of its process; `process` is None if the operating system does not show it."""

    connection: shmbroker.ConnectionInfo
    process: ProcessFacts | None

    def facts(self) -> dict[str, object]:
        """Return the row as a dictionary, for JSON."""
        return {**dataclasses.asdict(self.connection), "process": self.process}


def connections(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the connections to a broker and their processes, this command's own included."""
    with connected(broker) as connection:
        found = list(connection.connections())
        processes = look_at(map(process_of, found))
    rows = [_Connected(one, processes.get(process_of(one))) for one in found]
    if as_json:
        print_json([one.facts() for one in rows])
        return
    columns: list[Column[_Connected]] = [
        Column("id", lambda one: one.connection.id),
        Column("name", lambda one: one.connection.name),
        Column("pid", lambda one: str(one.connection.pid)),
        Column("since", lambda one: _clock(one.connection.created_at)),
        Column("channels", lambda one: one.connection.channels),
        Column("consumers", lambda one: one.connection.consumers),
        Column("holding", lambda one: one.connection.holding),
        Column("cpu s", lambda one: one.process.cpu_seconds if one.process else None),
        Column("cpu %", lambda one: one.process.cpu_percent if one.process else None),
        Column("memory", lambda one: byte_count(one.process.memory) if one.process else None),
        Column("age", lambda one: duration(one.process.age) if one.process else None),
        Column("command", lambda one: one.process.command_text if one.process else None),
    ]
    print_table(rows, columns, empty="no connections")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%F %T")


def channels(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the channels of a broker's connections.

    Channels without consumers are summed up, in one line for each connection.
    """
    with connected(broker) as connection:
        found = connection.channels()
    columns: list[Column[shmbroker.ChannelInfo]] = [
        Column("connection", lambda one: one.connection),
        Column("name", lambda one: one.connection_name),
        Column("pid", lambda one: str(one.pid)),
        Column("channel", channel_number),
        Column("consumers", lambda one: one.consumers),
        Column("prefetch", lambda one: one.prefetch if one.number else None),
        Column("unacked", lambda one: one.unacked),
        Column("delivered", lambda one: one.delivered),
    ]
    print_rows(found, columns, empty="no channels", as_json=as_json)


def channel_number(channel: shmbroker.ChannelInfo) -> str:
    """Return the number of a channel; for an entry of several channels without consumers, their count.

    Args:
        channel: The entry.
    """
    return str(channel.number) if channel.number else f"{channel.count} without consumers"


def consumers(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", show_default=False, help="Only consumers of this queue."),
    ] = None,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the consumers of a broker or of one queue, and the waiting calls of `get`."""
    with connected(broker) as connection:
        found = list(connection.consumers(queue))
    columns: list[Column[shmbroker.ConsumerInfo]] = [
        Column("queue", lambda one: one.queue),
        Column("connection", lambda one: one.connection),
        Column("channel", lambda one: str(one.channel or "-")),
        Column("pid", lambda one: str(one.pid)),
        Column("state", lambda one: one.state.replace("_", " ")),
        Column("priority", lambda one: one.priority),
        Column("prefetch", lambda one: one.prefetch),
        Column("unacked", lambda one: one.unacked),
        Column("delivered", lambda one: one.delivered),
        Column("waiting", lambda one: "yes" if one.waiting else "no"),
        Column("waits for", lambda one: one.waits_for),
        Column("stalled", lambda one: duration(one.stalled_seconds) if one.stalled else "-"),
        Column("scan lag", lambda one: one.scan_lag),
        Column("watermark", lambda one: one.watermark),
    ]
    print_rows(found, columns, empty="no consumers", as_json=as_json)
