"""Which topics are carried apart from their slots, and by how many members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.tiers.hot import APART_MAX, SPREAD_MAX, TopicRate, part

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


@given(
    st.dictionaries(
        st.text("tuv/", min_size=1, max_size=6),
        st.builds(TopicRate, st.floats(0, 5_000), st.integers(0, 40), st.floats(0, 500)),
        max_size=40,
    ),
    st.sets(st.sampled_from([*"abcdefghijkl"]), min_size=1),
)
def test_what_is_apart_is_bounded_and_at_members(topics: dict[str, TopicRate], members: set[str]) -> None:
    found = part({}, topics, dict.fromkeys(members, 100.0), members)
    assert len(found) <= APART_MAX and found.keys() <= topics.keys()
    for carriers in found.values():
        assert carriers and set(carriers) <= members and len(set(carriers)) == len(carriers) <= SPREAD_MAX
    assert part(found, topics, dict.fromkeys(members, 100.0), members).keys() >= found.keys()
