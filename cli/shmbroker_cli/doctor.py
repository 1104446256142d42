# SPDX-License-Identifier: Apache-2.0
"""`shmbroker doctor`: examines the memory and the store of a broker."""

from collections.abc import Callable
from typing import Annotated

import typer

import shmbroker
from shmbroker import stores
from shmbroker.exceptions import CorruptSegment, StoreError
from shmbroker_cli.errors import REFUSED
from shmbroker_cli.options import BrokerOption, DataDirOption, JsonOption
from shmbroker_cli.output import print_json, printable, say
from shmbroker_cli.progress import steps
from shmbroker_cli.session import connected


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="Name of the broker, instead of --broker."),
    ] = None,
    *,
    data_dir: DataDirOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Examine a broker's memory and its store: exit code 1 if something is wrong."""
    if data_dir is not None and name is not None:
        message = "give NAME or --data-dir"
        raise typer.BadParameter(message)
    broker = name or broker
    subject = broker if data_dir is None else printable(str(data_dir))
    with steps() as progress:
        if data_dir is not None:
            problems = stores.examine(data_dir=data_dir, progress=progress)
        else:
            problems = _problems(broker, progress)
    if as_json:
        facts = {"broker": broker} if data_dir is None else {"data_dir": str(data_dir)}
        print_json({**facts, "healthy": not problems, "problems": list(problems)})
    else:
        for problem in problems or ["healthy"]:
            say(f"{subject}: {problem}")
    if problems:
        raise typer.Exit(REFUSED)


def _stalled(one: shmbroker.ConsumerInfo) -> str:
    return (
        f"queue {one.queue!r}: the consumer of connection {one.connection}, process {one.pid}, has credit, and has "
        f"made no progress for {one.stalled_seconds:.0f} s; it waits for {one.waits_for}"
    )


def _problems(broker: str, progress: Callable[[str, int, int], object]) -> list[str]:
    try:
        with connected(broker) as connection:
            problems = [*connection.doctor(), *(_stalled(one) for one in connection.consumers() if one.stalled)]
    except CorruptSegment as error:  # the memory is too damaged to connect
        return [error.text]
    try:
        found = stores.examine(broker=broker, progress=progress)
    except StoreError as error:  # what the memory has is told nevertheless
        found = [error.text]
    return [*problems, *(f"store: {problem}" for problem in found)]
