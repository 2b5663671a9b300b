"""``tocsin lab reaps simulation``."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.tests.reaps.small import SMALL
from tocsin.cli.main import main
from tocsin_labs import drawing
from tocsin_labs.reaps import parameters
from tocsin_labs.reaps.parameters import Parameters


def small(*, quick: bool, seed: int) -> Parameters:
    return SMALL


def test_it_says_how_the_papers_statements_fare_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parameters, "parameters", small)
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert main(["lab", "reaps", "simulation", "--quick", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "9 brokers in 3 clusters" in " ".join(out.split())
    assert "the paper says" in out and "REAPS: fetched for" in out
    assert "Fig 4a: retrieval" in err and "Figs 5a, 5b: failures" in err
    assert (tmp_path / "summary.md").exists()


def test_an_interrupt_keeps_what_is_done_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parameters, "parameters", small)
    monkeypatch.setattr(drawing, "available", lambda: False)
    monkeypatch.setattr("tocsin_labs.reaps.run.replication.run", interrupted)
    assert main(["lab", "reaps", "simulation", "--out", str(tmp_path)]) == 1
    assert "cut short" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "conditions.csv").exists()


def test_a_seed_that_is_none_costs_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "reaps", "simulation", "--seed", "-1", "--out", str(tmp_path / "out")]) == 2
    assert "--seed -1 is out of range" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
