"""The durable side of a broker as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mqtt5 import ConnectPacket, DisconnectPacket, Will

from tests.unit.broker.door import DEADLINE_S, Door
from tests.unit.broker.talk import LASTING, ONE
from tocsin.broker import durability as module
from tocsin.broker.durability import Durability
from tocsin.config import Budgets
from tocsin.core.budget import Budget, bounds_of
from tocsin.core.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import LogSpec, Record, Store, TableSpec
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.memory import MemoryServer, MemoryStore
from tocsin.store.testing import LocalServers
from tocsin.wire.replication import Bequest


async def opened(store: Store, *, keep_s: float | None = None, keep_bytes: int | None = None) -> Durability:
    return await Durability.open(
        store,
        network="net",
        broker="north-1",
        life="1",
        keep_s=keep_s,
        keep_bytes=keep_bytes,
        commits_max=10,
        retained_max=10,
        retained_bytes=1 << 20,
        retained_user_bytes=1 << 20,
        groups_max=10,
        members_max=10,
        budget=Budget(bounds_of(Budgets())),
        dispatch=lambda entry, publication: None,
        announce=lambda publication: None,
        pressure=lambda held: None,
        unwanted=lambda messages: None,
    )


async def test_a_small_disk_gets_a_smaller_log_and_not_none(tmp_path: Path) -> None:
    with LocalServers(tmp_path, file_max_bytes=1 << 28) as servers:
        store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=20)
        try:
            durability = await opened(store, keep_s=3_600, keep_bytes=10 << 30)
            assert durability.journal.tail == 0
            stream = await store.stream("net-messages")
            config = (await stream.api("look", "STREAM.INFO", {}))["config"]
            assert 1 << 26 <= config["max_bytes"] <= 1 << 28
        finally:
            await store.close()


async def test_a_message_that_is_in_the_log_is_known_however_late_its_publisher_comes_back() -> None:
    """Its broker died between the append and its note that the log has it; the log has forgotten the id since."""
    store = MemoryStore(MemoryServer())
    try:
        log = await store.log(LogSpec("net-messages", ("net.m.>",)))
        stored = Record(subject_of("a", "net"), encode_publication(Publication("a", b"1", 2, "me")), "p.1")
        await log.append([stored])
        session = StoredSession(
            "me", uid="u", expiry_s=60, inbound={1: "p.1", 2: "p.2"}, sought={1: (0, "a"), 2: (0, "a")}
        )
        table = await store.table(TableSpec("net-sessions"))
        await table.put(session_key("me"), encode_session(session))
        durability = await opened(store)
        taken = await durability.take("me", owner="", clean=False, expiry_s=60)
        assert taken is not None
        assert taken[0].received == (1,), "the second never got there, and is to be appended"
    finally:
        await store.close()


async def test_a_copys_will_that_the_log_has_is_settled_however_long_ago_it_got_there(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    try:
        log = await store.log(messages_log("net", None, None))
        publication = Publication("gone", b"x", 1, "c")
        record = Record(subject_of("gone", "net"), encode_publication(publication), "b.1.will")
        await log.append(
            [Record(subject_of("gone", "net"), encode_publication(publication), "b.0.will"), record]
        )
        durability = await opened(store)
        verdicts = []
        for record_id, since in (("b.1.will", 1), ("b.2.will", 1), ("b.1.will", 0)):
            verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            will = Bequest(publication, 600, record_id, since=since)
            durability._find_out("c", will, verdict.set_result)
            verdicts.append(await verdict)
        assert verdicts == [True, False, False], "the last one does not know where to look"
    finally:
        await store.close()


async def test_a_copys_will_waits_while_only_a_newer_release_can_read_its_clients_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_LATER_S", 0.01)
    store = MemoryStore(MemoryServer())
    try:
        durability = await opened(store)
        table = await store.table(TableSpec("net-sessions"))
        session = StoredSession("c", uid="later", expiry_s=60, epoch=9)
        await table.put(session_key("c"), b"\x09" + encode_session(session)[1:])
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        will = Bequest(Publication("gone", b"x", 1, "c"), 600, "b.1.will", session="u", epoch=1, since=1)
        durability._find_out("c", will, verdict.set_result)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not verdict.done(), "the client may live"
        await table.put(session_key("c"), encode_session(session))
        assert await asyncio.wait_for(verdict, DEADLINE_S), "it came since"
    finally:
        await store.close()


@pytest.mark.parametrize("in_order", [True, False])
async def test_that_a_client_went_in_order_is_in_its_session(door: Door, in_order: bool) -> None:
    will = Will("gone", payload=b"x", qos=ONE, will_delay_interval=1_000)
    peer = await door.peer(connect=ConnectPacket("c", session_expiry_interval=LASTING, will=will))
    if in_order:
        peer.send(DisconnectPacket())
        assert await peer.closed()
    else:
        peer.close()

    async def stored() -> StoredSession:
        cell = await door.exchange.durability.sessions.table.get(session_key("c"))
        assert cell is not None
        return decode_session(cell.value)

    async with asyncio.timeout(DEADLINE_S):
        while (session := await stored()).broker:
            await asyncio.sleep(0.01)
    assert session.left == (session.epoch if in_order else 0)
