"""What a takeover's figures are, and the pictures that are drawn of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench import draw
from bench.__main__ import main
from bench.takeover.figures import Again, Point, Spent, read

POINTS = [
    Point(
        10, [Spent(0.1, 0.01, 0.0), Spent(0.3, 0.02, 0.0), Spent(0.2, 0.03, 0.0)], [Spent(0.2, 0.02, 0.01)]
    ),
    Point(1_000, [Spent(0.2, 0.02, 0.0)], [Spent(0.8, 0.1, 0.1)]),
]
AGAIN = [
    Again(
        ["replication.mode=periodic", "replication.period_ms=300"], [3.0, 5.0, 4.0], [900.0, 1_000.0, 950.0]
    ),
    Again(["replication.mode=threshold", "replication.threshold_bytes=100000"], [8.0], [500.0]),
]


def keep(directory: Path) -> None:
    for name, points in (("takeover", POINTS), ("takeover_topics", POINTS), ("takeover_positions", AGAIN)):
        (directory / f"{name}.json").write_text(json.dumps({"points": msgspec.to_builtins(points)}))


def test_the_time_is_the_median_and_the_processor_time_the_least() -> None:
    first = POINTS[0]
    assert (first.median_s("local"), first.processor_s("local")) == (0.2, 0.01)
    assert POINTS[1].ratio == pytest.approx(4.0)


def test_a_way_to_copy_positions_is_named_with_its_unit() -> None:
    assert [each.words for each in AGAIN] == ["0.3 s", "100 kB"]
    assert [each.periodic for each in AGAIN] == [True, False]
    assert (
        Again(["replication.mode=threshold", "replication.threshold_bytes=10000000"], [], []).words == "10 MB"
    )


def test_figures_that_were_kept_can_be_read(tmp_path: Path) -> None:
    keep(tmp_path)
    assert read(tmp_path / "takeover.json", Point) == POINTS
    assert read(tmp_path / "takeover_positions.json", Again) == AGAIN
    assert read(tmp_path / "nothing.json", Point) == []


def test_pictures_are_drawn_of_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path)
    out = tmp_path / "pictures"
    assert main(["draw", "takeover", "--results", str(tmp_path), "--out", str(out)]) == 0
    for name in ("takeover.png", "repeats.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert f"drew {out / name}" in capsys.readouterr().out or name == "repeats.png"


def test_without_figures_nothing_is_drawn_and_the_remedy_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draw.main(["takeover", "--results", str(tmp_path)]) == 1
    assert "run python -m bench takeover" in capsys.readouterr().err


def test_a_measurement_without_pictures_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        draw.main(["store"])
    assert "no pictures of 'store'" in capsys.readouterr().err
