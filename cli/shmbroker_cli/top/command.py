# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top`: a live screen in a terminal, one snapshot elsewhere."""

import sys
import time
from enum import StrEnum
from typing import Annotated

import typer
from rich.live import Live

import shmbroker
from shmbroker_cli.options import BrokerOption, JsonOption
from shmbroker_cli.output import console, print_json
from shmbroker_cli.session import connected
from shmbroker_cli.signals import Stopper, until_told_to_stop
from shmbroker_cli.top.fields import CHANNELS, CLIENTS, CONSUMERS, EXCHANGES, MEMORY, QUEUES, TABLES
from shmbroker_cli.top.keyboard import Keyboard
from shmbroker_cli.top.model import Sample, Snapshot, compare, take_sample
from shmbroker_cli.top.screen import Screen, draw, headline
from shmbroker_cli.top.view import View

REDRAW = 0.5  # seconds between redraws while paused: the terminal may have changed its size


class TableName(StrEnum):
    """The tables that can be shown."""

    QUEUES = QUEUES
    EXCHANGES = EXCHANGES
    CHANNELS = CHANNELS
    CLIENTS = CLIENTS
    CONSUMERS = CONSUMERS
    MEMORY = MEMORY


def _sort_index(table: str, name: str | None) -> int:
    if name is None:
        return 0
    for index, field in enumerate(TABLES[table]):
        if name in (field.title, field.name):
            return index
    names = ", ".join(field.name for field in TABLES[table])
    message = f"--sort: '{name}' is not one of {names}"
    raise typer.BadParameter(message)


def top(
    *,
    interval: Annotated[
        float,
        typer.Option(metavar="S", min=0.1, max=86400, help="Seconds between refreshes."),
    ] = 1.0,
    table: Annotated[TableName, typer.Option(help="The table to show first.")] = TableName.QUEUES,
    sort: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sort by this column.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    filter_text: Annotated[
        str,
        typer.Option("--filter", metavar="TEXT", help="Only rows with TEXT in their name."),
    ] = "",
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Watch queues, exchanges, channels, clients, consumers and stored queues live.

    Without a terminal, print one snapshot.
    """
    view = View(table=table.value, sort=_sort_index(table.value, sort), reverse=reverse, text=filter_text)
    live = (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and not console().is_dumb_terminal
        and not as_json
    )
    with until_told_to_stop() as stopper, connected(broker) as connection:
        if live:
            _watch(connection, broker, view, interval, stopper)
            return
        before = take_sample(connection, broker)
        time.sleep(interval)
        snapshot = compare(before, take_sample(connection, broker))
        _print(snapshot, view, as_json=as_json)


def _print(snapshot: Snapshot, view: View, *, as_json: bool) -> None:
    rows = view.arrange(snapshot.table(view.table))
    if as_json:
        tables = {name: rows if name == view.table else snapshot.table(name) for name in TABLES}
        print_json({"broker": snapshot.broker, **tables})
        return
    out = console()
    out.print(headline(snapshot))
    out.print(draw(rows, view, out.width))


def _watch(connection: shmbroker.Connection, broker: str, view: View, interval: float, stopper: Stopper) -> None:
    """Show a table until the person quits, or a signal comes.

    The first signal is only noted. An exception for it could be raised while the mode of the terminal
    is being changed, and leave the terminal in a wrong mode. A second signal raises all the same.
    """
    before: Sample | None = None
    now = take_sample(connection, broker)
    snapshot = compare(before, now)
    with (
        stopper.noting() as signals,
        Keyboard() as keyboard,
        Live(Screen(snapshot, view), console=console(), screen=True, auto_refresh=False) as live,
    ):
        while not view.ended and not stopper.told:
            live.update(Screen(snapshot, view), refresh=True)
            due = now.taken + interval if not view.paused else time.monotonic() + REDRAW
            for key in keyboard.read(due, signals):
                view.press(key)
            if not view.paused and time.monotonic() >= now.taken + interval:
                before, now = now, take_sample(connection, broker)
                snapshot = compare(before, now)
