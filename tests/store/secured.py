"""Real servers as ``tocsin up`` has them: TLS with the network's own authority, and a key for each role."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tocsin.config import Nats, Settings
from tocsin.runtime.network.plan import ensure_certificates
from tocsin.runtime.network.store_access import access, embedded, security
from tocsin.runtime.network.streams import prepare
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.login import login_of
from tocsin.store.servers.embedded import wait_ready
from tocsin.store.servers.roles import Role
from tocsin.store.servers.testing import LocalServers

NETWORK = "tocsin"


class SecuredServers(LocalServers):
    """One server, or three, that know roles."""

    def __init__(self, state: Path, *, servers: int = 1, one_account: bool = False) -> None:
        """``one_account``: with their streams in the global account, as an earlier release had them."""
        self.settings = Settings(state=str(state), network=NETWORK, nats=Nats(servers=servers))  # type: ignore[arg-type]
        ensure_certificates(self.settings)
        told = msgspec.structs.replace(
            security(self.settings), access=access(self.settings, one_account=one_account)
        )
        super().__init__(state / "nats", servers=servers, security=told)

    @property
    def nats(self) -> Nats:
        """The settings with which processes on this machine reach them."""
        return embedded(msgspec.structs.replace(self.settings.nats, urls=self.urls), self.settings.state)

    async def prepare(self, deadline_s: float = 30) -> None:
        """As ``tocsin up`` does before it starts a process."""
        for url in self.urls:
            await wait_ready(url, login_of(self.nats, "operator"), deadline_s)
        await prepare(msgspec.structs.replace(self.settings, nats=self.nats), pipeline=True)

    async def store(self, role: Role, deadline_s: float = 10) -> JetStreamStore:
        return await JetStreamStore.open(self.nats, role, name=f"test {role}", deadline_s=deadline_s)
