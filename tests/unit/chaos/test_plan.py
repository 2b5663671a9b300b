"""Faults as they are written, and as chance makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.chaos.plan import (
    KINDS,
    LEAST_S,
    LONGEST_S,
    WRITTEN,
    Candidate,
    Fault,
    Kind,
    by_chance,
    ends_s,
    in_turn,
    read_fault,
    read_time,
)
from tocsin.errors import OperatorError


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("kill", "broker/north-1", Fault("kill", "broker/north-1")),
        ("kill", "cluster/north@1.5s", Fault("kill", "cluster/north", 0.0, 1.5)),
        ("pause", "coordinator-1", Fault("pause", "coordinator-1", 5.0)),
        ("pause", "coordinator-1:500ms@2m", Fault("pause", "coordinator-1", 0.5, 120.0)),
        ("slow", "role/edge:3s", Fault("slow", "role/edge", 3.0)),
        ("partition", "north-1:3s", Fault("partition", "north-1", 3.0)),
        (
            "partition",
            "cluster/north~store:3s@20s",
            Fault("partition", "cluster/north", 3.0, 20.0, "store"),
        ),
        ("kill", "north-1+store-1@3s", Fault("kill", "north-1+store-1", 0.0, 3.0)),
        ("own", "./unplug.sh:30s@5s", Fault("own", "./unplug.sh", 30.0, 5.0)),
        ("own", "/srv/unplug", Fault("own", "/srv/unplug", 10.0)),
        ("own", "./a=b.sh", Fault("own", "./a=b.sh", 10.0)),
        ("lag", "north-1=50ms", Fault("lag", "north-1", 10.0, None, "", 0.05)),
        (
            "lag",
            "cluster/north~cluster/south=2s:30s@1s",
            Fault("lag", "cluster/north", 30.0, 1.0, "cluster/south", 2.0),
        ),
        ("loss", "north-1~store=1.5%:3s", Fault("loss", "north-1", 3.0, None, "store", 0.015)),
        ("rate", "north-1=20KB", Fault("rate", "north-1", 10.0, None, "", 20_000.0)),
        ("rate", "north-1=1.5MB", Fault("rate", "north-1", 10.0, None, "", 1_500_000.0)),
    ],
)
def test_a_fault_is_read(kind: Kind, text: str, fault: Fault) -> None:
    assert read_fault(kind, text) == fault


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("kill", "", "cannot be read"),
        ("kill", "north-1:5s", "a kill has no duration"),
        ("kill", "north-1@soon", "'soon' is not a time"),
        ("pause", "north-1~store:5s", "only faults of links"),
        ("pause", "north-1:5", "500ms, 5s or 2m"),
        ("pause", "north-1:0s", "more than 0"),
        ("slow", "north-1:11m", "at most 600"),
        ("partition", "a~b~c", "cannot be read"),
        ("partition", "~store", "cannot be read"),
        ("pause", "a b", "cannot be read"),
        ("own", "./a.sh~store", "only faults of links"),
        ("own", "", "--own PROGRAM[:10s][@20s]"),
        ("lag", "north-1", "it is not said how much"),
        ("lag", "north-1=", "cannot be read"),
        ("lag", "north-1=50", "is not a time"),
        ("lag", "north-1=0ms", "0ms is nothing"),
        ("lag", "north-1=11s", "at most 10 s"),
        ("loss", "north-1=0.01", "is not a share"),
        ("loss", "north-1=60%", "at most 50%"),
        ("rate", "north-1=20", "is not a number of bytes"),
        ("rate", "north-1=20B", "at least 100 bytes"),
        ("rate", "north-1:5s", "--rate cluster/north~cluster/south=20KB"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(kind: Kind, text: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        read_fault(kind, text)
    assert words in str(refused.value) and f"--{kind} {text}" in str(refused.value)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in WRITTEN:
        try:
            fault = read_fault(kind, text)
        except OperatorError:
            continue
        assert fault.target and 0 <= fault.seconds <= 600


def test_a_time_has_its_unit() -> None:
    assert [read_time("--every", text) for text in ("250ms", "5s", "1.5m")] == [0.25, 5.0, 90.0]


def test_faults_without_a_time_follow_each_other() -> None:
    faults = [read_fault("kill", "a"), read_fault("kill", "b@7s"), read_fault("pause", "c:4s")]
    timed = in_turn(faults, 5.0)
    assert [(fault.target, fault.at_s) for fault in timed] == [("a", 5.0), ("b", 7.0), ("c", 10.0)]
    assert ends_s(timed) == 14.0 and ends_s(()) == 0.0


CANDIDATES = (
    Candidate("store-1", ("kill", "pause")),
    Candidate("broker/a", KINDS, ("", "store", "broker/b")),
    Candidate("cluster/x", KINDS),
)


@given(
    st.integers(),
    st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
    st.floats(1, 300),
    st.floats(0.5, 30),
)
def test_chance_keeps_to_what_was_asked(seed: int, kinds: list[Kind], seconds: float, every_s: float) -> None:
    faults = by_chance(CANDIDATES, kinds, seed=seed, seconds=seconds, every_s=every_s)
    assert faults == by_chance(CANDIDATES, kinds, seed=seed, seconds=seconds, every_s=every_s)
    known = {each.target: each for each in CANDIDATES}
    over: dict[str, float] = {}
    for fault in faults:
        assert fault.at_s is not None and every_s <= fault.at_s <= seconds + 1e-6
        assert fault.kind in kinds and fault.kind in known[fault.target].kinds
        assert fault.others in known[fault.target].others
        assert fault.seconds == 0 if fault.kind == "kill" else LEAST_S <= fault.seconds <= LONGEST_S
        assert over.get(fault.target, 0.0) <= fault.at_s, "it was still broken"
        over[fault.target] = fault.at_s + fault.seconds


def test_another_seed_makes_another_schedule_of_every_kind() -> None:
    one, two = (by_chance(CANDIDATES, KINDS, seed=seed, seconds=300, every_s=5) for seed in (1, 2))
    assert one != two and {fault.kind for fault in one} == set(KINDS)


def test_kinds_that_no_candidate_allows_are_refused() -> None:
    with pytest.raises(OperatorError, match="no target can be broken by slow"):
        by_chance(CANDIDATES[:1], ["slow"], seed=1, seconds=60, every_s=5)


def test_a_fault_says_in_words_what_it_does() -> None:
    assert str(read_fault("lag", "a~b=50ms:3s")) == "lag of 50 ms a to b for 3 s"
    assert str(read_fault("loss", "a=1%")) == "loss of 1 % a for 10 s"
    assert str(read_fault("rate", "a=20KB")) == "rate of 20000 bytes a second a for 10 s"
    assert str(read_fault("partition", "a~b")) == "partition a from b for 5 s"


def test_chance_chooses_no_weather() -> None:
    assert not {"lag", "loss", "rate"} & {*KINDS}
