"""What is written down of the prototype, and drawn."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from labs.tests.reaps.prototype.made import ACCOUNT, FAILURES
from tocsin.errors import OperatorError
from tocsin_labs import drawing
from tocsin_labs.reaps.prototype import plots
from tocsin_labs.reaps.prototype.plan import QUICK, Plan
from tocsin_labs.reaps.prototype.run import (
    Results,
    begin,
    bounds_of,
    check_traces,
    draw,
    heading,
    summary,
    write_down,
    write_traces,
)


def results() -> Results:
    made = begin(Plan(), "tocsin lab reaps prototype --seed 1")
    made.failures, made.account = list(FAILURES), ACCOUNT
    return made


def test_every_subscriber_of_every_failure_is_written_down(tmp_path: Path) -> None:
    write_down(results(), tmp_path)
    with (tmp_path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * sum(each.subscribers for each in FAILURES)
    last = [row for row in rows if row["way"] == "local" and row["what"] == "served"][-1]
    assert (last["rank"], last["at_s"], last["after_detection_s"]) == ("97", "0.950000", "-0.550000")
    assert {row["after_detection_s"] for row in rows if row["way"] == "migration"} == {""}
    with (tmp_path / "failovers.csv").open() as file:
        failures = list(csv.DictReader(file))
    assert [row["all_served_s"] for row in failures if row["subscribers"] == "23"][:2] == [
        "0.230000",
        "0.460000",
    ]
    assert failures[0]["at"] == "south-2:23"


def test_what_was_found_can_be_read_again(tmp_path: Path) -> None:
    write_down(results(), tmp_path)
    text = (tmp_path / "results.json").read_bytes()
    assert msgspec.json.decode(text, type=Results) == results()
    assert json.loads(text)["plan"]["waves"][-1]["at_victim"] == 97


def test_the_page_says_which_command_wrote_it_and_what_the_paper_says() -> None:
    page = summary(results())
    assert "`tocsin lab reaps prototype --seed 1` wrote this page" in page
    assert "| figure | the paper says | here | because |" in page
    assert "97 of 400 subscribers at the broker" in page and "cut short" not in page


def test_without_all_failures_it_was_cut_short() -> None:
    cut = results()
    cut.partial = True
    assert "cut short" in heading(cut)
    assert "cut short" in heading(begin(QUICK))


def test_both_figures_are_drawn(tmp_path: Path) -> None:
    assert draw(results(), tmp_path) == f"pictures are in {tmp_path}"
    for name in ("progress", "failovers"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert "tocsin[lab]" in draw(results(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_curve_goes_from_nobody_to_everybody() -> None:
    xs, ys = plots.steps([0.5, 1.0], -1.0, 3.0)
    assert list(zip(xs, ys, strict=True)) == [(-1.0, 0.0), (0.5, 50.0), (1.0, 100.0), (3.0, 100.0)]


def test_traces_that_are_written_are_played_as_the_city_would_be(tmp_path: Path) -> None:
    script = QUICK.script(0)
    movements, emergencies = write_traces(script, tmp_path / "traces")
    read = QUICK.script(0, movements, emergencies)
    check_traces(read)
    assert read.places() == script.places()
    assert read.happenings() == script.happenings()
    assert bounds_of(read) == bounds_of(script)


def test_traces_of_others_are_not_written_again(tmp_path: Path) -> None:
    movements, _ = write_traces(QUICK.script(0), tmp_path)
    with pytest.raises(OperatorError, match="--movement"):
        write_traces(QUICK.script(0, movements), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_place_that_cannot_hold_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="--write-traces DIR"):
        write_traces(QUICK.script(0), tmp_path / "file" / "traces")
