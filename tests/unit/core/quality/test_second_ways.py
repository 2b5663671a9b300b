"""What an origin knows of destinations and ways, and what follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.links.delay import Delay, Part
from tocsin.core.quality.second_ways import (
    DESTINATIONS_MAX,
    DOWN,
    LEAST,
    TOLD_US,
    WISHED_US,
    SecondWays,
    Topic,
    delay_of,
    leg_of,
)
from tocsin.core.quality.ways import STRAIGHT, TWIN, Bounds, Why
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.quality import Leg, Wish

ROOM = {STRAIGHT: 1 << 20, "hub-2": 1 << 20}
WEST = BrokerInfo("west-1", "west", Role.EDGE, "127.0.0.1", 1)
BUDGET_US = 50_000


def steady(round_trip_us: int, samples: int = 100) -> Delay:
    return Delay((Part(round_trip_us, round_trip_us, samples),), samples=samples)


class Origin:
    """One that publishes ``t`` to WEST over hub-1."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.ways = SecondWays(bounds or Bounds(), 0.001)
        self.now_us = 0
        self.ways.wished(WEST, (Wish("#", BUDGET_US),), 0)

    def hears(self, relay: str, delay: Delay | None) -> None:
        self.ways.reached(relay, [leg_of("west-1", delay)], self.now_us)

    def look(
        self,
        own: Mapping[str, Delay],
        *,
        straight: Mapping[str, Delay] | None = None,
        first: Collection[str] = ("hub-1",),
        topic: Topic | None = None,
        can_dial: bool = True,
        gone: Collection[str] = (),
    ) -> None:
        topics = {"t": topic or Topic(BUDGET_US)}
        self.ways.look(
            topics,
            own,
            straight or {},
            lambda info: can_dial,
            lambda topic, destination: first,
            ROOM,
            gone,
            self.now_us,
        )

    @property
    def given(self) -> tuple[str, ...]:
        return self.ways.targets().get("t", {}).get("west-1", ())

    @property
    def why(self) -> Why:
        return self.ways.told["t", "west-1"].decision.why


def test_a_slow_usual_way_has_a_straight_one_tried_and_taken() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000))
    origin.look({"hub-1": steady(80_000)})
    assert not origin.given
    assert origin.ways.connections() == {("west-1", STRAIGHT)}
    origin.look({"hub-1": steady(80_000)}, straight={"west-1": steady(60_000)})
    assert origin.given == (STRAIGHT,)


def test_a_quick_usual_way_is_left_alone() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(10_000))
    origin.look({"hub-1": steady(10_000)})
    assert origin.given == () and origin.ways.connections() == set()
    assert origin.why is Why.GOOD


def test_nothing_is_decided_before_enough_is_known() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000, LEAST - 1))
    origin.look({"hub-1": steady(80_000)})
    assert origin.why is Why.UNKNOWN
    assert origin.ways.connections() == set()


def test_another_relay_is_taken_where_nobody_can_dial() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000))
    origin.hears("hub-2", steady(20_000))
    origin.look({"hub-1": steady(80_000), "hub-2": steady(20_000)}, can_dial=False, first=("hub-1",))
    assert origin.given == ("hub-2",)


def test_copies_go_on_when_the_link_of_the_usual_way_is_down() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(10_000))
    origin.hears("hub-2", steady(20_000))
    origin.look({"hub-1": DOWN, "hub-2": steady(20_000)})
    assert "hub-2" in origin.given


def test_a_relay_says_that_its_link_is_down() -> None:
    origin = Origin()
    origin.hears("hub-1", None)
    origin.hears("hub-2", steady(20_000))
    origin.look({"hub-1": steady(10_000), "hub-2": steady(20_000)})
    assert origin.given == ("hub-2",)


def test_inside_a_cluster_the_usual_way_is_straight() -> None:
    origin = Origin()
    lossy = Delay((Part(10_000, 10_000, 95), Part(300_000, 300_000, 5)), samples=100)
    origin.look({"west-1": lossy}, first=("west-1",))
    assert origin.given == (TWIN,)
    assert origin.ways.connections() == {("west-1", TWIN)}


def test_a_topic_that_offers_more_than_is_wanted_gets_nothing() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000))
    origin.look({"hub-1": steady(80_000)}, topic=Topic(BUDGET_US + 1))
    assert origin.ways.told == {}


def test_a_destination_that_says_nothing_any_more_is_forgotten() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000))
    origin.look({"hub-1": steady(80_000)}, straight={"west-1": steady(20_000)})
    origin.now_us = WISHED_US + 1
    origin.look({"hub-1": steady(80_000)}, straight={"west-1": steady(20_000)})
    assert origin.given == () and not origin.ways.destinations


def test_a_destination_that_is_lost_is_forgotten_at_once() -> None:
    origin = Origin()
    origin.look({}, gone=("west-1",))
    assert not origin.ways.destinations


def test_what_a_relay_said_long_ago_counts_no_more() -> None:
    origin = Origin()
    origin.hears("hub-1", steady(80_000))
    origin.now_us = TOLD_US + 1
    origin.ways.wished(WEST, (Wish("#", BUDGET_US),), origin.now_us)
    origin.look({"hub-1": steady(80_000)})
    assert origin.why is Why.UNKNOWN


def test_the_least_budget_of_those_that_match_counts() -> None:
    origin = Origin()
    rows = (Wish("t", 70_000), Wish("other", 1), Wish("+", 60_000))
    origin.ways.wished(WEST, rows, 0)
    origin.hears("hub-1", steady(80_000))
    origin.look({"hub-1": steady(80_000)})
    assert origin.ways.told["t", "west-1"].budget_us == 60_000


def test_destinations_have_a_bound() -> None:
    origin = Origin()
    for number in range(2 * DESTINATIONS_MAX):
        info = BrokerInfo(f"b{number}", "b", Role.EDGE, "127.0.0.1", 1)
        origin.ways.wished(info, (Wish("#", 1),), 0)
    assert len(origin.ways.destinations) == DESTINATIONS_MAX


parts = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-1, 10**6))


@given(st.lists(parts, max_size=5), st.integers(0, 10**6), st.integers(0, 1_000))
def test_whatever_is_told_of_a_link_makes_a_distribution_or_none(
    rows: list[tuple[int, int, int]], lost_ppm: int, samples: int
) -> None:
    delay = delay_of(Leg("d", tuple(rows), lost_ppm, -1, samples))
    if delay is not None:
        assert 0.0 <= delay.miss(1_000) <= 1.0
        assert delay.quantile(500_000) >= delay.floor_us


@given(st.integers(0, 10**6), st.integers(LEAST, 10**6))
def test_a_told_delay_is_the_delay(round_trip_us: int, samples: int) -> None:
    delay = steady(round_trip_us, samples)
    assert delay_of(leg_of("d", delay)) == delay
