"""Stored sessions: one broker holds a client, and the next gets everything that was stored."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from tests.unit.broker.old_news import OldNews
from tocsin.broker.delivery.session_store import HANDED, SessionReads, Sessions
from tocsin.core.access.admission import SLICE
from tocsin.core.delivery.stored_session import (
    SERVED_S,
    StoredSession,
    decode_session,
    encode_session,
    session_key,
)
from tocsin.core.delivery.taking import LOST_PATIENCE_MS, PATIENCE_MS, Abandoned, NotYours, Unreadable
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.errors import Conflict, DeadlineExceeded, StoreUnavailable
from tocsin.ports import BusMessage, Cell, Table, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore


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


class Hold:
    """A session that a broker has, and may write while nobody else has taken it."""

    def __init__(self, table: Table, session: StoredSession, revision: int) -> None:
        self.session = session
        self._table = table
        self._revision = revision

    async def write(self, session: StoredSession) -> None:
        key, value = session_key(session.client), encode_session(session)
        self._revision = await self._table.compare_and_set(key, value, revision=self._revision)


async def take(sessions: Sessions, *, clean: bool = False, heard: bool = True) -> tuple[Hold, bool]:
    """``heard``: the client says something afterwards."""
    taken = await sessions.take("me", owner="", clean=clean, expiry_s=60, tail=5)
    assert taken is not None
    session, revision, resumed = taken
    hold = Hold(sessions.table, msgspec.structs.replace(session, confirmed=True), revision)
    if heard:
        await hold.write(hold.session)
    return hold, resumed


class SlowTable:
    """A table that answers reads when it is told to, and notes what was asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.asked: list[tuple[str, ...]] = []
        self.may_answer = asyncio.Event()
        self.error: StoreUnavailable | None = None

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        return (await self.get_many((key,), fresh=fresh)).get(key)

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        self.asked.append(tuple(keys))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return await self._table.get_many(keys, fresh=fresh)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_reads_that_are_asked_for_meanwhile_are_one_request(network: Network) -> None:
    table = SlowTable(network.table)
    reads = SessionReads(cast(Table, table))
    await network.table.put("a", b"1")
    first = [asyncio.create_task(reads.get(key)) for key in ("a", "b")]
    await turns()
    later = [asyncio.create_task(reads.get(key)) for key in ("c", "a", "c")]
    await turns()
    assert table.asked == [("a", "b")]
    await network.table.put("c", b"3")
    table.may_answer.set()
    found = await asyncio.gather(*first, *later)
    assert [None if cell is None else cell.value for cell in found] == [b"1", None, b"3", b"1", b"3"]
    assert table.asked == [("a", "b"), ("c", "a")]


async def test_reads_that_wait_fail_with_the_store_that_is_away(network: Network) -> None:
    table = SlowTable(network.table)
    reads = SessionReads(cast(Table, table))
    first = asyncio.create_task(reads.get("a"))
    await turns()
    later = [asyncio.create_task(reads.get(key)) for key in ("a", "b")]
    await turns()
    table.error = StoreUnavailable("read", "nobody is there")
    table.may_answer.set()
    outcomes = await asyncio.gather(first, *later, return_exceptions=True)
    assert outcomes == [table.error] * 3
    assert table.asked == [("a",)]
    table.error = None
    assert await reads.get("a") is None


async def test_a_crowd_goes_on_by_slices_after_one_read(network: Network) -> None:
    table = SlowTable(network.table)
    reads = SessionReads(cast(Table, table))
    crowd = [asyncio.create_task(reads.get(f"k{number}")) for number in range(4 * SLICE)]
    await turns()
    table.may_answer.set()
    done = [0]
    while done[-1] < len(crowd):
        await asyncio.sleep(0)
        done.append(sum(each.done() for each in crowd))
    assert len(table.asked) == 1
    assert max(after - before for before, after in itertools.pairwise(done)) <= SLICE


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
        inbound={2: "x.2"},
        received=(2,),
    )
    await hold.write(stored)
    again, resumed = await take(network.broker("south-1"))
    assert resumed
    assert again.session == msgspec.structs.replace(stored, broker="south-1", epoch=2, home="south-1")


