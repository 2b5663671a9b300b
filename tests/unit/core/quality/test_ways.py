"""Which second ways a topic gets to a destination."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tocsin.core.links.delay import Delay, Part
from tocsin.core.quality.ways import (
    NO_RELAY,
    STRAIGHT,
    TWIN,
    Bounds,
    Decision,
    Paths,
    Planner,
    Want,
    Why,
    connections,
    possible,
)

ROOM = {STRAIGHT: 1 << 30, "r1": 1 << 30, "r2": 1 << 30}


def steady(us: int) -> Delay:
    return Delay((Part(us, us, 6_400),), samples=100)


def lossy(us: int, ppm: int) -> Delay:
    return steady(us).repeating(ppm, 300_000)


def want(
    base: Delay | None,
    topic: str = "t",
    destination: str = "d",
    *,
    over: str = "hub",
    priority: int = 4,
    bytes_s: int = 1_000,
    goal: float = 0.001,
) -> Want:
    return Want(topic, destination, 100_000, goal, priority, base, over, bytes_s)


def decided(
    planner: Planner, *wants: Want, paths: dict[str, Paths] | None = None, room: dict[str, int] | None = None
) -> dict[tuple[str, str], Decision]:
    known = paths or {each.destination: Paths(straight=steady(50_000)) for each in wants}
    return planner.decide(wants, known, ROOM if room is None else room)


def only(planner: Planner, each: Want, paths: Paths, room: dict[str, int] | None = None) -> Decision:
    return decided(planner, each, paths={each.destination: paths}, room=room)[each.key]


def test_a_base_way_that_is_good_enough_is_left_alone() -> None:
    found = only(Planner(Bounds()), want(steady(20_000)), Paths(straight=steady(10_000)))
    assert found == Decision((), 0.0, 0.0, Why.GOOD)


def test_a_slow_base_way_gets_a_straight_one() -> None:
    found = only(Planner(Bounds()), want(steady(200_000)), Paths(straight=steady(50_000)))
    assert (found.ways, found.miss, found.alone) == ((STRAIGHT,), 0.0, 1.0)


def test_a_relay_comes_before_a_new_connection() -> None:
    paths = Paths(straight=steady(50_000), relays={"r1": steady(60_000)})
    assert only(Planner(Bounds()), want(steady(200_000)), paths).ways == ("r1",)


def test_the_relay_of_the_base_way_is_no_second_way() -> None:
    paths = Paths(can_dial=False, relays={"hub": steady(10_000)})
    found = only(Planner(Bounds()), want(steady(200_000)), paths)
    assert (found.ways, found.why) == ((), Why.SHORT)


def test_ways_that_miss_the_goal_alone_meet_it_together() -> None:
    paths = Paths(relays={"r1": lossy(20_000, 20_000), "r2": lossy(20_000, 20_000)})
    found = only(Planner(Bounds(ways=3)), want(lossy(20_000, 20_000)), paths)
    assert len(found.ways) == 1
    assert 0 < found.miss <= 0.001
    strict = only(Planner(Bounds(ways=3)), want(lossy(20_000, 20_000), goal=1e-5), paths)
    assert strict.ways == ("r1", "r2")


def test_a_straight_base_way_gets_a_twin_against_losses() -> None:
    found = only(Planner(Bounds()), want(lossy(20_000, 20_000), over=""), Paths(connected=True))
    assert found.ways == (TWIN,)


def test_a_twin_is_no_help_where_the_way_itself_is_slow() -> None:
    slow = replace(steady(150_000), repeated_ppm=10_000)
    found = only(Planner(Bounds()), want(slow, over=""), Paths())
    assert (found.ways, found.why) == ((), Why.SHORT)


def test_a_twin_needs_its_other() -> None:
    paths = Paths(straight=lossy(20_000, 20_000))
    assert all(STRAIGHT in ways for ways in possible(want(steady(1)), paths, 3) if TWIN in ways)


def test_the_best_is_taken_where_nothing_reaches_the_goal() -> None:
    paths = Paths(straight=lossy(20_000, 50_000))
    found = only(Planner(Bounds(ways=2)), want(lossy(20_000, 90_000), goal=1e-6), paths)
    assert (found.ways, found.why) == ((STRAIGHT,), Why.SHORT)


def test_ways_are_not_taken_for_nothing() -> None:
    paths = Paths(straight=steady(200_000))
    assert only(Planner(Bounds()), want(steady(200_000)), paths).ways == ()


def test_a_straight_way_that_nobody_measured_is_tried() -> None:
    found = only(Planner(Bounds()), want(steady(200_000)), Paths())
    assert (found.ways, found.tries) == ((), True)
    assert not only(Planner(Bounds()), want(steady(200_000)), Paths(can_dial=False)).tries
    assert not only(Planner(Bounds(links=0)), want(steady(200_000)), Paths()).tries


def test_nothing_is_decided_while_too_little_is_known() -> None:
    assert only(Planner(Bounds()), want(None), Paths(straight=steady(1))).why is Why.UNKNOWN


def test_one_way_is_all_where_second_ways_are_off() -> None:
    found = only(Planner(Bounds(ways=1)), want(steady(200_000)), Paths(straight=steady(50_000)))
    assert found.ways == ()


def test_ways_stay_until_the_base_way_is_good_by_far() -> None:
    planner = Planner(Bounds())
    paths = Paths(relays={"r1": lossy(20_000, 20_000)})
    assert only(planner, want(lossy(20_000, 20_000)), paths).ways
    better = lossy(20_000, 800)
    assert 0.001 / 4 < better.miss(100_000) <= 0.001
    assert only(planner, want(better), paths).ways
    assert not only(Planner(Bounds()), want(better), paths).ways
    assert not only(planner, want(steady(20_000)), paths).ways


def test_a_little_change_changes_nothing() -> None:
    planner = Planner(Bounds())
    paths = Paths(relays={"r1": steady(30_000), "r2": steady(31_000)})
    first = only(planner, want(steady(200_000)), paths)
    other = Paths(relays={"r1": steady(32_000), "r2": steady(31_000)})
    assert only(planner, want(steady(200_000)), other) == first


def test_if_more_ask_than_fit_priority_decides() -> None:
    planner = Planner(Bounds(links=1))
    low = want(steady(200_000), "a", "d1", priority=3)
    high = want(steady(200_000), "b", "d2", priority=5)
    found = decided(planner, low, high)
    assert found[high.key].ways == (STRAIGHT,)
    assert (found[low.key].ways, found[low.key].why) == ((), Why.LINKS)


def test_among_equals_who_is_helped_more_comes_first() -> None:
    planner = Planner(Bounds(flows=1))
    little = want(lossy(20_000, 20_000), "a", "d1")
    much = want(steady(200_000), "b", "d2")
    found = decided(planner, little, much)
    assert found[much.key].ways
    assert found[little.key].why is Why.FLOWS


def test_of_a_thousand_that_ask_the_most_urgent_sixteen_get_ways() -> None:
    wants = [want(steady(200_000), f"t{number}", priority=number % 10) for number in range(1_000)]
    found = decided(Planner(Bounds(flows=16)), *wants)
    given = {topic for (topic, _), decision in found.items() if decision.ways}
    assert len(given) == 16
    assert given <= {each.topic for each in wants if each.priority == 9}
    assert all(decision.why is Why.FLOWS for decision in found.values() if not decision.ways)


def test_copies_take_no_more_bytes_than_there_is_room_for() -> None:
    planner = Planner(Bounds())
    wants = [want(steady(200_000), f"t{number}", bytes_s=400) for number in range(5)]
    found = decided(planner, *wants, room={STRAIGHT: 1_000})
    assert [bool(found[each.key].ways) for each in wants] == [True, True, False, False, False]
    assert {found[each.key].why for each in wants[2:]} == {Why.SHARE}


def test_where_the_best_does_not_fit_the_next_is_taken() -> None:
    planner = Planner(Bounds(links=0))
    paths = Paths(straight=steady(20_000), relays={"r1": lossy(20_000, 20_000)})
    found = only(planner, want(lossy(20_000, 20_000), goal=1e-6), paths)
    assert found.ways == ("r1",)
    assert found.why is Why.LINKS


DELAYS = st.builds(lossy, st.integers(1_000, 200_000), st.integers(0, 200_000))
PATHS = st.builds(
    Paths,
    straight=st.none() | DELAYS,
    can_dial=st.booleans(),
    connected=st.booleans(),
    relays=st.dictionaries(st.sampled_from(("hub", "r1", "r2", "r3")), DELAYS, max_size=4),
)
WANTS = st.lists(
    st.builds(
        want,
        st.none() | DELAYS,
        st.sampled_from("abcdef"),
        st.sampled_from(("d1", "d2", "d3")),
        over=st.sampled_from(("", "hub")),
        priority=st.integers(0, 9),
        bytes_s=st.integers(0, 2_000),
    ),
    unique_by=lambda each: each.key,
    max_size=12,
)


@given(
    st.lists(st.tuples(WANTS, PATHS), min_size=1, max_size=4),
    st.builds(Bounds, ways=st.integers(1, 4), links=st.integers(0, 3), flows=st.integers(0, 5)),
    st.dictionaries(st.sampled_from((STRAIGHT, "hub", "r1", "r2", "r3")), st.integers(0, 5_000)),
)
def test_bounds_hold_whatever_is_asked(
    turns: list[tuple[list[Want], Paths]], bounds: Bounds, room: dict[str, int]
) -> None:
    planner = Planner(bounds)
    for wants, path in turns:
        paths = {each.destination: path for each in wants}
        found = planner.decide(wants, paths, room)
        links: set[tuple[str, str]] = set()
        taken = dict.fromkeys(room, 0)
        for each in wants:
            decision = found[each.key]
            links.update(connections(each, decision.ways))
            links.update([(each.destination, STRAIGHT)] if decision.tries else [])
            for way in decision.ways:
                at = STRAIGHT if way in NO_RELAY else way
                taken[at] = taken.get(at, 0) + each.bytes_s
            assert len(decision.ways) < max(bounds.ways, 2)
            assert each.base_over not in decision.ways
            assert decision.miss <= decision.alone
            if decision.ways:
                assert decision.miss <= each.goal or decision.miss * 2 <= decision.alone
            elif decision.alone > each.goal:
                assert decision.why
        assert len(links) <= bounds.links
        assert sum(bool(each.ways) for each in found.values()) <= bounds.flows
        assert all(size <= room.get(at, 0) or not size for at, size in taken.items())
