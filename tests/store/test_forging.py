"""What whoever has the key of a role and a NATS client can do: decision 044 tells of it, and is held to it here.

JetStream sends answers, and what consumers bring, to whatever subject a request names. NATS does not ask whether the
requester may publish there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.store.secured import NETWORK, SecuredServers
from tocsin.core.coordination.leader.balancing import KEY, ORDER, DrainOrders, Order
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import Forbidden, Refused
from tocsin.model.channel_names import ChannelNames
from tocsin.model.subjects import messages_log
from tocsin.ports import BusMessage, Record, Table, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.connection import Connection
from tocsin.store.nats.login import login_of
from tocsin.store.nats.protocol import frame
from tocsin.store.servers.roles import Role

DEADLINE_S = 30.0
MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)
COMMANDS, FEEDS = StoreNames(NETWORK).commands, ChannelNames(NETWORK).feeds
EVIL = f"{NETWORK}.m.evil"
SESSIONS: Final = TableSpec(f"{NETWORK}-sessions")


class Thief:
    """Somebody with the key of a role, who knows NATS: in both accounts, and says there whatever he likes."""

    def __init__(self, main: Connection, reads: Connection) -> None:
        self.main, self.reads = main, reads

    async def say(self, subject: str, answer: str, body: object, headers: bytes = b"") -> None:
        """A request whose answer goes elsewhere, by both of his connections."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        for connection in (self.main, self.reads):
            await connection.send(frame(subject, answer, headers, payload))

    async def ask(self, subject: str, body: object) -> None:
        """A request, by both; what is forbidden is told by the server beside the answer."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        for connection in (self.main, self.reads):
            try:
                await connection.ask(subject, payload, 5)
            except Refused:
                continue

    async def get_to(self, subject: str) -> None:
        """Have the server answer a direct get there: the message as it is. Alone, and in a page."""
        for request in (
            {"last_by_subj": EVIL},
            {"seq": 1, "next_by_subj": EVIL, "batch": 1},
            {"multi_last": [EVIL]},
        ):
            await self.say(f"$JS.API.DIRECT.GET.{MESSAGES.name}", subject, request)
        await self.say(f"$JS.API.DIRECT.GET.{MESSAGES.name}.{EVIL}", subject, b"")

    async def answers_to(self, subject: str) -> None:
        """Have it answer everything else there that a broker may ask."""
        await self.say(f"$JS.API.STREAM.MSG.GET.{MESSAGES.name}", subject, {"last_by_subj": EVIL})
        await self.say(f"$JS.API.STREAM.INFO.{MESSAGES.name}", subject, b"")
        await self.say("$JS.API.INFO", subject, b"")
        await self.say(EVIL, subject, b"")
        await self.say(EVIL, "", b"", f"Nats-Trace-Dest: {subject}\r\n".encode())
        await self.say(f"$JS.API.CONSUMER.MSG.NEXT.{MESSAGES.name}.nobody", subject, b"")

    async def consume_to(self, subject: str, acknowledged: str) -> None:
        """Have a consumer bring the message there: pushed."""
        await self.consumer(f"push-{acknowledged}", acknowledged, deliver_subject=subject)

    async def pull_to(self, subject: str, acknowledged: str) -> None:
        await self.consumer(f"pull-{acknowledged}", acknowledged)
        await self.say(f"$JS.API.CONSUMER.MSG.NEXT.{MESSAGES.name}.pull-{acknowledged}", subject, b"1")

    async def consumer(self, name: str, acknowledged: str, **more: str) -> None:
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": acknowledged,
            "deliver_policy": "all",
            "filter_subject": EVIL,
            "mem_storage": True,
            "inactive_threshold": 60_000_000_000,
            **more,
        }
        body = {"stream_name": MESSAGES.name, "config": config}
        await self.ask(f"$JS.API.CONSUMER.CREATE.{MESSAGES.name}.{name}.{EVIL}", body)


@asynccontextmanager
async def thief_of(servers: SecuredServers, role: Role) -> AsyncIterator[Thief]:
    login = login_of(servers.nats, role)
    second = login.reading()
    assert second is not None
    connections = [Connection(servers.urls, each, "thief") for each in (login, second)]
    try:
        for each in connections:
            await each.open(DEADLINE_S)
        yield Thief(*connections)
    finally:
        for each in connections:
            await each.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[SecuredServers]:
    with SecuredServers(tmp_path) as running:
        await running.prepare()
        yield running


@pytest.fixture
async def stage(servers: SecuredServers) -> AsyncIterator[tuple[JetStreamStore, Thief]]:
    operator = await servers.store("operator")
    try:
        async with thief_of(servers, "broker") as thief:
            yield operator, thief
    finally:
        await operator.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_nobody_asks_a_service_under_anothers_name(stage: tuple[JetStreamStore, Thief]) -> None:
    operator, thief = stage
    asked: list[bytes] = []
    subject = f"{NETWORK}.pipeline.sql.operator"
    await (await operator.log(MESSAGES)).append([Record(EVIL, b'{"text":"DROP DATASET Reports"}', "evil")])

    async def answer(delivery: BusMessage) -> bytes:
        asked.append(delivery.payload)
        return b""

    async with operator.bus.serve(subject, answer), operator.bus.subscribe(subject) as heard:
        with pytest.raises(Forbidden):
            await thief.main.ask(subject, b"x", 2)
        await thief.get_to(subject)
        await thief.consume_to(subject, "none")
        await thief.consume_to(subject, "explicit")
        for _ in range(2):
            await asyncio.wait_for(anext(heard), DEADLINE_S)  # the server does bring it …
        await operator.bus.request(subject, b"ours", deadline_s=DEADLINE_S)
    assert asked == [b"ours"], "… and nobody does what it says"


async def test_nobody_purges_deletes_or_changes_a_stream_through_an_answer(
    stage: tuple[JetStreamStore, Thief],
) -> None:
    """A server that answers on a subject of JetStream's API would carry the answer out."""
    operator, thief = stage
    messages, feeds = await operator.log(MESSAGES), await operator.log(FEEDS)
    await feeds.append([Record(f"{NETWORK}.feeds.a", b"x", "one")])
    before = await operator.stream(FEEDS.name)
    config = (await before.api("look", "STREAM.INFO", {}))["config"]
    shrunk = json.dumps({**config, "max_msgs": 0, "max_bytes": 1, "discard": "old"}).encode()
    for verb, body in (("PURGE", b""), ("DELETE", b""), ("UPDATE", shrunk), ("MSG.DELETE", b'{"seq":1}')):
        target = f"$JS.API.STREAM.{verb}.{FEEDS.name}"
        await messages.append([Record(EVIL, body, f"evil {verb}")])
        await thief.get_to(target)
        await thief.answers_to(target)
        for acknowledged in ("none", "explicit"):
            await thief.consume_to(target, acknowledged)
            await thief.pull_to(target, acknowledged)
        await thief.get_to(f"{NETWORK}.m.last")  # after which all that was asked before has been answered
        await asyncio.sleep(0.5)  # and delivered: what must not happen gives no sign
        assert [each.payload for each in (await feeds.read(f"{NETWORK}.feeds.a", 0)).entries] == [b"x"], verb
        assert (await before.api("look", "STREAM.INFO", {}))["config"] == config


