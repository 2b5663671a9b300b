"""The connection that direct gets go over: one of their own, if servers have an account for them (``servers.roles``).

Servers without such an account do not know the key for it. Then direct gets go over the main connection, as everything
else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from tocsin.errors import Refused, StoreUnavailable
from tocsin.store.nats.connection import Connection
from tocsin.store.nats.login import Login

_log = structlog.get_logger("tocsin.store")


class Reads:
    """Where direct gets go."""

    def __init__(
        self, main: Connection, urls: Sequence[str] = (), login: Login | None = None, name: str = ""
    ) -> None:
        self._main = main
        self._second: Connection | None = None  # a connection that a server has admitted
        self._urls, self._login, self._name = urls, login, name
        self._opening = asyncio.Lock()

    @property
    def connection(self) -> Connection:
        return self._main if self._second is None else self._second

    async def open(self, deadline_s: float) -> None:
        """Connect, if servers know the key; ``StoreUnavailable`` if there is no server."""
        if self._login is None:
            return
        async with self._opening:
            if self._second is not None:
                return
            second = Connection(self._urls, self._login.renewed(), f"{self._name} reads")
            try:
                await second.open(deadline_s)
            except Refused:
                _log.debug("the store's servers have no account for direct gets")
                return
            self._second = second

    async def again(self, deadline_s: float) -> bool:
        """Direct gets are forbidden where they go now: whether they go elsewhere from now on.

        While a role's key is replaced, one of three servers may know the new key before another does.
        """
        if self._login is None or self._second is not None:
            return False
        try:
            await self.open(deadline_s)
        except StoreUnavailable:
            return False
        return self._second is not None

    async def close(self) -> None:
        if self._second is not None:
            await self._second.close()
