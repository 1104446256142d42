# SPDX-License-Identifier: Apache-2.0
"""The metadata of a request and its answer, in the key of the message, which is the cheapest place.

The key of a request contains a mark, a number and the queue for its answer. The key of the answer repeats the number.
If the answer is an error, its key also has the kind of error, and its body is a text. A request has exactly one answer,
which is one message, however many batches that contains. The answer comes twice if a server died between answering and
acknowledging.

The driver passes a :class:`Handover` to the tasks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import shmbroker
from shmbroker._amqp.utf8 import size_in_utf8

if TYPE_CHECKING:
    import pyarrow as pa

_REQUEST = "exchange"
FAILED, REFUSED, MALFORMED, TOO_LARGE, NO_ROOM = "failed", "refused", "malformed", "too-large", "no-room"
_ERRORS: dict[str, type[shmbroker.ExchangeError]] = {
    FAILED: shmbroker.FunctionFailed,
    REFUSED: shmbroker.RequestRefused,
}
_MOST_INFLIGHT = 1024
# bytes. A request's key has at most 255: the mark, the number, and the queue's name. That is this prefix, and a suffix
# of some 21 bytes, which makes the name unique.
_MOST_PREFIX = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Handover:
    """The arguments of :func:`shmbroker.spark.exchange`, on their way to the tasks.

    Attributes:
        request_queue: the queue of requests.
        reply_queue: the prefix of the names of the queues for answers.
        schema: the schema of the answers; ``None`` = any.
        inflight: the most requests in flight.
        timeout: the most seconds of each wait: for an answer, for the turn to send a large request alone, for room for
            it. ``None`` = as long as a process serves the queue of requests.
        broker: the name of the broker; ``None`` = as the task's environment says.
    """

    request_queue: str
    reply_queue: str
    schema: pa.Schema | None = None
    inflight: int = 4
    timeout: float | None = None
    broker: str | None = None

    def __post_init__(self) -> None:
        """Checks the arguments.

        Raises:
            ValueError: a value is not allowed.
        """
        for name, most in (("request_queue", 255), ("reply_queue", _MOST_PREFIX)):
            value = getattr(self, name)
            if not isinstance(value, str) or not 1 <= (size_in_utf8(value) or 0) <= most or "\0" in value:
                msg = f"{name}={value!r}: 1 to {most} bytes of UTF-8 without NUL are allowed"
                raise ValueError(msg)
        counts = isinstance(self.inflight, int) and not isinstance(self.inflight, bool)
        if not counts or not 1 <= self.inflight <= _MOST_INFLIGHT:
            msg = f"inflight={self.inflight!r}: an integer from 1 to {_MOST_INFLIGHT} is allowed"
            raise ValueError(msg)
        if self.timeout is not None and not (isinstance(self.timeout, (int, float)) and self.timeout > 0):
            msg = f"timeout={self.timeout!r}: seconds, more than 0, or None are allowed"
            raise ValueError(msg)


def request_key(number: int, answers: str) -> str:
    """Encodes the key of a request."""
    return f"{_REQUEST} {number} {answers}"


def read_request(key: str | None) -> tuple[str, str] | None:
    """Returns the number of a request, which its answer repeats, and the name of the queue for the answer.

    The result is ``None`` if the key is not that of a request.

    >>> read_request("exchange 7 replies.1")
    ('7', 'replies.1')
    >>> read_request("7 replies.1")
    """
    mark, _, rest = (key or "").partition(" ")
    number, _, answers = rest.partition(" ")
    return (number, answers) if mark == _REQUEST and number.isdecimal() and answers else None


def answer_key(number: str, kind: str = "") -> str:
    """Encodes the key of an answer; ``kind`` is the kind of error, empty if the answer is no error."""
    return f"{number} {kind}"


def read_answer(key: str | None) -> tuple[int, str]:
    """Returns the number of the answered request, and the kind of error.

    The number is 0 if the key is not that of an answer. The kind is empty if the answer is no error.
    """
    number, _, kind = (key or "").partition(" ")
    return int(number) if number.isdecimal() else 0, kind


def error_of(kind: str, body: bytes, queue: str) -> Exception:
    """Builds the exception of an error answer."""
    text = f"queue {queue!r}: {body.decode(errors='replace')}"
    if kind in {TOO_LARGE, NO_ROOM}:
        return shmbroker.OutOfMemory(text)
    return _ERRORS.get(kind, shmbroker.ExchangeError)(text=text)
