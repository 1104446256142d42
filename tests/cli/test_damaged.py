# SPDX-License-Identifier: Apache-2.0
"""Commands on a broker whose memory is not what it should be: one line, and the way out."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmbroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory lies on Linux)
LAYOUT_MAJOR_OFFSET = 8
NOBODY = 65534


def segment(name: str, number: int) -> Path:
    """Return where a segment of the broker's memory lies."""
    return SHARED_MEMORY / f"shmbroker-{os.getuid()}.{name}.{number}"


def other_layout(name: str) -> str:
    """Give the broker the layout of another version."""
    with segment(name, 0).open("r+b") as file:
        file.seek(LAYOUT_MAJOR_OFFSET)
        file.write(struct.pack("<II", 42, 7))
    return "layout 42.7"


def noise(name: str) -> str:
    """Fill the first segment with random bytes."""
    segment(name, 0).write_bytes(random.Random(1).randbytes(segment(name, 0).stat().st_size))
    return "is not a broker's"


def zeros(name: str) -> str:
    """Fill the first segment with zeros."""
    segment(name, 0).write_bytes(bytes(segment(name, 0).stat().st_size))
    return "is not a broker's"


def nothing(name: str) -> str:
    """Leave nothing of the first segment."""
    os.truncate(segment(name, 0), 0)
    return "is truncated"


def half_a_header(name: str) -> str:
    """Leave a part of the first segment."""
    os.truncate(segment(name, 0), 100_000)
    return "is truncated"


def half_a_segment(name: str) -> str:
    """Leave a part of the second segment."""
    os.truncate(segment(name, 1), segment(name, 1).stat().st_size // 2)
    return "is truncated"


def no_segment(name: str) -> str:
    """Remove the second segment."""
    segment(name, 1).unlink()
    return "contradicts itself"


def no_lock(name: str) -> str:
    """Remove the lock file."""
    (SHARED_MEMORY / f"shmbroker-{os.getuid()}.{name}.lock").unlink()
    return "NOT_FOUND"


DAMAGE = [other_layout, noise, zeros, nothing, half_a_header, half_a_segment, no_segment, no_lock]
each_damage = pytest.mark.parametrize("damage", DAMAGE)


@pytest.fixture
def resting(broker_name: str) -> Iterator[str]:
    """Leave the memory of a broker whose processes have ended."""
    with shmbroker.Broker(broker_name, memory="32M") as broker, broker.connect() as connection:
        connection.queue("q").put(b"x")
    yield broker_name
    for file in SHARED_MEMORY.glob(f"*{broker_name}*"):
        file.unlink()


@each_damage
@pytest.mark.parametrize(
    "arguments",
    [("doctor",), ("status",), ("stop",), ("queue", "list"), ("publish", "q", "x"), ("consume", "q"), ("connections",)],
    ids=" ".join,
)
def test_a_damaged_broker_is_one_line(
    cli: Callable[..., Any], resting: str, damage: Callable[[str], str], arguments: tuple[str, ...]
) -> None:
    """Exit code 1, the name, what is wrong; no traceback."""
    words = damage(resting)
    ran = cli(*arguments)
    said = ran.err or ran.out
    assert (ran.code, said.count("\n")) == (1, 1), ran
    assert resting in said
    assert words in said


def journal(name: str) -> Path:
    """Return where the exchanges and bindings of the broker lie."""
    return max(SHARED_MEMORY.glob(f"*{name}.journal-*"), key=lambda file: file.stat().st_size)


def half_a_journal(name: str) -> str:
    """Leave a part of it."""
    os.truncate(journal(name), journal(name).stat().st_size // 2)
    return "cut short"


def noise_in_the_journal(name: str) -> str:
    """Fill it with other bytes."""
    journal(name).write_bytes(b"\xee" * journal(name).stat().st_size)
    return "journal is damaged"


def no_journal(name: str) -> str:
    """Remove it."""
    path = journal(name)
    path.unlink()
    return str(path)


@pytest.mark.damaged
@pytest.mark.parametrize("damage", [half_a_journal, noise_in_the_journal, no_journal])
def test_a_damaged_journal_is_one_line(cli: Callable[..., Any], resting: str, damage: Callable[[str], str]) -> None:
    """For whoever needs exchanges; the doctor finds it, and queues go on."""
    assert cli("exchange", "create", "events").code == 0
    words = damage(resting)
    for command in (
        *(("exchange", "list"), ("exchange", "delete", "events"), ("bindings",), ("top",)),
        *(("bind", "events", "q"), ("unbind", "events", "q"), ("publish", "--exchange", "events", "x")),
    ):
        assert cli(*command).is_refused(words)
    ran = cli("doctor")
    assert (ran.code, ran.out.count("\n")) == (1, 1)
    assert words in ran.out
    assert cli("consume", "q", "--count", "1").lines == ["x"]


@each_damage
def test_a_damaged_broker_is_in_the_list(cli: Callable[..., Any], resting: str, damage: Callable[[str], str]) -> None:
    """With what is wrong with it, as long as its first segment is there."""
    damage(resting)
    listed = {one["name"]: one for one in cli("list", "--json").facts}
    assert damage is no_lock or listed[resting]["problem"]


@pytest.mark.damaged
@each_damage
def test_a_damaged_broker_can_be_removed(cli: Callable[..., Any], resting: str, damage: Callable[[str], str]) -> None:
    """Whatever its layout: nothing of it stays."""
    damage(resting)
    assert cli("stop", "--purge").code == 0
    assert list(SHARED_MEMORY.glob(f"*{resting}*")) == []


@pytest.mark.damaged
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("arguments", [("doctor",), ("status",), ("stop",), ("stop", "--purge")], ids=" ".join)
def test_the_broker_of_somebody_else_is_left_alone(
    cli: Callable[..., Any], resting: str, arguments: tuple[str, ...]
) -> None:
    """It is refused in one line, and stays."""
    os.chown(segment(resting, 0), NOBODY, NOBODY)
    assert cli(*arguments).is_refused("ACCESS_REFUSED", resting, "belongs to user 65534")
    assert segment(resting, 0).exists()
