"""Whatever is lost, late or said twice: when all is quiet, no client whose home is served is elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.survival.world_of_homes import World
from tocsin.core.survival.homes import STEADY

KINDS = (
    "kill", "start", "notice", "promote", "depose", "inform", "deafen",
    "beat", "carry", "lose", "repeat",
    "dial", "connect", "welcome", "read", "fire", "unnoticed",
)  # fmt: skip
COMMON = ("carry", "read", "act", "pass", "pass")  # or stories would seldom get anywhere

steps = st.lists(st.tuples(st.sampled_from((*KINDS, *COMMON * 2)), st.integers(0, 59)), max_size=100)


def strays(world: World) -> list[str]:
    return [client.name for client in world.clients if not client.is_home]


def test_in_the_beginning_everybody_is_at_home() -> None:
    assert strays(World()) == []


@given(steps, st.integers(0, 3))
def test_in_the_end_everybody_is_at_home(story: list[tuple[str, int]], lag: int) -> None:
    world = World()
    for kind, chance in story:
        world.step(kind, chance)
    world.settle(lag)
    assert strays(world) == []


@pytest.mark.slow
@settings(max_examples=2_000)
@given(steps, st.integers(0, 12))
def test_in_the_end_of_many_stories_everybody_is_at_home(story: list[tuple[str, int]], lag: int) -> None:
    world = World(clients=7)
    for kind, chance in story:
        world.step(kind, chance)
    world.settle(lag)
    assert strays(world) == []


def test_a_guest_whose_word_to_go_is_lost_goes_all_the_same() -> None:
    world = World()
    home = world.processes["b1"]
    home.die()
    for _ in range(3):
        world.let_clients_act()
    away = [client.name for client in world.clients if client.home == "b1"]
    assert strays(world) == away
    home.begin(home.own)
    for process in world.processes.values():
        process.deaf = True
    world.settle(0, beats=3 * STEADY)
    assert strays(world) != []
    world.settle(0)
    assert strays(world) == []