async def test_a_clean_start_discards_what_was_stored(network: Network) -> None:
    first, _ = await take(network.broker("north-1"))
    second, resumed = await take(network.broker("north-1"), clean=True)
    assert not resumed
    assert second.session.uid != first.session.uid
    assert second.session.epoch == 2


async def test_who_has_lost_a_session_cannot_write_it(network: Network) -> None:
    first, _ = await take(network.broker("north-1"))
    await take(network.broker("north-1"))
    with pytest.raises(Conflict):
        await first.write(first.session)


async def test_the_serving_broker_is_asked_to_let_the_client_go_first(network: Network) -> None:
    north, south = network.broker("north-1"), network.broker("south-1")
    hold, _ = await take(north)
    asked: list[tuple[str, int]] = []

    async def hand_over(request: BusMessage) -> bytes:
        asked.append(Sessions.wanted(request))
        await hold.write(msgspec.structs.replace(hold.session, broker="", progress=Progress(42)))
        return HANDED.seal(b"yours")

    async with network.store.bus.serve(north.hand_over_subject("north-1"), hand_over):
        taken, resumed = await take(south)
    assert asked == [("me", 0)]
    assert resumed
    assert taken.session.progress == Progress(42)


async def test_a_connection_that_was_given_up_takes_nothing(network: Network) -> None:
    hold, _ = await take(network.broker("north-1"))
    with pytest.raises(Abandoned):
        await network.broker("south-1").take(
            "me", owner="", clean=False, expiry_s=60, tail=5, wanted=lambda: False
        )
    await hold.write(hold.session)


async def test_a_connection_that_was_given_up_throws_nobody_out(network: Network) -> None:
    """A broker that was frozen may read a CONNECT whose client has gone on to another broker long ago."""
    north, south = network.broker("north-1"), network.broker("south-1")
    await take(north)
    asked: list[BusMessage] = []

    async def answer(request: BusMessage) -> bytes:
        asked.append(request)
        return HANDED.seal(b"yours")

    async with network.store.bus.serve(north.hand_over_subject("north-1"), answer):
        with pytest.raises(Abandoned):
            await south.take("me", owner="", clean=False, expiry_s=60, tail=5, wanted=lambda: False)
    assert asked == []


async def test_a_broker_that_does_not_answer_loses_its_client(network: Network) -> None:
    hold, _ = await take(network.broker("north-1"))
    _, resumed = await take(network.broker("south-1"))
    assert resumed
    with pytest.raises(Conflict):
        await hold.write(hold.session)


