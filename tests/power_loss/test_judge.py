# SPDX-License-Identifier: Apache-2.0
"""The judge finds each broken promise, in stores that are made up."""

from __future__ import annotations

import pytest

from tests.power_loss.content import body_of
from tests.power_loss.judge import Promises
from tests.power_loss.play import LEFT, RANKED, RIGHT, SOURCE, TARGET, TOKEN
from tests.power_loss.recovery import Found

MARKS: list[list[object]] = [
    ["declared", "q", 0],
    ["put", "q", "p", 0, 4],
    ["confirmed", "p", 0, 3],
    ["ack", "p", 0],
    ["gone", [["p", 0]]],
    ["put", SOURCE, "m", 0, 1],
    ["confirmed", "m", 0, 1],
    ["put", TOKEN, TOKEN, 0, 1],
    ["confirmed", TOKEN, 0, 1],
    ["commit", 0],
    ["committed", 0],
    ["commit", 1],
    ["put", "renewed", "r", 0, 1],
    ["confirmed", "r", 0, 1],
    ["delete", "renewed", "r"],
    ["deleted", "renewed", "r"],
]
STORE = {
    "q": [("p", 1), ("p", 2)],
    TARGET: [("m", 0)],
    TOKEN: [(TOKEN, 1)],
    LEFT: [(LEFT, 0)],
    RIGHT: [(RIGHT, 0)],
}


def findings_of(changed: dict[str, list[tuple[str, int]] | None]) -> list[str]:
    """What the judge says of the store with some queues changed; ``None``: the queue is not there."""
    promises = Promises()
    for words in MARKS:
        promises.mark(words)
    store = {name: messages for name, messages in {**STORE, **changed}.items() if messages is not None}
    return promises.findings({name: Found(0, [body_of(*one) for one in ones]) for name, ones in store.items()})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"q": [("p", 1), ("p", 2), ("p", 3)]},
        {SOURCE: [("m", 0)], TARGET: []},
        {TOKEN: [(TOKEN, 2)], LEFT: [(LEFT, 0), (LEFT, 1)], RIGHT: [(RIGHT, 0), (RIGHT, 1)]},
    ],
    ids=["as confirmed", "put, not confirmed", "before the move", "begun, not committed"],
)
def test_what_may_be(changed: dict[str, list[tuple[str, int]] | None]) -> None:
    """What was under way has happened or not."""
    assert findings_of(changed) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"q": [("p", 1)]}, "confirmed, and lost: 1, as [('p', 2)]"),
        ({"q": [("p", 0), ("p", 1), ("p", 2)]}, "acknowledged and synced, and there again: 1, as [('p', 0)]"),
        ({"q": [("p", 2), ("p", 1)]}, "queue 'q': 1 of ('p', 0) comes after 2"),
        ({"q": [("p", 1), ("p", 2), ("p", 2)]}, "in a wrong place: 1, as [('p', 2)]"),
        ({"q": [("p", 1), ("p", 2), ("p", 4)]}, "never put: 1, as [('p', 4)]"),
        ({SOURCE: [("m", 0)]}, "in a wrong place: 1, as [('m', 0)]"),
        ({RANKED: [("p", 1)]}, "in a wrong place: 1, as [('p', 1)]"),
        ({"q": None}, "queue 'q' is not there as it was declared: None"),
        ({TARGET: []}, "confirmed, and lost: 1, as [('m', 0)]"),
        ({TOKEN: []}, "a transaction in part: [], left [0], right [0]"),
        ({RIGHT: []}, "a transaction in part: [('token', 1)], left [0], right []"),
        ({TOKEN: [(TOKEN, 0)], LEFT: [], RIGHT: []}, "the token is 0: committed 0, begun 1"),
        ({LEFT: [], RIGHT: []}, "left is [], the token 1: drained -1, begun -1"),
        ({"renewed": [("r", 0)]}, "acknowledged and synced, and there again: 1, as [('r', 0)]"),
    ],
)
def test_what_may_not_be(changed: dict[str, list[tuple[str, int]] | None], said: str) -> None:
    """Each promise that is broken is named."""
    assert said in findings_of(changed)


def test_a_body_with_another_byte_is_found() -> None:
    """Also if it says rightly which message it is."""
    promises, body = Promises(), bytearray(body_of("p", 1))
    body[-1] ^= 1
    assert promises.findings({"q": Found(0, [bytes(body)])}) == ["queue 'q': the body of ('p', 1) is damaged"]


def test_the_order_within_a_priority_counts() -> None:
    """Messages of another priority may come between."""
    promises = Promises()
    promises.mark(["put", RANKED, "p", 0, 8])
    bodies = [body_of("p", number) for number in (3, 5, 4, 0, 2)]
    assert promises.findings({RANKED: Found(3, bodies)}) == []
    assert "comes after" in promises.findings({RANKED: Found(3, bodies[::-1])})[0]
