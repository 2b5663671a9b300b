"""A city of our own: people walk along streets, emergencies happen in it, and a seed repeats it."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import OperatorError
from tocsin_demo.city import PACE_MM_S, City, disasters, movements
from tocsin_demo.traces import RADII_M, Trace, emergencies, write

CITY = City(seed=5, seconds=300, people=20, interval_s=2)


def test_everybody_is_somewhere_on_a_street_at_every_interval() -> None:
    samples = list(movements(CITY))
    for at_s, several in groupby(samples, key=lambda each: each.at_s):
        there = list(several)
        assert at_s % 2 == 0
        assert [each.id for each in there] == [f"user-{number}" for number in range(20)]
        assert all(CITY.bounds.holds(each) for each in there)
        assert all(each.x_m % 100 == 0 or each.y_m % 100 == 0 for each in there)
    assert samples[-1].at_s == 300


def test_nobody_is_faster_than_people_are_and_most_move() -> None:
    walked = 0.0
    for number in range(20):
        path = [each for each in movements(CITY) if each.id == f"user-{number}"]
        for before, after in pairwise(path):
            length_m = abs(after.x_m - before.x_m) + abs(after.y_m - before.y_m)
            assert length_m <= PACE_MM_S[1] * 2 / 1_000 + 0.01
            walked += length_m
    assert walked / (20 * 300) > PACE_MM_S[0] / 1_000 / 2


def test_emergencies_of_every_kind_happen_as_often_as_asked() -> None:
    found = list(emergencies(disasters(City(seconds=2_000, emergency_s=10))))
    assert [each.at_s for each in found] == list(range(10, 2_001, 10))
    assert {each.kind for each in found} == set(RADII_M)
    assert len({each.id for each in found}) == len(found)


def test_a_seed_repeats_the_city_and_another_is_another() -> None:
    assert list(movements(CITY)) == list(movements(CITY))
    other = City(seed=6, seconds=300, people=20, interval_s=2)
    assert list(movements(other)) != list(movements(CITY))
    assert list(disasters(other)) != list(disasters(CITY))


def test_more_people_leave_the_others_where_they_were() -> None:
    few = City(seed=5, seconds=300, people=3, interval_s=2)
    known = {f"user-{number}" for number in range(3)}
    assert list(movements(few)) == [each for each in movements(CITY) if each.id in known]


def test_both_traces_are_written_and_read_as_files(tmp_path: Path) -> None:
    for name, made in (("movements.txt", movements), ("emergencies.txt", disasters)):
        write(tmp_path / name, CITY.bounds, made(CITY))
        assert list(Trace(tmp_path / name)) == list(made(CITY))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"width_m": 0}, "width_m = 0"),
        ({"interval_s": 0}, "interval_s"),
        ({"emergency_s": -1}, "emergency_s"),
        ({"seconds": 10_000_001}, "seconds"),
        ({"block_m": 4_000}, "larger than the city"),
        ({"people": -1}, "-1 people"),
        ({"people": 20_000_000}, "at most"),
        ({"name": "two words"}, "'two words'"),
        ({"name": "u" * 200}, "named"),
    ],
)
def test_a_city_that_cannot_be_is_refused_in_words(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(OperatorError) as error:
        next(movements(City(**wrong)))
    assert said in str(error.value)
    with pytest.raises(OperatorError):
        next(disasters(City(**wrong)))
