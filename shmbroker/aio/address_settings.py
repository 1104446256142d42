# SPDX-License-Identifier: Apache-2.0
"""Address settings for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import builtins

    from shmbroker.address_settings import AddressSetting, Explained
    from shmbroker.address_settings import AddressSettings as SyncAddressSettings
    from shmbroker.aio.session import LoopSession


class AddressSettings:
    """The address settings of a broker; see :class:`shmbroker.AddressSettings`. Changes are awaited."""

    def __init__(self, session: LoopSession, sync: SyncAddressSettings) -> None:
        self._session, self._sync = session, sync

    async def set(self, match: str, **settings: Any) -> None:  # noqa: ANN401
        """Gives settings to the addresses that a match covers; see :meth:`shmbroker.AddressSettings.set`."""
        await self._session.change(lambda: self._sync.set(match, **settings))

    async def remove(self, match: str, *names: str) -> None:
        """Removes settings from a match; see :meth:`shmbroker.AddressSettings.remove`."""
        await self._session.change(lambda: self._sync.remove(match, *names))

    def list(self) -> builtins.list[AddressSetting]:
        """Lists the matches with their settings, the more specific ones first."""
        return self._sync.list()

    def explain(self, address: str) -> dict[str, Explained]:
        """Returns the value of each setting for an address, and the match that gives it."""
        return self._sync.explain(address)

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"
