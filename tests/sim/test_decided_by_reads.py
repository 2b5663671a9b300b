"""Old news from a deposed leader of the store, where a broker decides by a read: wills, and where a group begins.

Each story is told to whole brokers, with the latencies of a few seeds. The same story with a plain read in the place of
the fresh one ends badly.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.sim.scenes import SECOND, first_broken, reached, settings, until
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.delivery.wills import WillInquiries
from tocsin.client import AsyncClient, Message
from tocsin.config.membership import Membership
from tocsin.config.recovery import Recovery
from tocsin.core.delivery.stored_session import decode_session, session_key
from tocsin.core.machine import Say
from tocsin.core.survival.wills import came_since
from tocsin.model.network import Address
from tocsin.sim.faults.kinds import Crash, Fault, Lag, OldNews
from tocsin.sim.process import stage
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import Stage, server
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World
from tocsin.wire.internal.replication import Bequest

SEEDS: Final = 4
SETTINGS: Final = settings(
    membership=Membership(suspect_after_ms=8_000, suspect_least_ms=7_000), recovery=Recovery(will_grace_s=1)
)


class Once(Invariant):
    """What programs say that they were told, they were told once, and nothing that was not due."""

    name = "told once, and nothing that is not due"

    def __init__(self) -> None:
        self.told: list[str] = []

    def attach(self, world: World) -> None:
        world.observers.on_say("told", self._look)

    def _look(self, who: Address, say: Say) -> None:
        message = str(say.facts["message"])
        if message in self.told or message.startswith("will"):
            self.broken(f"{who} is told {message}")
        self.told.append(message)

    def finish(self, world: World) -> None:
        if "end" not in self.told:
            self.broken("nobody is told the end")


async def listen(process: SimulatedProcess, client: AsyncClient, name: str, qos: int = 2) -> None:
    async for message in await client.subscribe(name, qos=qos):
        process.do(Say(text="told", facts={"message": bytes(message.payload).decode()}))


# ── a will, and the session of its client ────────────────────────────────────────────────────────────────────

# Whoever could stand in is cut off while the client comes elsewhere, leaves, and the broker there forgets it.
CAME_MEANWHILE: Final[list[Fault]] = [
    OldNews(at_us=6 * SECOND, for_us=12 * SECOND, nodes=("north-2", "south-1"), old_us=10 * SECOND),
    Crash(at_us=13 * SECOND, for_us=25 * SECOND, node="north-1"),
    Crash(at_us=16 * SECOND, for_us=SECOND // 2, node="south-2"),
]


def comes_and_leaves(stage: Stage) -> Invariant:
    """A client dies with its broker, comes to another, and leaves that in order."""

    async def emil(process: SimulatedProcess) -> None:
        await until(2)
        will = Message("wills/emil", b"will of emil", qos=1)
        await reached("north-1", "emil", session_expiry_s=3_600, will=will, keep_alive_s=2)
        await until(14)
        again = await reached("south-2", "emil", session_expiry_s=3_600, keep_alive_s=2)
        await until(15)
        await again.close()

    async def watch(process: SimulatedProcess) -> None:
        client = AsyncClient(
            [server("south-2"), server("north-2")], client_id="watch", session_expiry_s=3_600
        )
        async with client:
            listening = asyncio.create_task(listen(process, client, "#", 1))
            await until(45)
            await client.publish("end", "end", qos=1)
            await listening

    stage.add_program("emil", emil)
    stage.add_program("watch", watch)
    return Once()


def test_a_will_whose_client_came_meanwhile_is_not_published() -> None:
    assert first_broken(comes_and_leaves, SETTINGS, CAME_MEANWHILE, SEEDS) is None


def test_a_will_that_is_published_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plainly(self: WillInquiries, client: str, will: Bequest) -> bool:
        cell = await self._sessions.get(session_key(client))
        return came_since(will, None if cell is None else decode_session(cell.value))

    monkeypatch.setattr(WillInquiries, "_is_settled", plainly)
    broken = first_broken(comes_and_leaves, SETTINGS, CAME_MEANWHILE, SEEDS)
    assert broken is not None and "will of emil" in broken.words


# ── where a group begins ─────────────────────────────────────────────────────────────────────────────────────

# The second member's broker hears nothing of the log, and asks a server that fell silent when it was empty.
BEFORE_THE_MESSAGES: Final[list[Fault]] = [
    OldNews(at_us=3 * SECOND, for_us=12 * SECOND, nodes=("south-1",), old_us=20 * SECOND),
    Lag(at_us=4 * SECOND, for_us=35 * SECOND, node="south-1"),
]
GROUP: Final = "$share/team/jobs"


def one_after_the_other(stage: Stage) -> Invariant:
    """A member takes everything and goes, and the group with it; then a member comes elsewhere."""

    async def first(process: SimulatedProcess) -> None:
        client = await reached("north-1", "first", session_expiry_s=0)
        taking = asyncio.create_task(listen(process, client, GROUP))
        await until(12)
        await client.close()
        taking.cancel()

    async def dora(process: SimulatedProcess) -> None:
        client = await reached("north-2", "dora")
        for number in range(5):
            await until(5 + number)
            await client.publish("jobs", f"job {number}", qos=2)
        await until(45)
        await client.publish("jobs", "end", qos=2)

    async def second(process: SimulatedProcess) -> None:
        await until(17)
        async with AsyncClient(server("south-1"), client_id="second", deadline_s=60.0) as client:
            await listen(process, client, GROUP)

    stage.add_program("first", first)
    stage.add_program("dora", dora)
    stage.add_program("second", second)
    return Once()


def test_a_recreated_group_has_no_message_of_its_predecessor() -> None:
    assert first_broken(one_after_the_other, SETTINGS, BEFORE_THE_MESSAGES, SEEDS) is None


def test_a_group_that_begins_too_early_because_of_old_news_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plainly(self: MessageLog) -> int:
        return await self._log.last()

    monkeypatch.setattr(MessageLog, "end", plainly)
    monkeypatch.setattr(stage, "READ", "all")  # a reader by interest finds the end by itself
    broken = first_broken(one_after_the_other, SETTINGS, BEFORE_THE_MESSAGES, SEEDS)
    assert broken is not None and "job" in broken.words
