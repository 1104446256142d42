# SPDX-License-Identifier: Apache-2.0
"""Commands about clients: connections, channels, consumers."""

from datetime import UTC, datetime
from typing import Annotated

import typer

import shmbroker
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, print_rows
from shmbroker_cli.session import connected


def connections(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the connections to a broker, this command's own included."""
    with connected(broker) as connection:
        found = list(connection.connections())
    columns: list[Column[shmbroker.ConnectionInfo]] = [
        Column("id", lambda one: one.id),
        Column("name", lambda one: one.name),
        Column("pid", lambda one: str(one.pid)),
        Column("since", lambda one: _clock(one.created_at)),
        Column("channels", lambda one: one.channels),
        Column("consumers", lambda one: one.consumers),
        Column("holding", lambda one: one.holding),
    ]
    print_rows(found, columns, empty="no connections", as_json=as_json)


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
    """Return the number of a channel, or how many it stands for.

    Args:
        channel: What is known of it.
    """
    return str(channel.number) if channel.number else f"{channel.count} without consumers"


def consumers(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", show_default=False, help="Only of this one."),
    ] = None,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the consumers of a broker or of one queue."""
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
    ]
    print_rows(found, columns, empty="no consumers", as_json=as_json)
