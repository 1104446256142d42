# SPDX-License-Identifier: Apache-2.0
# Made from cffi_src/native/native_message.c, which is the documentation too.
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Unpack

from shmbroker._core.connection import CoreConnection
from shmbroker._put_options import PutKeywords
from shmbroker.message import Message, MessageBatch
from shmbroker.properties import BasicProperties

OPEN: int
SETTLED: int
BROWSED: int
FRESH: int
OF_QUEUE: int
OF_CONSUMER: int
OF_CHANNEL: int
MOST_MESSAGES: int
MOST_QUEUES: int
NAMES: int
CALLBACK: int
RECORD_BYTES: int
LONGEST_EXPIRATION_MS: int

def check_timeout(timeout: object, /) -> None: ...
def read_in_place(connection: object, slot: int, generation: int, length: int, /) -> memoryview | int: ...
def run_finalizer(finalizer: Callable[[], object], pointer: object, /) -> None: ...
def untracked_type(name: str, /) -> type[Message]: ...

class Finalized: ...

class Writable:
    views: int
    unviewed: Callable[[], object] | None
    def __init__(self, address: int, length: int, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class InFlight:
    calls: int
    closed: bool
    has_io: bool

class Record:
    _source: object
    _record: bytes
    _state: int
    _view: Any
    _record_header: Any
    _tag: int
    @property
    def body(self) -> memoryview: ...
    @property
    def _subscription(self) -> int: ...
    @property
    def _delivery_tag(self) -> int: ...
    def ack(self) -> None: ...
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...

class Batch:
    _source: object
    _made: Any
    _state: int
    _auto_acked: bool
    _views: Any
    def ack(self) -> None: ...
    def bodies(self) -> list[bytes]: ...
    def _record(self, number: int, /) -> bytes: ...
    def _settle(self, disposition: int, skip: frozenset[int], /) -> int: ...
    def __len__(self) -> int: ...

class Receiver:
    def __init__(self, address: int, kind: int, messages: type[Message], batches: type[MessageBatch], /) -> None: ...
    status: int
    delivered: int
    def take(self, source: object, auto_ack: bool, timeout: float | None = None, /) -> Message | None: ...
    def wait(self, source: object, auto_ack: bool, until: int, /) -> Message | int: ...
    def message(self, source: object, record: bytes, state: int, /) -> Message: ...
    def take_many(
        self, source: object, count: int, auto_ack: bool, timeout: float | None = None, /
    ) -> MessageBatch | int: ...
    def wait_many(self, source: object, count: int, auto_ack: bool, until: int, /) -> MessageBatch | int: ...
    def get(self, source: object, queue: int, auto_ack: bool, /) -> Message | int: ...
    def get_wait(self, source: object, queue: int, auto_ack: bool, until: int, /) -> Message | int: ...
    def deliver(
        self, channel: object, subscriptions: dict[int, Any], events: object, no_properties: object, most: int, /
    ) -> int: ...
    def settle(self, delivery_tag: int, multiple: bool, disposition: int, /) -> int: ...

class QueueCalls:
    _taker: Receiver
    _calls_closed: bool
    _core_connection: CoreConnection
    def __init__(self, address: int, taker: Receiver, connection: InFlight, /) -> None: ...
    def put(self, body: object, *, timeout: float | None = None, **options: Unpack[PutKeywords]) -> None: ...
    def reserve(
        self, size: int, *, timeout: float | None = None, **options: Unpack[PutKeywords]
    ) -> AbstractContextManager[memoryview]: ...
    def get(self, *, timeout: float | None = None, auto_ack: bool = False) -> Message: ...
    def get_nowait(self, *, auto_ack: bool = False) -> Message: ...

class Sender:
    def __init__(self, address: int, /) -> None: ...
    def put_with(
        self, body: object, options: tuple[float, float, int, bytes, bytes], timeout: float | None = None, /
    ) -> int | None: ...
    def put_many(self, bodies: tuple[Any, ...], first: int, options: int, drop: bool, /) -> int: ...

class ConsumerCalls:
    def __init__(self, taker: Receiver, auto_ack: bool, acks_at_once: bool, /) -> None: ...
    def get(self, timeout: float | None = None) -> Message: ...

class ChannelCalls:
    _publisher: Publisher | None
    _number: Callable[[], int] | None
    _number_of_transient: Callable[[], int] | None
    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: object,
        properties: BasicProperties | None = None,
        mandatory: bool = False,
        *,
        timeout: float | None = None,
    ) -> int | None: ...

class Properties:
    def __init__(
        self,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expiration: str | None = None,
        message_id: str | None = None,
        timestamp: object = None,
        type: str | None = None,  # noqa: A002 - AMQP's name
        user_id: str | None = None,
        app_id: str | None = None,
        cluster_id: str | None = None,
    ) -> None: ...

class Route:
    def __init__(self, queues: tuple[int, ...], options: int, owner: object, /) -> None: ...

class Publisher:
    def __init__(self, connection: int, owner: object, /) -> None: ...
    @property
    def routes(self) -> dict[str, dict[str, Route]]: ...
    def publish_with(
        self,
        exchange: str,
        routing_key: str,
        body: object,
        properties: bytes,
        ttl_ns: int,
        priority: int,
        has_headers: bool,
        /,
    ) -> int: ...
    def renew(self, version: int, headers_count: bool, /) -> None: ...

class Messages(Iterator[Message]):
    def __init__(self, receiver: Receiver, consumer: object, auto_ack: bool, /) -> None: ...
    def __next__(self) -> Message: ...
