"""The pipeline's SQL for programs: scripts in, answers out, over the network's own bus.

Over the bus come the operator, who may define, change and drop everything, and users of SQL, each with a key of its
own, who may do what access rules let them. A client that has a broker's address only uses channels (``$channel/…``),
for which brokers check who it is.

    async with connect(state=".tocsin") as pipeline:
        reply = await pipeline.run("SELECT kind, count(*) AS n FROM Reports GROUP BY kind")
        for row in reply.results[0].objects():
            print(row["kind"], row["n"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.config import Nats
from tocsin.errors import NoResponder, OperatorError
from tocsin.model.answer import Answer, Heading, Problem, Reply
from tocsin.model.channel_names import ChannelNames
from tocsin.model.feeding import status_subject
from tocsin.model.questions import (
    ASK,
    FEEDER,
    PIPELINE,
    REPLY,
    ROWS_DEFAULT,
    SCRIPT,
    AskedScript,
    Nothing,
)
from tocsin.model.versions import Document
from tocsin.ports import Bus
from tocsin.runtime.network.directory import read_network
from tocsin.runtime.network.store_access import OPERATOR, embedded
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.login import login_of
from tocsin.store.servers.roles import USER

DEADLINE_S: Final = 300.0  # a question about much data takes its time; beyond it nobody is listening any more
CONNECT_S: Final = 5.0
STATUS_S: Final = 30.0
AGAIN_S: Final = 0.2

__all__ = ["Answer", "Heading", "Pipeline", "Problem", "Reply", "connect"]


class Pipeline:
    """The pipeline of a network, from outside."""

    def __init__(
        self, bus: Bus, network: str, *, user: str = OPERATOR, wait_s: float, on_wait: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._user = user
        self._network = network
        self._places = ChannelNames(network)
        self._wait_s = wait_s
        self._on_wait = on_wait

    async def run(self, text: str, *, limit: int = ROWS_DEFAULT, deadline_s: float = DEADLINE_S) -> Reply:
        """Do what a script says; what is wrong with it is in the reply.

        ``OperatorError`` if no pipeline answers, ``DeadlineExceeded`` if it does not in time.
        """
        asked = SCRIPT.write(AskedScript(text, limit))
        return REPLY.read(await self._ask(self._places.sql(self._user), asked, deadline_s))

    async def status(self) -> dict[str, Any]:
        """How Spark, channels, datasets and feeds are, as ``docs/reference/pipeline.md`` says."""
        return _told(
            PIPELINE, await self._ask(self._places.service("status"), ASK.write(Nothing()), STATUS_S)
        )

    async def feeder_status(self) -> dict[str, Any]:
        """How the agents of feeds are; nothing if there is no feeder."""
        try:
            said = await self._bus.request(
                status_subject(self._network), ASK.write(Nothing()), deadline_s=STATUS_S
            )
        except NoResponder:
            return {"feeds": [], "http": ""}
        return _told(FEEDER, said)

    async def _ask(self, subject: str, asked: bytes, deadline_s: float) -> bytes:
        """Spark may be starting: a waiting caller is answered as soon as it is there."""
        waited, loop = False, asyncio.get_running_loop()
        until = loop.time() + self._wait_s
        while True:
            try:
                return await self._bus.request(subject, asked, deadline_s=deadline_s)
            except NoResponder:
                if loop.time() >= until:
                    raise OperatorError(
                        f"no pipeline answers in the network {self._network}",
                        "Start it with `tocsin up` or `tocsin pipeline` (it needs the extra `tocsin[spark]`), or wait "
                        "for Spark to be ready",
                    ) from None
            if not waited:
                waited = True
                self._on_wait()
            await asyncio.sleep(AGAIN_S)


@asynccontextmanager
async def connect(
    servers: Sequence[str] | Nats = (),
    *,
    state: str | Path = "",
    user: str = "",
    credentials: str = "",
    ca: str = "",
    tls_name: str = "",
    token: str = "",
    network: str = "tocsin",
    wait_s: float = 0.0,
    on_wait: Callable[[], None] = lambda: None,
) -> AsyncIterator[Pipeline]:
    """The pipeline of the network whose NATS servers these are; for ``wait_s`` it need not answer yet.

    ``state``: the state directory of a network on this machine, instead of servers. ``user``: a user of SQL, with the
    key in the file ``credentials``; without it, the operator. ``ca``: the authorities to trust for servers at
    ``tls://…``.
    """
    nats = (
        servers
        if isinstance(servers, Nats)
        else Nats(urls=tuple(servers), token=token, ca=ca, tls_name=tls_name)
    )
    if state:
        nats, network = _network_at(Path(state), nats)
    if credentials:
        nats = msgspec.structs.replace(nats, credentials=credentials)
    login = login_of(nats, OPERATOR)
    if user:
        login = msgspec.structs.replace(login, role=f"{USER}.{user}")
    store = await JetStreamStore.connect(
        nats.addresses(), login=login, name="tocsin sql", deadline_s=CONNECT_S
    )
    try:
        yield Pipeline(store.bus, network, user=user or OPERATOR, wait_s=wait_s, on_wait=on_wait)
    finally:
        await store.close()


def _network_at(state: Path, nats: Nats) -> tuple[Nats, str]:
    found = read_network(state)
    if found is None:
        raise OperatorError(f"no network was ever started in {state}", "Start one with `tocsin up`")
    return embedded(msgspec.structs.replace(nats, urls=found.nats), state), found.network


def _told(status: Document[dict[str, Any]], said: bytes) -> dict[str, Any]:
    """A status without its version; ``OperatorError`` if the process does not understand the question."""
    told = status.read(said)
    told.pop("v", None)
    if isinstance(problem := told.get("error"), str):
        raise OperatorError(
            f"{status.name} is not told: {problem}", "Use a `tocsin` of the network's release"
        )
    return told
