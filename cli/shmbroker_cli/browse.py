# SPDX-License-Identifier: Apache-2.0
"""`shmbroker browse`: reads messages and leaves them where they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

import shmbroker
from shmbroker_cli.messages import PREVIEW, facts, preview
from shmbroker_cli.options import BrokerOption, CountOption, IdsOption, JsonOption, QueueArgument, SelectorOption
from shmbroker_cli.output import Column, print_json, print_table
from shmbroker_cli.session import connected


class State(StrEnum):
    """The state of the messages to show."""

    READY = "ready"
    SCHEDULED = "scheduled"
    DELIVERING = "delivering"
    DEAD = "dead"


_RESTS = {State.SCHEDULED: "due", State.DELIVERING: "held by"}
StateOption = Annotated[
    State,
    typer.Option(
        help="The messages to show: ready ones, those that become ready later, those that consumers have, or those "
        "that wait to go to the dead-letter exchange."
    ),
]


@dataclass(frozen=True)
class _Seen:
    """A message as a line of a table."""

    sequence: int
    size: int
    redelivered: bool
    message_id: str
    body: str
    rests: str


def _rests(message: shmbroker.Message, names: Mapping[int, str]) -> str:
    """Say until when a message is scheduled, or which connection holds it."""
    if not isinstance(message, shmbroker.QueuedMessage):
        return ""
    if message.due_at is not None:
        return datetime.fromtimestamp(message.due_at, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")
    return "" if message.held_by is None else names.get(message.held_by, f"connection {message.held_by}")


def _see(message: shmbroker.Message, names: Mapping[int, str]) -> _Seen:
    body = message.body[: 4 * PREVIEW + 4]
    return _Seen(
        sequence=message.sequence,
        size=len(message),
        redelivered=message.redelivered,
        message_id=message.properties.message_id or "",
        body=preview(bytes(body)),
        rests=_rests(message, names),
    )


def browse(
    queue: QueueArgument,
    *,
    count: CountOption = None,
    selector: SelectorOption = None,
    state: StateOption = State.READY,
    ids: IdsOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a queue's messages without taking them (JSON: one object per line)."""
    with connected(broker) as connection:
        found = connection.queue(queue, passive=True)
        messages = found.browse(selector, state=state.value, ids=ids, limit=count)
        if as_json:
            for message in messages:
                print_json(facts(message))
            return
        columns: list[Column[_Seen]] = [
            Column("sequence", lambda one: str(one.sequence)),
            Column("bytes", lambda one: one.size),
            Column("again", lambda one: "yes" if one.redelivered else ""),
            Column("id", lambda one: one.message_id),
            Column("body", lambda one: one.body),
        ]
        if state in _RESTS:
            columns.insert(1, Column(_RESTS[state], lambda one: one.rests))
        names = {one.id: f"{one.name} ({one.pid})" for one in connection.connections()}
        print_table((_see(message, names) for message in messages), columns, empty=f"{queue}: no messages")
