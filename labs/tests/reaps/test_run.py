"""The whole simulation, small: what is written, and that a seed repeats it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from labs.tests.reaps.small import SMALL
from tocsin.errors import OperatorError
from tocsin_labs import drawing
from tocsin_labs.reaps import plots, retrieval
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.run import Results, begin, comparisons, draw, heading, run, stated
from tocsin_labs.stage import make_directory

POINTS = ("retrieval", "subscriptions", "conditions", "replication", "failures")
PICTURES = ("retrieval", "subscriptions", "remote", "replication", "duplicates", "failovers")


def simulate(out: Path, given: Parameters = SMALL) -> Results:
    results = begin(given, "tocsin lab reaps simulation --seed 3")
    run(results, out, lambda words, part: None)
    return results


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    out = tmp_path_factory.mktemp("simulation")
    return simulate(out), out


def test_one_seed_gives_the_same_points_and_another_seed_others(
    done: tuple[Results, Path], tmp_path: Path
) -> None:
    _, out = done
    again, other = tmp_path / "again", tmp_path / "other"
    for directory, seed in ((again, SMALL.seed), (other, SMALL.seed + 1)):
        make_directory(directory)
        simulate(directory, msgspec.structs.replace(SMALL, seed=seed))
    for name in (*POINTS, "summary"):
        text = (out / f"{name}.csv").read_text()
        assert text == (again / f"{name}.csv").read_text(), name
        assert text != (other / f"{name}.csv").read_text(), name


def test_the_points_are_written_with_their_names(done: tuple[Results, Path]) -> None:
    results, out = done
    with (out / "subscriptions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["original"]) for row in rows] == [each.original for each in results.sweep]
    assert [float(row["paper_overhead"]) for row in rows] == [each.paper.overhead for each in results.sweep]
    kept = json.loads((out / "results.json").read_text())
    assert kept["parameters"]["seed"] == SMALL.seed
    assert len(kept["failures"]) == len(results.failures)


def test_the_papers_two_values_stand_beside_ours(done: tuple[Results, Path]) -> None:
    results, out = done
    published = {row.figure: row for row in comparisons(results) if row.paper is not None}
    assert {name: row.paper for name, row in published.items()} == {
        "REAPS: fetched for nobody": 0.0,
        "REAPS: the worst broker creates": 0,
    }
    assert published["REAPS: fetched for nobody"].ours == 0
    assert published["REAPS: the worst broker creates"].ours == results.sweep[-1].paper.largest
    page = (out / "summary.md").read_text()
    assert "`tocsin lab reaps simulation --seed 3` wrote this page" in page
    assert "| figure | the paper says | here | because |" in page
    assert {claim.figure for claim in stated(results)} == {"4a", "4b", "4c", "4d", "5a", "5b"}


def test_what_is_done_is_kept_when_it_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tocsin_labs.reaps.run.overheads.sweep", interrupted)
    results = begin(SMALL)
    with pytest.raises(KeyboardInterrupt):
        run(results, tmp_path, lambda words, part: None)
    assert results.partial and "cut short" in heading(results)
    assert (tmp_path / "retrieval.csv").exists() and not (tmp_path / "failures.csv").exists()
    assert {claim.figure for claim in stated(results)} == {"4a"}


def test_progress_never_goes_back(tmp_path: Path) -> None:
    told: list[float] = []
    run(begin(SMALL), tmp_path, lambda words, part: told.append(part))
    assert told == sorted(told) and told[0] >= 0 and told[-1] <= 1


def test_there_is_a_picture_of_each_figure(done: tuple[Results, Path], tmp_path: Path) -> None:
    assert draw(done[0], tmp_path) == f"pictures are in {tmp_path}"
    for name in PICTURES:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_remedy_is_said(
    done: tuple[Results, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert "tocsin[lab]" in draw(done[0], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_hold_results_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="--out"):
        make_directory(tmp_path / "file" / "results")


def test_schemes_are_named_alike_everywhere() -> None:
    assert set(plots.COLOURS) == set(plots.MARKS) == set(retrieval.STRATEGIES.values())
    assert set(plots.FAILED_COLOURS) == set(plots.FAILED_MARKS)
