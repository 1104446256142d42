# SPDX-License-Identifier: Apache-2.0
"""Commands about the messages of a queue: `shmbroker queue move`, `purge`, `retry` and others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

import shmbroker
from shmbroker_cli.errors import complain
from shmbroker_cli.options import BrokerOption, IdsOption, JsonOption, QueueArgument, SelectorOption
from shmbroker_cli.output import console, report, say
from shmbroker_cli.progress import bar
from shmbroker_cli.session import opened


class EndedState(StrEnum):
    """The state of the messages that a command ends."""

    READY = "ready"
    SCHEDULED = "scheduled"


EndedStateOption = Annotated[
    EndedState, typer.Option("--state", help="The ready messages, or those that become ready later.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N messages.")]
ToArgument = Annotated[str, typer.Argument(metavar="TO", show_default=False, help="The target queue.")]


def messages(count: int) -> str:
    """Return a number of messages in words.

    >>> messages(1), messages(2)
    ('1 message', '2 messages')
    """
    return f"{count} {'message' if count == 1 else 'messages'}"


def report_count(queue: str, verb: str, count: int, *, as_json: bool) -> None:
    """Print how many messages a command has dealt with.

    Args:
        queue: The name of the queue.
        verb: What was done with them.
        count: How many they are.
        as_json: Whether to print JSON.
    """
    report({"queue": queue, verb: count}, f"{queue}: {messages(count)} {verb}", as_json=as_json)


@contextmanager
def followed(
    found: shmbroker.Queue,
    verb: str,
    selector: str | None,
    ids: list[int] | None,
    limit: int | None,
    *,
    scheduled: bool = False,
) -> Iterator[Callable[[int], None]]:
    """Show how far a command has come, if standard error is a terminal; and how far it came, if it is interrupted.

    Args:
        found: The queue.
        verb: What is done with its messages.
        selector: Which of them, as the command was told.
        ids: The same.
        limit: The same.
        scheduled: Whether the messages are scheduled, not ready.

    Yields:
        A function to call with the number of messages dealt with.
    """
    done = 0
    total = 0
    if console(stderr=True).is_terminal:
        total = found.statistics().scheduled if scheduled else len(found)
        if ids is not None:
            total = len(ids)
        elif selector is not None and not scheduled:
            total = found.count(selector=selector)
        total = total if limit is None else min(total, limit)

    try:
        with bar(verb, total) as show:

            def progress(count: int) -> None:
                nonlocal done
                done = count
                show(count)

            yield progress
    except KeyboardInterrupt:
        complain(f"{found.name}: interrupted after {messages(done)} {verb}")
        raise


def purge(
    queue: QueueArgument,
    *,
    state: EndedStateOption = EndedState.READY,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a queue's ready messages, or its scheduled ones; delivered ones stay."""
    scheduled = state == EndedState.SCHEDULED
    with (
        opened(broker, queue) as found,
        followed(found, "purged", selector, ids, limit, scheduled=scheduled) as progress,
    ):
        count = found.purge(state=state.value, selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "purged", count, as_json=as_json)


def move(
    queue: QueueArgument,
    to: ToArgument,
    *,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move ready messages to another queue, in their order."""
    with opened(broker, queue) as found, followed(found, "moved", selector, ids, limit) as progress:
        count = found.move(to, selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "moved", count, as_json=as_json)


def copy(
    queue: QueueArgument,
    to: ToArgument,
    *,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy ready messages to another queue, in their order."""
    with opened(broker, queue) as found, followed(found, "copied", selector, ids, limit) as progress:
        count = found.copy(to, selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "copied", count, as_json=as_json)


def retry(
    queue: QueueArgument,
    *,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move dead letters back to the queues that they died in."""
    with opened(broker, queue) as found, followed(found, "retried", selector, ids, limit) as progress:
        result = found.retry(selector=selector, ids=ids, limit=limit, progress=progress)
    facts = {"queue": queue, "retried": result.retried, "stayed": result.stayed, "reasons": dict(result.reasons)}
    report(facts, f"{queue}: {messages(result.retried)} retried", as_json=as_json)
    for reason, count in () if as_json else result.reasons.items():
        say(f"{queue}: {messages(count)} stayed: {reason}")


def expire(
    queue: QueueArgument,
    *,
    state: EndedStateOption = EndedState.READY,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """End ready messages as expired; they go to the dead-letter exchange, if there is one."""
    scheduled = state == EndedState.SCHEDULED
    with (
        opened(broker, queue) as found,
        followed(found, "expired", selector, ids, limit, scheduled=scheduled) as progress,
    ):
        count = found.expire(state=state.value, selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "expired", count, as_json=as_json)


def change_priority(
    queue: QueueArgument,
    priority: Annotated[int, typer.Argument(metavar="PRIORITY", show_default=False, help="The new priority.")],
    *,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Give ready messages another priority."""
    with opened(broker, queue) as found, followed(found, "changed", selector, ids, limit) as progress:
        count = found.change_priority(priority, selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "changed", count, as_json=as_json)


def deliver_scheduled(
    queue: QueueArgument,
    *,
    selector: SelectorOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make scheduled messages ready now."""
    with (
        opened(broker, queue) as found,
        followed(found, "made ready", selector, ids, limit, scheduled=True) as progress,
    ):
        count = found.deliver_scheduled(selector=selector, ids=ids, limit=limit, progress=progress)
    report_count(queue, "made_ready" if as_json else "made ready", count, as_json=as_json)


COMMANDS = (purge, move, copy, retry, expire, change_priority, deliver_scheduled)
"""The commands, each with the name that it has after `shmbroker queue`."""
