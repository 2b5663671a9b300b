"""Stored sessions: one broker holds a client, and the next gets everything that was stored."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tocsin.broker.sessions import Hold, Lost, Sessions
from tocsin.core.delivery import Progress
from tocsin.core.forwarding import Subscription
from tocsin.core.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.errors import Malformed
from tocsin.ports import Delivery, Table, TableSpec
from tocsin.store.memory import MemoryServer, MemoryStore


class Network:
    def __init__(self, store: MemoryStore, table: Table) -> None:
        self.store = store
        self.table = table

    def broker(self, name: str) -> Sessions:
        return Sessions(self.table, self.store.bus, network="net", broker=name)


@pytest.fixture
async def network() -> Network:
    store = MemoryStore(MemoryServer())
    return Network(store, await store.table(TableSpec("sessions")))


async def take(sessions: Sessions, *, clean: bool = False) -> tuple[Hold, bool]:
    return await sessions.take("me", clean=clean, expiry_s=60, tail=5)


async def test_a_new_session_starts_at_the_tail_of_the_log(network: Network) -> None:
    hold, resumed = await take(network.broker("north-1"))
    assert not resumed
    assert hold.session.progress == Progress(6)
    assert (hold.session.broker, hold.session.epoch) == ("north-1", 1)


async def test_a_session_is_resumed_with_all_that_was_stored(network: Network) -> None:
    sessions = network.broker("north-1")
    hold, _ = await take(sessions)
    stored = msgspec.structs.replace(
        hold.session,
        broker="",
        subscriptions={"a/#": Subscription(qos=1, since=3)},
        progress=Progress(9, (7,), (4,)),
        inbound={2: "x.2.0"},
        releases=3,
    )
    await hold.write(stored)
    again, resumed = await take(network.broker("south-1"))
    assert resumed
    assert again.session == msgspec.structs.replace(stored, broker="south-1", epoch=2)


async def test_a_clean_start_discards_what_was_stored(network: Network) -> None:
    first, _ = await take(network.broker("north-1"))
    second, resumed = await take(network.broker("north-1"), clean=True)
    assert not resumed
    assert second.session.uid != first.session.uid
    assert second.session.epoch == 2


async def test_who_has_lost_a_session_cannot_write_it(network: Network) -> None:
    first, _ = await take(network.broker("north-1"))
    await take(network.broker("north-1"))
    with pytest.raises(Lost):
        await first.write(first.session)
    with pytest.raises(Lost):
        await first.forget()


async def test_the_broker_that_has_the_client_is_asked_to_let_it_go_first(network: Network) -> None:
    north, south = network.broker("north-1"), network.broker("south-1")
    hold, _ = await take(north)
    asked: list[str] = []

    async def hand_over(request: Delivery) -> bytes:
        asked.append(Sessions.wanted(request))
        await hold.write(msgspec.structs.replace(hold.session, broker="", progress=Progress(42)))
        return b"yours"

    async with network.store.bus.serve(north.hand_over_subject("north-1"), hand_over):
        taken, resumed = await take(south)
    assert asked == ["me"]
    assert resumed
    assert taken.session.progress == Progress(42)


async def test_a_broker_that_does_not_answer_loses_its_client(network: Network) -> None:
    hold, _ = await take(network.broker("north-1"))
    _, resumed = await take(network.broker("south-1"))
    assert resumed
    with pytest.raises(Lost):
        await hold.write(hold.session)


async def test_two_brokers_that_want_one_client_get_it_one_after_the_other(network: Network) -> None:
    await asyncio.gather(*(take(network.broker(f"b-{number}")) for number in range(4)))
    cell = await network.table.get(session_key("me"))
    assert cell is not None
    assert decode_session(cell.value).epoch == 4


async def test_a_session_that_nobody_has_is_forgotten_for_a_client_that_wants_none(network: Network) -> None:
    sessions = network.broker("north-1")
    hold, _ = await take(sessions)
    await hold.write(msgspec.structs.replace(hold.session, broker=""))
    await sessions.discard("me")
    assert await network.table.get(session_key("me")) is None
    await sessions.discard("nobody")


async def test_a_forgotten_session_is_gone(network: Network) -> None:
    hold, _ = await take(network.broker("north-1"))
    await hold.forget()
    _, resumed = await take(network.broker("north-1"))
    assert not resumed


def test_a_repeat_of_a_qos_2_message_has_the_record_id_of_the_first() -> None:
    session = StoredSession(client="me", uid="u", expiry_s=1, inbound={5: "u.5.0"}, releases=2)
    assert session.record_id(5) == "u.5.0"
    assert session.record_id(6) == "u.6.2"
    assert decode_session(encode_session(session)) == session
    with pytest.raises(Malformed):
        decode_session(b"\xff")
