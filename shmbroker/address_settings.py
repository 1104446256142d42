# SPDX-License-Identifier: Apache-2.0
"""Address settings: what the queues have whose names match a pattern, and when queues are made without a declaration.

The reference has a table of the settings. A *match* is the name of a queue, or a pattern of words that dots separate:
``*`` stands for one word, and ``#``, as the last word, for any number of words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._topology.address_matching import precedence
from shmbroker._topology.address_rows import ADDRESS_ROWS, AddressRow
from shmbroker._topology.address_table import Explained

if TYPE_CHECKING:
    import builtins

    from shmbroker._session.session import Session

__all__ = ("ADDRESS_ROWS", "AddressRow", "AddressSetting", "AddressSettings", "Explained")


class AddressSetting(NamedTuple):
    """The settings that one match gives.

    Attributes:
        match: the match.
        settings: the values by the names of the settings.
    """

    match: str
    settings: dict[str, Any]


class AddressSettings:
    """The address settings of a broker, as :attr:`Connection.settings` returns them. Safe to use from several threads.

    The settings of an address are merged setting by setting: of the matches that give a value, the most specific one
    decides. A value that was given for a queue itself precedes all of them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def set(self, match: str, **settings: Any) -> None:  # noqa: ANN401 - settings have many types
        """Gives settings to the addresses that a match covers.

        The change is in effect when the call returns: also for queues that exist, as far as the settings are live.

        Args:
            match: the name of a queue, or a pattern, such as ``"orders.*.#"``.
            settings: values by the names of the settings. What the match gave before stays for all other settings.

        Raises:
            TypeError: there is no such setting, or the match is no string.
            ValueError: a value or the match is not allowed, two values of the match do not go together, or no setting
                is given.
            Timeout: the topology lock was not free within the connection's ``operation_timeout``.
            OutOfMemory: /dev/shm has no room for the change; nothing was changed.
        """
        self._session.addresses.set(match, settings)

    def remove(self, match: str, *names: str) -> None:
        """Removes settings from a match; without names, all of them, and so the match.

        Queues that exist get the live settings that are left for their addresses.

        Raises:
            NotFound: the match gives no settings, or not these.
            TypeError: there is no such setting, or the match is no string.
            ValueError: the match is not allowed.
            Timeout: the topology lock was not free within the connection's ``operation_timeout``.
        """
        self._session.addresses.remove(match, names)

    def list(self) -> builtins.list[AddressSetting]:
        """Lists the matches with their settings. Of two that cover the same address, the more specific one is first."""
        entries = self._session.addresses.table.entries
        return [AddressSetting(match, dict(entries[match])) for match in sorted(entries, key=precedence)]

    def explain(self, address: str) -> dict[str, Explained]:
        """Returns the value of each setting for an address, and the match that gives it.

        A queue that exists may have other values: those that were given for it, and the default of each setting that is
        not live, as of its creation.

        Args:
            address: the name of a queue, which need not exist.

        Raises:
            TypeError: the address is no string.
            ValueError: the address cannot be the name of a queue.
        """
        return self._session.addresses.table.explain(check_queue_name(address))

    def __repr__(self) -> str:
        return f"<AddressSettings of broker {self._session.broker_name!r}>"
