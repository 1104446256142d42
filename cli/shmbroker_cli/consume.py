# SPDX-License-Identifier: Apache-2.0
"""`shmbroker consume`: prints messages, or hands them to a function.

A message is acknowledged after it has been printed or the function has returned. If
the function raises, its message goes back to the queue and the command ends. With
`--auto-ack`, a message is acknowledged when it is taken, and never goes back.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty
from typing import Annotated, Any

import typer

import shmbroker
from shmbroker_cli.errors import Refused
from shmbroker_cli.functions import describe, find_function
from shmbroker_cli.messages import facts
from shmbroker_cli.options import (
    BrokerOption,
    CountOption,
    JsonOption,
    QueueArgument,
)
from shmbroker_cli.output import print_json
from shmbroker_cli.session import connected, opened
from shmbroker_cli.signals import Stopper, until_told_to_stop
from shmbroker_cli.worker_processes import run_workers

PREFETCH = 64

Handler = Callable[[shmbroker.Message], Any]


def _one_by_one(queue: shmbroker.Queue, timeout: float | None) -> Iterator[shmbroker.Message]:
    """Yield messages, each acknowledged as it is taken.

    Takes none in advance: a message that is acknowledged but not printed would be lost when the command ends.
    """
    while True:
        try:
            yield queue.get(timeout=timeout, auto_ack=True)
        except Empty:
            return


@dataclass(frozen=True)
class _Limits:
    """When to stop: after `count` messages, after `timeout` seconds without a message, or at a signal."""

    count: int | None
    timeout: float | None
    stopper: Stopper


def _consume_auto_acked(queue: shmbroker.Queue, handler: Handler, limits: _Limits) -> None:
    for number, message in enumerate(_one_by_one(queue, limits.timeout), start=1):
        with limits.stopper.finishing():
            handler(message)
        if number == limits.count:
            return


def _consume(queue: shmbroker.Queue, handler: Handler, limits: _Limits) -> None:
    prefetch = PREFETCH if limits.count is None else 1
    with queue.consume(prefetch=prefetch, timeout=limits.timeout) as consumer:
        for number, message in enumerate(consumer, start=1):
            with limits.stopper.finishing(), message:
                handler(message)
                if number == limits.count:
                    consumer.cancel()  # before the ack, which would fetch one more
                    break


def _print(message: shmbroker.Message) -> None:
    """Print a body as it is, on a line of its own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(bytes(message) + b"\n")
    sys.stdout.buffer.flush()


def _print_facts(message: shmbroker.Message) -> None:
    print_json(facts(message))
    sys.stdout.flush()


def _calling(target: str) -> Handler:
    """Return a handler that calls a function, and raises `Refused` if the function raises."""
    function = find_function(target)

    def call(message: shmbroker.Message) -> None:
        try:
            function(message)
        except (Exception, SystemExit) as error:
            text = f"{target} raised {describe(error)}"
            raise Refused(text) from error

    return call


def consume(
    queue: QueueArgument,
    *,
    call: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Call this function with each message instead of printing it."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Call the function in N processes."),
    ] = None,
    count: CountOption = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", min=0, help="Stop when no message came for S seconds."),
    ] = None,
    auto_ack: Annotated[bool, typer.Option("--auto-ack", help="Acknowledge on delivery.")] = False,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print messages (JSON: one object per line), or call a function with each."""
    if workers is not None and call is None:
        message = "--workers needs --call"
        raise typer.BadParameter(message)
    if workers is not None and auto_ack:
        message = "--workers and --auto-ack exclude each other"
        raise typer.BadParameter(message)
    if call is not None and workers is not None:
        with until_told_to_stop(), connected(broker) as connection:
            connection.queue(queue, passive=True)  # a queue that is missing is told first
            find_function(call)
            run_workers(call, connection, queue, workers, count=count, idle=timeout)
        return
    with until_told_to_stop() as stopper, opened(broker, queue) as source:
        handler = _calling(call) if call is not None else _print_facts if as_json else _print
        run = _consume_auto_acked if auto_ack else _consume
        run(source, handler, _Limits(count, timeout, stopper))
