"""Pictures from the directories of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labs.tests.cqbs.test_plots import MESSAGES, NOTICES
from labs.tests.cqbs.test_run import results as of_cqbs
from labs.tests.landmark.test_run import results as of_landmark
from labs.tests.reaps.prototype.test_run import results as of_the_prototype
from tocsin.errors import OperatorError
from tocsin_labs import recorded
from tocsin_labs.cqbs.run import write as write_cqbs
from tocsin_labs.landmark.run import write as write_landmark
from tocsin_labs.reaps import creation, rates
from tocsin_labs.reaps.prototype.run import write_down as write_prototype


def names(drawn: list[Path]) -> set[str]:
    return {each.stem for each in drawn}


def test_every_picture_of_a_run_is_drawn_from_its_directory(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    out.mkdir()
    write_cqbs(of_cqbs(), run)
    for name, rows in (("single-1", MESSAGES), ("full", MESSAGES), ("coordinator-replicated", NOTICES)):
        (run / f"{name}.csv").write_text(rows)
    assert names(recorded.draw(run, out)) == {"single", "coordinator", "full"}
    write_landmark(of_landmark(), run)
    assert "sequence" in names(recorded.draw(run, out))
    write_prototype(of_the_prototype(), run)
    assert names(recorded.draw(run, out)) == {"progress", "failovers"}
    creation.write(creation.begin(rates.read()), run)
    assert names(recorded.draw(run, out)) == {"creation"}
    assert not list(run.glob("*.png"))


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read"):
        recorded.draw(tmp_path, tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"command": "tocsin lab other"}))
    with pytest.raises(OperatorError, match="of no lab"):
        recorded.draw(tmp_path, tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"command": "tocsin lab cqbs", "plan": 3}))
    with pytest.raises(OperatorError, match="another release"):
        recorded.draw(tmp_path, tmp_path)


def test_samples_that_are_gone_are_named(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    out.mkdir()
    write_cqbs(of_cqbs(), run)
    with pytest.raises(OperatorError, match=r"single-1\.csv"):
        recorded.draw(run, out)
