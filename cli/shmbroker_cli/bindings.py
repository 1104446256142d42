# SPDX-License-Identifier: Apache-2.0
"""Commands about bindings: `shmbroker bind`, `unbind` and `bindings`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker_cli.errors import Refused
from shmbroker_cli.exchanges import called
from shmbroker_cli.named_values import named_values, value_of
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, print_rows, report
from shmbroker_cli.session import connected

EXCHANGE, QUEUE = "exchange", "queue"

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", show_default=False, help="The exchange that the binding leads from.")
]
DestinationArgument = Annotated[
    str, typer.Argument(metavar="DESTINATION", show_default=False, help="The queue that the binding leads to.")
]
KeyOption = Annotated[
    str, typer.Option("--key", metavar="K", help="The routing key to match; a pattern for a topic exchange.")
]
ToExchangeOption = Annotated[bool, typer.Option("--exchange", help="DESTINATION is an exchange.")]
ArgumentsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        metavar="NAME=VALUE",
        show_default=False,
        help="An argument, such as x-match=any; VALUE is JSON if it parses, else text. Repeatable.",
    ),
]


def _canonical(arguments: dict[str, Any]) -> str:
    """Return a text for comparing arguments: 1, 1.0 and true have different texts, as they differ for the broker."""
    return json.dumps(arguments, sort_keys=True, default=repr)


def _exists(connection: shmbroker.Connection, wanted: shmbroker.BindingInfo) -> bool:
    return any(
        one == wanted and _canonical(one.arguments) == _canonical(wanted.arguments)
        for one in connection.bindings(wanted.source)
    )


def _wanted(
    source: str, destination: str, key: str, given: list[str] | None, *, exchange: bool
) -> shmbroker.BindingInfo:
    return shmbroker.BindingInfo(
        source=source,
        destination=destination,
        destination_type=EXCHANGE if exchange else QUEUE,
        routing_key=key,
        arguments=named_values(given, "--argument"),
    )


@contextmanager
def _values_checked() -> Iterator[None]:
    """Turn a TypeError of the block into a usage error.

    The block raises it for a value that has no AMQP form, such as a number of 100 digits.
    """
    try:
        yield
    except TypeError as error:
        raise typer.BadParameter(str(error)) from error


def _report(binding: shmbroker.BindingInfo, verb: str, *, as_json: bool) -> None:
    report(binding, f"{binding.source} -> {binding.destination}: {verb}", as_json=as_json)


def bind(
    source: SourceArgument,
    destination: DestinationArgument,
    *,
    key: KeyOption = "",
    exchange: ToExchangeOption = False,
    argument: ArgumentsOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bind a queue, or another exchange, to an exchange."""
    wanted = _wanted(source, destination, key, argument, exchange=exchange)
    with connected(broker) as connection, _values_checked():
        existed = _exists(connection, wanted)
        channel = connection.channel()
        bind_to = channel.exchange_bind if exchange else channel.queue_bind
        bind_to(destination, source, key, wanted.arguments)
    _report(wanted, "existed already" if existed else "bound", as_json=as_json)


def unbind(
    source: SourceArgument,
    destination: DestinationArgument,
    *,
    key: KeyOption = "",
    exchange: ToExchangeOption = False,
    argument: ArgumentsOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a binding; key and arguments must be those that it was made with."""
    wanted = _wanted(source, destination, key, argument, exchange=exchange)
    with connected(broker) as connection:
        if not _exists(connection, wanted):
            message = (
                f"no binding from '{source}' to {wanted.destination_type} '{destination}' has key '{key}' "
                f"and arguments {_canonical(wanted.arguments)}"
            )
            raise Refused(message)
        channel = connection.channel()
        unbind_from = channel.exchange_unbind if exchange else channel.queue_unbind
        unbind_from(destination, source, key, wanted.arguments)
    _report(wanted, "unbound", as_json=as_json)


def _shown(binding: shmbroker.BindingInfo) -> str:
    """Return the arguments of a binding as one would write them after `--argument`, but without the shell's quotes."""
    return " ".join(f"{name}={_given_as(value)}" for name, value in binding.arguments.items())


def _given_as(value: Any) -> str:  # noqa: ANN401 (whatever AMQP has)
    """Return the VALUE that `--argument` reads as this value. A value that JSON does not have is shown as text.

    Text stays as it is, unless `--argument` would read it as something else, or a terminal cannot show it.
    """
    if isinstance(value, str) and value.isprintable() and value_of(value) == value:
        return value
    return json.dumps(value, default=str)


def bindings(
    exchange: Annotated[
        str | None,
        typer.Argument(metavar="[EXCHANGE]", show_default=False, help="Only bindings from and to this exchange."),
    ] = None,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the bindings of a broker or of one exchange."""
    with connected(broker) as connection:
        found = connection.bindings(exchange)
    columns: list[Column[shmbroker.BindingInfo]] = [
        Column("source", lambda one: called(one.source)),
        Column("destination", lambda one: one.destination),
        Column("type", lambda one: one.destination_type),
        Column("key", lambda one: one.routing_key),
        Column("arguments", _shown),
    ]
    print_rows(found, columns, empty="no bindings", as_json=as_json)
