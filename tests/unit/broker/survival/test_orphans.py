"""Sessions that name a broker that does not serve them: when their expiry begins."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from tests.unit.broker.old_news import OldNews
from tocsin.broker.survival import orphans as module
from tocsin.broker.survival.orphans import Orphans
from tocsin.core.delivery.stored_session import (
    SERVED_S,
    StoredSession,
    decode_session,
    encode_session,
    session_key,
)
from tocsin.core.survival.orphans import GRACE_US
from tocsin.errors import StoreUnavailable
from tocsin.ports import Cell, Table, TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

GRACE_S = GRACE_US / 1_000_000
SERVED = StoredSession("me", uid="u", expiry_s=60, epoch=3, broker="north-1")


class Place:
    """A broker, and the store's clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = MemoryStore(MemoryServer(self))
        self.over: list[str] = []
        self.connected: set[str] = set()

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    async def open(self) -> None:
        self.table: Table = await self.store.table(TableSpec("sessions"))
        self.orphans = self._orphans()

    def _orphans(self, *, borrowed: bool = False) -> Orphans:
        orphans = Orphans(self.table, "north-1", here=self.connected.__contains__, borrowed=borrowed)
        orphans.count(True)
        return orphans

    def borrow(self) -> None:
        """The process has another broker's name."""
        self.orphans = self._orphans(borrowed=True)

    async def look(self) -> None:
        await self.orphans.look(lambda session: self.over.append(session.uid))

    async def write(self, session: StoredSession) -> None:
        key, value = session_key(session.client), encode_session(session)
        await self.table.put(key, value, ttl_s=session.expiry_s + SERVED_S)

    async def stored(self) -> StoredSession | None:
        cell = await self.table.get(session_key("me"))
        return None if cell is None else decode_session(cell.value)


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place()
    monkeypatch.setattr(module, "now_us", place.now_us)
    await place.open()
    return place


async def test_an_earlier_incarnations_session_is_released_and_then_expires(place: Place) -> None:
    await place.write(SERVED)
    place.orphans.saw(SERVED)
    await place.look()
    assert await place.stored() == SERVED, "its client may come back"
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == msgspec.structs.replace(SERVED, broker="")
    place.now_s += 61
    assert await place.stored() is None


async def test_sessions_may_be_a_standbys_until_a_leader_counts_on_us(place: Place) -> None:
    place.orphans.count(False)
    await place.write(SERVED)
    place.orphans.saw(SERVED)
    place.now_s += 2 * GRACE_S
    await place.look()
    assert await place.stored() == SERVED
    place.orphans.count(True)
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == msgspec.structs.replace(SERVED, broker="")


async def test_a_client_that_is_back_keeps_its_session(place: Place) -> None:
    await place.write(SERVED)
    place.orphans.saw(SERVED)
    place.connected.add("me")
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == SERVED


async def test_a_taken_session_waits_for_the_next_connection(
    place: Place,
) -> None:
    await place.write(SERVED)
    place.orphans.left("me", "u", 3, 60)
    place.connected.add("me")
    await place.look()
    assert await place.stored() == SERVED, "the next connection is about to take it"
    place.connected.clear()
    await place.look()
    assert await place.stored() == msgspec.structs.replace(SERVED, broker="")


async def test_a_session_that_was_taken_here_is_nothing_to_release(place: Place) -> None:
    await place.write(SERVED)
    place.orphans.left("me", "u", 3, 60)
    place.orphans.taken("me")
    await place.look()
    assert await place.stored() == SERVED


@pytest.mark.parametrize(
    "changed", [{"epoch": 4, "broker": "south-1"}, {"uid": "v"}, {"broker": ""}], ids=str
)
async def test_a_session_that_somebody_has_had_since_is_left_alone(
    place: Place, changed: dict[str, object]
) -> None:
    await place.write(SERVED)
    place.orphans.saw(SERVED)
    taken = msgspec.structs.replace(SERVED, **changed)
    await place.write(taken)
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == taken


async def test_others_sessions_and_those_of_a_borrowed_name_are_not_released(place: Place) -> None:
    elsewhere = msgspec.structs.replace(SERVED, broker="south-1")
    await place.write(elsewhere)
    place.orphans.saw(elsewhere)
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == elsewhere
    place.borrow()
    await place.write(SERVED)
    place.orphans.saw(SERVED)
    place.now_s += GRACE_S
    await place.look()
    assert await place.stored() == SERVED


@pytest.mark.parametrize("expiry_s", [0, 5])
async def test_session_changes_made_without_the_store_are_written_later(
    place: Place, monkeypatch: pytest.MonkeyPatch, expiry_s: int
) -> None:
    await place.write(SERVED)
    place.orphans.left("me", "u", 3, expiry_s)

    async def away(key: str, *, fresh: bool = False) -> Cell | None:
        raise StoreUnavailable("get", "away")

    with monkeypatch.context() as trouble:
        trouble.setattr(place.table, "get", away)
        await place.look()
    assert await place.stored() == SERVED
    await place.look()
    if expiry_s:
        assert await place.stored() == msgspec.structs.replace(SERVED, broker="", expiry_s=5)
        place.now_s += 6
    assert await place.stored() is None
    assert place.over == ([] if expiry_s else ["u"])


async def test_old_news_of_a_session_does_not_make_it_somebody_elses(place: Place) -> None:
    await place.write(msgspec.structs.replace(SERVED, epoch=2, broker="south-1"))
    old = OldNews(place.table)
    await old.remember(session_key("me"))
    place.table = cast(Table, old)
    place.orphans = place._orphans()
    await place.write(SERVED)
    place.orphans.left("me", "u", 3, 5)
    await place.look()
    place.now_s += 6
    assert await old.now(session_key("me")) is None, "it was released, and has expired"
