# SPDX-License-Identifier: Apache-2.0
"""What a request and its answer say beside their batches, in the key of the message, which costs least.

A request says that it is one, a number and the queue for its answer; the answer repeats the number, and says which
kind of error it is, if it is one: its body is a text then. There is exactly one answer to a request, a single message
however many batches it holds; twice the same one, where a server died between answering and acknowledging.
"""

from __future__ import annotations

import shmbroker

_REQUEST = "exchange"
FAILED, REFUSED, MALFORMED, TOO_LARGE, NO_ROOM = "failed", "refused", "malformed", "too-large", "no-room"
_ERRORS: dict[str, type[shmbroker.ExchangeError]] = {
    FAILED: shmbroker.FunctionFailed,
    REFUSED: shmbroker.RequestRefused,
}


def request_key(number: int, answers: str) -> str:
    """Of a request."""
    return f"{_REQUEST} {number} {answers}"


def read_request(key: str | None) -> tuple[str, str] | None:
    """The number of a request, as its answer repeats it, and the queue for that; ``None``: it is no request.

    >>> read_request("exchange 7 replies.1")
    ('7', 'replies.1')
    >>> read_request("7 replies.1")
    """
    mark, _, rest = (key or "").partition(" ")
    number, _, answers = rest.partition(" ")
    return (number, answers) if mark == _REQUEST and number.isdecimal() and answers else None


def answer_key(number: str, kind: str = "") -> str:
    """Of an answer; with a kind it is an error."""
    return f"{number} {kind}"


def read_answer(key: str | None) -> tuple[int, str]:
    """The number of the request, 0 if it is no answer of ours, and the kind of error; empty: none."""
    number, _, kind = (key or "").partition(" ")
    return int(number) if number.isdecimal() else 0, kind


def error_of(kind: str, body: bytes, queue: str) -> Exception:
    """The error that an answer is."""
    text = f"queue {queue!r}: {body.decode(errors='replace')}"
    if kind in {TOO_LARGE, NO_ROOM}:
        return shmbroker.OutOfMemory(text)
    return _ERRORS.get(kind, shmbroker.ExchangeError)(text=text)
