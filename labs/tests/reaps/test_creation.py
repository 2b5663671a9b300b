"""Fig 3b without other work: what holds in bulk and one by one, and what is written down."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tocsin.cli.main import main
from tocsin_labs.reaps import creation, measuring, rates
from tocsin_labs.reaps.creation import PAPERS, Needed, Results
from tocsin_labs.reaps.measuring import _Spent
from tocsin_labs.stage import Stage


def results() -> Results:
    return creation.begin(rates.read())


def holds(found: Results) -> dict[str, bool]:
    return {claim.words: claim.holds for claim in creation.stated(found)}


def test_only_creation_one_by_one_makes_remote_much_slower_than_local() -> None:
    stated = holds(results())
    slower = "in virtual time local fail-over takes significantly less time than remote"
    assert (stated[slower], stated[f"{slower}, one by one"]) == (False, True)


def test_a_remote_takeover_creates_what_a_local_one_had_prepared() -> None:
    created = {(each.way, each.subscribers): each.created for each in results().takeovers}
    for size in PAPERS:
        assert created["local", size] == 0
        assert created["remote", size] == created["remote, one by one", size] == size


def test_processor_time_that_jumps_is_no_line() -> None:
    found = results()
    jumps = zip(PAPERS, (0.01, 0.05, 0.02, 0.03), strict=True)  # seconds
    found.needed = [Needed("remote", size, [spent, 9.0]) for size, spent in jumps]
    linear = "remote, processor: fail-over time grows linearly with subscribers"
    assert holds(found)[linear] is False
    found.needed = [Needed("remote", size, [9.0, size / 1_000]) for size in PAPERS]
    assert holds(found)[linear] is True, "the least of the rounds counts"


async def test_ways_and_numbers_take_turns_until_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, asked = Stage(tmp_path, lambda words, part: None), list[tuple[str, int]]()

    async def takeover(way: measuring.Way, clients: int, subscriptions: int, *, resident: bool) -> _Spent:
        assert clients == subscriptions and resident
        asked.append((way, clients))
        if len(asked) == 13:
            stage.cut()
        return _Spent(clients / 1_000, 0.001)

    monkeypatch.setattr(measuring, "takeover", takeover)
    found = results()
    await creation.run(found, stage, 3)
    assert asked[:3] == [("local", 23), ("remote", 23), ("local", 50)] and len(asked) == 13
    assert found.partial and "cut short" in creation.heading(found)
    assert found.needed[0] == Needed("local", 23, [0.024, 0.024])
    assert msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results) == found


def test_what_was_found_is_written_drawn_and_read_again(tmp_path: Path) -> None:
    found = results()
    found.needed = [Needed(way, size, [size / 1_000]) for way in measuring.BACKUPS for size in PAPERS]
    creation.write(found, tmp_path)
    assert msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Results) == found
    assert creation.draw(found, tmp_path) == f"pictures are in {tmp_path}"
    assert (tmp_path / "creation.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "creation.csv").read_text().splitlines()) == 1 + len(found.takeovers) + 8


def test_the_quick_form_needs_no_network_and_says_what_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "reaps", "creation", "--quick", "--out", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the paper says" in out and "without what else the machine did" in out
    assert "processor" not in (tmp_path / "creation.csv").read_text()
