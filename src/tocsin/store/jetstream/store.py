"""The store on NATS JetStream: ``ports.Store`` over one connection.

Streams are made, or their bounds adapted, when a log or table is opened; where servers know roles, by the operator only
(``tocsin up``, ``tocsin store prepare``). Names: the log ``x`` is the stream ``x``, the
table ``x`` the stream ``KV_x``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from tocsin.config import Nats
from tocsin.errors import Forbidden, OperatorError, Refused, StoreFull
from tocsin.ports import PAYLOAD_MAX_BYTES, LogSpec, TableSpec
from tocsin.store import rules
from tocsin.store.jetstream import log as jetstream_log
from tocsin.store.jetstream import table as jetstream_table
from tocsin.store.jetstream.bus import JetStreamBus
from tocsin.store.jetstream.log import JetStreamLog
from tocsin.store.jetstream.reads import Reads
from tocsin.store.jetstream.stream import JetStream, persist
from tocsin.store.jetstream.table import JetStreamTable
from tocsin.store.jetstream.verdict import NO_STREAM, STREAM_IS_THERE, Passing, judge, read_answer
from tocsin.store.nats.connection import Connection
from tocsin.store.nats.login import Login, login_of
from tocsin.store.servers.roles import Role, may_adapt

# Options that our streams never have: by these a stream copies, or is copied to, another.
COPYING: Final = ("sources", "mirror", "republish", "subject_transform")


class StoreStatistics(msgspec.Struct, frozen=True):
    """How a store is doing."""

    connected: bool
    url: str  # of the server that it is connected to
    reconnects: int
    appends: int
    records: int
    repeats: int  # records that were there already
    retries: int  # attempts at appends after the first
    bus_dropped: int  # messages that slow subscriptions lost


NO_SHARES: Final[Mapping[str, int]] = {}


class JetStreamStore:
    """One client of the servers."""

    def __init__(
        self,
        connection: Connection,
        replicas: int,
        deadline_s: float,
        role: str = "",
        reads: Reads | None = None,
        *,
        shares: Mapping[str, int] = NO_SHARES,
        prepares: bool = False,
    ) -> None:
        """``shares``: by log and table, the bytes that it may take if its spec has no bound. A process without shares
        leaves those as they are that it opens. ``prepares``: all streams that it opens get the bounds of its settings.
        """
        self._connection = connection
        self._reads = reads or Reads(connection)
        self._role = role
        self._replicas = replicas
        self._deadline_s = deadline_s
        self._bus = JetStreamBus(connection, deadline_s)
        self._logs: list[JetStreamLog] = []
        self._shares = shares
        self._prepares = prepares

    @classmethod
    async def open(
        cls,
        nats: Nats,
        role: Role,
        *,
        name: str,
        deadline_s: float | None = None,
        shares: Mapping[str, int] = NO_SHARES,
        prepares: bool = False,
    ) -> JetStreamStore:
        """The store that settings name, for a process of this role; within ``nats.deadline_s`` unless said.

        ``OperatorError`` if its servers do not take what the largest packet needs.
        """
        store = await cls.connect(
            nats.addresses(),
            login=login_of(nats, role),
            replicas=nats.replicas(),
            name=name,
            deadline_s=nats.deadline_s if deadline_s is None else deadline_s,
            shares=shares,
            prepares=prepares,
        )
        most, url = store.connection.max_payload, store.connection.url
        if most < PAYLOAD_MAX_BYTES:
            await store.close()
            raise OperatorError(
                f"the NATS server {url} takes messages of up to {most:,} bytes (its max_payload); "
                f"the largest packet and the largest session need {PAYLOAD_MAX_BYTES:,}",
                f"Set max_payload: {PAYLOAD_MAX_BYTES} in the configuration of each of the servers in nats.urls",
            )
        return store

    @classmethod
    async def connect(
        cls,
        urls: Sequence[str],
        *,
        token: str = "",
        login: Login | None = None,
        replicas: int = 1,
        name: str = "tocsin",
        deadline_s: float = 30,
        shares: Mapping[str, int] = NO_SHARES,
        prepares: bool = False,
    ) -> JetStreamStore:
        """Connect to any of the servers. ``deadline_s`` bounds this call and every later operation of the store."""
        if not urls:
            raise Refused("connect to the store", "no server is named; give at least one URL")
        if replicas not in (1, 3, 5):
            raise Refused("connect to the store", f"replicas = {replicas} is not 1, 3 or 5")
        login = login or Login(token=token)
        connection = Connection(urls, login, name)
        await connection.open(deadline_s)
        reads = Reads(connection, urls, login.reading(), name)
        try:
            await reads.open(deadline_s)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, replicas, deadline_s, login.role, reads, shares=shares, prepares=prepares)

    @property
    def bus(self) -> JetStreamBus:
        return self._bus

    @property
    def connection(self) -> Connection:
        """For those who look beneath (``store.jetstream.snapshots``)."""
        return self._connection

    async def log(self, spec: LogSpec) -> JetStreamLog:
        rules.check_log(spec)
        operation = f"open log {spec.name!r}"
        share = self._shares.get(spec.name) if spec.max_bytes is None else None
        bounded = spec if share is None else msgspec.structs.replace(spec, max_bytes=share, refuses=True)
        stream = await self._open_share(
            operation,
            jetstream_log.stream_config(bounded, spec.name, self._replicas),
            jetstream_log.stream_config(spec, spec.name, self._replicas),
        )
        log = JetStreamLog(stream, spec)
        self._logs.append(log)
        return log

    async def table(self, spec: TableSpec) -> JetStreamTable:
        rules.check_table(spec)
        operation = f"open table {spec.name!r}"
        share = self._shares.get(spec.name) if spec.max_bytes is None else None
        bounded = spec if share is None else msgspec.structs.replace(spec, max_bytes=share)
        name = f"KV_{spec.name}"
        stream = await self._open_share(
            operation,
            jetstream_table.stream_config(bounded, name, self._replicas),
            jetstream_table.stream_config(spec, name, self._replicas),
        )
        return JetStreamTable(stream, spec)

    async def stream(self, name: str) -> JetStream:
        """A stream as JetStream has it, for those who look beneath: diagnosis, tests and benchmarks."""
        operation = f"look at stream {name!r}"
        unknown = self._stream(name, self._replicas)
        answer = await unknown.api(operation, "STREAM.INFO", {})
        return self._stream(name, int(answer["config"]["num_replicas"]))

    def _stream(self, name: str, replicas: int) -> JetStream:
        return JetStream(self._connection, name, replicas, self._deadline_s, self._reads)

    async def close(self) -> None:
        self._bus.close()
        await self._reads.close()
        await self._connection.close()

    def statistics(self) -> StoreStatistics:
        totals = [log.statistics for log in self._logs]
        return StoreStatistics(
            connected=self._connection.connected and self._reads.connection.connected,
            url=self._connection.url,
            reconnects=self._connection.reconnects,
            appends=sum(each.appends for each in totals),
            records=sum(each.records for each in totals),
            repeats=sum(each.repeats for each in totals),
            retries=sum(each.retries for each in totals),
            bus_dropped=self._bus.lost,
        )

    async def _open_share(self, operation: str, bounded: dict[str, Any], free: dict[str, Any]) -> JetStream:
        """Open a stream with its share. A server reserves the room; a server with less gives what there is."""
        if bounded["max_bytes"] == free["max_bytes"]:
            return await self._open(operation, free)
        try:
            return await self._open(operation, bounded)
        except StoreFull as error:
            structlog.get_logger().warning(
                "the store has no room for a share", stream=free["name"], problem=str(error)
            )
            return await self._open(operation, free)

    async def _open(self, operation: str, config: dict[str, Any]) -> JetStream:
        """Create the stream, or adapt an existing one that differs. Replicas are added, never taken away.

        A role that may not adapt it takes it as it is: the operator adapts it when it starts. A role that may not
        create it waits for the operator.
        """
        name = config["name"]

        async def request(verb: str, body: object, timeout_s: float) -> dict[str, Any] | None:
            subject = f"$JS.API.STREAM.{verb}.{name}"
            reply = await self._connection.ask(subject, msgspec.json.encode(body), timeout_s)
            answer, error = read_answer(operation, reply.payload)
            if error is None:
                found: dict[str, Any] = answer["config"]
                return found
            if (verb, error.err_code) in (("INFO", NO_STREAM), ("CREATE", STREAM_IS_THERE)):
                return None
            raise judge(operation, error)

        async def attempt(timeout_s: float) -> int:
            found = await request("INFO", {}, timeout_s)
            while found is None:
                try:
                    created = await request("CREATE", config, timeout_s)
                except Forbidden:
                    raise Passing(operation, missing(self._role, name)) from None
                if created is not None:
                    return int(created["num_replicas"])
                found = await request("INFO", {}, timeout_s)  # another has just created it, with other bounds
            wanted = dict(config)
            wanted["num_replicas"] = max(int(found["num_replicas"]), config["num_replicas"])
            if config["max_bytes"] == -1:  # no size asked for: the stream keeps the one it has
                wanted["max_bytes"], wanted["discard"] = found["max_bytes"], found["discard"]
            differs = any(found.get(key) != value for key, value in wanted.items())
            if differs or any(found.get(key) for key in COPYING):
                if not self._prepares and not may_adapt(self._role, name):
                    return int(found["num_replicas"])
                try:
                    await request("UPDATE", wanted, timeout_s)
                except Forbidden:
                    return int(found["num_replicas"])
            return int(wanted["num_replicas"])

        replicas = await persist(self._connection, operation, self._deadline_s, attempt)
        return self._stream(name, replicas)


def missing(role: str, stream: str) -> str:
    """Why somebody who may not make a stream does not find it, and what to do."""
    return (
        f"there is no stream {stream}, and the role {role} may not make it: `tocsin up` makes the streams of embedded "
        "servers when it starts, `tocsin store prepare` those of servers of your own"
    )
