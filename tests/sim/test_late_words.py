"""A word that a client came elsewhere may be late: the client has come here since, and stays."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.sim.scenes import SECOND, first_broken, reached, settings, until
from tocsin.core.machine import Say
from tocsin.core.survival.announcements import ArrivalTimes
from tocsin.model.network import Address
from tocsin.sim.faults.kinds import BadWeather, Fault
from tocsin.sim.network import Weather
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import Stage
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

SEEDS: Final = 6
MOVES: Final = 5
# Whatever the first broker says takes up to two seconds.
SLOW: Final[list[Fault]] = [
    BadWeather(
        at_us=2 * SECOND,
        for_us=35 * SECOND,
        weather=Weather(side=frozenset(("north-1",)), extra_us=2 * SECOND),
    )
]


class Stays(Invariant):
    """Nobody is thrown out of where it came last."""

    name = "a client stays where it came last"

    def __init__(self) -> None:
        self._moves = 0

    def attach(self, world: World) -> None:
        world.observers.on_say("thrown out", self._on_thrown_out)
        world.observers.on_say("stayed", self._on_stayed)

    def _on_thrown_out(self, who: Address, say: Say) -> None:
        self.broken(f"{who} is thrown out: {say.facts['why']}")

    def _on_stayed(self, who: Address, say: Say) -> None:
        self._moves += 1

    def finish(self, world: World) -> None:
        if not self._moves:
            self.broken("nobody moved")


async def carl(process: SimulatedProcess) -> None:
    """Comes to one broker, and at once to another, again and again."""
    await until(3)
    for _ in range(MOVES):
        first = await reached("north-1", "carl", session_expiry_s=600, deadline_s=10.0)
        why = asyncio.get_running_loop().create_future()

        def heard(connection: object, why: asyncio.Future[str] = why) -> None:
            if not getattr(connection, "up", True) and not why.done():
                why.set_result(str(connection))

        second = await reached(
            "south-1", "carl", session_expiry_s=600, deadline_s=10.0, on_connection=heard, keep_alive_s=60
        )
        try:
            said = await asyncio.wait_for(asyncio.shield(why), 3.0)
            process.do(Say(text="thrown out", facts={"why": said}))
        except TimeoutError:
            process.do(Say(text="stayed"))
        await second.close()
        await first.close()


def moves(stage: Stage) -> Invariant:
    stage.add_program("carl", carl)
    return Stays()


def test_a_client_stays_where_it_came_last() -> None:
    assert first_broken(moves, settings(), SLOW, SEEDS) is None


def test_a_broker_that_heeds_every_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a word that a client is elsewhere counts, though the client came here since."""
    monkeypatch.setattr(ArrivalTimes, "since", lambda self, client, came_us: False)
    broken = first_broken(moves, settings(), SLOW, SEEDS)
    assert broken is not None and "thrown out" in broken.words
