"""What is played: homes, people, what happens, and the network's settings."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import FileUnreadable, OperatorError
from tocsin_demo.city import City, disasters, movements
from tocsin_demo.scene.application import CRITICAL, LEVELS
from tocsin_demo.scene.script import PLACES_MAX, Home, Script, homes
from tocsin_demo.traces import RADII_M, write

CITY = City(seed=3, seconds=40, people=12, interval_s=10, emergency_s=4)


@given(subscribers=st.integers(0, 500), seed=st.integers(0, 10), north=st.integers(0, 100))
def test_a_named_broker_has_the_exact_count_and_others_share_the_rest(
    subscribers: int, seed: int, north: int
) -> None:
    if north > subscribers:
        with pytest.raises(OperatorError, match="cannot be assigned"):
            homes(subscribers, exactly={"north-1": north}, seed=seed)
        return
    found = homes(subscribers, exactly={"north-1": north}, seed=seed)
    assert [(home.broker, home.cluster) for home in found] == [
        ("north-1", "north"),
        ("north-2", "north"),
        ("south-1", "south"),
        ("south-2", "south"),
    ]
    assert found[0].subscribers == north
    assert sum(home.subscribers for home in found) == subscribers
    assert found == homes(subscribers, exactly={"north-1": north}, seed=seed)


def test_subscribers_are_assigned_to_all_brokers_by_chance() -> None:
    counts = [home.subscribers for home in homes(400)]
    assert all(60 < count < 140 for count in counts)
    assert len(set(counts)) > 1
    assert counts != [home.subscribers for home in homes(400, seed=2)]


def test_clusters_may_be_others() -> None:
    found = homes(10, clusters={"east": 1, "west": 2})
    assert [home.broker for home in found] == ["east-1", "west-1", "west-2"]
    assert Script(homes=found).clusters() == {"east": ("east-1",), "west": ("west-1", "west-2")}


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(OperatorError, match=r"there is no broker north-9.*north-1, north-2"):
        homes(10, exactly={"north-9": 3})


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(homes=()), "subscribers = 0"),
        (Script(homes=(Home("a-1", "a", 10_001),)), "subscribers = 10001"),
        (Script(period_s=0), "period_s = 0"),
        (Script(workers=9), "workers = 9"),
        (Script(city=City(block_m=0)), "block_m"),
    ],
)
def test_what_cannot_be_played_is_refused(script: Script, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        script.check()


def test_every_user_has_a_name_a_home_and_a_position_each_interval() -> None:
    script = Script(homes=homes(12, exactly={"south-2": 5}), city=CITY)
    script.check()
    cast = script.cast()
    assert [name for name, _ in cast] == [f"user-{number}" for number in range(12)]
    assert sum(home.broker == "south-2" for _, home in cast) == 5
    places = script.places()
    assert len(places) == 12 * 5
    assert [number for at_s, number, _, _ in places if at_s == 10] == list(range(12))
    assert len(script.happenings()) == 10


def test_traces_from_files_are_the_same_as_the_city_that_wrote_them(tmp_path: Path) -> None:
    moves, struck = tmp_path / "moves", tmp_path / "struck"
    write(moves, CITY.bounds, movements(CITY))
    write(struck, CITY.bounds, disasters(CITY))
    own = Script(homes=homes(12), city=CITY)
    read = msgspec.structs.replace(own, movements=moves, emergencies=struck, city=City(seed=99))
    assert read.places() == own.places()
    assert read.happenings() == own.happenings()


def test_a_trace_counts_from_its_own_beginning_and_may_have_more_people(tmp_path: Path) -> None:
    moves = tmp_path / "moves"
    moves.write_text("100 200 0 10 0 10\n100 ann 1 1\n100 bob 2 2\n150 cid 3 3\n150 ann 4 4\n")
    script = Script(homes=homes(2), movements=moves)
    assert script.places() == [(0.0, 0, 1.0, 1.0), (0.0, 1, 2.0, 2.0), (50.0, 0, 4.0, 4.0)]


def test_a_trace_with_too_few_people_is_refused(tmp_path: Path) -> None:
    moves = tmp_path / "moves"
    moves.write_text("0 10 0 10 0 10\n0 ann 1 1\n")
    with pytest.raises(OperatorError, match="has 1 people for 400 subscribers"):
        Script(movements=moves).places()


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match="nowhere"):
        Script(movements=tmp_path / "nowhere").places()


def test_more_places_than_a_job_may_have_are_refused() -> None:
    script = Script(homes=homes(10_000), city=City(seconds=1_010, interval_s=10))
    assert PLACES_MAX < 10_000 * 102
    with pytest.raises(OperatorError, match="more than 1000000 places"):
        script.places()


def test_the_network_has_the_brokers_of_the_script_and_a_pipeline() -> None:
    settings = Script(homes=homes(5), coordinators=3, detect="aggressive").settings()
    assert [(broker.id, broker.cluster) for broker in settings.brokers] == [
        ("north-1", "north"),
        ("north-2", "north"),
        ("south-1", "south"),
        ("south-2", "south"),
    ]
    assert settings.coordinators == 3
    assert settings.membership.detect == "aggressive"
    assert settings.pipeline.enabled == "always"


def test_every_kind_of_emergency_has_a_priority() -> None:
    assert LEVELS.keys() == RADII_M.keys()
    assert {kind for kind, level in LEVELS.items() if level >= CRITICAL} == {"fire", "flood"}
