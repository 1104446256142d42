# SPDX-License-Identifier: Apache-2.0
"""The table of address settings: what each match gives, and what follows for an address.

The settings of an address are merged field by field. For each setting, the most specific match that gives it a value
decides; see :mod:`shmbroker._topology.address_matching`. A match that gives `None` decides, too.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._setting_conflicts import LETTERS, conflicts
from shmbroker._topology.address_matching import covers, precedence
from shmbroker._topology.address_rows import ADDRESS_ROWS, AUTO_CREATE
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


class Explained(NamedTuple):
    """The value of an address setting for one address.

    Attributes:
        value: the value.
        match: the match that gives it; ``None``: no match gives one, and this is the setting's default.
    """

    value: Any
    match: str | None


class AddressTable:
    """The address settings of a broker.

    Attributes:
        entries: the settings that each match gives. Each change replaces this dictionary, also one that is
            taken back later, so callers can compare the identity with an earlier one. Callers must not change it.
    """

    def __init__(self) -> None:
        self.entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
        self.creates_queues = False
        """Whether a match gives ``auto_create_queues=True``."""

    def put(self, match: str, settings: Mapping[str, Any]) -> None:
        """Replaces what a match gives."""
        self._replace({**self.entries, match: MappingProxyType(dict(settings))})

    def drop(self, match: str) -> None:
        """Removes a match, if it is there."""
        self._replace({name: settings for name, settings in self.entries.items() if name != match})

    def _replace(self, entries: dict[str, Mapping[str, Any]]) -> None:
        self.entries = MappingProxyType(entries)
        self.creates_queues = any(settings.get(AUTO_CREATE) for settings in entries.values())

    def given(self, address: str) -> dict[str, Explained]:
        """Returns the settings that matches give an address."""
        entries = self.entries  # once: another thread may replace them meanwhile
        found: dict[str, Explained] = {}
        for match in sorted((match for match in entries if covers(match, address)), key=precedence):
            for name, value in entries[match].items():
                found.setdefault(name, Explained(value, match))
        return found

    def explain(self, address: str) -> dict[str, Explained]:
        """Returns all settings of an address, in the order of their rows."""
        found = self.given(address)
        return {name: found.get(name, Explained(row.default, None)) for name, row in ADDRESS_ROWS.items()}

    def value(self, address: str, name: str) -> Any:  # noqa: ANN401 - values have many types
        """Returns the value of one setting for an address."""
        found = self.given(address).get(name)
        return ADDRESS_ROWS[name].default if found is None else found.value

    def live_settings(self, address: str) -> dict[str, Any]:
        """Returns the queue settings whose values follow the address settings as long as the queue exists."""
        found = self.explain(address)
        rows = ADDRESS_ROWS.items()
        return {row.queue_setting: found[name].value for name, row in rows if row.is_live and row.queue_setting}

    def for_new_queue(self, queue: str, given: Mapping[str, Any], otherwise: Mapping[str, Any]) -> QueueSettings:
        """Returns the settings of a queue that is to be made.

        A dead-letter queue that is covered itself would be its own dead-letter queue, so the defaults that make it one
        do not apply to it. A default routing key does not apply without a dead-letter exchange. The same holds for the
        queue and the exchange of expired messages. If the match that decides gives `None` for that exchange, the queue
        drops expired messages, as in Artemis; if no match gives one, they go where other dead ones go, as in RabbitMQ.

        Args:
            queue: the name of the queue.
            given: the settings that were given for it.
            otherwise: the values that replace the table's defaults of queue settings, where no match gives one.

        Raises:
            ValueError: two values do not go together. The error's text names the matches that give them.
        """
        found = {ADDRESS_ROWS[name].queue_setting: one for name, one in self.given(queue).items()}
        inherited = {name: one.value for name, one in found.items() if name is not None and name not in given}
        if "expiry_exchange" in inherited and inherited["expiry_exchange"] is None:
            inherited.setdefault("drop_expired", True)
        wanted = QueueSettings(**{**otherwise, **inherited, **given})
        if any(conflicts(queue, wanted)) and not inherited.keys().isdisjoint(LETTERS):
            inherited = {name: value for name, value in inherited.items() if name not in LETTERS}
            wanted = QueueSettings(**{**otherwise, **inherited, **given})
        for conflict in conflicts(queue, wanted):
            sources = (
                f"{name} by {found[name].match!r}" for name in conflict.names if name in inherited.keys() & found
            )
            given_by = ", ".join(sources)
            raise ValueError(f"{conflict.text} (address settings: {given_by})" if given_by else conflict.text)
        return wanted
