"""Spreads and comparisons."""

from __future__ import annotations

import csv
import io
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_labs.figures import Comparison, Spread, as_csv, markdown, percentile, shown

LATENCIES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(LATENCIES)
def test_a_spread_is_what_the_statistics_module_says(values: list[float]) -> None:
    spread = Spread.of(iter(values))
    assert spread is not None
    assert spread.samples == len(values)
    assert spread.mean == pytest.approx(statistics.fmean(values))
    assert spread.deviation == pytest.approx(statistics.pstdev(values), abs=1e-6)
    assert spread.longest == max(values)


@given(LATENCIES, st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(
    values: list[float], percent: int
) -> None:
    enough = [
        value for value in values if sum(other <= value for other in values) * 100 >= percent * len(values)
    ]
    assert percentile(sorted(values), percent) == min(enough)


def test_there_is_no_spread_of_nothing() -> None:
    assert Spread.of([]) is None


def test_a_ratio_is_ours_over_theirs_and_absent_where_either_is() -> None:
    assert Comparison("e", "mean", "ms", 10.0, 2.5).ratio == 0.25
    assert Comparison("e", "mean", "ms", None, 2.5).ratio is None
    assert Comparison("e", "mean", "ms", 10.0, None).ratio is None


def test_the_tables_show_the_papers_figure_ours_and_the_ratio() -> None:
    rows = [Comparison("V-B", "mean", "ms", 95.5, 4.775, 15.0), Comparison("V-B", "lost", "of 10", None, 0)]
    assert markdown(rows).splitlines()[2:] == [
        "| V-B | mean (ms) | 95.5 | 4.78 | 0.05 | < 15 |",
        "| V-B | lost (of 10) | – | 0 | – |  |",
    ]
    first, second = csv.DictReader(io.StringIO(as_csv(rows)))
    assert (first["paper"], first["ours"], first["target"]) == ("95.5", "4.775", "15.0")
    assert float(first["ratio"]) == pytest.approx(0.05)
    assert (second["paper"], second["ours"], second["ratio"]) == ("", "0", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.12345, "0.123"),
        (12.3456, "12.35"),
        (1234.5, "1234"),
        (-1234.5, "-1234"),
        (-0.5, "-0.5"),
    ],
)
def test_a_value_has_three_figures_that_count_whatever_its_sign(value: float | None, text: str) -> None:
    assert shown(value) == text
