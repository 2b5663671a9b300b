"""What is written of every experiment."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec

from tocsin_labs.figures import Comparison
from tocsin_labs.record import machine, today, write_results, write_rows


class Found(msgspec.Struct):
    machine: dict[str, str | int]
    seconds: float


def test_results_are_written_for_programs_and_for_people(tmp_path: Path) -> None:
    rows = [Comparison("Table 4", "recovered", "s", 14.37, 1.5)]
    write_results(tmp_path, Found({"processors": 2}, 1.5), rows, "# A page\n")
    assert json.loads((tmp_path / "results.json").read_text()) == {
        "machine": {"processors": 2},
        "seconds": 1.5,
    }
    with (tmp_path / "summary.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["experiment"], row["figure"], row["paper"]) == ("Table 4", "recovered", "14.37")
    assert (tmp_path / "summary.md").read_text() == "# A page\n"


def test_rows_have_their_names_and_six_decimals(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", ("way", "run", "at_s"), [("local", 1, 2 / 3), ("remote", 2, None)])
    assert (tmp_path / "rows.csv").read_text() == "way,run,at_s\nlocal,1,0.666667\nremote,2,\n"


def test_the_machine_and_the_day_are_said() -> None:
    facts = machine()
    assert list(facts) == ["tocsin", "python", "machine", "processors"]
    assert all(facts.values())
    day, month, year = today().split()
    assert 1 <= int(day) <= 31 and month.isalpha() and len(year) == 4
