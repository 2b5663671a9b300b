"""What a broker's clients want reaches the others, whatever is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.survival import cluster_wants as wants
from tocsin.core.survival.cluster_wants import Copy, WantsLog
from tocsin.wire.internal.cluster_messages import SLICE

NAMES = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "tell", "lose", "anew"]), NAMES))


def tell(log: WantsLog, copy: Copy, known: tuple[int, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    base, changes = log.since(known)
    return copy.take(log.series, base, changes)


@given(STEPS)
def test_a_peers_copy_has_the_current_wants_and_reports_changes(
    steps: list[tuple[str, str]],
) -> None:
    log, copy, routes, model = WantsLog(), Copy(), set[str](), set[str]()
    log.begin(1, ())
    for step, name in [*steps, ("tell", ""), ("tell", "")]:
        match step:
            case "add" if name not in model:
                model.add(name)
                log.change([name], [])
            case "remove" if name in model:
                model.discard(name)
                log.change([], [name])
            case "anew":
                log.begin(log.series + 1, sorted(model))
            case "tell":
                came, went = tell(log, copy, (copy.series, copy.version))
                assert not routes & set(came), "what came was not there"
                assert set(went) <= routes, "what went was"
                routes = (routes | set(came)) - set(went)
                assert routes == set(copy.filters)
            case "lose":
                log.since((copy.series, copy.version))
    assert set(copy.filters) == model
    assert (copy.series, copy.version) == (log.series, log.version)


def test_many_are_told_a_slice_at_a_time() -> None:
    log, copy = WantsLog(), Copy()
    log.begin(7, (str(each) for each in range(2 * SLICE + 1)))
    slices = 0
    while copy.version < log.version:
        tell(log, copy, (copy.series, copy.version))
        slices += 1
    assert slices == 3 and len(copy.filters) == 2 * SLICE + 1


def test_a_slice_before_which_something_is_missing_is_not_taken() -> None:
    log, copy = WantsLog(), Copy()
    log.begin(1, ["a", "b"])
    assert tell(log, copy, (1, 1)) == ((), ()) and not copy.filters


def test_what_is_wanted_no_longer_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wants, "WANTS_MAX", 10)
    log, copy = WantsLog(), Copy()
    log.begin(1, ["kept"])
    for each in range(100):
        log.change([str(each)], [])
        log.change([], [str(each)])
        assert len(log.since((0, 0))[1]) <= 21
    tell(log, copy, (0, 0))
    assert set(copy.filters) == {"kept"}
