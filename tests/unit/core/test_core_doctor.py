# SPDX-License-Identifier: Apache-2.0
"""What the core's part of a connection says of a full broker, and of a damaged one."""

# ruff: noqa: SLF001 - what only damage brings about is brought about by hand
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted

import shmbroker
from shmbroker._core import examination, findings, native, segments
from shmbroker._core.growing import out_of_memory
from shmbroker.exceptions import BrokerError, CorruptSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.connection import CoreConnection

STATUS = native.slow.SB_CORRUPT
DAMAGED = "shared memory contradicts itself"
FINDINGS = 1000


@pytest.fixture
def connection(broker_name: str) -> Iterator[shmbroker.Connection]:
    """Connect to a broker without a housekeeper."""
    shmbroker.Broker(broker_name, memory="64M").create()
    with shmbroker.connect(broker_name, create=False, client_name="one") as opened:
        yield opened


def test_the_error_of_a_full_broker_names_who_has_most(connection: shmbroker.Connection, core: CoreConnection) -> None:
    """With its bytes; without bodies nobody has any. What there was no room for is told if it is a body."""
    connection.queue("empty")
    nobody = str(out_of_memory(core, 0))
    assert f"broker {connection.broker_name!r} has no room: " in nobody
    assert "; no queue holds bodies" in nobody
    connection.queue("least").put(b"A")
    assert "; queue 'least' holds most, 1 bytes" in str(out_of_memory(core, 0))
    for name, size in (("little", 10), ("most", 30), ("some", 20)):
        connection.queue(name).put(bytes(size))
    text = str(out_of_memory(core, 1))
    assert f"broker {connection.broker_name!r} has no room for a body of 1 bytes: " in text
    assert "; queue 'most' holds most, 30 bytes" in text
    assert text.endswith(core.occupancy())
    assert core.occupancy().startswith("; of its chunks of 2 MiB ")


def test_a_queue_that_goes_while_the_error_is_worded(
    connection: shmbroker.Connection, core: CoreConnection, patched: pytest.MonkeyPatch
) -> None:
    """The others are looked at."""
    for name in ("gone", "there"):
        connection.queue(name).put(b"12345")
    gone, facts = core.queue_slot("gone"), core.queue_facts
    patched.setattr(core, "queue_facts", lambda slot: None if slot == gone else facts(slot))
    assert "; queue 'there' holds most, 5 bytes" in str(out_of_memory(core, 0))


# ---- the doctor ----


FINDING = findings.Finding(code=native.slow.SB_UNREAPED, queue=0, slot=0, which=0, of=0, where=0, found=5, expected=0)


def finding(**fields: int) -> findings.Finding:
    """One with other fields."""
    return FINDING._replace(**fields)


def test_what_is_found_once_was_under_way(core: CoreConnection, patched: pytest.MonkeyPatch) -> None:
    """The doctor tells what it finds twice, in its words; a healthy broker is examined once."""
    checks = [(3, [FINDING, finding(found=6), finding(found=7)]), (2, [finding(found=7), FINDING]), (0, [])]
    patched.setattr(examination, "_check", lambda *_: checks.pop(0))
    text = "process {} has died and is not cleared up after yet: what was found may come of that"
    assert core.doctor() == [text.format(5), text.format(7)]
    assert core.doctor() == []
    assert checks == []


def test_findings_that_were_under_way_count_as_none(core: CoreConnection, patched: pytest.MonkeyPatch) -> None:
    """If the second check finds few, the many of the first one that did not fit are not told of."""
    checks = [(FINDINGS + 7, [FINDING] * FINDINGS), (1, [FINDING])]
    patched.setattr(examination, "_check", lambda *_: checks.pop(0))
    assert [line for line in core.doctor() if "more" in line] == []


