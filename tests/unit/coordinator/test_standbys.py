"""Standbys are asked for their scores, and who takes which place is written down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from tests.unit.coordinator.answering import Machine, summaries_of
from tocsin.broker.survival.summary import Summaries, Weighing
from tocsin.config import Settings, load
from tocsin.coordinator import standbys
from tocsin.coordinator.standbys import EXPLANATION, LAST, NEXT, Replacement, StandbyDesk
from tocsin.core.assignment.ranking.standbys import rank
from tocsin.core.coordination.leader.promotions import (
    Chosen,
    Promotions,
    Question,
    StandbyTold,
    Vacancy,
    WantScores,
)
from tocsin.core.coordination.state.backups import Survival
from tocsin.core.machine import Event
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.ports import BusMessage, Table, TableSpec
from tocsin.runtime.host.measure import Machine as Host
from tocsin.runtime.host.measure import Measured
from tocsin.runtime.host.score import Resources
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.summaries import Ask, Summary, decode_summary, encode, subject

NORTH = BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 1)
PEER = BrokerInfo("north-2", "north", Role.EDGE, "127.0.0.1", 2)
A, Z = (BrokerInfo(name, "north", Role.STANDBY, "127.0.0.1", 3) for name in ("a", "z"))
PLACE = Vacancy(NORTH, ("north-2",))
DOOR = (Entrance(Scheme.MQTT, "x:1883"),)
WEIGHTS = {"power": 1.0, "delay": 1.0}


class Room:
    """A desk, what it posts, and the table that it writes to."""

    def __init__(self, store: MemoryStore, table: Table) -> None:
        self.bus, self.table = store.bus, table
        self.posted: asyncio.Queue[Event] = asyncio.Queue()
        self.desk = StandbyDesk(store.bus, table, "net", self.posted.put_nowait)

    async def told(self) -> StandbyTold:
        event = await self.posted.get()
        assert isinstance(event, StandbyTold)
        return event

    async def explained(self, key: str) -> Replacement:
        while (cell := await self.table.get(key)) is None:
            await asyncio.sleep(0.01)
        return EXPLANATION.read(cell.value)


@asynccontextmanager
async def room() -> AsyncIterator[Room]:
    store = MemoryStore(MemoryServer())
    made = Room(store, await store.table(TableSpec("coordination")))
    async with asyncio.timeout(30):
        yield made
    await made.desk.close()
    await store.close()


async def test_each_answer_is_passed_on_and_a_silent_standby_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standbys, "ANSWER_S", 0.2)
    machine = Machine(0.5, (), {"power": (0.9, 1.0)})
    machine.probes = {"north-2": (50_000, 5_000)}
    answering = summaries_of(machine=machine, weights=WEIGHTS)
    async with room() as made, made.bus.serve(subject("net", "z"), answering.answer):
        questions = (Question(A, (PEER,)), Question(Z, (PEER,)))
        made.desk.want(WantScores(questions=questions, vacancies=(PLACE,)))
        told = {each.standby: each for each in (await made.told(), await made.told())}
        answer = told["z"].summary
        assert answer is not None and answer.probes == {"north-2": (50_000, 5_000)}
        assert machine.wanted == ["north-2"], "it is told whom to measure"
        assert told["a"].summary is None and told["a"].problem
        explained = await made.explained(f"{NEXT}north-1")
    best, silent = explained.candidates
    assert (best.name, best.delay_us, best.kbit_s) == ("z", 50_000, 5_000)
    assert best.score == pytest.approx((0.9 + 0.5) / 2)
    assert (silent.name, silent.score, silent.answered) == ("a", None, False) and silent.problems
    assert explained.peers == ("north-2",)


async def test_who_was_chosen_is_written_down_as_it_was_decided() -> None:
    ranking = rank(NORTH, (), (A, Z), {"z": Summary(1, 1, {}, resources=0.3)}, {})
    async with room() as made:
        made.desk.chosen(Chosen(vacancy=PLACE, candidates=ranking))
        explained = await made.explained(f"{LAST}north-1")
    assert [each.name for each in explained.candidates] == ["z", "a"]


async def test_where_no_standby_is_free_that_is_written_down_too() -> None:
    async with room() as made:
        made.desk.want(WantScores(questions=(), vacancies=(PLACE,)))
        assert (await made.explained(f"{NEXT}north-1")).candidates == ()


# ── from the machine to the choice ───────────────────────────────────────────────────────────────────────────


class Seen(Host):
    """A machine that a test describes."""

    def __init__(self, cores: float, hours: float) -> None:
        self.battery = Measured(hours)
        self.processor = Measured(cores)

    def look(self) -> dict[str, Measured]:
        rest = {"memory": Measured(8.0), "bandwidth": Measured(1_000.0)}
        return {"processor": self.processor, "battery": self.battery, **rest}


async def scored(settings: Settings, name: str, machine: Host) -> Resources:
    """A standby's own score, once it has looked at its machine."""
    made = Resources(settings, name, "north", machine, standby=True)
    looking = asyncio.create_task(made.run())
    while made.score()[0] is None:
        await asyncio.sleep(0.01)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return made


