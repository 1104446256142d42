# SPDX-License-Identifier: Apache-2.0
"""What the machine chooses from: the settings of its queues, and the messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from tests.queue_machine.reference import Message, Settings

DELAY_SECONDS = 0.06
"""Of delayed messages. It is long enough that the housekeeper sees them before they are due."""
NO_WAIT, FOR_EVER = 0.001, 1000.0
"""Delays of gates: `NO_WAIT` is over whenever the machine looks, `FOR_EVER` never is."""
SIZES = (8, 8, 16, 24)
PRIORITIES = (0, 0, 1, 2, 3, 9)
COLOURS = (None, "red", "blue")
GROUPS = (None, "a", "b", "c")
SPECIALS = (*[""] * 7, "ends group", "ends group", "ends group", "expired", "delayed")
IDS = (*[None] * 5, "one", "two", "three", "four", "five")
KINDS_OF_MESSAGES = len(SIZES) * len(PRIORITIES) * len(COLOURS) * len(GROUPS) * len(SPECIALS) * len(IDS)
KEY = "colour"
"""The header that says what a message is the last value of."""

VALUES: tuple[dict[str, Any], ...] = ({}, {}, {}, {"last_value_key": KEY}, {"last_value_key": KEY})
REMEMBERED: tuple[dict[str, Any], ...] = ({}, {}, {"duplicate_ids": 1}, {"duplicate_ids": 2}, {"duplicate_ids": 4})
ATTACHING: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {},
    {"max_consumers": 0},
    {"max_consumers": 1},
    {"max_consumers": 2},
    {"consumers_before_dispatch": 1},
    {"consumers_before_dispatch": 2},
    {"consumers_before_dispatch": 2, "delay_before_dispatch": FOR_EVER},
    {"consumers_before_dispatch": 3, "delay_before_dispatch": NO_WAIT},
    {"consumers_before_dispatch": 2, "max_consumers": 2},
    {"delay_before_dispatch": FOR_EVER},
    {"delay_before_dispatch": NO_WAIT},
)

LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"ring_size": 1},
    {"ring_size": 3},
    {"max_length": 3},
    {"max_length": 2, "overflow": "drop"},
    {"max_length": 3, "overflow": "drop-head"},
    {"max_length": 3, "overflow": "reject-publish"},
    {"max_length": 2, "overflow": "reject-publish-dlx"},
    {"max_bytes": 40},
    {"max_bytes": 20, "overflow": "drop"},
    {"max_bytes": 40, "overflow": "drop-head"},
    {"max_bytes": 20, "overflow": "reject-publish"},
    {"ring_size": 4, "max_length": 2, "overflow": "drop-head"},
    {"ring_size": 3, "max_length": 5, "max_bytes": 64, "overflow": "drop-head"},
    {"ring_size": 4, "max_bytes": 64},
)
ORDERS: tuple[dict[str, Any], ...] = (
    {},
    {"max_priority": 3},
    {"max_priority": 1},
    {"message_groups": "sticky"},
    {"message_groups": "shared"},
    {"message_groups": "sticky", "group_buckets": 1},
    {"single_active_consumer": True},
    {"single_active_consumer": True, "max_priority": 2},
    {"sort_key": "colour"},
    {"sort_key": "colour", "single_active_consumer": True},
)
DEATHS: tuple[dict[str, Any], ...] = (
    {},
    {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"},
    {"dead_letter_exchange": "dying"},
    {"dead_letter_exchange": "nowhere"},
)
RETURNS: tuple[dict[str, Any], ...] = (
    {},
    {"max_delivery_attempts": 1},
    {"max_delivery_attempts": 2},
    {"max_delivery_attempts": 3, "redelivery_delay": DELAY_SECONDS},
    {"redelivery_delay": DELAY_SECONDS},
    {"message_ttl": 1000.0, "max_delivery_attempts": 3},
)
DEAD: tuple[dict[str, Any], ...] = (
    {},
    {"max_length": 2},
    {"ring_size": 3},
    {"max_length": 3, "overflow": "drop"},
    {"max_length": 3, "overflow": "drop-head"},
    {"max_priority": 3},
    {"last_value_key": KEY},
    {"last_value_key": KEY, "max_length": 2},
    {"duplicate_ids": 3},
)
OTHER: tuple[dict[str, Any], ...] = (
    {},
    {"ring_size": 4},
    {"max_length": 4},
    {"max_length": 4, "overflow": "drop"},
    {"max_bytes": 64, "overflow": "drop-head"},
    {"max_priority": 2},
    {"message_groups": "shared"},
    {"last_value_key": KEY},
    {"last_value_key": KEY, "max_length": 2},
    {"duplicate_ids": 2},
    {"max_consumers": 1},
    {"consumers_before_dispatch": 2},
)
CHANGES: tuple[dict[str, Any], ...] = (
    {"ring_size": -1},
    {"ring_size": 1},
    {"ring_size": 3},
    {"max_length": -1},
    {"max_length": 2},
    {"max_length": 5},
    {"max_bytes": -1},
    {"max_bytes": 32},
    {"max_delivery_attempts": -1},
    {"max_delivery_attempts": 2},
    {"redelivery_delay": 0.0},
    {"redelivery_delay": DELAY_SECONDS},
    {"overflow": "drop"},
    {"overflow": "drop-head"},
    {"overflow": "block"},
    {"overflow": "reject-publish"},
    {"message_ttl": None},
    {"message_ttl": 0},
    {"duplicate_ids": 0},
    {"duplicate_ids": 1},
    {"duplicate_ids": 3},
    {"max_consumers": -1},
    {"max_consumers": 0},
    {"max_consumers": 1},
    {"max_consumers": 2},
    {"consumers_before_dispatch": 0},
    {"consumers_before_dispatch": 2},
    {"delay_before_dispatch": 0.0},
    {"delay_before_dispatch": NO_WAIT},
    {"delay_before_dispatch": FOR_EVER},
)


class Put(NamedTuple):
    """A message to put, in the forms that the reference, a queue and a channel take."""

    message: Message
    body: bytes
    options: dict[str, Any]
    properties: dict[str, Any]


def put_of(number: int, kind: int, *, lasts: bool) -> Put:
    """The message of a kind, with a body of its own; kind 0 is the plainest. One that `lasts` does not expire."""
    kind, size = divmod(kind, len(SIZES))
    kind, priority = divmod(kind, len(PRIORITIES))
    kind, colour = divmod(kind, len(COLOURS))
    kind, group = divmod(kind, len(GROUPS))
    kind, special_at = divmod(kind, len(SPECIALS))
    special, duplicate_id = SPECIALS[special_at], IDS[kind % len(IDS)]
    message = Message(
        f"m{number}", SIZES[size], PRIORITIES[priority], COLOURS[colour], GROUPS[group],
        special == "ends group" and GROUPS[group] is not None, special == "expired" and not lasts, special == "delayed",
        duplicate_id=duplicate_id,
    )  # fmt: skip
    headers: dict[str, Any] = {}
    if message.colour is not None:
        headers[KEY] = message.colour
    if message.duplicate_id is not None:
        headers["x-duplicate-id"] = message.duplicate_id
    if message.group is not None:
        headers["JMSXGroupID"] = message.group
    if message.ends_group:
        headers["JMSXGroupSeq"] = -1
    options: dict[str, Any] = {"priority": message.priority, "headers": dict(headers)}
    if message.expired:
        options["ttl"] = 1e-9
    if message.delayed:
        options["delay"] = DELAY_SECONDS
    properties: dict[str, Any] = {"priority": message.priority, "headers": headers}
    if message.expired:
        properties["expiration"] = "0"
    return Put(message, message.body.ljust(message.size, ".").encode(), options, properties)


def combined(*parts: dict[str, Any]) -> Settings:
    """Settings out of several parts. A part that does not go together with those before it is left out."""
    settings = Settings()
    for part in parts:
        settings = checked(replace(settings, **part)) or settings
    return settings


def checked(settings: Settings) -> Settings | None:
    """The settings, if they go together."""
    rejects = settings.overflow.startswith("reject")
    grouped = settings.message_groups != "none"
    wrong = (
        (rejects and settings.ring_size != -1)
        or (settings.overflow == "reject-publish-dlx" and settings.dead_letter_exchange is None)
        or (grouped and settings.max_priority)
        or (settings.sort_key is not None and (grouped or settings.max_priority or settings.last_value_key is not None))
        or (settings.last_value_key is not None and (grouped or settings.max_priority))
    )
    return None if wrong else settings


def admits_claims(settings: Settings) -> bool:
    """Whether the machine claims such queues exclusively: with a selector that selects nothing."""
    return settings.message_groups == "none" and not settings.single_active_consumer
