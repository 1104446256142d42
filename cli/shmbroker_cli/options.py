# SPDX-License-Identifier: Apache-2.0
"""Options that many commands share.

`--broker` and `--json` may stand before the command as well as after it; the one
after it wins.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_BROKER = "default"
BROKER_VARIABLE = "SHMBROKER_BROKER"


@dataclass(frozen=True)
class Common:
    """The options that were given before the command.

    Attributes:
        broker: Name of the broker.
        as_json: Whether to print JSON.
    """

    broker: str = DEFAULT_BROKER
    as_json: bool = False


def _common(context: typer.Context) -> Common:
    found = context.find_root().obj
    return found if isinstance(found, Common) else Common()


def _choose_broker(context: typer.Context, value: str) -> str:
    return value or _common(context).broker


def _choose_json(context: typer.Context, value: bool) -> bool:  # noqa: FBT001 (Typer passes it by position)
    return value or _common(context).as_json


BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker",
        metavar="NAME",
        callback=_choose_broker,
        show_default=False,
        help=f"The broker; else ${BROKER_VARIABLE}, else '{DEFAULT_BROKER}'.",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", callback=_choose_json, help="Print JSON, for programs to read."),
]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="Name of the queue.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait; without limit if not given."),
]
SelectorOption = Annotated[
    str | None,
    typer.Option(
        "--selector",
        metavar="CONDITION",
        show_default=False,
        help="Only messages for which a condition over properties and headers is true, such as \"region = 'eu'\".",
    ),
]
IdsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--id",
        metavar="SEQUENCE",
        min=0,
        show_default=False,
        help="Only the message with this sequence number, as `browse` shows it. Repeatable.",
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="Stop after N messages."),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", show_default=False, help="A store that no broker uses, instead of a broker."
    ),
]
