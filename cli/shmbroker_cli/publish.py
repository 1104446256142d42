# SPDX-License-Identifier: Apache-2.0
"""`shmbroker publish`: one message, a file, or a message per line, to a queue or an exchange."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Full
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

import shmbroker
from shmbroker.channel import Channel
from shmbroker.exceptions import BrokerError
from shmbroker_cli.errors import Refused
from shmbroker_cli.exchanges import called
from shmbroker_cli.named_values import named_values
from shmbroker_cli.options import BrokerOption, JsonOption, TimeoutOption
from shmbroker_cli.output import report
from shmbroker_cli.session import connected

if TYPE_CHECKING:
    from io import BufferedReader

STANDARD_INPUT = "-"
GROUP, DUPLICATE_ID = "JMSXGroupID", "x-duplicate-id"  # the headers
AT_ONCE = 8192  # bytes to read at once


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            message = "standard input is closed"
            raise Refused(message)
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as stream:
            yield stream


def _whole(name: str) -> bytes:
    with _reading(name) as stream:
        return stream.read()


@dataclass(frozen=True)
class _ToQueue:
    """Publishes straight into a queue."""

    queue: shmbroker.Queue
    properties: shmbroker.BasicProperties | None
    delay: float | None
    timeout: float | None

    @property
    def name(self) -> str:
        """The name of the target, for people."""
        return self.queue.name

    @property
    def address(self) -> dict[str, str]:
        """The facts that name the target, for JSON."""
        return {"queue": self.queue.name}

    def put(self, body: bytes) -> None:
        """Publish a message."""
        self.queue.put(body, timeout=self.timeout, properties=self.properties, delay=self.delay)

    def put_some(self, bodies: list[bytes]) -> int:
        """Publish messages, and return for how many of them there was room: one at least, else it raises `Full`."""
        return self.queue.put_many(bodies, timeout=self.timeout, properties=self.properties, delay=self.delay)


@dataclass(frozen=True)
class _ToExchange:
    """Publishes to an exchange, which finds the queues."""

    channel: Channel
    exchange: str
    key: str
    mandatory: bool
    properties: shmbroker.BasicProperties | None
    timeout: float | None

    @property
    def name(self) -> str:
        """The name of the target, for people."""
        return called(self.exchange)

    @property
    def address(self) -> dict[str, str]:
        """The facts that name the target, for JSON."""
        return {"exchange": self.exchange, "key": self.key}

    def put(self, body: bytes) -> None:
        """Publish a message."""
        confirmed = self.channel.publish_confirmed(
            self.exchange, self.key, body, self.properties, mandatory=self.mandatory, timeout=self.timeout
        )
        confirmed.result()

    def put_some(self, bodies: list[bytes]) -> int:
        """Publish only the first message and return 1: each message may fail for a reason of its own."""
        self.put(bodies[0])
        return 1


def _lines_as_they_come(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield, after each read, the lines that the read completed, without line breaks.

    So the caller publishes a line as soon as it is complete, even if no other line follows.
    """
    begun: list[bytes] = []
    while read := cast("BufferedReader", stream).read1(AT_ONCE):
        first, *more = read.split(b"\n")
        begun.append(first)
        if more:
            *whole, last = (b"".join(begun), *more)
            yield [line.removesuffix(b"\r") for line in whole]
            begun = [last]
    if rest := b"".join(begun):
        yield [rest.removesuffix(b"\r")]


def _put_lines(target: _ToQueue | _ToExchange, name: str) -> int:
    """Publish each line, without its line break, and return how many there were."""
    done = 0
    with _reading(name) as stream:
        for batch in _lines_as_they_come(stream):
            while batch:
                try:
                    count = target.put_some(batch)
                except (BrokerError, Full) as error:
                    message = f"{str(error) or 'the queue is full'} ({done} published)"
                    raise Refused(message) from error
                done += count
                del batch[:count]
    return done


def _addressed(
    queue: str | None, body: str | None, exchange: str | None, key: str | None, *, mandatory: bool
) -> tuple[str | None, str | None]:
    """Return the queue and the body. With an exchange, the queue is None, and the first argument is the body."""
    if exchange is None:
        if queue is None:
            message = "give QUEUE, or --exchange"
            raise typer.BadParameter(message)
        if key is not None or mandatory:
            message = "--key and --mandatory need --exchange"
            raise typer.BadParameter(message)
        return queue, body
    if body is not None:
        message = "with --exchange, give BODY without QUEUE: the bindings of the exchange choose the queues"
        raise typer.BadParameter(message)
    return None, queue


def _properties(headers: dict[str, Any], ttl: float | None, **given: Any) -> shmbroker.BasicProperties | None:  # noqa: ANN401
    """Return the properties of the messages; None: they have none."""
    if ttl is not None:
        given["expiration"] = str(round(ttl * 1000))
    given["headers"] = headers or None
    return None if all(value is None for value in given.values()) else shmbroker.BasicProperties(**given)


def publish(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[QUEUE]", show_default=False, help="Name of the queue; not with --exchange."),
    ] = None,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="[BODY|-]",
            show_default=False,
            help="The message; '-' reads it from standard input.",
        ),
    ] = None,
    *,
    exchange: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Publish to this exchange, not to a queue."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="The routing key, for the exchange.")] = None,
    mandatory: Annotated[bool, typer.Option("--mandatory", help="Fail if the exchange routes it to no queue.")] = False,
    file: Annotated[
        str | None,
        typer.Option(metavar="F", help="Publish the content of a file as one message."),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(metavar="F", help="Publish each line of a file ('-': standard input)."),
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="The message id property.")] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The content type property, such as application/json.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=255, help="The priority; higher is more urgent.")
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="S", min=0, help="Expire after S seconds; 0: unless a consumer waits for it now."),
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Become ready after S seconds; not with --exchange.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            show_default=False,
            help="A header; VALUE is JSON if it parses, else text. Repeatable.",
        ),
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="G", help="The message group.")] = None,
    duplicate_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The id by which a queue knows a message that it had already.")
    ] = None,
    timeout: TimeoutOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Publish to a queue or an exchange: BODY, --file F, --lines F, or '-' for standard input."""
    queue, body = _addressed(queue, body, exchange, key, mandatory=mandatory)
    if sum(source is not None for source in (body, file, lines)) != 1:
        message = "give exactly one of BODY, '-', --file and --lines"
        raise typer.BadParameter(message)
    if exchange is not None and delay is not None:
        message = "--delay needs QUEUE: an exchange delays no message"
        raise typer.BadParameter(message)
    headers = named_values(header, "--header")
    for name, value in ((GROUP, group), (DUPLICATE_ID, duplicate_id)):
        if value is not None:
            headers[name] = value
    properties = _properties(headers, ttl, message_id=message_id, content_type=content_type, priority=priority)
    target: _ToQueue | _ToExchange
    with connected(broker) as connection:
        if exchange is not None:
            target = _ToExchange(connection.channel(), exchange, key or "", mandatory, properties, timeout)
        else:
            target = _ToQueue(connection.queue(queue or "", passive=True), properties, delay, timeout)
        if lines is not None:
            count = _put_lines(target, lines)
        else:
            target.put(_body(body, file))
            count = 1
    line = f"{target.name}: {count} {'message' if count == 1 else 'messages'} published"
    report({**target.address, "published": count}, line, as_json=as_json)


def _body(body: str | None, file: str | None) -> bytes:
    if file is not None:
        return _whole(file)
    if body == STANDARD_INPUT:
        return _whole(STANDARD_INPUT)
    return os.fsencode(body or "")
