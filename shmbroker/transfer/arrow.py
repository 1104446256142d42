# SPDX-License-Identifier: Apache-2.0
"""Messages as an Arrow IPC stream. Only the column ``body`` must be there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from shmbroker._dataclasses import replace
from shmbroker.properties import NAMES, NO_PROPERTIES, BasicProperties
from shmbroker.transfer import values
from shmbroker.transfer.exported import READY, Exported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

_PLAIN = tuple(name for name in NAMES if name != "headers")
_OCTETS = ("delivery_mode", "priority")
_MOST_ROWS = 1024
_MOST_BYTES = 8 << 20
_NANOSECONDS = 10**9
_INTEGERS = ("sequence", "priority", "timestamp", "expires_at", "due_at", "delivery_count")
_FIELDS = {"timestamp": "timestamp_ns", "expires_at": "expires_ns", "due_at": "due_ns"}


def arrow() -> ModuleType:
    """Returns ``pyarrow``.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
        import pyarrow.ipc  # noqa: PLC0415
    except ModuleNotFoundError as error:
        text = "the format 'arrow' needs pyarrow: install it (`pip install pyarrow`), or choose the format 'jsonl'"
        raise ModuleNotFoundError(text, name=error.name) from error
    return pa  # type: ignore[no-any-return]


def schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """Returns the schema of an export."""
    pa = arrow()
    kinds = dict.fromkeys(_PLAIN, pa.string()) | dict.fromkeys(_OCTETS, pa.uint8())
    kinds["timestamp"] = pa.timestamp("s", tz="UTC")
    nanoseconds = pa.timestamp("ns", tz="UTC")
    return pa.schema(
        [
            ("sequence", pa.uint64()),
            ("state", pa.string()),
            ("exchange", pa.string()),
            ("routing_key", pa.string()),
            ("priority", pa.uint8()),
            ("properties", pa.struct(list(kinds.items()))),
            ("headers", pa.string()),
            ("timestamp", nanoseconds),
            ("expires_at", nanoseconds),
            ("due_at", nanoseconds),
            ("delivery_count", pa.uint32()),
            ("redelivered", pa.bool_()),
            ("body", pa.binary()),
        ]
    )


def write(stream: BinaryIO, messages: Iterable[Exported]) -> None:
    """Writes messages.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    pa, kind = arrow(), schema()
    with pa.ipc.new_stream(stream, kind) as writer:
        rows: list[dict[str, Any]] = []
        size = 0
        for message in messages:
            if rows and (len(rows) == _MOST_ROWS or size + len(message.body) > _MOST_BYTES):
                writer.write_batch(pa.RecordBatch.from_pylist(rows, kind))
                rows, size = [], 0
            rows.append(_row(message))
            size += len(message.body)
        if rows:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, kind))


def _row(message: Exported) -> dict[str, Any]:
    properties, headers = message.properties, message.properties.headers
    found = {name: getattr(properties, name) for name in _PLAIN}
    if properties.timestamp is not None:
        found["timestamp"] = int(properties.timestamp.timestamp())
    typed = None if headers is None else {name: values.to_json(one) for name, one in headers.items()}
    return {
        "sequence": message.sequence,
        "state": message.state,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "priority": message.priority,
        "properties": found,
        "headers": None if typed is None else json.dumps(typed, ensure_ascii=False, separators=(",", ":")),
        "timestamp": message.timestamp_ns,
        "expires_at": message.expires_ns or None,
        "due_at": message.due_ns,
        "delivery_count": message.delivery_count,
        "redelivered": message.redelivered,
        "body": message.body,
    }


def read(stream: BinaryIO) -> Iterator[Exported]:
    """Yields the messages of a stream.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        ValueError: it is no Arrow stream, or a column has values that are not allowed.
    """
    pa = arrow()
    row = 0
    try:
        with pa.ipc.open_stream(stream) as reader:
            for batch in reader:
                for message in _messages(pa, batch):
                    row += 1
                    yield message
    except pa.ArrowException as error:
        msg = f"no Arrow stream of messages, behind message {row}: {error}"
        raise ValueError(msg) from error


def _messages(pa: ModuleType, batch: Any) -> Iterator[Exported]:  # noqa: ANN401 - pyarrow has no types
    columns = {name: batch.column(name) for name in batch.schema.names}
    if "body" not in columns:
        msg = f"the columns are {', '.join(columns)}: 'body' is needed"
        raise ValueError(msg)
    unknown = columns.keys() - set(schema().names)
    if unknown:
        msg = f"the column {min(unknown)!r} is not known: {', '.join(schema().names)} are allowed"
        raise ValueError(msg)
    found = {name: _values(pa, name, column) for name, column in columns.items() if name != "body"}
    body = columns["body"].cast(pa.large_binary())
    for row in range(batch.num_rows):
        content = body[row].as_py()
        if content is None:
            _refuse("body", None, "bytes")
        yield _message(content, {name: column[row] for name, column in found.items()})


def _values(pa: ModuleType, name: str, column: Any) -> list[Any]:  # noqa: ANN401 - pyarrow has no types
    """The values of a column; times as integers of nanoseconds."""
    if name == "properties":
        given = [column.type.field(at).name for at in range(column.type.num_fields)]
        unknown = set(given) - set(_PLAIN)
        if unknown:
            _refuse(name, min(unknown), ", ".join(_PLAIN))
        # `flatten` gives null for the fields of a null.
        fields = [
            _seconds(pa, one) if at == "timestamp" else one for at, one in zip(given, column.flatten(), strict=True)
        ]
        lists = [one.to_pylist() for one in fields]
        return [dict(zip(given, one, strict=True)) for one in zip(*lists, strict=True)] or [{}] * len(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64())
    return list(column.to_pylist())


def _seconds(pa: ModuleType, column: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("s", tz=column.type.tz), safe=False).cast(pa.int64())


def _message(body: bytes, given: dict[str, Any]) -> Exported:
    for name in _INTEGERS:
        value = given.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            _refuse(name, value, "an integer >= 0, or a time, or null")
    for name in ("state", "exchange", "routing_key", "headers"):
        if not isinstance(given.get(name), (str, type(None))):
            _refuse(name, given[name], "a text or null")
    properties = _properties(given)
    priority = given.get("priority")
    return Exported(
        body,
        properties,
        exchange=given.get("exchange") or "",
        routing_key=given.get("routing_key"),
        priority=priority if priority is not None else properties.priority or 0,
        sequence=given.get("sequence"),
        state=given.get("state") or READY,
        timestamp_ns=given.get("timestamp"),
        expires_ns=given["expires_at"] or 0 if "expires_at" in given else None,
        due_ns=given.get("due_at"),
        delivery_count=given.get("delivery_count"),
        redelivered=bool(given.get("redelivered")),
    )


def _properties(given: dict[str, Any]) -> BasicProperties:
    plain = {name: value for name, value in (given.get("properties") or {}).items() if value is not None}
    if isinstance(plain.get("timestamp"), int):
        plain["timestamp"] = values.from_json({"$time": values.time_text(plain["timestamp"] * _NANOSECONDS)})
    properties = BasicProperties(**plain) if plain else NO_PROPERTIES
    text = given.get("headers")
    if text is None:
        return properties
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"headers: {error}: an object of JSON is allowed"
        raise ValueError(msg) from error
    if not isinstance(headers, dict):
        _refuse("headers", text, "an object of JSON")
    return replace(properties, headers={name: values.from_json(one) for name, one in headers.items()})


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    msg = f"column {name!r}: {value!r}: {allowed} is allowed"
    raise ValueError(msg)
