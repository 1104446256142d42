# SPDX-License-Identifier: Apache-2.0
"""The fixed front of a record: its fields, and where what follows begins."""

from __future__ import annotations

import struct

import pytest

from shmbroker._core.record import SIZE, Header, header, is_inline

FIELDS = (1, 2, 3, 0, 5, 6, 7, 8, 9, 1, 11, 12, 13, 1)
RECORD = struct.pack("<QQQQQQIIHBBHBB", *FIELDS)


def test_the_fields_of_a_front() -> None:
    """Each has its place; what follows is not looked at."""
    assert len(RECORD) == SIZE == 64
    assert header(RECORD) == header(RECORD + b"more") == Header(*FIELDS)
    found = header(RECORD)
    assert (found.tag, found.sequence, found.body_length, found.settled) == (1, 2, 3, 1)


def test_the_key_is_behind_the_exchange() -> None:
    """The exchange is behind the front."""
    assert header(RECORD).key_start == 64 + 13
    assert header(RECORD)._replace(exchange_length=0).key_start == 64


@pytest.mark.parametrize("at", range(64))
def test_a_body_without_an_address_follows(at: int) -> None:
    """Each of the eight bytes of the address counts, and no other one."""
    record = bytearray(RECORD + bytes(8))
    record[at] |= 0x80
    assert is_inline(bytes(record)) is not (24 <= at < 32)
    assert is_inline(bytes(at) + b"\xff" * (64 - at)) is (at >= 32)
