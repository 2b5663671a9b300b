"""Tables 1 and 4 in virtual time: a seed repeats what is virtual."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tocsin_labs.landmark import scale
from tocsin_labs.landmark.plan import QUICK, Plan, Scale, Size
from tocsin_labs.landmark.scale import CLUSTER, TENTH, Effort, Experiment, Kill, Rest, kinds
from tocsin_labs.landmark.watch import Fate, last
from tocsin_labs.stage import Stage

SMALL = Scale(
    sizes=(Size(12, 1),), at_rest=(6,), detects=("aggressive",), failures=(2,), rest_s=2.0, settle_s=0.5
)


def found(plan: Scale, seed: int, out: Path) -> tuple[list[Rest], list[Kill]]:
    rests: list[Rest] = []
    kills: list[Kill] = []
    asyncio.run(scale.run(plan, seed, Stage(out, lambda words, part: None), rests, kills))
    return rests, kills


def virtual(rests: list[Rest], kills: list[Kill]) -> list[Rest | Kill]:
    """Without what is measured."""
    still = [msgspec.structs.replace(each, effort=Effort()) for each in rests]
    return [*still, *(msgspec.structs.replace(each, effort=Effort()) for each in kills)]


def test_one_seed_gives_the_same_figures_and_another_gives_others(tmp_path: Path) -> None:
    first = virtual(*found(SMALL, 1, tmp_path))
    assert first == virtual(*found(SMALL, 1, tmp_path))
    assert first != virtual(*found(SMALL, 2, tmp_path))


def test_brokers_that_are_killed_are_missed_stood_in_for_and_replaced(tmp_path: Path) -> None:
    rests, kills = found(SMALL, 1, tmp_path)
    assert [each.brokers for each in rests] == [6, 12]
    assert all(each.heartbeats > 0 and not each.wrongly for each in rests)
    assert rests[1].heartbeats == pytest.approx(2 * rests[0].heartbeats, rel=0.1)
    assert [kill.what for kill in kills] == ["2", CLUSTER]
    two, cluster = kills
    assert [fate.serves for fate in two.fates] == [True, True]
    assert sorted(fate.broker[3:] for fate in cluster.fates) == ["b1", "b2", "b3", "b4", "b5", "s1"]
    for kill in kills:
        assert not kill.is_unfinished
        assert not kill.wrongly
        assert kill.effort.leader_s > 0
        for fate in kill.fates:
            assert fate.lost_s is not None and 0.25 < fate.lost_s < 3.0
            if fate.serves and not fate.bereft:
                assert fate.taken_over_s is not None and fate.taken_over_s >= fate.lost_s
                assert fate.by is not None and fate.by not in {each.broker for each in kill.fates}
    lost_s = [fate.lost_s for fate in two.fates if fate.lost_s is not None]
    assert len(two.replaced) == 2 and max(two.replaced) - max(lost_s) < 1.0, "a standby is promoted at once"
    assert cluster.effort.plans > 0, "who had backups there gets others"
    assert len(cluster.replaced) == 1, "the other standby was killed too"
    assert {fate.by for fate in cluster.fates if fate.serves} <= {
        f"c{n}-b{m}" for n in (1, 2) for m in range(6)
    }


def test_a_run_that_is_cut_short_keeps_its_results(tmp_path: Path) -> None:
    rests: list[Rest] = []
    kills: list[Kill] = []
    stage = Stage(tmp_path, lambda words, part: stage.cut() if "2 fail" in words else None)
    asyncio.run(scale.run(SMALL, 1, stage, rests, kills))
    assert len(rests) == 2
    assert [kill.what for kill in kills] == ["2"]


async def test_victims_are_as_many_as_were_asked_for() -> None:
    experiment = Experiment(Scale(), Size(24, 1), "default", 1)
    for _ in range(20):
        assert len(set(experiment._victims("5"))) == 5
        assert len(set(experiment._victims(TENTH))) == 2
        whole = experiment._victims(CLUSTER)
        assert len(whole) == 6 and len({name[:2] for name in whole}) == 1
        assert not any("-s" in name for name in experiment._victims("3")), "a standby serves nobody"


def test_what_is_killed_fits_the_network() -> None:
    plan = Scale()
    assert kinds(plan, Size(6, 1)) == ["1", "2", "3", "4"]
    assert kinds(plan, Size(12, 1)) == ["1", "2", "3", "4", "5", CLUSTER]
    assert kinds(plan, Size(1_000, 1)) == ["1", "2", "3", "4", "5", CLUSTER, TENTH]
    assert [size.brokers for size in QUICK.scale.sizes] == [6, 12]
    assert plan.sizes[0].brokers == 24, "to hold against real processes"
    assert Plan().scale == plan


def fate(**times: float | None) -> Fate:
    known: dict[str, float | None] = {"lost_s": 1.0, "taken_over_s": 1.5, "replaced_s": 6.0}
    known |= times
    return Fate(broker="a", serves=True, bereft=False, by="b", **known)


def kill(*fates: Fate, planned_s: float | None = 3.0) -> Kill:
    return Kill(
        brokers=24, detect="default", what=str(len(fates)), run=1, fates=fates, bereaved=2, planned_s=planned_s,
        wrongly=0, effort=Effort(span_s=4.0, leader_s=1.0),
    )  # fmt: skip


def test_a_run_ends_with_the_last_broker_and_stays_unfinished_without_it() -> None:
    done = kill(fate(), fate(lost_s=2.0, taken_over_s=2.5, replaced_s=None))
    assert (done.lost_s, done.taken_over_s, done.replaced) == (2.0, 2.5, [6.0])
    assert not done.is_unfinished
    assert kill(fate(), fate(taken_over_s=None, replaced_s=None)).is_unfinished
    assert kill(fate(lost_s=None)).is_unfinished
    assert kill(fate(), planned_s=None).is_unfinished
    bereft = msgspec.structs.replace(fate(taken_over_s=None), bereft=True)
    assert not kill(bereft).is_unfinished, "nobody is left who could"
    assert kill(bereft).taken_over_s is None
    assert done.effort.share == 0.25
    assert Effort().share == 0.0
    assert last([]) is None


def test_a_place_that_a_standby_took_first_is_taken_over_then() -> None:
    first = fate(taken_over_s=None, replaced_s=1.4)
    assert kill(fate(taken_over_s=1.0), first).taken_over_s == 1.4
    assert kill(fate(taken_over_s=None, replaced_s=None)).taken_over_s is None
