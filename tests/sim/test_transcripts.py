"""Stories as golden files: what the counter does, in short worlds that are meant to be read. Server 3 holds first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.sim.faults import Crash, Fault, LeaderLoss, Partition, Pause, unleash
from tocsin.sim.network import STORE
from tocsin.sim.scenario import find
from tocsin.sim.transcript import Transcript
from tocsin.sim.world import World

GOLDEN = Path(__file__).parent / "transcripts"
SECOND = 1_000_000

STORIES: dict[str, tuple[list[Fault], int]] = {
    "first-lease": ([], SECOND),
    "frozen-holder": ([Pause(at_us=SECOND // 2, for_us=5 * SECOND // 2, node="server/3")], 7 * SECOND // 2),
    "crash-between-effects": (
        [Crash(at_us=SECOND // 2, for_us=SECOND // 2, node="notifier", after_effects=1)],
        3 * SECOND // 2,
    ),
    "lost-leader": ([LeaderLoss(at_us=SECOND // 2, for_us=2 * SECOND)], 3 * SECOND),
    "deaf-holder": (
        [Partition(at_us=SECOND // 2, for_us=2 * SECOND, side=("server/3",), others=(STORE,))],
        5 * SECOND,
    ),
}


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_story_reads_as_it_did(name: str, rewrite: bool) -> None:
    plan, until_us = STORIES[name]
    transcript = Transcript()
    world = World(7, transcript)
    world.check(*find("counter").build(world))
    unleash(world, plan)
    world.run_until(until_us)
    path = GOLDEN / f"{name}.txt"
    if rewrite:
        path.write_text(transcript.text())
    assert transcript.text() == path.read_text(), "if that was meant: pytest tests/sim --rewrite-transcripts"


def test_every_golden_file_has_its_story() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(STORIES)
