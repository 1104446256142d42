# SPDX-License-Identifier: Apache-2.0
"""`shmbroker browse`: reads messages and leaves them where they are."""

from dataclasses import dataclass
from itertools import islice

import shmbroker
from shmbroker_cli.messages import PREVIEW, facts, preview
from shmbroker_cli.options import BrokerOption, CountOption, JsonOption, QueueArgument, SelectorOption
from shmbroker_cli.output import Column, print_json, print_table
from shmbroker_cli.session import opened


@dataclass(frozen=True)
class _Seen:
    """A message as a line of a table."""

    sequence: int
    size: int
    redelivered: bool
    message_id: str
    body: str


def _see(message: shmbroker.Message) -> _Seen:
    body = message.body[: 4 * PREVIEW + 4]
    return _Seen(
        sequence=message.sequence,
        size=len(message),
        redelivered=message.redelivered,
        message_id=message.properties.message_id or "",
        body=preview(bytes(body)),
    )


def browse(
    queue: QueueArgument,
    *,
    count: CountOption = None,
    selector: SelectorOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a queue's ready messages without taking them (JSON: one object per line)."""
    with opened(broker, queue) as found:
        messages = islice(found.browse(selector), count)
        if as_json:
            for message in messages:
                print_json(facts(message))
            return
        columns: list[Column[_Seen]] = [
            Column("sequence", lambda one: one.sequence),
            Column("bytes", lambda one: one.size),
            Column("again", lambda one: "yes" if one.redelivered else ""),
            Column("id", lambda one: one.message_id),
            Column("body", lambda one: one.body),
        ]
        print_table(map(_see, messages), columns, empty=f"{queue}: no messages")