async def test_a_header_purges_no_log(servers: SecuredServers) -> None:
    """``Nats-Rollup: all`` has a message replace everything before it. Whoever reads may write marks, too."""
    operator = await servers.store("operator")
    try:
        messages, feeds = await operator.log(MESSAGES), await operator.log(FEEDS)
        await messages.append([Record(f"{NETWORK}.m.a", b"kept", "one")])
        await feeds.append([Record(f"{NETWORK}.feeds.a", b"kept", "one")])
        for role, subjects in (
            ("broker", (EVIL, f"{NETWORK}.m.$mark")),
            ("feeder", (f"{NETWORK}.feeds.evil", f"{NETWORK}.m.$mark", f"{NETWORK}.feeds.$mark")),
            ("pipeline", (f"{NETWORK}.m.$mark", f"{NETWORK}.feeds.$mark")),
        ):
            async with thief_of(servers, role) as thief:  # type: ignore[arg-type]
                for subject in subjects:
                    for kind in (b"all", b"sub"):
                        said = await thief.main.ask(subject, b"", 5, b"Nats-Rollup: %b\r\n" % kind)
                        assert b"rollup not permitted" in said.payload, (role, subject)
        assert [each.payload for each in (await messages.read(f"{NETWORK}.m.a", 0)).entries] == [b"kept"]
        assert [each.payload for each in (await feeds.read(f"{NETWORK}.feeds.a", 0)).entries] == [b"kept"]
    finally:
        await operator.close()


