"""The score of a machine, from what was seen last."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tocsin.config import load
from tocsin.runtime.host.measure import Machine, Measured
from tocsin.runtime.host.score import Resources, _host

DEADLINE_S = 60.0
GOOD = {
    "processor": Measured(4.0, 0.25),
    "memory": Measured(8.0, 0.5),
    "bandwidth": Measured(math.inf),
    "battery": Measured(math.inf),
}


class Seen(Machine):
    """A machine that a test describes."""

    def __init__(self, **changed: Measured) -> None:
        self.seen = GOOD | changed

    def look(self) -> dict[str, Measured]:
        return self.seen


def resources(machine: Machine, **flags: object) -> Resources:
    settings = load(flags={f"scoring.{key}": value for key, value in flags.items()}).settings
    return Resources(settings, "north-1", "north", machine)


async def looked(made: Resources, condition: Callable[[], bool]) -> None:
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                assert not running.done()
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_before_the_first_look_there_is_no_score() -> None:
    made = resources(Seen())
    assert made.score() == (None, ("the machine has not been measured yet",))
    assert made.terms() == {}


async def test_a_machine_with_enough_of_everything_scores_one() -> None:
    made = resources(Seen())
    await looked(made, lambda: made.score()[0] is not None)
    assert made.score() == (1.0, ())
    assert made.terms() == {name: (1.0, 0.25) for name in ("processor", "memory", "bandwidth", "battery")}


async def test_what_is_lacking_lowers_the_score_by_its_weight() -> None:
    made = resources(Seen(memory=Measured(1.0, 1.0)), memory_weight=2.0, memory_need=3.0)
    await looked(made, lambda: made.score()[0] is not None)
    assert made.score()[0] == pytest.approx((3 + 2 * math.exp(-3)) / 5)
    assert made.terms()["memory"] == pytest.approx((math.exp(-3), 0.4))


@pytest.mark.parametrize(
    ("configuration", "standby", "battery"),
    [
        ("static", True, (1.0, 1 / 4)),
        ("mobile-backup", True, (math.exp(-6), 50 / 112)),
        ("mobile-backup", False, (1.0, 1 / 4)),
        ("mobile-servicing", False, (math.exp(-6), 50 / 112)),
    ],
)
async def test_the_configuration_says_how_much_two_hours_are_worth(
    configuration: str, standby: bool, battery: tuple[float, float]
) -> None:
    settings = load(flags={"scoring.configuration": configuration}).settings
    made = Resources(settings, "north-1", "north", Seen(battery=Measured(2.0)), standby=standby)
    await looked(made, lambda: made.score()[0] is not None)
    assert made.terms()["battery"] == pytest.approx(battery)


async def test_a_serving_broker_tells_its_score_as_a_standby_too() -> None:
    settings = load(flags={"scoring.configuration": "mobile-backup"}).settings
    made = Resources(settings, "north-1", "north", Seen(battery=Measured(2.0)))
    await looked(made, lambda: made.score()[0] is not None)
    assert made.terms()["battery"] == pytest.approx((1.0, 1 / 4))
    assert made.terms(standby=True)["battery"] == pytest.approx((math.exp(-6), 50 / 112))
    serving, standing_by = made.score()[0], made.score(standby=True)[0]
    assert serving is not None and standing_by is not None and standing_by < serving


async def test_mains_are_a_full_battery_in_every_configuration() -> None:
    for configuration in ("static", "mobile-servicing", "mobile-backup"):
        made = resources(Seen(), configuration=configuration, battery_need=10_000)
        await looked(made, lambda made=made: made.score()[0] is not None)  # type: ignore[misc]
        assert made.terms()["battery"][0] == 1.0


async def test_what_is_not_known_counts_nothing_and_is_named_with_its_reason() -> None:
    made = resources(Seen(bandwidth=Measured(None, problem="eth0 does not say its speed")))
    await looked(made, lambda: made.score()[0] is not None)
    total, problems = made.score()
    assert total == pytest.approx(0.75)
    assert problems == ("bandwidth: eth0 does not say its speed",)


async def test_criteria_are_parts_of_the_score_and_those_that_fail_are_named(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_text("0.1")
    listed = [
        {
            "name": "power",
            "command": ["/bin/cat", str(said)],
            "weight": 4.0,
            "every_s": 0.1,
            "timeout_ms": 30_000,
        },
        {"name": "away", "command": ["/bin/false"], "weight": 2.0, "timeout_ms": 30_000},
    ]
    made = resources(Seen(), criteria=listed)
    await looked(
        made,
        lambda: (
            made.score()[0] is not None
            and "away: ended with code 1" in made.score()[1]
            and made.terms().get("power", (0.0, 0.0))[0] > 0
        ),
    )
    total, problems = made.score()
    assert total == pytest.approx((4 + 4 * 0.1 + 2 * 0) / 10)
    assert problems == ("away: ended with code 1",)
    assert made.terms()["power"] == pytest.approx((0.1, 0.4))


async def test_a_criterion_not_yet_asked_is_named_and_does_not_count(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = {"name": "slow", "command": ["/bin/cat", str(pipe)], "weight": 4.0, "timeout_ms": 60_000}
    made = resources(Seen(), criteria=[slow])
    await looked(made, lambda: made.score()[0] is not None)
    assert made.score() == (1.0, ("slow: has not answered yet",))
    alone = resources(
        Seen(), criteria=[slow], processor_weight=0, memory_weight=0, bandwidth_weight=0, battery_weight=0
    )
    assert alone.score()[0] is None
    await looked(alone, lambda: alone.score() == (None, ("slow: has not answered yet",)))
    assert alone.terms() == {}


@pytest.mark.parametrize(
    ("broker", "host"),
    [
        ({"host": "192.0.2.1"}, "192.0.2.1"),
        ({"host": "0.0.0.0"}, "0.0.0.0"),
        ({"host": "0.0.0.0", "advertise": "b.example.org"}, "b.example.org"),
        ({"id": "north-2"}, "0.0.0.0"),
    ],
)
def test_the_link_is_looked_for_where_others_reach_the_broker(broker: dict[str, str], host: str) -> None:
    settings = load(flags={"brokers": [{"id": "north-1", "cluster": "north", **broker}]}).settings
    assert _host(settings, "north-1") == host
