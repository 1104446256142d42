# SPDX-License-Identifier: Apache-2.0
"""The options of reads and writes, checked when Spark makes its plan, so that ``load`` and ``start`` raise errors."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING

from shmbroker._amqp.names import is_internal
from shmbroker._amqp.utf8 import size_in_utf8
from shmbroker.spark.payloads import ARROW, BYTES, PAYLOADS, Payload

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_BOTH = ("broker", "queue", "payload", "columns")
_OF_BATCHES = (*_OF_BOTH, "maxRows")
_OF_STREAMS = (*_OF_BOTH, "group", "maxRowsPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss")
_OF_STREAM_WRITES = ("broker", "queue", "delivery", "payload", "timeout")
_OF_BATCH_WRITES = (*_OF_STREAM_WRITES, "txnAppId", "txnVersion")
# Spark adds these: `path` is what the user gave to load or save, the others come with the sink of a stream.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
_OF_READS = tuple(dict.fromkeys((*_OF_BATCHES, *_OF_STREAMS)))
EXACTLY_ONCE, AT_LEAST_ONCE = DELIVERIES = ("exactly-once", "at-least-once")
_LONGEST_APP, _MOST_BYTES_OF_APP, _LAST_VERSION = 64, 120, 2**63 - 1


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        queue: the queue to read.
        broker: the broker; ``None``: the process that plans the read takes the name from its environment, see
            :func:`shmbroker.spark.attachment.broker_name`.
        payload: the form of messages.
        columns: the requested columns, in this order.
        max_rows: the most rows of a batch read; of a stream, the most messages of each lease (with payload "arrow", one
            message may have many rows). ``None`` = no limit.
    """

    queue: str
    broker: str | None
    payload: Payload
    columns: tuple[str, ...]
    max_rows: int | None


@dataclasses.dataclass(frozen=True)
class StreamOptions(ReadOptions):
    """The further options of a streaming read.

    Attributes:
        group: the consumer group that leases the messages (:mod:`shmbroker.leasing`); ``None``: a generated one, whose
            name is in the checkpoint.
        max_bytes: a micro-batch ends with the message that brings its bodies to this many bytes or more; ``None`` = no
            such limit.
        min_parts: a lease is divided into at least this many Spark partitions, or, if it has fewer messages than that,
            into one for each message.
        fail_on_data_loss: whether the query ends when the planner finds leases gone; if not, the planner skips them,
            with a warning in the log. A task that finds a message gone raises an error in any case.
    """

    group: str | None
    max_bytes: int | None
    min_parts: int
    fail_on_data_loss: bool


@dataclasses.dataclass(frozen=True)
class WriteOptions:
    """The options of a write.

    Attributes:
        queue: the queue that gets the messages.
        broker: the broker; ``None``: the process that plans the write takes the name from its environment, or, if rows
            are put immediately, each task from its own.
        payload: "bytes": a row is a message; "arrow": a record batch is a message.
        exactly_once: rows are staged where no consumer sees them (:mod:`shmbroker.staging`), and published when the
            batch is done; else they are put immediately.
        timeout: seconds that a task waits for memory or for room in the queue. The driver waits as long when it
            publishes a batch that has a number, of a stream or of an ``app``; it publishes any other batch without a
            limit. ``None``: a task waits a minute for memory for its staged rows, and no other wait has a limit.
        app: the application that numbers the batches it writes: a batch that it writes again is not published again.
            ``None``: no application numbers them.
        version: the number of the application's batch; it only increases.
    """

    queue: str
    broker: str | None
    payload: str
    exactly_once: bool
    timeout: float | None = None
    app: str | None = None
    version: int = 0


