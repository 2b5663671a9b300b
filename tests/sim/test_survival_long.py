"""Outages that outlast sessions, the log's memory of ids and the patience of backups: nothing acknowledged is lost."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tests.sim.survival_bugs import MINUTE, SECOND, find_again
from tests.sim.test_survival import Counts
from tocsin.sim.faults.kinds import Crash, Fault, Partition, Pause, StoreClock
from tocsin.sim.network import STORE
from tocsin.sim.runs.runner import run
from tocsin.sim.runs.scenario import find
from tocsin.sim.scenarios import survival
from tocsin.sim.scenarios.survival.promises.looking import STANDS_IN

HOUR = 60 * MINUTE

# Each a disaster that a seed once found something in.
STORIES: dict[str, list[Fault]] = {
    "a standby has a place twice, and gives it back": [
        Pause(at_us=MINUTE, for_us=80 * SECOND, node="north-1"),
        Pause(at_us=4 * MINUTE, for_us=2 * MINUTE, node="north-1"),
    ],
    "the store's clock jumps past all sessions": [
        StoreClock(at_us=2 * MINUTE, for_us=0, ahead_us=30 * HOUR),
        Crash(at_us=4 * MINUTE, for_us=MINUTE, node="south-2"),
    ],
    "a backup is cut off from the store while backups are moved": [
        Partition(at_us=MINUTE, for_us=4 * MINUTE, side=("north-2",), others=(STORE,)),
        Crash(at_us=3 * MINUTE, for_us=2 * MINUTE, node="south-1"),
    ],
}
# A publisher says what its stream is while no coordinator answers, and its broker crashes before one does. The broker
# of who asks crashes meanwhile: one that has an answer may miss what goes on without waiting.
SAID_TO_NOBODY: list[Fault] = [
    Partition(at_us=50 * SECOND, for_us=210 * SECOND, side=("coordinator-1", "coordinator-2")),
    Crash(at_us=139 * SECOND, for_us=129 * SECOND, node="north-1"),
    Crash(at_us=240 * SECOND, for_us=20 * SECOND, node="south-1"),
]

# Seeds that broke something, and what they found.
FOUND: dict[int, str] = {
    19: "a publisher that came from a broker whose clock was ahead counted as being there still",
    36: "changes of provisional clients were lost if a leader was heard before the store answered",
    66: "the promise took a provisional connection for proof that an expired session was not over",
    67: "the same of a session that expired during such a connection",
    80: "a standby whose place went back to its broker missed a message of a new stream until its next beat",
    5002: "a broker that was back without a leader released sessions that a standby served under its name",
}


@pytest.mark.parametrize("story", STORIES)
def test_a_planned_disaster_breaks_nothing(story: str) -> None:
    assert run(find("survival-long"), 0, plan=STORIES[story]).broken is None


def test_metadata_outlives_its_broker_while_no_coordinator_answers() -> None:
    assert run(find("survival-long"), 14, plan=SAID_TO_NOBODY).broken is None


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_broke_something_breaks_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    find_again(monkeypatch)
    assert run(find("survival-long"), seed).broken is None


def test_a_seed_breaks_nothing_and_has_all_that_is_promised_of() -> None:
    """Who looks for nothing finds nothing wrong: so it is seen that sessions expire, that brokers are stood in for,
    and that programs die."""
    seen: Counter[str] = Counter()
    scenario = msgspec.structs.replace(
        find("survival-long"), build=lambda world: [*survival.build_long(world), Counts(seen)]
    )
    long = [
        Crash(at_us=at * MINUTE, for_us=100 * SECOND, node=node)
        for at, node in ((1, "north-1"), (4, "south-2"))
    ]
    assert run(scenario, 3, plan=[*long]).broken is None
    wanted = (STANDS_IN, "session lost", "left", "unsubscribed", "dies", "told", "heard")
    assert all(seen[each] for each in wanted), seen
