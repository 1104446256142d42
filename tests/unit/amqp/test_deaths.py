# SPDX-License-Identifier: Apache-2.0
"""The headers of dead messages, in RabbitMQ's form."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from shmbroker._amqp import deaths
from shmbroker._amqp.deaths import Death, closes_circle, deaths_of, with_death

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def death(queue: str, reason: str = deaths.REJECTED, expiration: str | None = None) -> Death:
    """Return a death now, of a message that was published to an exchange."""
    return Death(queue, reason, "orders", ("new", "copy"), NOW, expiration)


def dead(*died: Death) -> dict[str, Any]:
    """Return the headers of a message that died so, one after the other."""
    headers: dict[str, Any] = {}
    for one in died:
        headers = with_death(headers, one)
    return headers


def test_the_first_death() -> None:
    """It has an entry, and is the first and the last; other headers stay."""
    headers = with_death({"colour": "red"}, death("a"))
    assert headers == {
        "colour": "red",
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "a",
                "time": NOW,
                "exchange": "orders",
                "routing-keys": ["new", "copy"],
            }
        ],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "a",
        "x-first-death-exchange": "orders",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "a",
        "x-last-death-exchange": "orders",
    }


def test_without_headers() -> None:
    """A message without headers gets them, and the given ones are not changed."""
    given = {"x": 1}
    with_death(given, death("a"))
    assert given == {"x": 1}
    assert with_death(None, death("a"))["x-first-death-queue"] == "a"


def test_the_expiration_is_kept() -> None:
    """An entry tells the expiration that the message had; without one it says nothing."""
    assert dead(death("a", deaths.EXPIRED, "100"))["x-death"][0]["original-expiration"] == "100"
    assert "original-expiration" not in dead(death("a"))["x-death"][0]


def test_a_later_death_comes_first() -> None:
    """The latest is the first of the list; the first one keeps its headers, the last one gets them."""
    headers = dead(death("a"), death("b", deaths.MAX_LENGTH))
    assert [one["queue"] for one in headers["x-death"]] == ["b", "a"]
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("a", "rejected")
    assert (headers["x-last-death-queue"], headers["x-last-death-reason"]) == ("b", "maxlen")


def test_the_same_death_again_counts() -> None:
    """Same queue and same reason: one entry, which counts and comes first. Another reason has an entry of its own."""
    headers = dead(death("a"), death("b"), death("a"), death("a", deaths.EXPIRED))
    assert [(one["queue"], one["reason"], one["count"]) for one in headers["x-death"]] == [
        ("a", "expired", 1),
        ("a", "rejected", 2),
        ("b", "rejected", 1),
    ]


@pytest.mark.parametrize("found", [None, "text", 5, {"queue": "a"}])
def test_headers_of_another_form_are_replaced(found: object) -> None:
    """A client may have sent anything as x-death."""
    assert deaths_of({"x-death": found}) == []
    assert len(with_death({"x-death": found}, death("a"))["x-death"]) == 1


def test_entries_of_another_form_are_ignored() -> None:
    """What is no table is left out, and a count that is no number begins again."""
    headers = with_death({"x-death": [1, {"queue": "a", "reason": "rejected", "count": "many"}]}, death("a"))
    assert headers["x-death"] == [{"queue": "a", "reason": "rejected", "count": 1}]


@pytest.mark.parametrize(
    ("died", "queue", "closes"),
    [
        ((), "a", False),
        ((death("a", deaths.EXPIRED),), "a", True),
        ((death("a", deaths.EXPIRED),), "b", False),
        ((death("a", deaths.MAX_LENGTH), death("b", deaths.EXPIRED)), "a", True),
        ((death("a", deaths.EXPIRED), death("b", deaths.REJECTED)), "a", False),
        ((death("a", deaths.REJECTED), death("b", deaths.EXPIRED)), "a", False),
        ((death("a", deaths.REJECTED), death("b", deaths.EXPIRED)), "b", True),
        ((death("a", deaths.DELIVERY_LIMIT),), "a", True),
    ],
)
def test_a_circle(died: tuple[Death, ...], queue: str, closes: bool) -> None:  # noqa: FBT001
    """A queue that the message was dead in closes a circle, unless a consumer has rejected the message since."""
    assert closes_circle(dead(*died), queue) is closes
