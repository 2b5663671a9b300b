"""Messages with a budget at their destination: the first copy counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.broker.harness import until
from tocsin.broker.quality import arriving
from tocsin.broker.quality.arriving import Arriving
from tocsin.broker.quality.copies import Room
from tocsin.core.quality.stamps import Stamp
from tocsin.model.network import BrokerInfo, Role
from tocsin.model.publication import Publication
from tocsin.model.quality import Flow
from tocsin.runtime.machines.clock import wall_us
from tocsin.wire.internal.quality import WORD, Sees, Wish, Wishes

OWN = BrokerInfo("west-1", "west", Role.EDGE, "127.0.0.1", 0)
FLOW = Flow("t", "pump", 1, "east-1")
BUDGET_US = 60_000_000  # longer than any test


class Stage:
    """The arrivals at one broker, and what comes of them."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.given: list[int] = []
        self.missed = 0
        words: Any = self
        self.arriving = Arriving("net", OWN, words, self._give, self._miss)

    def say(self, subject: str, word: bytes) -> None:
        self.said.append(WORD.read(word))

    def _give(self, publication: Publication, stamp: Stamp) -> None:
        self.given.append(stamp.number)

    def _miss(self, topic: str, count: int) -> None:
        self.missed += count

    def take(self, *numbers: int, copied: bool = False, flow: Flow = FLOW, sent_us: int = 0) -> None:
        for number in numbers:
            stamp = Stamp(flow, number, sent_us or wall_us())
            self.arriving.take(Publication(flow.topic, b"x", 0, flow.client), stamp, copied=copied)


@pytest.fixture
async def stage() -> Any:
    found = Stage()
    yield found
    found.arriving.close()


async def test_a_wish_is_said_when_it_begins_and_when_it_ends(stage: Stage) -> None:
    stage.arriving.want("t", 5_000)
    stage.arriving.want("t", 5_000)
    stage.arriving.unwant("t", 5_000)
    stage.arriving.unwant("t", 5_000)
    assert stage.said == [Wishes(OWN, (Wish("t", 5_000),)), Wishes(OWN, ())]


async def test_a_broker_that_moves_says_where_it_is(stage: Stage) -> None:
    stage.arriving.want("t", 5_000)
    there = BrokerInfo("west-1", "west", Role.EDGE, "10.0.0.9", 7)
    stage.arriving.moved(there)
    assert stage.said[-1] == Wishes(there, (Wish("t", 5_000),))


async def test_each_message_goes_on_once_whatever_way_was_first(stage: Stage) -> None:
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, 2, copied=True)
    stage.take(1, 2, 3)
    stage.take(3, copied=True)
    assert stage.given == [1, 2, 3]
    assert stage.arriving.statistics()["copies_repeated"] == 3
    assert stage.arriving.statistics()["copies_ahead"] == 2


async def test_order_is_kept_while_copies_come(stage: Stage) -> None:
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, copied=True)
    stage.take(3, copied=True)
    assert stage.given == [1]
    stage.take(2)
    assert stage.given == [1, 2, 3]


async def test_a_gap_is_passed_over_within_the_budget_and_told(stage: Stage) -> None:
    stage.arriving.want("#", 40_000)
    stage.take(1, copied=True)
    stage.take(4, copied=True)
    await until(lambda: stage.given == [1, 4])
    assert stage.missed == 2
    stage.take(2, 3)
    assert stage.given == [1, 4]  # an old value after a new one helps nobody
    assert stage.missed == 2


async def test_a_new_connection_is_another_flow(stage: Stage) -> None:
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, 2, copied=True)
    stage.take(1, 2, copied=True, flow=Flow("t", "pump", 2, "east-1"))
    assert stage.given == [1, 2, 1, 2]


async def test_what_nobody_copies_keeps_its_order_too(stage: Stage) -> None:
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, 3)
    assert stage.given == [1]
    stage.take(2)
    assert stage.given == [1, 2, 3]


async def test_the_origin_is_told_what_was_missed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "SAY_S", 0.001)
    stage.arriving.want("#", 1_000)
    stage.take(1, sent_us=wall_us() - 5_000_000)
    await until(lambda: any(isinstance(each, Sees) for each in stage.said))
    (row,) = next(each for each in stage.said if isinstance(each, Sees)).rows
    assert (row.topic, row.came, row.missed) == ("t", 1, 1)
    assert row.longest_us >= 5_000_000


async def test_nobody_keeps_what_nobody_wants(stage: Stage) -> None:
    stage.arriving.want("u", BUDGET_US)
    stage.take(1, 2, copied=True)
    assert stage.given == [] and stage.arriving.statistics()["copies_ahead"] == 0


async def test_a_flow_is_forgotten_with_the_last_who_wants_it(stage: Stage) -> None:
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, copied=True)
    stage.take(3, copied=True)
    stage.arriving.unwant("#", BUDGET_US)
    stage.arriving.want("#", BUDGET_US)
    stage.take(9)
    assert stage.given[-1] == 9
    assert stage.arriving.statistics()["copies_waiting"] == 0


async def test_what_waits_has_a_bound_in_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "WAITING_BYTES", 10)
    stage.arriving.want("#", BUDGET_US)
    stage.take(1, *range(3, 20), copied=True)
    assert stage.arriving.statistics()["copies_waiting"] <= 5
    assert stage.given == sorted(set(stage.given))


async def test_windows_have_a_bound(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "WINDOWS_MAX", 2)
    stage.arriving.want("#", BUDGET_US)
    for epoch in range(10):
        stage.take(1, 3, copied=True, flow=Flow("t", "pump", epoch, "east-1"))
    assert stage.arriving.statistics()["copies_waiting"] <= 2
    await asyncio.sleep(0)


def test_room_gives_no_more_than_a_second_at_once_and_a_rate() -> None:
    room = Room(1_000, 0)
    taken = sum(room.take(100, now_us) for now_us in range(0, 3_000_000, 1_000))
    assert 1_000 <= taken * 100 <= 1_000 + 3_000


def test_room_that_shrinks_leaves_nothing_of_before() -> None:
    room = Room(10_000, 0)
    room.change(100, 0)
    assert not room.take(101, 0)
    assert room.take(100, 0)
