"""What a broker's clients want reaches the others, whatever is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival import cluster_wants as wants
from tocsin.core.survival.cluster_wants import Copy, WantsLog
from tocsin.wire.words import SLICE

NAMES = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "tell", "lose", "anew"]), NAMES))


def tell(feed: WantsLog, copy: Copy, known: tuple[int, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    base, changes = feed.since(known)
    return copy.take(feed.run, base, changes)


@given(STEPS)
def test_a_peers_copy_has_the_current_wants_and_reports_changes(
    steps: list[tuple[str, str]],
) -> None:
    feed, copy, routes, model = WantsLog(), Copy(), set[str](), set[str]()
    feed.begin(1, ())
    for step, name in [*steps, ("tell", ""), ("tell", "")]:
        match step:
            case "add" if name not in model:
                model.add(name)
                feed.change([name], [])
            case "remove" if name in model:
                model.discard(name)
                feed.change([], [name])
            case "anew":
                feed.begin(feed.run + 1, sorted(model))
            case "tell":
                came, went = tell(feed, copy, (copy.run, copy.version))
                assert not routes & set(came), "what came was not there"
                assert set(went) <= routes, "what went was"
                routes = (routes | set(came)) - set(went)
                assert routes == set(copy.filters)
            case "lose":
                feed.since((copy.run, copy.version))
    assert set(copy.filters) == model
    assert (copy.run, copy.version) == (feed.run, feed.version)


def test_many_are_told_a_slice_at_a_time() -> None:
    feed, copy = WantsLog(), Copy()
    feed.begin(7, (str(each) for each in range(2 * SLICE + 1)))
    slices = 0
    while copy.version < feed.version:
        tell(feed, copy, (copy.run, copy.version))
        slices += 1
    assert slices == 3 and len(copy.filters) == 2 * SLICE + 1


def test_a_slice_before_which_something_is_missing_is_not_taken() -> None:
    feed, copy = WantsLog(), Copy()
    feed.begin(1, ["a", "b"])
    assert tell(feed, copy, (1, 1)) == ((), ()) and not copy.filters


def test_what_is_wanted_no_longer_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wants, "WANTS_MAX", 10)
    feed, copy = WantsLog(), Copy()
    feed.begin(1, ["kept"])
    for each in range(100):
        feed.change([str(each)], [])
        feed.change([], [str(each)])
        assert len(feed.since((0, 0))[1]) <= 21
    tell(feed, copy, (0, 0))
    assert set(copy.filters) == {"kept"}
