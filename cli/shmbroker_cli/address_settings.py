# SPDX-License-Identifier: Apache-2.0
"""Commands about address settings: `shmbroker settings ...`."""

from typing import Annotated, Any, NamedTuple

import typer

from shmbroker.address_settings import ADDRESS_ROWS
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import Column, exact_seconds, print_json, print_rows, report
from shmbroker_cli.session import connected
from shmbroker_cli.setting_options import Settings, with_address_settings

settings_commands = typer.Typer(help="Set, list, explain and remove address settings.")

MatchArgument = Annotated[
    str,
    typer.Argument(
        metavar="MATCH",
        show_default=False,
        help="Name of a queue, or a pattern: '*' is one word, '#' at the end any number of words.",
    ),
]
AddressArgument = Annotated[
    str, typer.Argument(metavar="ADDRESS", show_default=False, help="Name of a queue, which need not exist.")
]
SettingArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SETTING]...", show_default=False, help="Remove only these, such as default_ring_size."),
]


class Line(NamedTuple):
    """One setting of one match, or of one address."""

    match: str | None
    setting: str
    value: Any


def _value(line: Line) -> str | int | None:
    """Return a value as people like to read it, to the millisecond; `none` if a match gives none on purpose."""
    if isinstance(line.value, float):
        return exact_seconds(line.value)
    return "none" if line.value is None else str(line.value)


SETTING: Column[Line] = Column("setting", lambda one: one.setting)
VALUE: Column[Line] = Column("value", _value)


@settings_commands.command("set")
@with_address_settings
def set_settings(
    match: MatchArgument,
    settings: Settings,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Give settings to the addresses that MATCH covers; its other settings stay."""
    if not settings:
        message = "give at least one setting"
        raise typer.BadParameter(message)
    with connected(broker) as connection:
        connection.settings.set(match, **settings)
        now = next((one.settings for one in connection.settings.list() if one.match == match), {})
    line = f"{match}: {len(settings)} {'setting' if len(settings) == 1 else 'settings'} set"
    report({"match": match, "settings": now}, line, as_json=as_json)


@settings_commands.command("list")
def list_settings(*, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """List the matches with their settings, the more specific ones first."""
    with connected(broker) as connection:
        found = connection.settings.list()
    if as_json:
        print_json([one._asdict() for one in found])
        return
    lines = [Line(one.match, name, value) for one in found for name, value in one.settings.items()]
    match: Column[Line] = Column("match", lambda one: one.match)
    print_rows(lines, [match, SETTING, VALUE], empty="no address settings", as_json=False)


@settings_commands.command()
def explain(address: AddressArgument, *, broker: BrokerOption = "", as_json: JsonOption = False) -> None:
    """Show each setting of an address, and the match that gives it."""
    with connected(broker) as connection:
        found = connection.settings.explain(address)
    if as_json:
        print_json({"address": address, "settings": {name: one._asdict() for name, one in found.items()}})
        return
    lines = [Line(one.match, name, one.value) for name, one in found.items()]
    live: Column[Line] = Column("applies to", lambda one: "all" if ADDRESS_ROWS[one.setting].is_live else "new queues")
    match: Column[Line] = Column("match", lambda one: one.match or "(default)")
    print_rows(lines, [SETTING, VALUE, match, live], empty="", as_json=False)


@settings_commands.command()
def remove(
    match: MatchArgument,
    names: SettingArguments = None,
    *,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove all settings of MATCH, or only those named."""
    given = names or []
    unknown = [name for name in given if name not in ADDRESS_ROWS]
    if unknown:
        message = f"no address setting {unknown[0]!r}; there are {', '.join(ADDRESS_ROWS)}"
        raise typer.BadParameter(message)
    with connected(broker) as connection:
        connection.settings.remove(match, *given)
    report({"match": match, "removed": given or "all"}, f"{match}: removed", as_json=as_json)