@pytest.mark.parametrize(("count", "more"), [(FINDINGS - 1, []), (FINDINGS, []), (FINDINGS + 1, ["... and 1 more"])])
def test_more_findings_than_fit(core: CoreConnection, patched: pytest.MonkeyPatch, count: int, more: list[str]) -> None:
    """How many more there are is told."""
    patched.setattr(examination, "_check", lambda *_: (count, [FINDING]))
    assert core.doctor()[1:] == more


def test_a_finding_names_its_queue(
    connection: shmbroker.Connection, core: CoreConnection, patched: pytest.MonkeyPatch
) -> None:
    """By its name, if it has one."""
    connection.queue("mine")
    ours = finding(code=native.slow.SB_BAD_QUEUE, queue=core.queue_slot("mine"))
    other = finding(code=native.slow.SB_BAD_QUEUE, queue=0)
    patched.setattr(examination, "_check", lambda *_: (2, [ours, other]))
    assert core.doctor() == ["queue 'mine': ring_size is 5", "the queue in slot 0: ring_size is 5"]


@pytest.mark.parametrize(("more", "count"), [(-1, -1), (0, 0), (1, None)])
def test_files_are_examined_first(
    core: CoreConnection, patched: pytest.MonkeyPatch, more: int, count: int | None
) -> None:
    """All that the broker says it has, if it may have as many; where one is damaged, memory is not touched."""
    facts, damaged = core.attachment.facts(), Noted(lambda *_: ["segment 1: cut short"])
    facts = facts._replace(segments=facts.segments_limit + more)
    patched.setattr(core.attachment, "facts", lambda: facts)
    patched.setattr(segments, "damaged", damaged)
    patched.setattr(examination, "_check", None)
    assert core.doctor() == ["segment 1: cut short"]
    expected = 0 if count is None else facts.segments_limit + count
    assert damaged.calls == [(core.attachment.path, expected, facts.chunks_per_segment)]


def checks(*found: dict[str, int], count: int | None = None) -> Callable[..., int]:
    """A check of the core that finds these."""

    def check(_handle: object, memory: Any, room: int) -> int:  # noqa: ANN401
        assert room == FINDINGS
        for number, fields in enumerate(found):
            for name, value in fields.items():
                setattr(memory[number], name, value)
        return len(found) if count is None else count

    return check


def test_what_the_core_finds_is_copied(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """As many as there are, and as there is room for."""
    first = {"code": native.slow.SB_UNREAPED, "queue": 1, "slot": 2, "which": 3, "of": 4, "where": 5, "found": 6,
             "expected": 7}  # fmt: skip
    other_calls(sb_broker_check=checks(first, {"code": native.slow.SB_BAD_QUEUE}))
    count, found = examination._check(core.handle, core.attachment.name)
    assert (count, found[0]) == (2, findings.Finding(**first))
    assert [one.code for one in found] == [native.slow.SB_UNREAPED, native.slow.SB_BAD_QUEUE]
    other_calls(sb_broker_check=checks(count=0))
    assert examination._check(core.handle, core.attachment.name) == (0, [])
    other_calls(sb_broker_check=checks(first, count=FINDINGS + 5))
    count, found = examination._check(core.handle, core.attachment.name)
    assert (count, len(found)) == (FINDINGS + 5, FINDINGS)


def test_a_broker_that_could_not_be_examined(core: CoreConnection, other_calls: Callable[..., None]) -> None:
    """The error says why: the status, or that this process has no memory."""
    not_checked = {"code": native.slow.SB_NOT_CHECKED}
    other_calls(sb_broker_check=checks(not_checked | {"found": STATUS}))
    with pytest.raises(CorruptSegment, match=f"the connection: {DAMAGED}"):
        core.doctor()
    other_calls(sb_broker_check=checks(not_checked | {"found": native.slow.SB_SYSTEM}))
    with pytest.raises(BrokerError) as failed:
        core.doctor()
    assert (failed.value.code, failed.value.text) == (
        541,
        f"broker {core.attachment.name!r} was not examined: this process has no memory for that",
    )
