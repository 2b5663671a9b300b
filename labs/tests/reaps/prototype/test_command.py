"""``tocsin lab reaps prototype``: what is refused before anything starts, and what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.tests.reaps.prototype.made import ACCOUNT, FAILURES
from tocsin.cli.main import main
from tocsin.runtime import extra
from tocsin_demo.scene import Script
from tocsin_labs import drawing
from tocsin_labs.reaps.prototype import run
from tocsin_labs.reaps.prototype.run import Results
from tocsin_labs.stage import Stage

COMMAND = ["lab", "reaps", "prototype", "--quick"]


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> list[Script]:
    """The scripts that would be played."""
    played: list[Script] = []

    async def found(results: Results, script: Script, stage: Stage) -> None:
        played.append(script)
        results.failures, results.account = list(FAILURES), ACCOUNT

    monkeypatch.setattr(run, "run", found)
    monkeypatch.setattr(extra, "check_installed", lambda: None)
    monkeypatch.setattr(drawing, "available", lambda: False)
    return played


def test_it_says_how_the_papers_statements_fare_and_where_the_rest_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_runs: list[Script]
) -> None:
    assert main([*COMMAND, "--out", str(tmp_path), "--seed", "3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not to be compared with the paper's" in out and "the paper says" in out
    assert nothing_runs[0].city.seed == 3


def test_traces_can_be_written_and_given_back(tmp_path: Path, nothing_runs: list[Script]) -> None:
    traces, out = tmp_path / "traces", str(tmp_path / "out")
    assert main([*COMMAND, "--out", out, "--write-traces", str(traces)]) == 0
    movements, emergencies = traces / "movements.txt", traces / "emergencies.txt"
    given = ["--movement", str(movements), "--emergencies", str(emergencies)]
    assert main([*COMMAND, "--out", out, *given]) == 0
    assert (nothing_runs[1].movements, nothing_runs[1].emergencies) == (movements, emergencies)
    assert nothing_runs[1].places() == nothing_runs[0].places()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--only", "3c"], "--only '3c' is no experiment"),
        (["--seed", "-1"], "--seed -1 is out of range"),
        (["--runs", "0"], "--runs 0 is out of range"),
        (["--movement", "nowhere.txt"], "nowhere.txt"),
        (["--emergencies", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_cannot_be_costs_a_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nothing_runs: list[Script],
    given: list[str],
    words: str,
) -> None:
    assert main([*COMMAND, "--out", str(tmp_path / "out"), *given]) == 2
    assert words in capsys.readouterr().err
    assert not nothing_runs and not (tmp_path / "out").exists()


def test_a_trace_with_too_few_people_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_runs: list[Script]
) -> None:
    trace = tmp_path / "movements.txt"
    trace.write_text("0 10 0 100 0 100\n0 only 5 5\n")
    assert main([*COMMAND, "--out", str(tmp_path / "out"), "--movement", str(trace)]) == 2
    assert "1 people for 32 subscribers" in capsys.readouterr().err
    assert not nothing_runs
