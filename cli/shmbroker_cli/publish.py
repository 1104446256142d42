# SPDX-License-Identifier: Apache-2.0
"""`shmbroker publish`: one message, a file, or a message per line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from queue import Full
from typing import Annotated, BinaryIO

import typer

import shmbroker
from shmbroker.exceptions import BrokerError
from shmbroker_cli.errors import Refused
from shmbroker_cli.options import (
    BrokerOption,
    JsonOption,
    QueueArgument,
    TimeoutOption,
)
from shmbroker_cli.output import print_json, say
from shmbroker_cli.session import opened

STANDARD_INPUT = "-"
BATCH = 256


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as stream:
            yield stream


def _whole(name: str) -> bytes:
    with _reading(name) as stream:
        return stream.read()


def _put_lines(
    queue: shmbroker.Queue,
    name: str,
    properties: shmbroker.BasicProperties | None,
    timeout: float | None,
) -> int:
    """Publish each line, without its line break, and return how many there were."""
    done = 0
    with _reading(name) as stream:
        lines = (line.rstrip(b"\r\n") for line in stream)
        while batch := list(islice(lines, BATCH)):
            while batch:
                try:
                    count = queue.put_many(batch, timeout=timeout, properties=properties)
                except (BrokerError, Full) as error:
                    message = f"{str(error) or 'the queue is full'} ({done} published)"
                    raise Refused(message) from error
                done += count
                batch = batch[count:]
    return done


def publish(
    queue: QueueArgument,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="[BODY|-]",
            show_default=False,
            help="The message; '-' reads it from standard input.",
        ),
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option(metavar="F", help="Publish the content of a file as one message."),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(metavar="F", help="Publish each line of a file ('-': standard input)."),
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="The messages' id.")] = None,
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Such as application/json.")] = None,
    timeout: TimeoutOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Publish to a queue: BODY, --file F, --lines F, or '-' for standard input."""
    if sum(source is not None for source in (body, file, lines)) != 1:
        message = "give one of BODY, '-', --file and --lines"
        raise typer.BadParameter(message)
    properties = None
    if message_id is not None or content_type is not None:
        properties = shmbroker.BasicProperties(message_id=message_id, content_type=content_type)
    with opened(broker, queue) as target:
        if lines is not None:
            count = _put_lines(target, lines, properties, timeout)
        else:
            target.put(_body(body, file), timeout=timeout, properties=properties)
            count = 1
    if as_json:
        print_json({"queue": queue, "published": count})
    else:
        say(f"{queue}: {count} {'message' if count == 1 else 'messages'} published")


def _body(body: str | None, file: str | None) -> bytes:
    if file is not None:
        return _whole(file)
    if body == STANDARD_INPUT:
        return _whole(STANDARD_INPUT)
    return os.fsencode(body or "")
