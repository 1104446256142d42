# SPDX-License-Identifier: Apache-2.0
"""Messages that leave a broker as a file, and come back: as JSON lines, or as an Arrow IPC stream.

>>> import io, shmbroker
>>> from shmbroker import transfer
>>> file = io.BytesIO()
>>> with shmbroker.connect("doctest-transfer") as connection:
...     jobs, other = connection.queue("jobs"), connection.queue("other")
...     jobs.put(b"hello", headers={"n": 1})
...     transfer.write(file, transfer.messages_of(jobs), "jsonl")
...     _ = file.seek(0)
...     transfer.put(other, transfer.read(file, "jsonl"))
...     other.get().headers
Imported(put=1, expired=0)
{'n': 1}
>>> shmbroker.Broker("doctest-transfer").stop(purge=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from shmbroker.transfer import arrow, json_lines
from shmbroker.transfer.exported import Exported
from shmbroker.transfer.importing import Imported, put
from shmbroker.transfer.sources import StoredQueues, messages_of, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["FORMATS", "Exported", "Imported", "StoredQueues", "messages_of", "opened", "put", "read", "write"]

FORMATS = ("arrow", "jsonl")
"""The names of the formats."""


def write(stream: BinaryIO, messages: Iterable[Exported], form: str) -> None:
    """Writes messages.

    Args:
        stream: a binary stream.
        messages: the messages.
        form: ``"arrow"`` or ``"jsonl"``.

    Raises:
        ModuleNotFoundError: the format is ``"arrow"``, and pyarrow is not installed.
        ValueError: there is no such format.
    """
    if _checked(form) == "arrow":
        arrow.write(stream, messages)
    else:
        json_lines.write(stream, messages)


def read(stream: BinaryIO, form: str) -> Iterator[Exported]:
    """Yields messages, as they are read.

    Args:
        stream: a binary stream.
        form: ``"arrow"`` or ``"jsonl"``.

    Raises:
        ModuleNotFoundError: the format is ``"arrow"``, and pyarrow is not installed.
        ValueError: there is no such format, or what is read has another one.
    """
    return arrow.read(stream) if _checked(form) == "arrow" else json_lines.read(stream)


def _checked(form: str) -> str:
    if form not in FORMATS:
        msg = f"form={form!r}: one of {', '.join(map(repr, FORMATS))} is allowed"
        raise ValueError(msg)
    return form
