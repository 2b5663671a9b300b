"""``tocsin chaos``: what it refuses, and how it shows an account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.chaos.fake import Fake, network
from tocsin.chaos.account import Spread, Totals
from tocsin.chaos.run import Outcome, Suffered
from tocsin.cli.layout import console
from tocsin.cli.main import main
from tocsin.cli.verbs import chaos


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    with network(tmp_path_factory.mktemp("chaos")) as found:
        yield found


def test_where_no_network_runs_it_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", "--state", str(tmp_path), "--random"]) == 2
    assert f"no network runs on {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "there is nothing to break"),
        (["--kill", "west-1"], "Name one of broker/b1, broker/b2, cluster/north, coordinator-1"),
        (["--kill", "b1:5s"], "a kill has no duration"),
        (["--pause", "b1:5"], "is not a time"),
        (["--random", "--kinds", "kill,fly"], "'fly' is no kind of fault"),
        (["--random", "--kinds", "partition"], 'chaos.enabled = "never"'),
        (["--random", "--targets", "west"], "there is no 'west'"),
        (["--partition", "b1~store"], 'chaos.enabled = "never"'),
        (["--kill", "b1+west-1"], "there is no 'west-1'"),
        (["--own", "./no-such-program:5s"], "./no-such-program: that is no program"),
        (["--random", "--kinds", "own"], "'own' is no kind of fault"),
        (["--kill", "b1", "--kinds", "kill"], "are for --random"),
        (["--random", "--every", "0s"], "--every 0s is out of bounds"),
        (["--random", "--settle", "soon"], "--settle: 'soon' is not a time"),
        (["--random", "--publishers", "500", "--rate", "100"], "Stay at 2000 in all"),
        (["--kill", "b1", "--password", "x"], "Add --user"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_broken(
    fake: Fake, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["chaos", "--state", str(fake.state), *options]) == 2
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


def test_healing_a_network_that_is_whole_changes_nothing(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", "--state", str(fake.state), "--heal"]) == 0
    assert capsys.readouterr().out == "nothing was stopped\n"


def an_outcome(lost: int, recovery_s: float | None) -> Outcome:
    spread = None if recovery_s is None else Spread(recovery_s, recovery_s, recovery_s)
    totals = Totals(
        published=1_000,
        acknowledged=1_000,
        expected=2_000,
        delivered=2_000 - lost,
        lost=lost,
        repeated=3,
        repeated_to_some=0,
        repeated_shared=0,
        repeated_once=0,
        out_of_order=0,
        strange=0,
        unrecovered=0 if recovery_s else 1,
        recovery=spread,
        examples=("s never got 7 of x",) if lost else (),
    )
    suffered = (
        Suffered("kill", "cluster/north", 5.0, 0.0, {"broker/b1": 7}, 4, recovery_s),
        Suffered("partition", "broker/b1", 9.0, 2.0, {}, 0, None, "store"),
    )
    return Outcome("r", 12.0, totals, suffered, 0, 0, {}, False, False)


def test_a_run_that_kept_every_promise_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = an_outcome(0, 1.25)
    console().print(chaos.faults_table(outcome), chaos.account_table(outcome))
    shown = capsys.readouterr().out
    assert outcome.kept and "1.25 s" in shown and "missed" in shown
    assert "partition broker/b1 from store for 2 s" in shown
    assert "2,000 of 2,000" in shown


def test_what_comes_to_who_has_unsubscribed_is_a_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = msgspec.structs.replace(an_outcome(0, 1.25), unasked={"s": 2})
    chaos._show(outcome, json=False)
    shown = capsys.readouterr().out
    assert not outcome.kept and "BROKEN" in shown and "s got 2 that it had not asked for" in shown


@pytest.mark.parametrize("outcome", [an_outcome(1, 1.0), an_outcome(0, None)])
def test_a_loss_or_a_fault_without_recovery_is_a_broken_promise(
    outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    chaos._show(outcome, json=False)
    shown = capsys.readouterr().out
    assert not outcome.kept and "BROKEN" in shown
    assert ("s never got 7 of x" in shown) == bool(outcome.totals.lost)
    assert ("never" in shown) == (bool(outcome.totals.lost) or outcome.totals.unrecovered > 0)