@pytest.mark.parametrize("lost", [True, False])
async def test_a_broker_that_counts_as_lost_is_hardly_waited_for(
    network: Network, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    await take(network.broker("north-1"))
    waited: list[float] = []

    async def request(subject: str, payload: bytes, *, deadline_s: float) -> bytes:
        waited.append(deadline_s)
        raise DeadlineExceeded(subject, deadline_s)

    monkeypatch.setattr(network.store.bus, "request", request)
    south = Sessions(
        network.table, network.store.bus, network="net", broker="south-1", lost=lambda broker: lost
    )
    _, resumed = await take(south)
    assert resumed and waited == (
        [LOST_PATIENCE_MS / 1_000] if lost else [each / 1_000 for each in PATIENCE_MS]
    )


async def test_two_brokers_that_want_one_client_get_it_one_after_the_other(network: Network) -> None:
    await asyncio.gather(*(take(network.broker(f"b-{number}"), heard=False) for number in range(4)))
    cell = await network.table.get(session_key("me"))
    assert cell is not None
    assert decode_session(cell.value).epoch == 4


async def test_an_unowned_session_is_deleted_for_a_client_without_one(network: Network) -> None:
    sessions = network.broker("north-1")
    hold, _ = await take(sessions)
    await hold.write(msgspec.structs.replace(hold.session, broker=""))
    await sessions.discard({"me": ""})
    assert await network.table.get(session_key("me")) is None
    await sessions.discard({"nobody": ""})


async def test_a_session_of_another_user_can_neither_be_taken_nor_forgotten(network: Network) -> None:
    sessions = network.broker("north-1")
    taken = await sessions.take("me", owner="ann", clean=False, expiry_s=60, tail=5)
    assert taken is not None
    session, revision, _ = taken
    hold = Hold(sessions.table, session, revision)
    await hold.write(msgspec.structs.replace(session, broker="", confirmed=True))
    for clean in (False, True):
        with pytest.raises(NotYours, match="another user"):
            await sessions.take("me", owner="bob", clean=clean, expiry_s=60, tail=5)
    await sessions.discard({"me": "bob"})
    again = await sessions.take("me", owner="ann", clean=False, expiry_s=60, tail=5)
    assert again is not None and again[2]


async def test_a_session_without_expiry_is_resumed_if_stored_but_never_created(
    network: Network,
) -> None:
    sessions = network.broker("north-1")
    assert await sessions.take("me", owner="", clean=False, expiry_s=0, tail=5) is None
    hold, _ = await take(sessions)
    await hold.write(msgspec.structs.replace(hold.session, broker=""))
    taken = await sessions.take("me", owner="", clean=False, expiry_s=0, tail=5)
    assert taken is not None and taken[2]


async def stored(network: Network) -> StoredSession | None:
    cell = await network.table.get(session_key("me"))
    return None if cell is None else decode_session(cell.value)


async def test_a_client_not_heard_since_is_told_again_of_its_new_session(
    network: Network,
) -> None:
    """Its CONNACK may have been lost: it would take this one for the one that it had before."""
    first, _ = await take(network.broker("north-1"), heard=False)
    for heard in (False, True):
        second, resumed = await take(network.broker("north-1"), heard=heard)
        assert not resumed
        assert second.session.uid != first.session.uid
    assert (await take(network.broker("north-1")))[1]


class Hands:
    """The store's clock."""

    s = 0

    def now_us(self) -> int:
        return self.s * 1_000_000


async def test_a_session_that_is_served_outlives_its_expiry() -> None:
    clock = Hands()
    store = MemoryStore(MemoryServer(clock))
    network = Network(store, await store.table(TableSpec("sessions")))
    await take(network.broker("north-1"), heard=False)
    clock.s += 60 + SERVED_S - 1
    assert await stored(network) is not None
    clock.s += 2
    assert await stored(network) is None


@pytest.mark.parametrize("clean", [False, True])
async def test_a_session_of_a_newer_release_is_refused_and_never_replaced(
    network: Network, clean: bool
) -> None:
    stored = encode_session(StoredSession("me", "uid", 60))
    newer = b"\x02" + stored[1:]
    await network.table.put(session_key("me"), newer)
    sessions = network.broker("north-1")
    with pytest.raises(Unreadable, match="Upgrade this process"):
        await take(sessions, clean=clean)
    await sessions.discard({"me": ""})
    cell = await network.table.get(session_key("me"))
    assert cell is not None and cell.value == newer


async def test_a_session_of_release_0_1_0_is_resumed(network: Network) -> None:
    old = msgspec.msgpack.encode(StoredSession("me", "uid", 60, epoch=3))
    await network.table.put(session_key("me"), old)
    hold, resumed = await take(network.broker("north-1"))
    assert resumed and (hold.session.uid, hold.session.epoch) == ("uid", 4)


async def test_old_news_that_there_is_no_session_is_not_believed(network: Network) -> None:
    await take(network.broker("north-1"))
    await network.table.put(
        session_key("me"), encode_session(StoredSession("me", uid="u", expiry_s=60, progress=Progress(1)))
    )
    late = Sessions(cast(Table, OldNews(network.table)), network.store.bus, network="net", broker="south-1")
    taken = await late.take("me", owner="", clean=False, expiry_s=0, tail=5)
    assert taken is not None and taken[0].uid == "u", "and not given up after a few tries"
    await network.table.put(
        session_key("me"), encode_session(StoredSession("me", uid="u", expiry_s=60, progress=Progress(1)))
    )
    await late.discard({"me": ""})
    assert await network.table.get(session_key("me")) is None


async def test_an_unreadable_session_that_only_a_fresh_read_shows_is_refused(
    network: Network,
) -> None:
    await network.table.put(session_key("me"), b"\x01garbage")
    late = Sessions(cast(Table, OldNews(network.table)), network.store.bus, network="net", broker="south-1")
    with pytest.raises(Unreadable):
        await late.take("me", owner="", clean=False, expiry_s=0, tail=5)
