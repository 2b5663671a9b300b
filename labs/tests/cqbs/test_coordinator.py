"""The gap after the kill, and what is counted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin_demo.worker import News
from tocsin_labs.cqbs.coordinator import Sample, account, gap
from tocsin_labs.cqbs.plan import Coordination

FOUND = {"expected": 6, "lost": 0, "unexpected": 0, "queries": 3, "sets_wrong": 0, "began_ns": 2_000_000_000}
# Sent at 0 to 5 s; the leader is killed at 2.5 s, and those of 3 and 4 s are heard only at 5.5 s.
LATENCIES_MS = {0: 10, 1: 10, 2: 20, 3: 2_500, 4: 1_500, 5: 510}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.csv"
    rows = [f"{sent + 1},{sent},{latency},0,dummy-1,joined" for sent, latency in LATENCIES_MS.items()]
    path.write_text("\n".join(["change,sent_s,latency_ms,subscriber,broker,kind", *rows, ""]))
    return path


def test_the_gap_is_the_silence_around_the_kill() -> None:
    samples = [Sample(sent, latency, sent) for sent, latency in LATENCIES_MS.items()]
    assert gap(samples, 2.5) == pytest.approx((2.02, 5.5))


def test_a_longer_silence_at_another_time_is_not_the_gap() -> None:
    samples = [Sample(sent, 0, 1) for sent in (0, 20, 21, 23, 24, 25, 26, 27, 60)]
    assert gap(samples, 21.5) == (21, 23)


def test_there_is_no_gap_where_nothing_was_heard() -> None:
    assert gap([], 1.0) is None


def test_changes_made_in_the_gap_are_told_apart(raw: Path) -> None:
    killed_ns = FOUND["began_ns"] + 2_500_000_000
    plan = Coordination(publishers=3)
    found = account(plan, News("done", 6, FOUND), raw, killed_ns, 3, 3, partial=False)
    assert found.killed_s == 2.5
    assert found.gap_s == pytest.approx(3.48)
    assert found.all is not None
    assert found.undisturbed is not None
    assert (found.all.samples, found.undisturbed.samples) == (6, 3)
    assert found.undisturbed.longest == 20
    assert found.switched_s == 3


def test_the_first_to_hear_of_a_change_is_counted_once(raw: Path) -> None:
    with raw.open("a") as file:
        file.write("1,0,4,1,dummy-2,joined\n1,0,30,2,dummy-3,joined\n")
    found = account(Coordination(publishers=6), News("done", 6, FOUND), raw, None, 1, 1, partial=False)
    assert found.all is not None
    assert found.first is not None
    assert (found.all.samples, found.first.samples) == (8, 6)
    assert found.first.mean == pytest.approx((4 + 10 + 20 + 2_500 + 1_500 + 510) / 6)


def test_without_a_kill_everything_counts(raw: Path) -> None:
    found = account(Coordination(publishers=3), News("done", 6, FOUND), raw, None, 1, 1, partial=True)
    assert found.undisturbed == found.all
    assert found.gap_s is None
    assert found.partial
