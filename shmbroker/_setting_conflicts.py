# SPDX-License-Identifier: Apache-2.0
"""Values of queue settings that do not go together.

A declaration and :meth:`Queue.configure` refuse them all. Address settings refuse those of one match that contradict
each other, whatever other matches give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker.settings import DEAD_LETTERING, PAGING, REJECTING, UNBOUNDED, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LETTERS = ("dead_letter_exchange", "dead_letter_routing_key", "expiry_exchange", "expiry_routing_key")
"""The settings that say where dead messages go."""

# Settings that do not go together: each of them decides which message comes next, or who gets it.
_EITHER = {
    "last_value_key": ("message_groups", "max_priority"),
    "sort_key": ("message_groups", "max_priority", "last_value_key"),
    "non_destructive": ("message_groups", "max_priority", "sort_key"),
}
_DEFAULTS = QueueSettings()
# Settings of queues whose messages do not leave the memory (`sb_departure.h`).
_STAY = (
    "ring_size", "max_length", "max_bytes", "message_groups", "last_value_key", "sort_key", "non_destructive",
)  # fmt: skip


class Conflict(NamedTuple):
    """Values that do not go together.

    Attributes:
        names: the settings that have them.
        text: the settings, their values and what is allowed.
    """

    names: tuple[str, ...]
    text: str


def check_together(queue: str, settings: QueueSettings) -> None:
    """Checks the settings of a queue that depend on each other.

    Raises:
        ValueError: two values do not go together. The error's text names the settings and the values.
    """
    for conflict in conflicts(queue, settings):
        raise ValueError(conflict.text)


def check_given(given: Mapping[str, Any]) -> None:
    """Checks values that are given together, to which others may come. Where messages go is left to the others.

    Raises:
        ValueError: two of the values do not go together. The error's text names the settings and the values.
    """
    for conflict in _conflicts_of_values(QueueSettings(**given)):
        if given.keys() >= set(conflict.names):
            raise ValueError(conflict.text)


def conflicts(queue: str, settings: QueueSettings) -> Iterator[Conflict]:
    """Yields what does not go together in the settings of a queue."""
    yield from _conflicts_of_values(settings)
    yield from _conflicts_of_letters(
        queue, "dead_letter", settings.dead_letter_exchange, settings.dead_letter_routing_key
    )
    yield from _conflicts_of_letters(queue, "expiry", settings.expiry_exchange, settings.expiry_routing_key)


def _conflicts_of_values(settings: QueueSettings) -> Iterator[Conflict]:
    yield from _conflicts_of_overflow(settings)
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if least is not None and most is not None and least > most:
        yield Conflict(
            ("min_expiry_delay", "max_expiry_delay"),
            f"min_expiry_delay={least!r}, max_expiry_delay={most!r}: the first must not be longer than the second",
        )
    for one, others in _EITHER.items():
        for other in others:
            if all(getattr(settings, name) != getattr(_DEFAULTS, name) for name in (one, other)):
                values = ", ".join(f"{name}={getattr(settings, name)!r}" for name in (one, other))
                yield Conflict((one, other), f"{values}: only one of them may be set")


def _conflicts_of_overflow(settings: QueueSettings) -> Iterator[Conflict]:
    """Yields what does not go together with what a queue does with messages that it has no room for."""
    if settings.ring_size != UNBOUNDED and settings.overflow in REJECTING:
        yield Conflict(
            ("ring_size", "overflow"),
            f"overflow={settings.overflow!r}, ring_size={settings.ring_size}: a ring makes room for each message, and "
            "rejects none; block, drop or drop-head are allowed",
        )
    if settings.overflow == "block":
        for name, limit in (("max_length", settings.max_length), ("max_bytes", settings.max_bytes)):
            if limit == 0:
                yield Conflict(
                    (name, "overflow"),
                    f"overflow='block', {name}=0: a put would wait for ever; drop, drop-head, reject-publish or "
                    f"reject-publish-dlx is allowed, or {name}=-1 or from 1",
                )
    if settings.overflow == PAGING:
        for name in _STAY:
            if getattr(settings, name) != getattr(_DEFAULTS, name):
                values = f"overflow={PAGING!r}, {name}={getattr(settings, name)!r}"
                text = "messages of such a queue stay in the memory; only one of them may be set"
                yield Conflict((name, "overflow"), f"{values}: {text}")
    if settings.overflow == DEAD_LETTERING and settings.dead_letter_exchange is None:
        yield Conflict(
            ("overflow", "dead_letter_exchange"), f"overflow={DEAD_LETTERING!r}: it needs a dead_letter_exchange"
        )


def _conflicts_of_letters(queue: str, which: str, exchange: str | None, key: str | None) -> Iterator[Conflict]:
    """Yields a routing key without an exchange, and a way that leads back to the queue itself."""
    names = (f"{which}_exchange", f"{which}_routing_key")
    if key is not None and exchange is None:
        text = f"{which}_routing_key={key!r}: it needs {'an' if which == 'expiry' else 'a'} {which}_exchange"
        yield Conflict(names, text)
    if exchange == "" and key == queue:
        role = which.replace("_", "-")
        text = f"{which}_exchange='', {which}_routing_key={key!r}: a queue cannot be its own {role} queue"
        yield Conflict(names, text)
