"""Retained messages whose payloads a broker has let go of: who subscribes gets each topic's newest, and none twice old.

Four brokers hold no payload that the table has. A publisher retains numbers on a few topics, faster than brokers can be
told, and readers come to one broker after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest

from tests.sim.scenes import BROKERS, SECOND, first_broken, reached, settings, until
from tocsin.broker.retained import replay
from tocsin.broker.retained.table import Retained
from tocsin.client import Message
from tocsin.config.budgets import Budgets
from tocsin.core.machine import Effect, Say
from tocsin.core.retained.kept import Kept
from tocsin.core.retained.machine import MessageFetched, RetainedCopy
from tocsin.model.network import Address
from tocsin.sim.faults.kinds import Fault, Lag
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import Stage
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

SEEDS: Final = 2
SETTINGS: Final = settings(budgets=Budgets(retained_held_bytes=1))
TOPICS: Final = 4
NUMBERS: Final = 240  # one every 50 ms
SLOW_S: Final = 0.15  # until an answer of the table is here: by then it may be old
LAGGING: Final[list[Fault]] = [Lag(at_us=9 * SECOND, for_us=3 * SECOND, node="south-1")]


class Newest(Invariant):
    """No reader is told an older number of a topic behind a newer one; the last reader is told the last of each."""

    name = "a subscriber gets the newest of each topic"

    def __init__(self) -> None:
        self._told: dict[tuple[Address, str], int] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say("told", self._look)

    def _look(self, who: Address, say: Say) -> None:
        reader, topic, text = str(say.facts["reader"]), str(say.facts["topic"]), str(say.facts["payload"])
        if not text:
            self.broken(f"{reader} is told nothing on {topic}")
        if int(text) < self._told.get((reader, topic), -1):
            self.broken(f"{reader} is told {text} on {topic} behind {self._told[reader, topic]}")
        self._told[reader, topic] = int(text)

    def finish(self, world: World) -> None:
        last = {topic: number for (reader, topic), number in self._told.items() if reader == "last"}
        due = {f"room/{topic}": NUMBERS - TOPICS + topic for topic in range(TOPICS)}
        if last != due:
            self.broken(f"the last reader is told {last} and not {due}")


def scene(stage: Stage) -> Invariant:
    async def dora(process: SimulatedProcess) -> None:
        client = await reached("north-1", "dora")
        await until(4)
        for number in range(NUMBERS):
            topic = f"room/{number % TOPICS}"
            await client.publish(topic, str(number), qos=1, retain=True)
            await asyncio.sleep(0.05)

    async def read(process: SimulatedProcess, broker: str, reader: str, for_s: float) -> None:
        client = await reached(broker, reader, session_expiry_s=0)

        def tell(message: Message) -> None:
            facts = {"reader": reader, "topic": message.topic, "payload": bytes(message.payload).decode()}
            process.do(Say(text="told", facts=facts))

        async def listen() -> None:
            async for message in await client.subscribe("room/+", qos=1):
                tell(message)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(for_s)
        listening.cancel()
        await client.close()

    async def readers(process: SimulatedProcess) -> None:
        for number in range(24):
            await until(5 + number * 0.5)
            await read(process, BROKERS[number % 4], f"reader/{number}", 0.4)
        await until(50)
        await read(process, "south-1", "last", 2.0)

    stage.add_program("dora", dora)
    stage.add_program("readers", readers)
    return Newest()


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Retained._ask

    async def slowly(self: Retained, topics: Sequence[str]) -> dict[str, tuple[Kept, int]]:
        found = await ask(self, topics)
        await asyncio.sleep(SLOW_S)
        return found

    monkeypatch.setattr(Retained, "_ask", slowly)


def test_readers_get_the_newest_whatever_is_held() -> None:
    assert first_broken(scene, SETTINGS, LAGGING, SEEDS) is None


def test_an_older_message_fetched_in_place_of_a_newer_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believed(self: RetainedCopy, event: MessageFetched, now_us: int) -> list[Effect]:
        self._topics.put(event.kept.publication.topic, event.kept)
        return []

    table = cast(dict[Any, Any], RetainedCopy.table)
    monkeypatch.setitem(table, ("*", MessageFetched), believed)
    assert first_broken(scene, SETTINGS, LAGGING, SEEDS) is not None


def test_a_stub_that_is_sent_as_it_is_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "Stub", int)
    broken = first_broken(scene, SETTINGS, LAGGING, SEEDS)
    assert broken is not None and "nothing" in broken.words
