"""How often clients move when a standby takes their broker's place, for good: whole processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.sim.stories import SECOND, SEED, WAY, Reader
from tocsin.config import Settings
from tocsin.config.recovery import Recovery
from tocsin.core.machine import Say
from tocsin.sim.faults.kinds import Crash, Fault, Pause, unleash
from tocsin.sim.process.stage import NETWORK, Stage, configured
from tocsin.sim.scenarios.survival.promises.looking import PLACE_TAKEN
from tocsin.sim.world import World

CLIENTS = 8
UNTIL_US = 40 * SECOND
GONE_US = 8 * SECOND
BROKERS = (
    configured("north-1", "north"),
    configured("north-2", "north"),
    configured("south-1", "south"),
    configured("north-spare", "north", "standby"),
)
KILLED: Sequence[Fault] = [Crash(at_us=GONE_US, for_us=UNTIL_US, node="north-1")]
FROZEN: Sequence[Fault] = [Pause(at_us=GONE_US, for_us=UNTIL_US, node="north-1")]


def moves(plan: Sequence[Fault], recovery: Recovery) -> tuple[set[int], set[str]]:
    """How often each client came to another broker, and where they are in the end."""
    world = World(SEED)
    stage = Stage(world, Settings(network=NETWORK, brokers=BROKERS, recovery=recovery))
    world.network.link_of = lambda sender, receiver: WAY
    stage.add_coordinators("coordinator-1")
    stage.add_brokers()
    readers = [Reader(f"reader-{number}", ("north-1", "south-1"), "news") for number in range(CLIENTS)]
    for reader in readers:
        stage.add_program(reader.name, reader.run)
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    taken: list[str] = []

    def on_connected(node: str, say: Say) -> None:
        counts[say.cause] += 1
        places[say.cause] = str(say.facts["node"])

    world.observers.on_say("connected", on_connected)
    world.observers.on_say(PLACE_TAKEN, lambda node, say: taken.append(node))
    unleash(world, list(plan))
    try:
        world.run_until(UNTIL_US)
    finally:
        world.close()
    assert taken == ["north-spare"]
    return {counts[each.name] - 1 for each in readers}, {places[each.name] for each in readers}


def test_clients_of_a_frozen_broker_move_once_to_the_standby() -> None:
    """They are told of the loss, and the standby is there by the time that they leave."""
    assert moves(FROZEN, Recovery()) == ({1}, {"north-spare"})


@pytest.mark.parametrize(
    ("guests", "expected"), [("move", ({2}, {"north-spare"})), ("stay", ({1}, {"north-2"}))]
)
def test_clients_of_a_killed_broker_move_once_if_guests_stay(
    guests: str, expected: tuple[set[int], set[str]]
) -> None:
    """They notice at once, and are at the backup before the standby is there."""
    recovery = Recovery(standby_guests=guests)  # type: ignore[arg-type]
    assert moves(KILLED, recovery) == expected