async def test_a_feeder_has_no_stream_copy_the_sessions(servers: SecuredServers) -> None:
    """By its own table, by a new one, by the logs that it may write; with the request itself, and through answers."""
    operator = await servers.store("operator")
    try:
        await (await operator.table(SESSIONS)).put("client", b"secret")
        feeds = await operator.log(FEEDS)
        own = f"KV_{NETWORK}-feeder"
        before = {
            name: (await (await operator.stream(name)).api("look", "STREAM.INFO", {}))["config"]
            for name in (own, FEEDS.name, MESSAGES.name)
        }
        source = {"name": f"KV_{SESSIONS.name}"}
        async with thief_of(servers, "feeder") as thief:
            for name, config in (
                *before.items(),
                ("mine", {"name": "mine", "subjects": [], "storage": "file"}),
            ):
                for more in (
                    {"sources": [source]},
                    {"mirror": source, "subjects": []},
                    {"republish": {"src": ">", "dest": "_INBOX.feeder.x.>"}},
                ):
                    body = json.dumps({**config, **more}).encode()
                    for verb in ("CREATE", "UPDATE"):
                        target = f"$JS.API.STREAM.{verb}.{name}"
                        await thief.ask(target, body)
                        await feeds.append([Record(f"{NETWORK}.feeds.evil", body, f"{verb} {name} {more}")])
                        get = {"last_by_subj": f"{NETWORK}.feeds.evil"}
                        await thief.say(f"$JS.API.DIRECT.GET.{FEEDS.name}", target, get)
                        await thief.say(f"$JS.API.STREAM.MSG.GET.{FEEDS.name}", target, get)
            await thief.ask(f"$JS.API.DIRECT.GET.KV_{SESSIONS.name}", {"last_by_subj": ">"})
            await asyncio.sleep(1.0)
        for name, config in before.items():
            stream = await operator.stream(name)
            assert (await stream.api("look", "STREAM.INFO", {}))["config"] == config
            found = await stream.slice("look", f"$KV.{SESSIONS.name}.>", 0, 10)
            assert not found.messages, name
        names = await operator.connection.ask("$JS.API.STREAM.NAMES", b"", 5)
        assert "mine" not in json.loads(names.payload)["streams"]
    finally:
        await operator.close()


async def test_nobody_orders_that_a_broker_be_emptied(stage: tuple[JetStreamStore, Thief]) -> None:
    """Answers in JSON reach the cell, and are no order; what a consumer brings has no listener there."""
    operator, thief = stage
    table = await operator.table(StoreNames(NETWORK).table)
    await (await operator.log(MESSAGES)).append([Record(EVIL, ORDER.write(Order(1)), "evil")])
    target = f"$KV.{StoreNames(NETWORK).table.name}.{KEY}north-1"
    await thief.answers_to(target)

    async def reached() -> bool:
        return await table.get(f"{KEY}north-1", fresh=True) is not None

    await until(reached)
    await thief.get_to(target)
    for acknowledged in ("none", "explicit"):
        await thief.consume_to(target, acknowledged)
        await thief.pull_to(target, acknowledged)
    await asyncio.sleep(1.0)  # what must not happen gives no sign
    assert await ordered(table) == frozenset()
    await table.put(f"{KEY}north-2", ORDER.write(Order(1)))
    assert await ordered(table) == {"north-2"}


async def ordered(table: Table) -> frozenset[str]:
    """The brokers that coordinators take for drained."""
    orders = DrainOrders()
    async for change in table.watch(KEY):
        orders.watched(change)
        if change.kind == "ready":
            break
    return orders.brokers


async def test_what_remains(stage: tuple[JetStreamStore, Thief]) -> None:
    """These are no promises. If one fails, a server has begun to check: then tell so in decision 044."""
    operator, thief = stage
    commands = await operator.log(COMMANDS)
    await (await operator.log(MESSAGES)).append([Record(EVIL, b"", "evil")])

    async def forged() -> bool:
        return await commands.last() > 0

    await thief.get_to(f"{NETWORK}.c")
    await asyncio.sleep(0.5)
    assert not await forged(), "direct gets are answered in an account without streams"
    await thief.consume_to(f"{NETWORK}.c", "none")
    await until(forged)