@pytest.mark.parametrize(
    ("configuration", "chosen"), [("static", "a"), ("mobile-servicing", "z"), ("mobile-backup", "z")]
)
async def test_the_configuration_decides_who_of_two_machines_is_promoted(
    configuration: str, chosen: str
) -> None:
    settings = load(flags={"scoring.configuration": configuration}).settings
    scoring = settings.scoring
    weighing = Weighing(
        0.0,
        scoring.standby_weights(),
        scoring.bandwidth_need,
        configuration,
        scoring.changed(standby=True),
    )
    link = Machine(None, (), {})
    link.probes = {"north-2": (2_000, 100_000)}
    machines = {"a": Seen(cores=8.0, hours=0.45), "z": Seen(cores=0.25, hours=math.inf)}
    survival, promotions = Survival(), Promotions(0)
    lost, peer = (msgspec.structs.replace(each, entrances=DOOR) for each in (NORTH, PEER))
    members = (peer, A, Z)
    survival.lost(lost, [each.id for each in members])
    async with room() as made, AsyncExitStack() as answering:
        for name, machine in machines.items():
            fitness = await scored(settings, name, machine)
            summaries = Summaries(tuple, weighing, fitness, link)
            await answering.enter_async_context(made.bus.serve(subject("net", name), summaries.answer))
        _, (asked,) = promotions.look(survival, members, (), 1_000)
        assert isinstance(asked, WantScores)
        made.desk.want(asked)
        for _ in machines:
            promotions.told(await made.told(), 1_001)
        (promoted,), effects = promotions.look(survival, members, (), 1_002)
        assert promoted.standby == chosen
        made.desk.chosen(next(each for each in effects if isinstance(each, Chosen)))
        best = (await made.explained(f"{LAST}north-1")).candidates[0]
    assert (best.name, best.configuration) == (chosen, configuration)
    mobile = {"bandwidth_weight": (1.0, 60.0), "battery_weight": (1.0, 50.0), "battery_need": (1.0, 8.0)}
    assert best.changed == ({} if configuration == "static" else mobile)


async def test_a_serving_broker_answers_as_the_standby_that_it_would_be() -> None:
    machine = Machine(0.5, (), {"power": (1.0, 1.0)}, standby_terms={"power": (0.2, 1.0)})
    answering = summaries_of(lambda: [("a/b", 3)], machine=machine, weights=WEIGHTS)
    async with room() as made, made.bus.serve(subject("net", "z"), answering.answer):
        made.desk.want(WantScores(questions=(Question(Z, ()),)))
        answer = (await made.told()).summary
    assert answer is not None and (answer.terms, answer.held) == ({"power": (0.2, 1.0)}, {})
    asked = await answering.answer(BusMessage("x", encode(Ask())))
    assert decode_summary(asked).terms == {"power": (1.0, 1.0)} and len(decode_summary(asked).held) == 1
