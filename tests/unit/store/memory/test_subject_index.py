"""The subject index against a list that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.store.memory import state as state_module
from tocsin.store.memory.state import SubjectIndex
from tocsin.store.rules import is_wild, matches

subjects = st.sampled_from(["a", "b", "a.x", "a.y", "b.x", "a.x.z"])
patterns = subjects | st.sampled_from([">", "*", "a.*", "*.x", "a.>", "*.*.z"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), subjects),
        st.tuples(st.just("remove"), st.integers(0, 400)),
        st.tuples(st.just("look"), st.tuples(patterns, st.integers(0, 250))),
    ),
    max_size=250,
)


def check(played: list[tuple[str, object]]) -> None:
    index = SubjectIndex()
    model: dict[int, str] = {}
    position = 0
    for verb, argument in played:
        if verb == "add":
            position += 1
            subject = str(argument)
            index.add(subject, position)
            model[position] = subject
        elif verb == "remove" and model:
            assert isinstance(argument, int)
            gone = sorted(model)[argument % len(model)]
            index.remove(model.pop(gone), gone)
        elif verb == "look":
            assert isinstance(argument, tuple)
            pattern, start = argument
            expected = [p for p, s in sorted(model.items()) if p >= start and matches(pattern, s)]
            assert list(index.positions(pattern, start)) == expected
            if not is_wild(pattern):
                own = [p for p, s in sorted(model.items()) if s == pattern]
                assert index.count(pattern) == len(own)
                assert (pattern in index) == bool(own)
                if own:
                    assert index.first(pattern) == own[0]
                assert index.last(pattern) == (own[-1] if own else 0)
    assert len(index) == len(model)
    assert sorted(index.subjects()) == sorted(set(model.values()))


@given(steps)
def test_the_index_finds_what_a_search_from_end_to_end_finds(played: list[tuple[str, object]]) -> None:
    check(played)


def test_runs_are_compacted_as_they_empty() -> None:
    index = SubjectIndex()
    for position in range(1, 1_001):
        index.add("a" if position % 2 else "b", position)
    assert list(index.positions("*", 995)) == [995, 996, 997, 998, 999, 1_000]
    for position in range(1, 901):
        index.remove("a" if position % 2 else "b", position)
    assert list(index.positions("*", 0)) == list(range(901, 1_001))
    for position in range(1_000, 930, -1):
        index.remove("a" if position % 2 else "b", position)
    assert list(index.positions(">", 0)) == list(range(901, 931))
    assert index.last("b") == 930


def test_a_pattern_that_was_pushed_out_is_found_again() -> None:
    index = SubjectIndex()
    for position in range(1, 5):
        index.add(f"a.{position}", position)
    assert list(index.positions("a.*", 0)) == [1, 2, 3, 4]
    for i in range(state_module.PATTERNS_MAX + 5):
        assert list(index.positions(f"z{i}.*", 0)) == []
    index.add("a.5", 5)
    index.remove("a.1", 1)
    assert list(index.positions("a.*", 0)) == [2, 3, 4, 5]
