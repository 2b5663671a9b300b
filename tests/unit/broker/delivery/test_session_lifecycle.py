"""One client's way in and out of a broker."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import ConnectPacket, DisconnectPacket, Will

from tests.unit.broker.harness import DEADLINE_S, Door
from tests.unit.broker.talk import LASTING, ONE
from tocsin.config import Limits
from tocsin.core.delivery.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.model.publication import Publication, encode_publication
from tocsin.model.subjects import messages_log, subject_of
from tocsin.ports import Record, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore


async def test_a_logged_message_is_recognised_however_late_its_publisher_returns() -> None:
    """Its broker died between the append and its note that the log has it; the log has forgotten the id since."""
    store = MemoryStore(MemoryServer())
    try:
        log = await store.log(messages_log("net", None, None))
        stored = Record(subject_of("a", "net"), encode_publication(Publication("a", b"1", 2, "me")), "p.1")
        await log.append([stored])
        session = StoredSession(
            "me", uid="u", expiry_s=60, inbound={1: "p.1", 2: "p.2"}, sought={1: (0, "a"), 2: (0, "a")}
        )
        table = await store.table(TableSpec("net-sessions"))
        await table.put(session_key("me"), encode_session(session))
        async with Door(Limits(), store=store) as door:
            taken = await door.parts.session_entry.take("me", owner="", clean=False, expiry_s=60)
        assert taken is not None
        assert taken[0].received == (1,), "the second never got there, and is to be appended"
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
        cell = await door.parts.sessions.table.get(session_key("c"))
        assert cell is not None
        return decode_session(cell.value)

    async with asyncio.timeout(DEADLINE_S):
        while (session := await stored()).broker:
            await asyncio.sleep(0.01)
    assert session.left == (session.epoch if in_order else 0)
