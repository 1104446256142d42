# SPDX-License-Identifier: Apache-2.0
"""Options of messages on the stage: times are kept beside the message, and hold again in the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shmbroker._core import record
from shmbroker._core.native import ffi
from shmbroker._core.queue import NO_OPTIONS, PutOptions
from shmbroker.staging import Stage
from shmbroker.staging.deferred_options import RestoredOptions, defer_times, is_timed
from shmbroker.staging.staged_attempt import StagedAttempt

if TYPE_CHECKING:
    import shmbroker

MOMENT = 1e-9
Said = tuple[int, int, int, bytes, bytes]


def said(options: PutOptions) -> Said:
    """Time to live, delay, priority, key and properties."""
    given = options.pointer
    key, properties = (
        bytes(ffi.buffer(start, length)) if length else b""
        for start, length in ((given.key, given.key_length), (given.properties, given.properties_length))
    )
    return int(given.ttl_ns), int(given.delay_ns), int(given.priority), key, properties


@pytest.mark.parametrize(
    ("options", "timed", "exchange"),
    [
        (PutOptions(0, 0, 3, b"k", b"p"), False, b""),
        (PutOptions(MOMENT, 0, 3, b"k", b"p"), True, b"1 0"),
        (PutOptions(0, MOMENT, 3, b"k", b"p"), True, b"0 1"),
        (PutOptions(2, 3, 0, b"", b""), True, b"2000000000 3000000000"),
    ],
)
def test_options_for_the_stage(options: PutOptions, *, timed: bool, exchange: bytes) -> None:
    """Times do not run there: they are kept as text. What has none is put as it is."""
    assert is_timed(options) == timed
    found = defer_times(options)
    assert (found is options) == (not timed)
    pointer = found.pointer
    assert (bytes(ffi.buffer(pointer.exchange, pointer.exchange_length)) if timed else b"") == exchange
    assert said(found) == (0, 0, *said(options)[2:])


PLAIN: dict[str, Any] = {}
PRIOR: dict[str, Any] = {"priority": 2}
KEYED: dict[str, Any] = {"key": "k", "priority": 1}
MORTAL: dict[str, Any] = {"ttl": 9, "key": "k"}
LATE: dict[str, Any] = {"delay": 4}


def test_options_for_the_target(connection: shmbroker.Connection) -> None:
    """As they were given; what the target makes of a life is its own business (sb_life.h)."""
    options = [(0, 0, 0, b""), (0, 0, 2, b""), (0, 0, 1, b"k"), (9, 0, 0, b"k"), (0, 4, 0, b"")]
    with Stage(connection, "query").attempt(0, 0, 0) as writer:
        for given in (PLAIN, PRIOR, KEYED, MORTAL, LATE):
            writer.put(b"x", **given)
    restored = RestoredOptions()
    held = StagedAttempt(connection, "query", writer.receipt).queue.get_many(5)
    datas = [message._record for message in held]  # noqa: SLF001 - as a part reads it
    found = [restored.of(data, record.header(data)) for data in datas]
    wanted = [(round(ttl * 1e9), round(delay * 1e9), priority, key) for ttl, delay, priority, key in options]
    assert [said(one)[:4] for one in found] == wanted
    assert restored.of(datas[0], record.header(datas[0])) is found[0]
    assert found[0] is NO_OPTIONS
    again = restored.of(datas[4], record.header(datas[4]))
    assert again is found[4]
    assert restored.of(datas[3], record.header(datas[3])) is not found[3]
