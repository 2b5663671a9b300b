"""Which topics are carried apart from their slots, and by how many members."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.tiers.hot import APART_MAX, SPREAD_MAX, TopicRate, part
from tocsin.core.tiers.slots import ranking

MEMBERS = ("a", "b", "c", "d")
LOAD = {"a": 700.0, "b": 100.0, "c": 100.0, "d": 100.0}  # the mean is 250


def test_a_topic_that_brings_much_leaves_a_slot_that_brings_more() -> None:
    assert part({}, {"t": TopicRate(200.0, 1, rest=100.0)}, LOAD, MEMBERS) == {"t": ("b",)}


def test_a_topic_that_is_alone_in_its_slot_stays_there() -> None:
    assert part({}, {"t": TopicRate(200.0, 1, rest=2.0)}, LOAD, MEMBERS) == {}


def test_a_topic_that_exceeds_a_member_is_spread() -> None:
    assert part({}, {"t": TopicRate(600.0, 9)}, LOAD, MEMBERS) == {"t": ("b", "c", "d")}


def test_no_more_members_carry_a_topic_than_clusters_publish_it() -> None:
    assert part({}, {"t": TopicRate(600.0, 2)}, LOAD, MEMBERS) == {"t": ("b", "c")}
    assert part({}, {"t": TopicRate(600.0, 1)}, LOAD, MEMBERS) == {}


def test_a_topic_stays_apart_until_it_is_cold() -> None:
    known = {"t": ("a",)}
    assert part(known, {"t": TopicRate(70.0, 1)}, LOAD, MEMBERS) == known
    assert part(known, {"t": TopicRate(60.0, 1)}, LOAD, MEMBERS) == {}
    assert part(known, {}, LOAD, MEMBERS) == {}


def test_a_topic_that_grows_is_spread_wider() -> None:
    assert len(part({"t": ("a", "b")}, {"t": TopicRate(700.0, 9)}, LOAD, MEMBERS)["t"]) == 3


def test_a_member_that_is_gone_is_replaced() -> None:
    found = part({"t": ("x",)}, {"t": TopicRate(200.0, 1)}, LOAD, MEMBERS)
    assert found["t"][0] in MEMBERS
    assert part({"t": ("a",)}, {}, {}, ()) == {"t": ("a",)}


def test_sources_of_a_topic_do_not_meet_at_a_member() -> None:
    members = [f"hub-{number}" for number in range(40)]
    for number in range(20):
        sources = {f"edge-{number}-{each}": 65.0 for each in range(4)}
        rate = TopicRate(260.0, 4, sources=sources)
        chosen = part({}, {"t": rate}, dict.fromkeys(members, 100.0), members)["t"]
        assert len({ranking(f"t:{each}", chosen)[0] for each in sources}) == 4


def test_hot_topics_do_not_meet_at_a_member() -> None:
    members = [f"hub-{number}" for number in range(24)]
    topics = {
        f"t/{number}": TopicRate(260.0, 4, sources={f"edge-{each}": 65.0 for each in range(4)})
        for number in range(3)
    }
    found = part({}, topics, dict.fromkeys(members, 100.0), members)
    carried = Counter(
        ranking(f"{topic}:{source}", found[topic])[0]
        for topic, rate in topics.items()
        for source in rate.sources
    )
    assert max(carried.values()) == 1, carried


def test_members_stay_until_others_are_much_better() -> None:
    sources = {"x": 65.0, "y": 65.0}
    rate = TopicRate(130.0, 2, sources=sources)
    load = dict.fromkeys(MEMBERS, 100.0)
    for known in (("a", "b"), ("c", "d"), ("a", "b", "c")):
        shared = len({ranking(f"t:{each}", known)[0] for each in sources}) == 2
        found = part({"t": known}, {"t": rate}, load, MEMBERS)["t"]
        assert (found == known) == shared


def test_members_of_an_earlier_release_name_no_sources() -> None:
    rate = TopicRate(600.0, 9, sources={"x": 1.0})
    assert len(part({}, {"t": rate}, LOAD, MEMBERS)["t"]) >= 3


@given(
    st.dictionaries(
        st.text("tuv/", min_size=1, max_size=6),
        st.builds(
            TopicRate,
            st.floats(0, 5_000),
            st.integers(0, 40),
            st.floats(0, 500),
            st.dictionaries(st.sampled_from(["x", "y", "z"]), st.floats(0, 2_000)),
        ),
        max_size=40,
    ),
    st.sets(st.sampled_from([*"abcdefghijkl"]), min_size=1),
)
def test_what_is_apart_is_bounded_and_at_members(topics: dict[str, TopicRate], members: set[str]) -> None:
    found = part({}, topics, dict.fromkeys(members, 100.0), members)
    assert len(found) <= APART_MAX and found.keys() <= topics.keys()
    for carriers in found.values():
        assert carriers and set(carriers) <= members and len(set(carriers)) == len(carriers) <= SPREAD_MAX
    again = part(found, topics, dict.fromkeys(members, 100.0), members)
    assert again.keys() >= found.keys()
    assert part(again, topics, dict.fromkeys(members, 100.0), members) == again, "it comes to rest"
