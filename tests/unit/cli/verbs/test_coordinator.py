"""``tocsin coordinator``: names, and the table of coordinators."""

from __future__ import annotations

import pytest
from rich.console import Console

from tocsin.cli.main import main
from tocsin.cli.verbs.coordinator import lacking, links, lost, standbys, table
from tocsin.coordinator.status import Cut, Gone, Lacking, Recruited, Status


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
    console.print(table(found, 120))
    lines = [line for line in console.export_text().splitlines() if "coordinator-" in line]
    leader, follower = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert leader == ["coordinator-1", "leader", "3", "120", "0", "6", "40", "5", "host-a, 17"]
    assert follower == ["coordinator-2", "follower", "3", "118", "2", "6", "40", "5", "host-b, 18"]


def test_on_a_narrow_terminal_nothing_of_it_is_cut_off() -> None:
    console = Console(width=80, record=True)
    console.print(table([Status("coordinator-1", "leader", 3, 120, 6, 40, 5, 9, "host-a", 17)], 80))
    said = console.export_text()
    assert (
        all(word in said for word in ("coordinator-1", "brokers", "queries", "host-a, 17"))
        and "…" not in said
    )


def test_brokers_that_are_not_heard_are_shown_with_who_stands_in() -> None:
    gone = (Gone("north-1", "north", "south-1"), Gone("north-2", "north", None))
    shown = Status("coordinator-1", "leader", 3, 120, 6, 40, 5, 9, "host-a", 17, gone=gone)
    behind = Status("coordinator-2", "follower", 3, 1, 6, 40, 5, 9, "host-a", 18)
    console = Console(width=120, record=True)
    console.print(lost([behind, shown]))
    said = console.export_text()
    assert "north-1" in said and "south-1" in said and "nobody" in said and "2 of it" in said


def test_links_that_are_cut_are_shown_as_the_foremost_knows_them() -> None:
    cut = (Cut("north-1", "south-1", ("north-2", "west-1")), Cut("north-2", "south-1", ()))
    found = [
        Status("coordinator-1", "leader", 3, 120, 6, 40, 5, 9, "host-a", 17, cut, ("hub",)),
        Status("coordinator-2", "follower", 3, 118, 6, 40, 5, 9, "host-b", 18),
    ]
    console = Console(width=120, record=True)
    console.print(links(found))
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in console.export_text().splitlines()
        if line.startswith("│")
    ]
    assert rows == [
        ["north-1", "south-1", "north-2, west-1"],
        ["north-2", "south-1", "nobody"],
        ["everybody", "hub", "other routing brokers, or none"],
    ]


def test_standbys_are_shown_with_the_places_that_they_have() -> None:
    for free, words in ((("spare-b",), "nobody, it is free"), ((), "none is free")):
        promoted = {"spare-a": "north-1"}
        found = Status(
            "coordinator-1", "leader", 3, 9, 6, 0, 5, 9, "host-a", 17, standbys=free, promoted=promoted
        )
        console = Console(width=120, record=True)
        console.print(standbys([found]))
        said = console.export_text()
        assert "spare-a" in said and "north-1" in said and words in said


RECRUITED = Status(
    "coordinator-1",
    "leader",
    *(3, 9, 6, 0, 5, 9, "host-a", 17),
    standbys=("north-4",),
    promoted={"spare": "north-1"},
    recruits=(
        Recruited("north-4", "north", stands_by=True),
        Recruited("north-3", "north", stands_by=False, clients=12, place="north-1"),
    ),
    lacking=(Lacking("south", "south-1", 0, 1, {"south-2": "its settings do not say may_stand_by"}),),
)


def test_recruits_are_shown_among_the_standbys() -> None:
    console = Console(width=160, record=True)
    console.print(standbys([RECRUITED]))
    said = console.export_text()
    assert "it is free (recruited)" in said and "12 clients have to leave it" in said


def test_it_is_shown_why_nobody_can_be_recruited() -> None:
    console = Console(width=160, record=True)
    console.print(lacking([RECRUITED]))
    said = console.export_text()
    assert "south-2" in said and "0 of 1" in said and "may_stand_by" in said
