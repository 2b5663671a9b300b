"""A network that is small enough for plain models."""

from __future__ import annotations

from tocsin_labs.reaps.parameters import Condition, Failing, Parameters, Replicating

SMALL = Parameters(
    words="a test",
    seed=3,
    brokers=9,
    subscribers=240,
    channels=8,
    subscriptions_each=3,
    period_s=(10, 40),
    steps_percent=(50, 100),
    retrieval_s=240,
    draws=2,
    conditions=(Condition("uniform"), Condition("tight", 4.0), Condition("regional", regional=80)),
    replicating=Replicating(
        seconds=120, failures=40, periods_s=(1, 5, 20), clients=(1, 8), volumes_mb=(1, 20, 60)
    ),
    failing=Failing(seconds=40, moments=2, draws=2, timed=2, failed=(1, 2)),
)


def quiet(part: float) -> None:
    assert 0 <= part <= 1
