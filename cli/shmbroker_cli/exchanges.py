# SPDX-License-Identifier: Apache-2.0
"""Commands about exchanges: `shmbroker exchange ...`."""

from enum import StrEnum
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, print_rows, report
from shmbroker_cli.session import connected

exchange_commands = typer.Typer(help="Make, list and delete exchanges.")

DEFAULT_EXCHANGE = "(default)"  # shown for the exchange whose name is empty
ALTERNATE = "alternate-exchange"


class ExchangeType(StrEnum):
    """The type of an exchange: by which rule it finds the queues for a message."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


ExchangeArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the exchange.")]
TypeOption = Annotated[
    ExchangeType,
    typer.Option(
        "--type",
        help="How it routes: by the whole key, to all, by words of the key, or by headers.",
    ),
]
DurableOption = Annotated[bool, typer.Option("--durable", help="An attribute that later declarations must repeat.")]
AlternateOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The exchange for messages that this one routes to no queue."),
]


def called(exchange: str) -> str:
    """Return how an exchange is called in tables.

    Args:
        exchange: Its name.

    >>> called("orders"), called("")
    ('orders', '(default)')
    """
    return exchange or DEFAULT_EXCHANGE


def flags(exchange: shmbroker.ExchangeInfo) -> str:
    """Return the attributes that an exchange has, in words.

    Args:
        exchange: What is known of it.
    """
    words = {"durable": exchange.durable, "auto-delete": exchange.auto_delete, "internal": exchange.internal}
    return " ".join(word for word, given in words.items() if given)


@exchange_commands.command()
def create(
    exchange: ExchangeArgument,
    *,
    kind: TypeOption = ExchangeType.DIRECT,
    durable: DurableOption = False,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="Delete it with its last binding.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Only other exchanges publish to it.")] = False,
    alternate: AlternateOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make an exchange; if it exists, it must have the same attributes."""
    made: dict[str, Any] = {"durable": durable, "auto_delete": auto_delete, "internal": internal}
    arguments = {} if alternate is None else {ALTERNATE: alternate}
    with connected(broker) as connection:
        existed = any(one.name == exchange for one in connection.exchanges())
        connection.channel().exchange_declare(exchange, kind.value, **made, arguments=arguments)
    facts = {"exchange": exchange, "type": kind.value, **made, "alternate": alternate}
    report(facts, f"{exchange}: {'existed already' if existed else 'created'}", as_json=as_json)


@exchange_commands.command("list")
def list_exchanges(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the exchanges, including those that every broker has."""
    with connected(broker) as connection:
        found = connection.exchanges()
    columns: list[Column[shmbroker.ExchangeInfo]] = [
        Column("exchange", lambda one: called(one.name)),
        Column("type", lambda one: one.type),
        Column("bindings in", lambda one: one.bindings_in),
        Column("bindings out", lambda one: one.bindings_out),
        Column("alternate", lambda one: one.alternate or "-"),
        Column("flags", flags),
    ]
    print_rows(found, columns, empty="no exchanges", as_json=as_json)


@exchange_commands.command()
def delete(
    exchange: ExchangeArgument,
    *,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only if nothing is bound to it.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Delete an exchange with its bindings."""
    with connected(broker) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, passive=True)
        channel.exchange_delete(exchange, if_unused=if_unused)
    report({"exchange": exchange, "deleted": True}, f"{exchange}: deleted", as_json=as_json)
