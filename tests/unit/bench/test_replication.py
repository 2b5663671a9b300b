"""The measurement of replication, small: it sees that the copies are whole before it says what they cost."""

from __future__ import annotations

from bench.replication import Plan, measure


def test_everything_is_measured() -> None:
    figures = measure(Plan(600, 100, 1))
    assert set(figures) == {
        "resync of 1 000 clients",
        "a subscription, 1 at a time",
        "a subscription, 50 at a time",
        "positions of 1 000 clients",
    }
    assert all(each["bytes"] > 0 for each in figures.values())
    assert figures["a subscription, 50 at a time"]["bytes"] < figures["a subscription, 1 at a time"]["bytes"]
