"""Paper, ours, ratio; and whether the paper's statements hold."""

from __future__ import annotations

import msgspec
import pytest

from labs.tests.reaps.prototype.made import ACCOUNT, FAILURES, failure
from tocsin_labs.reaps.prototype.outcome import Outcome
from tocsin_labs.reaps.prototype.tables import comparisons, stated


def holds(failures: list[Outcome]) -> dict[str, bool]:
    return {claim.words: claim.holds for claim in stated(failures, ACCOUNT)}


def test_what_the_paper_says_holds_where_it_does() -> None:
    assert set(holds(FAILURES).values()) == {True} and len(holds(FAILURES)) == 6


def test_a_local_fail_over_that_is_hardly_shorter_is_not_significantly_so() -> None:
    near = [failure("local", 97, 0.9), failure("remote", 97, 1.0)]
    assert holds(near)["local fail-over takes significantly less time than remote"] is False


@pytest.mark.parametrize(
    ("times", "linear", "proportional"),
    [
        ((0.23, 0.50, 0.74, 0.97), True, True),
        ((1.23, 1.50, 1.74, 1.97), True, False),  # most of it is there without anybody
        ((0.5, 0.2, 0.6, 0.3), False, False),
        ((0.97, 0.74, 0.50, 0.23), False, False),  # a line, but downwards
    ],
)
def test_only_a_line_from_nothing_upwards_is_proportional(
    times: tuple[float, ...], linear: bool, proportional: bool
) -> None:
    sizes = (23, 50, 74, 97)
    found = holds([failure("local", size, each) for size, each in zip(sizes, times, strict=True)])
    assert found["local fail-over time grows linearly with subscribers"] is linear
    assert found["local fail-over time is directly proportional to subscribers"] is proportional


def test_the_median_stands_with_its_range_and_its_target() -> None:
    rows = {row.figure: row for row in comparisons(FAILURES, ACCOUNT)}
    row = rows["local, 97 subscribers: the same after detection; -0.55 to -0.51"]
    assert (row.experiment, row.unit, row.target) == ("3a", "s", 1.0)
    assert row.ours == pytest.approx(-0.53)
    assert "remote, 97 subscribers: the same after detection" in rows  # one run has no range
    assert rows["remote, 97 subscribers: the same after detection"].target is None
    assert rows["local: for each subscriber"].ours == pytest.approx(10.0, abs=0.01)
    assert rows["frozen, 97 subscribers: all served after detection"].ours == pytest.approx(1.0)
    assert rows["local, 97 subscribers: at the broker that stands in; 100 to 100"].ours == 100
    assert {row.paper for row in rows.values()} == {None}  # its text has no values


def test_a_loss_is_in_the_table_and_breaks_the_promise() -> None:
    lossy = msgspec.structs.replace(ACCOUNT, lost=2)
    rows = {row.figure: row for row in comparisons(FAILURES, lossy)}
    assert rows["lost"].ours == 2 and rows["lost"].target == 1
    assert [claim.holds for claim in stated(FAILURES, lossy)][-1] is False
    assert stated([], None) == [] and comparisons([], None) == []


def test_one_slow_run_of_many_does_not_bend_the_line_of_medians() -> None:
    runs = [failure("local", size, size / 100, run) for size in (23, 50, 74, 97) for run in range(5)]
    runs.append(failure("local", 23, 9.0, 6))
    found = {row.figure: row.ours for row in comparisons(runs, None)}
    assert found["local: explained by a line, of the medians"] == pytest.approx(1.0)
    assert found["local: explained by a line, of all runs"] < 0.1  # type: ignore[operator]
    assert holds(runs)["local fail-over time is directly proportional to subscribers"]


def test_what_the_broker_told_before_it_ended_was_not_missed() -> None:
    told = msgspec.structs.replace(failure("local", 23, 0.5), told_s=[0.001] * 23)
    rows = {row.figure: row.ours for row in comparisons([failure("local", 23, 0.4), told], None)}
    assert rows["local, 23 subscribers: told by the broker itself, before it ended"] == 1
    assert rows["local, 23 subscribers: all are told what they missed"] == pytest.approx(1.4)
