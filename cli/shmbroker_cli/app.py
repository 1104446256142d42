# SPDX-License-Identifier: Apache-2.0
"""The application: which commands there are, and what may stand before them."""

import importlib.metadata
from typing import Annotated

import typer

from shmbroker_cli.bench import bench
from shmbroker_cli.bindings import bind, bindings, unbind
from shmbroker_cli.brokers import doctor, list_brokers, serve, status, stop
from shmbroker_cli.browse import browse
from shmbroker_cli.clients import channels, connections, consumers
from shmbroker_cli.consume import consume
from shmbroker_cli.demo.command import demo
from shmbroker_cli.demo_spark.command import demo_spark
from shmbroker_cli.errors import CommandGroup
from shmbroker_cli.exchanges import exchange_commands
from shmbroker_cli.groups import group_commands
from shmbroker_cli.options import BROKER_VARIABLE, DEFAULT_BROKER, Common
from shmbroker_cli.publish import publish
from shmbroker_cli.queues import queue_commands
from shmbroker_cli.stages import stage_commands
from shmbroker_cli.top.command import top

app = typer.Typer(
    name="shmbroker",
    cls=CommandGroup,
    help="A message broker in shared memory: exchanges, queues, messages and who consumes them.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    *,
    broker: Annotated[
        str,
        typer.Option("--broker", metavar="NAME", envvar=BROKER_VARIABLE, help="Which."),
    ] = DEFAULT_BROKER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep what was given before the command; without a command, print the help."""
    context.obj = Common(broker or DEFAULT_BROKER, as_json)
    if version:
        typer.echo(f"shmbroker {importlib.metadata.version('shmbroker')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(serve)
app.command("list")(list_brokers)
app.command()(status)
app.command()(stop)
app.command()(doctor)
app.add_typer(queue_commands, name="queue")
app.add_typer(exchange_commands, name="exchange")
app.add_typer(group_commands, name="groups")
app.add_typer(stage_commands, name="stages")
app.command()(bind)
app.command()(unbind)
app.command()(bindings)
app.command()(publish)
app.command()(consume)
app.command()(browse)
app.command()(connections)
app.command()(channels)
app.command()(consumers)
app.command()(top)
app.command()(demo)
app.command()(demo_spark)
app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench)


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    app()
