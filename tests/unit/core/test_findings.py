# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds, in words: each field at its place."""

from __future__ import annotations

import string
from types import SimpleNamespace

import pytest

from shmbroker._core import findings
from shmbroker._core.findings import Finding
from shmbroker._core.native import slow

KINDS = [
    "a message", "a leaf page", "an inner page", "a queue", "a consumer node", "a priority level", "a ledger",
    "a connection record", "a table of holdings", "a long leaf page", "a queue with texts",
    "a lane of messages", "the claims on message groups", "a node of last values", "duplicate ids", "no slot",
    "number 16",
]  # fmt: skip
RINGS = [
    "messages", "list of all consumers", "list of no_local consumers", "list of idle consumers",
    "list of waiting producers", "schedule", "list of interested consumers", "list of notified consumers",
    "list of those who wait for memory", "messages of a lane", "number 10",
]  # fmt: skip
STATES = ["removed", "not interested", "interested", "notified", "non acquiring", "number 5"]
MINUS_ONE = 2**64 - 1
SENTENCES = [(code, which) for code, sentences in findings._SENTENCES.items() for which in range(len(sentences))]  # noqa: SLF001


def finding(code: int, which: int = 0, **fields: int) -> Finding:
    """What the core might find."""
    given = {"queue": 20, "slot": 21, "of": 2, "where": 22, "found": 3, "expected": 4} | fields
    return Finding(code=code, which=which, **given)


def words(code: int, which: int = 0, queue: str | None = "jobs", **fields: int) -> str:
    """It in words."""
    return finding(code, which, **fields).message(queue)


def test_a_finding_is_copied() -> None:
    """All its fields, as numbers of Python."""
    fields = dict(zip(("code", "queue", "slot", "which", "of", "where", "found", "expected"), range(8), strict=True))
    assert Finding.copied(SimpleNamespace(**fields)) == Finding(**fields)


TOLD = {
    (slow.SB_NOT_CHECKED, 0, 3, 4): "the memory could not be examined (status 3)",
    (slow.SB_BAD_HEADER, 0, 255, 16): "header: magic is 0xff, not 0x10",
    (slow.SB_BAD_CLASS, 1, 3, 4): "class 21: holds kind 3, not 4",
    (slow.SB_BAD_CHUNK, 4, 16, 4): "chunk 21: in use, but there are only 4 chunks (word 0x10)",
    (slow.SB_BAD_OWNER, 2, 3, 4): (
        "{}, position 22: the message in slot 21 is held by connection 3, which does not exist"
    ),
    (slow.SB_LEAKED_SLOT, 0, 3, 4): (
        "slot 21 (an inner page): in use, but nothing refers to it (references 0x3, seen 0x4)"
    ),
    (slow.SB_BAD_PAGE, 1, 3, 4): (
        "list of no_local consumers of {}, from position 22: the page should be in slot 21, which is a queue, "
        "not a consumer node"
    ),
    (slow.SB_SHARED_REFERENCE, 0, 3, 4): (
        "{}, position 22: refers to slot 21 by reference 3, as another position does"
    ),
    (slow.SB_LOST_NODE, 1, 3, 4): (
        "{}, slot 21: a node of connection 22 is notified, but no list has it: nobody would tell it"
    ),
}


@pytest.mark.parametrize(("queue", "name"), [("jobs", "queue 'jobs'"), (None, "the queue in slot 20")])
@pytest.mark.parametrize("fields", list(TOLD))
def test_sentences(fields: tuple[int, int, int, int], queue: str | None, name: str) -> None:
    """Of the code and of `which`, with the fields of the finding; a queue that has no name has its slot."""
    code, which, found, expected = fields
    assert words(code, which, queue, found=found, expected=expected) == TOLD[fields].format(name)


@pytest.mark.parametrize(("code", "which"), SENTENCES)
def test_every_sentence_can_be_told(code: int, which: int) -> None:
    """It uses fields that there are, and each that it names is in it."""
    sentence = findings._SENTENCES[code][which]  # noqa: SLF001
    told = words(code, which, queue="Q", slot=777, where=888, of=8)
    shown = {"slot": "777", "where": "888", "queue": "queue 'Q'"}
    for name in {name for _, name, _, _ in string.Formatter().parse(sentence) if name in shown}:
        assert shown[name] in told
    assert "{" not in told


@pytest.mark.parametrize(("kind", "name"), list(enumerate(KINDS)))
def test_kinds(kind: int, name: str) -> None:
    """Of a slot: its own, what was found, and what was expected."""
    assert words(slow.SB_BAD_SLOT, of=kind) == f"slot 21 ({name}): free, but with references (header 0x3)"
    assert words(slow.SB_BAD_CHAIN, found=kind).endswith(f"which does not belong there ({name})")
    assert words(slow.SB_BAD_PAGE, 1, expected=kind).endswith(f", not {name}")


@pytest.mark.parametrize(("ring", "name"), list(enumerate(RINGS)))
def test_rings(ring: int, name: str) -> None:
    """The list that a page, cell or entry is of."""
    expected = f"{name} of queue 'jobs', position 22: impossible cell 0x3 (generation 0x4)"
    assert words(slow.SB_BAD_CELL, of=ring) == expected


@pytest.mark.parametrize(("state", "name"), list(enumerate(STATES)))
def test_states(state: int, name: str) -> None:
    """Of a consumer."""
    assert words(slow.SB_LOST_NODE, 2, found=state) == (
        f"queue 'jobs', slot 21: a node of connection 22 is {name}, but the list of all does not have it"
    )


@pytest.mark.parametrize("code", [slow.SB_BAD_COUNT, slow.SB_BAD_HINT, slow.SB_BAD_LIST])
@pytest.mark.parametrize(
    ("value", "seen"), [(MINUS_ONE, -1), (2**63, -(2**63)), (2**63 - 1, 2**63 - 1), (0, 0), (5, 5)]
)
def test_numbers_that_may_be_negative(code: int, value: int, seen: int) -> None:
    """Counters that went below none are told so, found or expected."""
    assert f" {seen}" in words(code, found=value, expected=4)
    assert words(code, expected=value).endswith(f" {seen}")
    assert words(slow.SB_BAD_QUEUE, found=value) == f"queue 'jobs': ring_size is {seen}"


def test_other_numbers_are_not_negative() -> None:
    """A position or a word may have its highest bit."""
    told = words(slow.SB_BAD_TIMER, found=MINUS_ONE, expected=2**63)
    assert told == f"queue 'jobs': entry 22 of its schedule names position {MINUS_ONE}, the queue ends at {2**63}"


@pytest.mark.parametrize(("code", "which"), [(9999, 0), (slow.SB_BAD_CLASS, 3), (slow.SB_BAD_CLASS, 4)])
def test_what_has_no_sentence(code: int, which: int) -> None:
    """A finding of a later core is told by its numbers."""
    assert words(code, which, found=255, expected=16) == (
        f"finding {code}.{which} of 2 at slot 21, 22: 0xff, expected 0x10"
    )