class _Given:
    """Options as Spark passes them: names are case-insensitive."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        if "provider" in self._options:
            msg = (
                "Spark does not pass the options of a catalog table to sources that are written in Python: instead of "
                "CREATE TABLE use CREATE TEMPORARY VIEW name USING shmbroker OPTIONS (queue 'name')"
            )
            raise ValueError(msg)
        unknown = sorted(self._options.keys() - {name.lower() for name in allowed} - _OF_SPARK)
        if unknown:
            msg = f"option {unknown[0]!r} is unknown: {', '.join(allowed)} are allowed"
            raise ValueError(msg)

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def count(self, name: str) -> int | None:
        given = self.text(name)
        if given is not None and (not given.isascii() or not given.isdigit() or int(given) == 0):
            msg = f"option {name} is {given!r}: a whole number of at least 1 is allowed"
            raise ValueError(msg)
        return None if given is None else int(given)

    def seconds(self, name: str) -> float | None:
        given = self.text(name)
        if given is None:
            return None
        with contextlib.suppress(ValueError):
            if 0 < float(given) < math.inf:
                return float(given)
        msg = f"option {name} is {given!r}: seconds, more than 0, are allowed"
        raise ValueError(msg)

    def version(self, name: str) -> int | None:
        given = self.text(name)
        if given is not None and (not given.isascii() or not given.isdigit() or int(given) > _LAST_VERSION):
            msg = f"option {name} is {given!r}: a whole number from 0 to {_LAST_VERSION} is allowed"
            raise ValueError(msg)
        return None if given is None else int(given)

    def app(self, name: str) -> str | None:
        given = self.text(name)
        if given is not None:
            size = size_in_utf8(given) or 0
            if not 1 <= len(given) <= _LONGEST_APP or not 1 <= size <= _MOST_BYTES_OF_APP or "\0" in given:
                msg = (
                    f"option {name} is {given!r}: 1 to {_LONGEST_APP} characters without NUL, in at most "
                    f"{_MOST_BYTES_OF_APP} bytes of UTF-8, are allowed"
                )
                raise ValueError(msg)
        return given

    def truth(self, name: str, default: str) -> bool:
        given = self.text(name) or default
        if given.lower() not in {"true", "false"}:
            msg = f"option {name} is {given!r}: true or false is allowed"
            raise ValueError(msg)
        return given.lower() == "true"

    def queue(self) -> str:
        found = self.text("queue") or self.text("path")
        if not found:
            msg = 'option queue is missing: give .option("queue", NAME), or a path, as in .load(NAME) or .save(NAME)'
            raise ValueError(msg)
        return found

    def exactly_once(self) -> bool:
        delivery = (self.text("delivery") or EXACTLY_ONCE).lower()
        if delivery not in DELIVERIES:
            msg = f"option delivery is {delivery!r}: {' or '.join(DELIVERIES)} is allowed"
            raise ValueError(msg)
        return delivery == EXACTLY_ONCE

    def payload(self, allowed: tuple[str, ...]) -> str | None:
        given = self.text("payload")
        if given is not None and given not in allowed:
            msg = f"option payload is {given!r}: {' or '.join(allowed)} is allowed"
            raise ValueError(msg)
        return given

    def columns(self, payload: Payload) -> tuple[str, ...]:
        given = self.text("columns")
        names = payload.names if given is None else tuple(name.strip() for name in given.split(","))
        for name in names:
            if name not in payload.names or names.count(name) > 1:
                msg = f"option columns has {name!r}: each of {', '.join(payload.names)} is allowed once"
                raise ValueError(msg)
        return names


def table_asked_for(options: Mapping[str, str]) -> tuple[str, str | None, str | None]:
    """Returns the options queue, broker and payload of any kind of read; the available columns depend on them.

    Raises:
        ValueError: as for :func:`read_options`.
    """
    given = _Given(options, _OF_READS)
    return given.queue(), given.text("broker"), given.payload(PAYLOADS)


def read_options(options: Mapping[str, str], payload: Payload | None = None) -> ReadOptions:
    """Checks the options of a batch read.

    Args:
        options: the options as Spark passes them.
        payload: the form of messages that was determined from the options; ``None`` = bodies.

    Raises:
        ValueError: an option is missing, unknown or not allowed; the text names it and says what is allowed.
    """
    given, payload = _Given(options, _OF_BATCHES), payload or Payload()
    given.payload(PAYLOADS)
    return ReadOptions(given.queue(), given.text("broker"), payload, given.columns(payload), given.count("maxRows"))


def stream_options(options: Mapping[str, str], payload: Payload | None = None) -> StreamOptions:
    """Checks the options of a streaming read; see :func:`read_options`."""
    given, payload = _Given(options, _OF_STREAMS), payload or Payload()
    given.payload(PAYLOADS)
    return StreamOptions(
        given.queue(),
        given.text("broker"),
        payload,
        given.columns(payload),
        given.count("maxRowsPerTrigger"),
        group=given.text("group"),
        max_bytes=given.count("maxBytesPerTrigger"),
        min_parts=given.count("minPartitions") or 1,
        fail_on_data_loss=given.truth("failOnDataLoss", "true"),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a batch write; see :func:`read_options`."""
    given = _Given(options, _OF_BATCH_WRITES)
    once = given.exactly_once()
    app, version = given.app("txnAppId"), given.version("txnVersion")
    if (app is None) != (version is None):
        has, lacks = ("txnVersion", "txnAppId") if app is None else ("txnAppId", "txnVersion")
        msg = f"option {lacks} is missing: {has} is given, and both or none are allowed"
        raise ValueError(msg)
    if app is not None and not once:
        msg = f"option delivery is {given.text('delivery')!r}: with txnAppId, only {EXACTLY_ONCE} is allowed"
        raise ValueError(msg)
    return dataclasses.replace(_write_options(given), app=app, version=version or 0)


def stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a streaming write; see :func:`read_options`.

    It has no options for the number of a batch, since the streaming query numbers its batches itself.
    """
    given = _Given(options, _OF_STREAM_WRITES)
    return _write_options(given)


def _write_options(given: _Given) -> WriteOptions:
    payload, queue = given.payload((BYTES, ARROW)) or BYTES, given.queue()
    if is_internal(queue):
        msg = f"option queue is {queue!r}: a queue that is not the broker's own is allowed"
        raise ValueError(msg)
    return WriteOptions(queue, given.text("broker"), payload, given.exactly_once(), given.seconds("timeout"))


def columns_asked_for(options: Mapping[str, str], payload: Payload) -> tuple[str, ...]:
    """Returns the columns of any kind of read: Spark asks for the schema before it says which kind it is."""
    return _Given(options, _OF_READS).columns(payload)
