# SPDX-License-Identifier: Apache-2.0
"""The application: the list of commands, and the options that may stand before a command."""

import functools
import importlib
from typing import Annotated, Any

import typer
import typer.main

from shmbroker_cli.errors import CommandGroup
from shmbroker_cli.options import BROKER_VARIABLE, DEFAULT_BROKER, Common
from shmbroker_cli.version import version_text

# The commands, in the order of the help. The value is `module:name`: the function of the command, or a group of
# commands.
COMMANDS = {
    "serve": "brokers:serve",
    "list": "brokers:list_brokers",
    "status": "brokers:status",
    "configure": "brokers:configure",
    "stop": "brokers:stop",
    "doctor": "doctor:doctor",
    "backup": "stores:backup",
    "restore": "stores:restore",
    "compact": "stores:compact",
    "bind": "bindings:bind",
    "unbind": "bindings:unbind",
    "bindings": "bindings:bindings",
    "publish": "publish:publish",
    "consume": "consume:consume",
    "browse": "browse:browse",
    "export": "transfer:export",
    "import": "transfer:import_",
    "connections": "clients:connections",
    "channels": "clients:channels",
    "consumers": "clients:consumers",
    "top": "top.command:top",
    "demo": "demo.command:demo",
    "demo-spark": "demo_spark.command:demo_spark",
    "bench": "bench:bench",
    "queue": "queues:queue_commands",
    "exchange": "exchanges:exchange_commands",
    "settings": "address_settings:settings_commands",
    "groups": "groups:group_commands",
    "stages": "stages:stage_commands",
}
_HANDS_OVER = {"add_help_option": False, "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}
_OPTIONS: dict[str, dict[str, Any]] = {"bench": _HANDS_OVER}


class Commands(CommandGroup):
    """The commands. To start fast, a command's module is imported only when that command is looked up."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (those of Typer's groups)
        """Register the names of the commands, for the help and for suggestions."""
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # `get_command` makes them

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        """Return the command of a name; None if there is none."""
        return _command(cmd_name) if cmd_name in COMMANDS else None


@functools.cache
def _command(name: str) -> Any:  # noqa: ANN401 (a command of Typer's)
    """Import the function or the group of a command, and return it as a Typer command."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(f"shmbroker_cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        made: Any = typer.main.get_group(found)
        made.name = name
        return made
    alone = typer.Typer(add_completion=False)
    alone.command(name, **_OPTIONS.get(name, {}))(found)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="shmbroker",
    cls=Commands,
    help="A message broker in shared memory: exchanges, queues, messages and consumers.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    *,
    broker: Annotated[
        str,
        typer.Option("--broker", metavar="NAME", envvar=BROKER_VARIABLE, help="Name of the broker."),
    ] = DEFAULT_BROKER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep the options given before the command, for the command to read; without a command, print the help."""
    context.obj = Common(broker or DEFAULT_BROKER, as_json)
    if version:
        typer.echo(version_text())
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    app()
