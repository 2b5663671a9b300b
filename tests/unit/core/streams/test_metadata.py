"""What is said of streams: by clients here, by the coordinator, and by sessions that remember."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.streams.metadata import StreamMetadata
from tocsin.model.stream import PERMANENT


def publishing(recalled: dict[str, str] | None = None) -> StreamMetadata:
    sayings = StreamMetadata()
    sayings.published("t", recalled)
    return sayings


def test_what_a_client_here_says_counts_at_once() -> None:
    sayings = publishing()
    assert sayings.declared("t", {"Room": "1", PERMANENT: True}, 1) == ("t", {"Room": "1"})
    assert sayings.declared("t", {"Room": None, "Floor": 2}, 2) == ("t", {"Floor": 2})
    assert sayings.of("t") == {"Floor": 2}
    assert sayings.declared("t", None, 3) == ("t", {}) and sayings.of("t") is None


def test_metadata_of_a_stream_without_a_local_publisher_is_not_kept() -> None:
    sayings = StreamMetadata()
    assert sayings.declared("t", {"Room": "1"}, 1) == ("t", {"Room": "1"})
    assert sayings.of("t") is None
    assert sayings.described({"t": {"Room": "1"}}, whole=False) == [("t", {"Room": "1"})]
    assert sayings.of("t") is None


def test_a_full_description_replaces_all_but_unsettled_local_metadata() -> None:
    sayings = publishing()
    sayings.published("u", None)
    sayings.declared("t", {"Room": "1"}, 1)
    sayings.described({"u": {"Room": "2"}}, whole=False)
    sayings.described({}, whole=True)
    assert sayings.of("t") == {"Room": "1"} and sayings.of("u") is None
    assert sayings.settled(1) == []
    sayings.described({}, whole=True)
    assert sayings.of("t") is None


def test_a_sessions_metadata_counts_until_the_coordinator_could_answer() -> None:
    sayings = publishing({"Room": "1"})
    sayings.declared("t", {}, 1)
    assert sayings.of("t") == {"Room": "1"}
    assert sayings.settled(1) == ["t"]
    assert sayings.doubted(["t"]) == [("t", {})] and sayings.of("t") is None
    assert sayings.doubted(["t"]) == []


def test_what_the_coordinator_says_is_not_doubted() -> None:
    sayings = publishing({"Room": "1"})
    sayings.declared("t", {}, 1)
    doubtful = sayings.settled(1)
    sayings.described({"t": {"Room": "2"}}, whole=False)
    assert sayings.doubted(doubtful) == [] and sayings.of("t") == {"Room": "2"}


def test_a_session_does_not_speak_against_what_is_known() -> None:
    sayings = publishing()
    sayings.described({"t": {"Room": "2"}}, whole=False)
    sayings.published("t", {"Room": "1"})
    assert sayings.of("t") == {"Room": "2"}


def test_a_topic_on_which_nobody_publishes_any_more_is_forgotten() -> None:
    sayings = publishing({"Room": "1"})
    sayings.ceased("t")
    assert sayings.of("t") is None and len(sayings) == 0 and sayings.settled(9) == []


KEYS = st.dictionaries(st.sampled_from("kl"), st.integers(0, 2), max_size=2)
DIFFS = st.none() | st.dictionaries(st.sampled_from("kl"), st.none() | st.integers(0, 2), max_size=2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "cease", "declare", "describe", "whole", "settle"]),
        st.sampled_from("tu"),
        KEYS,
        DIFFS,
    )
)


@given(STEPS)
def test_it_answers_as_a_plain_account_would(
    steps: list[tuple[str, str, dict[str, int], dict[str, int | None] | None]],
) -> None:
    sayings, ticket = StreamMetadata(), 0
    known: dict[str, dict[str, int]] = {}
    published: set[str] = set()
    unsettled: set[str] = set()
    for step, topic, keys, diff in steps:
        match step:
            case "publish":
                sayings.published(topic, keys)
                published.add(topic)
                known.setdefault(topic, keys)
            case "cease":
                sayings.ceased(topic)
                published.discard(topic)
                known.pop(topic, None)
            case "declare":
                ticket += 1
                sayings.declared(topic, diff, ticket)
                unsettled.add(topic)
                changed = {**known.get(topic, {}), **diff} if diff is not None else {}
                known[topic] = {key: value for key, value in changed.items() if value is not None}
            case "describe":
                sayings.described({topic: keys}, whole=False)
                known[topic] = keys
            case "whole":
                sayings.described({topic: keys}, whole=True)
                known = {each: said for each, said in known.items() if each in unsettled}
                known[topic] = keys
            case "settle":
                sayings.settled(ticket)
                unsettled.clear()
        known = {each: said for each, said in known.items() if each in published and said}
        assert {each: sayings.of(each) for each in "tu"} == {each: known.get(each) for each in "tu"}


def test_metadata_sent_without_a_coordinator_is_unkept_until_one_has_it() -> None:
    sayings = publishing()
    sayings.declared("t", {"Room": "1"}, 1)
    assert sayings.is_kept("t")
    assert sayings.cleared(1) == [("t", {"Room": "1"})] and not sayings.is_kept("t")
    assert sayings.kept(1) == [("t", {"Room": "1"})] and sayings.is_kept("t")


def test_what_is_settled_before_it_is_clear_was_never_unkept() -> None:
    sayings = publishing()
    sayings.declared("t", {"Room": "1"}, 1)
    assert sayings.kept(1) == [] and sayings.cleared(1) == [] and sayings.is_kept("t")


def test_what_no_coordinator_has_is_said_again_with_the_next_change() -> None:
    sayings = StreamMetadata()
    sayings.published("t", {"Room": "1", "Floor": 1}, unkept=True)
    diff = sayings.owed("t", {"Floor": 2})
    assert diff == {"Room": "1", "Floor": 2}
    assert sayings.declared("t", diff, 1) == ("t", {"Room": "1", "Floor": 2}) and not sayings.is_kept("t")
    assert sayings.kept(1) == [("t", {"Room": "1", "Floor": 2})] and sayings.is_kept("t")
    assert sayings.settled(1) == [] and sayings.owed("t", {}) == {}


def test_what_a_coordinator_had_is_not_said_again() -> None:
    sayings = publishing({"Room": "1"})
    assert sayings.owed("t", {}) == {} and sayings.is_kept("t")
    sayings.declared("t", {}, 1)
    assert sayings.cleared(1) == []
