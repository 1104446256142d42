# SPDX-License-Identifier: Apache-2.0
"""The headers that tell how often and why a message was dead-lettered, in RabbitMQ's form.

``x-death`` is an array with one table for each queue and reason, the latest death first. ``x-first-death-queue``,
``-reason`` and ``-exchange`` are those of the first death, ``x-last-death-...`` those of the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping

DEATHS = "x-death"
_TOLD = ("reason", "queue", "exchange")
_MOST_COUNTED = 2**63 - 1  # the greatest integer of a field table
REJECTED, EXPIRED, MAX_LENGTH, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"


class Death(NamedTuple):
    """One death of a message.

    Attributes:
        queue: the queue that the message was in.
        reason: ``"rejected"``, ``"expired"``, ``"maxlen"`` or ``"delivery_limit"``.
        exchange: the exchange that the message was published to.
        routing_keys: its routing key, and those of its header CC.
        time: now, in UTC.
        expiration: the property ``expiration`` of the message; ``None``: it had none.
    """

    queue: str
    reason: str
    exchange: str
    routing_keys: tuple[str, ...]
    time: dt.datetime
    expiration: str | None = None


def deaths_of(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the deaths in the headers of a message, the latest first. Ignores what does not have the form of one."""
    found = headers.get(DEATHS)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def with_death(headers: Mapping[str, Any] | None, death: Death) -> dict[str, Any]:
    """Returns the headers with one more death.

    A message that died in the queue before, for the same reason, keeps that entry, which counts one more and comes
    first.
    """
    changed = dict(headers or {})
    earlier = deaths_of(changed)
    same = next((one for one in earlier if (one.get("queue"), one.get("reason")) == (death.queue, death.reason)), None)
    others = [one for one in earlier if one is not same]
    if same is None:
        entry: dict[str, Any] = {
            "count": 1,
            "reason": death.reason,
            "queue": death.queue,
            "time": death.time,
            "exchange": death.exchange,
            "routing-keys": list(death.routing_keys),
        }
        if death.expiration is not None:
            entry["original-expiration"] = death.expiration
    else:
        count = same.get("count")
        entry = {**same, "count": min(count, _MOST_COUNTED - 1) + 1 if isinstance(count, int) else 1}
    changed[DEATHS] = [entry, *others]
    for when in ("first", "last") if "x-first-death-queue" not in changed else ("last",):
        changed[f"x-{when}-death-reason"] = death.reason
        changed[f"x-{when}-death-queue"] = death.queue
        changed[f"x-{when}-death-exchange"] = death.exchange
    return changed


def fresh(headers: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns those of the headers that :func:`with_death` has made or replaced.

    Args:
        headers: what `with_death` returned.
        earlier: the headers before.
    """
    told = [DEATHS, *(f"x-last-death-{what}" for what in _TOLD)]
    if "x-first-death-queue" not in (earlier or {}):
        told += [f"x-first-death-{what}" for what in _TOLD]
    return {name: headers[name] for name in told}


def ever_shorter(headers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the headers that `with_death` returned, then shorter ones, for a message that has no room for all of them.

    The shorter ones keep the latest death, then no more of it than :func:`closes_circle` needs. The last ones have no
    other headers, as those of the application may have a form that cannot be encoded.
    """
    yield dict(headers)
    latest, *_ = deaths_of(headers)
    yield {**headers, DEATHS: [latest]}
    bare = {name: latest[name] for name in ("count", "reason", "queue")}
    yield {**headers, DEATHS: [bare]}
    yield {DEATHS: [bare]}


def closes_circle(headers: Mapping[str, Any], queue: str) -> bool:
    """Whether a dead message went round in a circle by itself: it comes to a queue that it died in before.

    A circle in which a consumer rejected the message is none: it ends when the consumers stop rejecting.
    """
    for one in deaths_of(headers):
        if one.get("reason") == REJECTED:
            return False
        if one.get("queue") == queue:
            return True
    return False
