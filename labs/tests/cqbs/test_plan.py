"""The parameters of the experiments."""

from __future__ import annotations

import pytest

from tocsin.errors import OperatorError
from tocsin_labs.cqbs.plan import plan


def test_without_options_the_parameters_are_the_papers() -> None:
    made = plan(quick=False, scale=1, minutes=None, seed=1)
    assert (made.single.subscribers, made.single.publishers_each, made.single.rate) == ((1, 10, 100), 10, 5)
    coordination = made.coordination
    assert (coordination.brokers, coordination.subscribers, coordination.publishers) == (10, 500, 1_000)
    assert coordination.interval_s == (0.05, 0.5)
    whole = made.whole
    assert (whole.brokers, whole.coordinators, whole.brokers * whole.subscribers_each) == (3, 3, 30)
    assert whole.brokers * whole.brokers * whole.subscribers_each * whole.publishers_each == 360
    assert whole.change_s == (30, 60)


def test_scale_and_minutes_change_the_numbers_and_the_words() -> None:
    made = plan(quick=False, scale=0.1, minutes=2, seed=5)
    assert made.single.subscribers == (1, 10)
    assert (made.coordination.subscribers, made.coordination.publishers) == (50, 100)
    assert made.whole.subscribers_each == 1
    assert made.single.seconds == made.whole.seconds == 120
    assert made.seed == 5
    assert "0.1 times" in made.words
    assert "2 minutes" in made.words


def test_the_quick_form_says_that_it_is_not_the_papers() -> None:
    assert "not to be compared" in plan(quick=True, scale=1, minutes=None, seed=1).words


@pytest.mark.parametrize(
    ("scale", "minutes", "named"), [(0, None, "--scale"), (11, None, "--scale"), (1, 0, "--minutes")]
)
def test_what_cannot_be_run_is_refused_by_name(scale: float, minutes: float | None, named: str) -> None:
    with pytest.raises(OperatorError, match=named):
        plan(quick=False, scale=scale, minutes=minutes, seed=1)
