"""Stories as golden files: what the processes of a network tell of one disaster each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.stories import SECOND, Mover, Reader, Story, Writer
from tocsin.sim.faults.kinds import Crash, Partition, Pause

GOLDEN = Path(__file__).parent / "transcripts"
NORTH = ("north-1", "north-2", "north-spare")

STORIES: dict[str, Story] = {
    "election": Story(
        brokers=("north-1",),
        coordinators=("coordinator-1", "coordinator-2"),
        programs=lambda: [],
        plan=[Crash(at_us=5 * SECOND, for_us=10 * SECOND, node="coordinator-1")],
        until_us=20 * SECOND,
    ),
    "takeover": Story(
        brokers=(*NORTH, "south-1"),
        programs=lambda: [
            Reader("anna", ("north-1", "south-1"), "news"),
            Writer("fred", ("south-1",), 20),
        ],
        plan=[Crash(at_us=8 * SECOND, for_us=12 * SECOND, node="north-1")],
        until_us=60 * SECOND,
    ),
    "cut-off-cluster": Story(
        brokers=("north-1", "north-2", "south-1"),
        programs=lambda: [Reader("anna", ("north-1", "north-2"), "news"), Writer("fred", ("south-1",), 25)],
        plan=[Partition(at_us=8 * SECOND, for_us=15 * SECOND, side=("north-1", "north-2", "anna"))],
        until_us=60 * SECOND,
    ),
    "claims-of-a-group": Story(
        brokers=("north-1", "south-1"),
        programs=lambda: [
            Reader("anna", ("north-1",), "$share/team/news", takes_s=0.1),
            Reader("ben", ("south-1",), "$share/team/news", takes_s=0.1),
            Writer("fred", ("north-1",), 8),
        ],
        plan=[Pause(at_us=5 * SECOND // 2, for_us=SECOND, node="south-1")],
        until_us=12 * SECOND,
    ),
    "moving-session": Story(
        brokers=("north-1", "south-1"),
        programs=lambda: [
            Mover("anna", ("north-1", "south-1"), "news", stays_s=5),
            Writer("fred", ("south-1",), 10),
        ],
        plan=[],
        until_us=15 * SECOND,
    ),
}


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_story_reads_as_it_did(name: str, rewrite: bool) -> None:
    told = STORIES[name].told()
    path = GOLDEN / f"{name}.txt"
    if rewrite:
        path.write_text(told)
    assert told == path.read_text(), "if that was meant: pytest tests/sim --rewrite-transcripts"


def test_every_golden_file_has_its_story() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(STORIES)
