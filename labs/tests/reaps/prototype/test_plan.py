"""Which subscribers there are in each wave, and which failures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import OperatorError
from tocsin_demo.scene.script import PLACES_MAX
from tocsin_labs.reaps.prototype.plan import (
    BY_SIZE,
    FAILURE_S,
    NEIGHBOUR,
    QUICK,
    RUNS,
    RUNS_MAX,
    VICTIM,
    WAYS,
    Plan,
    Wave,
    plan,
)


def test_the_waves_are_those_of_the_paper() -> None:
    assert [(wave.subscribers, wave.at_victim) for wave in Plan().waves] == [
        (100, 23),
        (200, 50),
        (300, 74),
        (400, 97),
    ]
    clusters = {home.broker: home.cluster for home in Plan().homes()[-1]}
    assert len(clusters) == 4 and clusters[VICTIM] == clusters[NEIGHBOUR]
    assert Counter(clusters.values()) == {"north": 2, "south": 2}


WAVES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 20)), min_size=1, max_size=4
)  # at the victim, elsewhere


@given(WAVES, st.integers(0, 5))
def test_each_wave_contains_the_subscribers_of_the_last_at_the_same_home(
    added: list[tuple[int, int]], seed: int
) -> None:
    waves, here, all_there = [], 0, 0
    for at_victim, elsewhere in added:
        here, all_there = here + at_victim, all_there + at_victim + elsewhere
        waves.append(Wave(all_there, here, 1))
    made = Plan(waves=tuple(waves), seed=seed)
    cast = made.script(0).cast() if all_there else []
    before: set[int] = set()
    for number, wave in enumerate(waves):
        there = made.crowd(number)
        assert before <= there and len(there) == wave.subscribers
        found = Counter(cast[each][1].broker for each in there)
        assert found[VICTIM] == wave.at_victim
        assert found == Counter({home.broker: home.subscribers for home in made.homes()[number]})
        before = there
    assert before == set(range(all_there))


def test_who_is_not_in_the_first_wave_comes_later() -> None:
    script = Plan().script(0)
    assert {*range(script.subscribers)} - {*script.later} == Plan().crowd(0)
    assert Plan().script(len(Plan().waves) - 1).later == QUICK.script(0).later == ()


def test_each_figure_has_the_failures_that_it_shows() -> None:
    both, progress, times = (
        plan(quick=False, seed=1, figures=figures).failures for figures in (None, ["3a"], ["3b"])
    )
    assert {way for _, way, _ in progress} == {*WAYS}
    assert len(progress) == len(WAYS) * RUNS  # with 97 subscribers
    assert {way for _, way, _ in times} == {*BY_SIZE} and {wave for wave, _, _ in times} == {
        0,
        1,
        2,
        3,
    }
    assert len(both) == len(times) + 2 * RUNS and len(set(both)) == len(both)
    assert [wave for wave, _, _ in both] == sorted(wave for wave, _, _ in both)


def test_a_plan_for_3a_alone_has_the_largest_broker_only() -> None:
    assert plan(quick=False, seed=7, figures=["3a"]).waves == Plan().waves[-1:]
    assert plan(quick=False, seed=7, figures=["3a"]).seed == 7


def test_people_walk_for_as_long_as_the_most_runs_take() -> None:
    made = plan(quick=False, seed=1, runs=RUNS_MAX)
    assert {wave.runs for wave in made.waves} == {RUNS_MAX}
    assert made.seconds >= FAILURE_S * len(made.failures)
    script = made.script(0)
    script.check()
    assert script.subscribers * (made.seconds // script.city.interval_s + 1) <= PLACES_MAX
    assert script.keep_alive_s is None  # the client's default


@pytest.mark.parametrize("runs", [0, RUNS_MAX + 1])
def test_runs_out_of_range_are_refused(runs: int) -> None:
    with pytest.raises(OperatorError, match="--runs"):
        plan(quick=False, seed=1, runs=runs)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(OperatorError, match="out of range"):
        plan(quick=True, seed=seed)
