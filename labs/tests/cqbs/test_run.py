"""What is written down of the experiments."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tocsin.errors import OperatorError
from tocsin_labs.cqbs import coordinator, single, whole
from tocsin_labs.cqbs.coordinator import Coordinated
from tocsin_labs.cqbs.designs import run as designs
from tocsin_labs.cqbs.forwarding import Forwarded
from tocsin_labs.cqbs.plan import Plan
from tocsin_labs.cqbs.run import (
    EXPERIMENTS,
    Results,
    comparisons,
    heading,
    run,
    summary,
    write,
)
from tocsin_labs.figures import Spread
from tocsin_labs.stage import Stage, make_directory

CALM = Spread(samples=100, mean=5.0, p50=4.0, p95=9.0, p99=9.5, longest=9.9, deviation=1.0)
ALL = Spread(samples=110, mean=50.0, p50=4.0, p95=900.0, p99=950.0, longest=999.0, deviation=10.0)


def results(*, partial: bool = False) -> Results:
    forwarded = Forwarded(1, 10, 1_000, 999, 7, CALM, ALL, CALM, partial=partial)
    replicated = Coordinated(3, 3, 90, 400, 0, 0, 50, 0, CALM, CALM, ALL, 10.0, 20.0, 3.0)
    machine: dict[str, str | int] = {"processors": 2}
    command, day = "tocsin lab cqbs --seed 7", "1 May 2026"
    return Results(Plan(), command, day, machine, {1: forwarded}, None, replicated, forwarded)


def test_every_figure_of_the_paper_stands_beside_ours() -> None:
    rows = {(row.experiment, row.figure): row for row in comparisons(results())}
    assert rows["V-A, subscribers: 1", "95th percentile"].paper == 4.85
    assert rows["V-A, subscribers: 1", "messages lost"].ours == 1
    replicated = rows["V-B, replicated", "mean"]
    assert (replicated.paper, replicated.ours, replicated.target) == (95.5, 5.0, 15.0)
    assert rows["V-B, replicated, with changes made in the gap", "mean"].ours == 50.0
    gap = rows["V-B, replicated", "gap after the kill"]
    assert (gap.paper, gap.ours, gap.target) == (15.0, 3.0, 4.0)
    assert rows["V-C", "standard deviation"].paper == 891
    assert rows["V-C, a stream's first message", "mean"].ours == 50.0
    assert rows["V-C, messages with a change", "mean"].ours == 5.0
    assert not any(experiment.startswith("V-B, one") for experiment, _ in rows)


def test_the_papers_own_broker_stands_beside_ours() -> None:
    found = results()
    found.original = {1: msgspec.structs.replace(found.single[1], arrived=1_000, all=ALL)}
    rows = {(row.experiment, row.figure): row for row in comparisons(found)}
    theirs = "V-A, subscribers: 1; the paper's broker on this machine"
    assert (rows[theirs, "mean"].paper, rows[theirs, "mean"].ours) == (None, 50.0)
    assert rows[theirs, "messages lost"].ours == 0
    assert rows["V-A, subscribers: 1", "mean"].ours == 5.0


def test_the_files_hold_the_same_figures(tmp_path: Path) -> None:
    write(results(), tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["replicated"]["undisturbed"]["mean"] == 5.0
    assert kept["single"]["1"]["sent"] == 1_000
    assert (
        "| V-B, replicated | mean (ms) | 95.5 | 5 | 0.0524 | < 15 |" in (tmp_path / "summary.md").read_text()
    )
    assert len((tmp_path / "summary.csv").read_text().splitlines()) == len(comparisons(results())) + 1


def test_the_summary_is_a_page_that_says_which_command_wrote_it() -> None:
    page = summary(results())
    assert page.startswith("# ")
    assert "`tocsin lab cqbs --seed 7` wrote this page on 1 May 2026. Measured with the paper's" in page


@pytest.mark.parametrize(
    ("only", "ran"),
    [
        (("alone",), ["alone"]),
        (("replicated", "full"), ["replicated", "full"]),
        (("coordinator",), ["alone", "replicated"]),
        (EXPERIMENTS, ["single", "alone", "replicated", "full", "designs"]),
    ],
)
async def test_only_what_was_named_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: tuple[str, ...], ran: list[str]
) -> None:
    done: list[str] = []
    found = results()

    async def run_single(*_: object) -> tuple[dict[int, Forwarded], dict[int, Forwarded]]:
        done.append("single")
        return found.single, {}

    async def run_coordinator(*_: object, coordinators: int, servers: int) -> Coordinated | None:
        done.append("alone" if coordinators == 1 else "replicated")
        return found.replicated

    async def run_whole(*_: object) -> Forwarded | None:
        done.append("full")
        return found.full

    async def run_designs(*_: object) -> None:
        done.append("designs")

    monkeypatch.setattr(single, "run", run_single)
    monkeypatch.setattr(coordinator, "run", run_coordinator)
    monkeypatch.setattr(whole, "run", run_whole)
    monkeypatch.setattr(designs, "run", run_designs)
    await run(Plan(), Stage(tmp_path, lambda words, part: None), only)
    assert done == ran


def test_what_was_cut_short_is_said_to_be() -> None:
    assert "cut short" in heading(results(partial=True))
    assert "cut short" not in heading(results())


def test_a_place_that_cannot_hold_results_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="--out"):
        make_directory(tmp_path / "file" / "results")
