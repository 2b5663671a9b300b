"""``tocsin coordinator``: names, and the table of coordinators."""

from __future__ import annotations

import pytest
from rich.console import Console

from tocsin.cli.coordinator import table
from tocsin.cli.main import main
from tocsin.coordinator.status import Status


@pytest.mark.parametrize("name", ["", "a.b", "Upper", "-x", "x" * 64])
def test_a_name_that_cannot_be_one_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coordinator", "--id", name]) == 2
    assert capsys.readouterr().err.startswith(f"tocsin: --id {name!r} is not a name. ")


def test_the_table_says_who_leads_and_how_far_behind_the_others_are() -> None:
    found = [
        Status("coordinator-1", "leader", 3, 120, 6, 40, 5, 9, "host-a", 17),
        Status("coordinator-2", "follower", 3, 118, 6, 40, 5, 9, "host-b", 18),
    ]
    console = Console(width=120, record=True)
    console.print(table(found))
    lines = [line for line in console.export_text().splitlines() if "coordinator-" in line]
    leader, follower = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert leader == ["coordinator-1", "leader", "3", "120", "0", "6", "40", "5", "host-a, 17"]
    assert follower == ["coordinator-2", "follower", "3", "118", "2", "6", "40", "5", "host-b, 18"]
