"""Real servers as ``tocsin up`` has them: TLS with the network's own authority, and a key for each role."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tocsin.config import Nats, Settings
from tocsin.runtime.network import ensure_certificates
from tocsin.runtime.store_access import embedded, security
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.roles import Role
from tocsin.store.testing import LocalServers

NETWORK = "tocsin"


class SecuredServers(LocalServers):
    """One server, or three, that know roles."""

    def __init__(self, state: Path, *, servers: int = 1) -> None:
        self.settings = Settings(state=str(state), network=NETWORK, nats=Nats(servers=servers))  # type: ignore[arg-type]
        ensure_certificates(self.settings)
        super().__init__(state / "nats", servers=servers, security=security(self.settings))

    @property
    def nats(self) -> Nats:
        """The settings with which processes on this machine reach them."""
        return embedded(msgspec.structs.replace(self.settings.nats, urls=self.urls), self.settings.state)

    async def store(self, role: Role, deadline_s: float = 10) -> JetStreamStore:
        return await JetStreamStore.open(self.nats, role, name=f"test {role}", deadline_s=deadline_s)
