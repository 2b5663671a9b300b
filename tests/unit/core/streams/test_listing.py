"""A subscriber to a set sees joined and left take turns, and every message of a stream between the two."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.streams import listing as module
from tocsin.core.streams.listing import Listing, encode_set, encode_turn
from tocsin.model.stream import Metadata

LAMP: Metadata = {"kind": "lamp"}
DOOR: Metadata = {"kind": "door"}


def test_it_is_told_what_it_may_receive() -> None:
    listing = Listing()
    assert listing.begin({"a": LAMP, "secret": DOOR}, lambda topic: topic != "secret") == {"a": LAMP}
    assert listing.changed("a") and not listing.changed("secret")
    assert not listing.left("secret", DOOR, behind=False)
    assert listing.joined("secret", False) is None and listing.joined("b", True) == "joined"


def test_a_slow_client_is_owed_the_end_until_it_has_caught_up() -> None:
    listing = Listing()
    listing.begin({"a": LAMP, "b": LAMP}, lambda topic: True)
    assert not listing.left("a", LAMP, behind=True)
    assert not listing.left("b", LAMP, behind=True)
    assert listing.joined("a", True) == "changed", "it was not told that it left"
    assert listing.caught_up() == [("left", "b", LAMP)]
    assert listing.caught_up() == []


def test_other_rights_are_turns_too() -> None:
    listing = Listing()
    streams = {"a": LAMP, "b": DOOR}
    listing.begin(streams, lambda topic: topic == "a")
    assert listing.permit(streams, lambda topic: topic == "b") == [("left", "a", LAMP), ("joined", "b", DOOR)]
    listing.left("b", DOOR, behind=True)
    assert listing.permit({"a": LAMP}, lambda topic: False) == [("left", "b", DOOR)]
    assert listing.caught_up() == []


def test_a_large_set_comes_in_parts_that_announce_more() -> None:
    streams: dict[str, Metadata] = {f"topic/{n}": {"text": "x" * 1_000} for n in range(200)}
    parts = [json.loads(part) for part in encode_set(streams)]
    assert len(parts) > 2
    assert [part.get("more", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    found = {each["topic"]: each["metadata"] for part in parts for each in part["streams"]}
    assert found == streams
    assert all(len(part) < module.PART_BYTES + 3_000 for part in encode_set(streams))
    assert [json.loads(part) for part in encode_set({})] == [{"v": 1, "streams": []}]
    assert json.loads(encode_turn("joined", "a", LAMP)) == {
        "v": 1,
        "joined": {"topic": "a", "metadata": LAMP},
    }


@given(
    st.sets(st.sampled_from("ab")),
    st.lists(
        st.tuples(st.sampled_from(("turn", "turn", "level", "rights")), st.sampled_from("ab"), st.booleans())
    ),
)
def test_joined_and_left_take_turns_whatever_comes(
    forbidden: set[str], history: list[tuple[str, str, bool]]
) -> None:
    listing, streams, behind = Listing(), dict[str, Metadata](), False
    told: set[str] = set()

    def hear(word: str | None, topic: str) -> None:
        if word == "joined":
            assert topic not in told and topic not in forbidden
            told.add(topic)
        elif word == "left":
            assert topic in told
            told.remove(topic)
        elif word == "changed":
            assert topic in told

    def may(topic: str) -> bool:
        return topic not in forbidden

    listing.begin(streams, may)
    for kind, topic, flag in history:
        if kind == "turn" and topic not in streams:
            streams[topic] = LAMP
            hear(listing.joined(topic, may(topic)), topic)
        elif kind == "turn":
            hear("left" if listing.left(topic, streams.pop(topic), behind=behind) else None, topic)
        elif kind == "rights":
            forbidden ^= {topic}
            for word, each, _ in listing.permit(streams, may):
                hear(word, each)
        else:
            behind = flag
        if not behind:
            for word, each, _ in listing.caught_up():
                hear(word, each)
            assert told == {each for each in streams if may(each)}
