# SPDX-License-Identifier: Apache-2.0
# Made from cffi_src/native_message.c, which is the documentation too.
from collections.abc import Iterator
from typing import Any

from shmbroker.message import Message

class Record:
    _source: object
    _record: bytes
    _state: int
    _view: Any
    _front: Any
    _tag: int
    def ack(self) -> None: ...

class Taker:
    def __init__(self, address: int, of_consumer: bool, messages: type[Message], /) -> None: ...
    def take(self, source: object, auto_ack: bool, /) -> Message | int: ...
    def wait(self, source: object, auto_ack: bool, until: int, /) -> Message | int: ...
    def message(self, source: object, record: bytes, state: int, /) -> Message: ...

class Messages(Iterator[Message]):
    def __init__(self, taker: Taker, consumer: object, auto_ack: bool, /) -> None: ...
    def __next__(self) -> Message: ...
