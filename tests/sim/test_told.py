"""A client is told of its broker's loss: it leaves a frozen one soon, and stays with one that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from tests.sim.scenes import SECOND, Scene, first_broken, settings, until
from tocsin.client import AsyncClient
from tocsin.client.options import Connection
from tocsin.core.links.dialler import Dialler, DiallerState
from tocsin.core.links.signals import Alarmed
from tocsin.core.machine import Effect, Say, Table
from tocsin.core.survival.watchers import Watchers
from tocsin.model.network import Address
from tocsin.sim.faults.kinds import Fault, Partition, Pause
from tocsin.sim.network import STORE
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import Stage, server
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

SEEDS: Final = 2
FAILS_S, LASTS_S = 12, 20
SOON_US: Final = 4 * SECOND  # what silence, the log and the way elsewhere take, with room
KEEP_ALIVE_S: Final = 3_000  # of no help
FROZEN: Final = [Pause(at_us=FAILS_S * SECOND, for_us=LASTS_S * SECOND, node="north-1")]
# The leader hears nothing of the broker any more; its clients do.
UNHEARD: Final = [
    Partition(at_us=FAILS_S * SECOND, for_us=LASTS_S * SECOND, side=("north-1",), others=(STORE,))
]


async def olga(process: SimulatedProcess) -> None:
    """Comes to the first broker, and says where it is each time that it is served."""

    def told(connection: Connection) -> None:
        process.do(Say(text="served" if connection.up else "left", facts={"at": connection.server}))

    await until(3)
    client = AsyncClient(
        server("north-1"), client_id="olga", keep_alive_s=KEEP_ALIVE_S, deadline_s=3_000, on_connection=told
    )
    await client.connect()
    await until(FAILS_S - 0.5)
    process.do(Say(text="watched" if client.watched else "not watched"))
    await asyncio.sleep(LASTS_S)
    await client.close()


class Told(Invariant):
    """While its broker fails, the client is served elsewhere within SOON_US (``leaves``), or stays where it is."""

    name = "a client is told of its broker's loss"

    def __init__(self, *, leaves: bool) -> None:
        self._leaves = leaves
        self._watched = False
        self._moves: list[tuple[int, str]] = []

    def attach(self, world: World) -> None:
        def on(text: str) -> None:
            def said(who: Address, say: Say) -> None:
                if world.now_us >= FAILS_S * SECOND:
                    self._moves.append((world.now_us - FAILS_S * SECOND, text))

            world.observers.on_say(text, said)

        on("served")
        on("left")
        world.observers.on_say("watched", self._on_watched)

    def _on_watched(self, who: Address, say: Say) -> None:
        self._watched = True

    def finish(self, world: World) -> None:
        if not self._watched:
            self.broken("the client has no watch connection")
        served = [at_us for at_us, text in self._moves if text == "served"]
        if self._leaves and not (served and served[0] <= SOON_US):
            self.broken(f"the client was not served elsewhere in time: {self._moves}")
        if not self._leaves and self._moves:
            self.broken(f"the client left a broker that answers: {self._moves}")


def scene(*, leaves: bool) -> Scene:
    def add(stage: Stage) -> Invariant:
        stage.add_program("olga", olga)
        return Told(leaves=leaves)

    return add


@pytest.mark.parametrize(("plan", "leaves"), [(FROZEN, True), (UNHEARD, False)], ids=["frozen", "unheard"])
def test_a_client_leaves_a_lost_broker_unless_it_answers(plan: Sequence[Fault], leaves: bool) -> None:
    assert first_broken(scene(leaves=leaves), settings(), plan, SEEDS) is None


def test_a_broker_that_tells_no_watcher_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a loss is told to nobody."""
    monkeypatch.setattr(Watchers, "told", lambda self, lost: [])
    broken = first_broken(scene(leaves=True), settings(), FROZEN, 1)
    assert broken is not None and "not served elsewhere" in broken.words


def test_a_client_that_believes_every_alarm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a client leaves at once, and does not ask its broker."""

    def leave(self: Dialler, event: Alarmed, now_us: int) -> list[Effect]:
        return self._leave(now_us, "alarmed") if event.broker == self.broker else []

    table: Table = {**Dialler.table, (DiallerState.UP, Alarmed): leave}
    monkeypatch.setattr(Dialler, "table", table)
    broken = first_broken(scene(leaves=False), settings(), UNHEARD, 1)
    assert broken is not None and "left a broker that answers" in broken.words
