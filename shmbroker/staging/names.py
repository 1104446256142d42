# SPDX-License-Identifier: Apache-2.0
"""The queues of a publication: one for its marker, one for each attempt; see :mod:`shmbroker.staging` for these terms.

Each name ends with the publication's name.
While a process makes the marker, the publication has one more queue, which serves as a lock.
"""

from __future__ import annotations

import contextlib
import secrets
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker import settings
from shmbroker._amqp.names import STAGE
from shmbroker._amqp.utf8 import size_in_utf8
from shmbroker._checks import is_integer
from shmbroker._core import queue as core_queue
from shmbroker._session.session import session_of

if TYPE_CHECKING:
    from shmbroker.connection import Connection

_MARKER, _FOUNDING, _ATTEMPT = (f"{STAGE}{kind}." for kind in ("marker", "founding", "attempt"))
_MAX_CHARACTERS, _MAX_BYTES = 100, 150
_FIELDS = 5
_TOKEN = 6  # bytes
_MAX_BATCH, _MAX_PARTITION = 2**63 - 1, 2**31 - 1

Batch = int | uuid.UUID
"""A batch: the number of a stream's micro-batch, which only increases, or the id of a job."""


class Attempt(NamedTuple):
    """An attempt to write a partition of a batch.

    Attributes:
        publication: the name of the publication.
        batch: the batch.
        partition: the partition of the batch, from 0.
        number: distinguishes the attempts at one partition.
        token: distinguishes attempts with the same number, such as those of two runs of a program.
    """

    publication: str
    batch: Batch
    partition: int
    number: int
    token: str

    @property
    def queue(self) -> str:
        """The name of the attempt's queue."""
        return f"{_ATTEMPT}{self.batch}.{self.partition}.{self.number}.{self.token}.{self.publication}"

    def __str__(self) -> str:
        return f"attempt {self.number} at partition {self.partition} of batch {self.batch} of {self.publication!r}"


def attempt_of(queue: str) -> Attempt | None:
    """Returns the attempt whose queue has this name; ``None``: it is not the name of an attempt's queue.

    >>> attempt_of("amq.stage.attempt.7.0.3.1f.a.b")
    Attempt(publication='a.b', batch=7, partition=0, number=3, token='1f')
    """
    fields = queue.removeprefix(_ATTEMPT).split(".", _FIELDS - 1)
    if not queue.startswith(_ATTEMPT) or len(fields) != _FIELDS:
        return None
    batch, partition, number, token, publication = fields
    with contextlib.suppress(ValueError):
        return Attempt(publication, batch_of(batch), int(partition), int(number), token)
    return None


def batch_of(text: str) -> Batch:
    """Parses a batch."""
    return int(text) if text.isdigit() else uuid.UUID(text)


def declare(connection: Connection, name: str, **given: Any) -> bool:  # noqa: ANN401 - settings of any type
    """Makes a queue for staging, with the given settings; returns ``False`` if the queue exists already."""
    wanted = settings.QueueSettings(**given)
    session = session_of(connection)
    return core_queue.declare(session.core, name, wanted, session.operation_deadline(), core_queue.STAGE)


def is_marker(queue: str) -> bool:
    """Whether a queue is the queue of a marker."""
    return queue.startswith(_MARKER)


def marker_name(publication: str) -> str:
    """Returns the name of the marker's queue."""
    return _MARKER + publication


def founding_name(publication: str) -> str:
    """Returns the name of the exclusive queue that a process owns, as a lock, while it makes the marker."""
    return _FOUNDING + publication


def check_publication(name: object) -> str:
    """Checks a publication's name: 1 to 100 characters that take at most 150 bytes.

    Raises:
        TypeError: the name is no string.
        ValueError: the name is too long, empty, contains a NUL, or cannot be encoded in UTF-8.
    """
    if not isinstance(name, str):
        msg = f"publication {name!r}: a string is needed"
        raise TypeError(msg)
    if not 1 <= len(name) <= _MAX_CHARACTERS or not 1 <= (size_in_utf8(name) or 0) <= _MAX_BYTES or "\0" in name:
        msg = (
            f"publication {name!r}: 1 to {_MAX_CHARACTERS} characters without NUL, in at most {_MAX_BYTES} bytes of "
            "UTF-8, are allowed"
        )
        raise ValueError(msg)
    return name


def check_batch(batch: object) -> Batch:
    """Checks a batch: a number from 0, or a UUID.

    Raises:
        TypeError: the batch is neither.
        ValueError: the number is out of range.
    """
    if isinstance(batch, uuid.UUID):
        return batch
    return _number("batch", batch, _MAX_BATCH, "an integer or a UUID")


def new_attempt(publication: str, batch: object, partition: object, number: object) -> Attempt:
    """Makes an attempt with the given numbers and a unique token; see :func:`check_batch`."""
    return Attempt(
        publication,
        check_batch(batch),
        _number("partition", partition, _MAX_PARTITION),
        _number("attempt", number, _MAX_BATCH),
        secrets.token_hex(_TOKEN),
    )


def _number(name: str, value: object, most: int, needed: str = "an integer") -> int:
    if not is_integer(value):
        msg = f"{name}={value!r}: {needed} is needed"
        raise TypeError(msg)
    if not 0 <= value <= most:
        msg = f"{name}={value!r}: 0 to {most} is allowed"
        raise ValueError(msg)
    return int(value)
