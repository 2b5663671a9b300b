"""What is shown of a scene: brokers, subscribers, notifications, recoveries, and the account."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tocsin_demo.scene import Account, Course, Failure, Passage
from tocsin_demo.scenery import (
    SPARKS,
    BrokerLook,
    Look,
    account_table,
    brokers_table,
    clock,
    draw,
    plain,
    recoveries_table,
    recovery_words,
    sparkline,
)

FAILURE = Failure(("south-1", "south-2"), 50.0, (0, 1), {})
COURSE = Course(
    FAILURE,
    lost_s={"south-1": 51.5, "south-2": None},
    stands_in={"south-1": "north-1", "south-2": None},
    taken_s={"south-1": 51.6, "south-2": None},
    passages=(
        Passage(0, "south-1", 50.1, 50.4, "north-1", None),
        Passage(1, "south-2", 50.1, None, None, None),
    ),
)
DONE = msgspec.structs.replace(
    COURSE,
    lost_s={"south-1": 51.5, "south-2": 51.25},
    stands_in={"south-1": "north-1", "south-2": "north-2"},
    taken_s={"south-1": 51.6, "south-2": 51.75},
    passages=(COURSE.passages[0], Passage(1, "south-2", 50.1, 50.5, "north-2", 55.0)),
)
BROKERS = (
    BrokerLook("north-1", "north", 100, "ready", False, False, False, 100, 90, ("south-1",)),
    BrokerLook("north-2", "north", 100, "degraded", False, False, True, 100, 0),
    BrokerLook("south-1", "south", 100, "starting", True, False, True, 0, 0),
    BrokerLook("south-2", "south", 100, "starting", True, False, False, 0, 0),
)
CHANNEL: dict[str, Any] = {"executions": 12, "subscriptions": 400, "last_ms": 1_234.0, "overruns": 2}
LOOK = Look(
    at_s=62.0,
    seconds=110.0,
    brokers=BROKERS,
    subscribers=400,
    away=110,
    received=1_569,
    rate=42.4,
    history=(0, 1, 8, 4) * 15,
    published=30,
    latest="fire-29",
    channel=CHANNEL,
    courses=(COURSE,),
)


def lines(shown: Any, width: int = 118) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def line_of(name: str, shown: list[str]) -> str:
    return next(line for line in shown if name in line)


@pytest.mark.parametrize("width", [108, 118, 200])
def test_everything_is_on_the_screen_and_each_thing_on_one_line(width: int) -> None:
    shown = lines(draw(LOOK, "the cluster south is killed", width), width)
    assert shown[0] == "Emergencies near me  1:02 of 1:50   the cluster south is killed"
    assert line_of("north-1", shown).split("100 + 90 guests")[1].strip() == "stands in for south-1"
    assert "serves" in line_of("north-2", shown)
    assert line_of("south-1  ", shown[4:]).endswith("lost")
    assert line_of("south-2  ", shown).endswith("killed")
    assert line_of("nobody", shown).endswith("110")
    assert "1,569  42/s" in line_of("notifications", shown)
    assert line_of("emergencies ", shown).endswith("30, the last fire-29")
    assert line_of("channel", shown).endswith(
        "12 executions for 400 subscriptions, the last in 1.2 s, 2 skipped"
    )
    assert len(shown) == 17


def test_on_a_narrow_terminal_nothing_is_cut_off() -> None:
    shown = lines(draw(msgspec.structs.replace(LOOK, courses=(DONE,)), "the cluster south is killed", 80), 80)
    assert max(map(len, shown)) <= 80
    assert not any("…" in line for line in shown)
    assert line_of("north-1", shown).split("100 + 90 guests")[1].strip() == "stands in for south-1"
    words = " ".join(" ".join(shown).split())
    assert recovery_words(DONE) in words
    assert "12 executions for 400 subscriptions, the last in 1.2 s, 2 skipped" in words


def test_when_the_play_is_over_the_clock_goes_on_alone() -> None:
    over = msgspec.structs.replace(LOOK, at_s=120.0)
    assert lines(draw(over, "the account", 118))[0] == "Emergencies near me  2:00   the account"


def test_before_anything_has_happened_there_is_less_to_see() -> None:
    fresh = msgspec.structs.replace(
        LOOK, at_s=0.0, latest="", published=0, history=(), channel={}, courses=()
    )
    shown = lines(draw(fresh, "people walk", 118))
    assert not any("channel" in line or "killed after" in line for line in shown)
    assert line_of("emergencies ", shown).endswith("  0")


def test_bars_stand_for_subscribers_and_dots_for_homes_that_are_empty() -> None:
    shown = lines(brokers_table(LOOK, 40))
    assert line_of("north-1", shown).count("█") == 10 + 9
    assert line_of("south-2", shown).count("·") == 10
    assert line_of("nobody", shown).count("█") == 11


@given(st.lists(st.integers(0, 1_000), max_size=60))
def test_a_sparkline_has_one_character_per_count(counts: list[int]) -> None:
    drawn = sparkline(counts)
    assert len(drawn) == len(counts)
    assert all((character == " ") == (count == 0) for character, count in zip(drawn, counts, strict=True))
    heights = [SPARKS.index(character) for character in drawn]
    assert all(
        (a <= b) or x > y
        for x, a in zip(counts, heights, strict=True)
        for y, b in zip(counts, heights, strict=True)
    )
    if any(counts):
        assert max(heights) == len(SPARKS) - 1


def test_a_recovery_that_is_under_way_says_what_is_known() -> None:
    shown = lines(recoveries_table([COURSE]))
    assert shown[-1].split() == ["south-1", "south-2", "2", "1", "…", "…", "north-1", "…", "…"]
    assert recovery_words(COURSE) == (
        "south-1 and south-2 killed: 2 subscribers, 1 served again; not declared lost"
    )


def test_a_recovery_that_is_done_has_its_times() -> None:
    shown = lines(recoveries_table([DONE]))
    assert shown[-1].split() == (
        ["south-1", "south-2", "2", "2", "0.50", "s", "1.50", "s", "north-1", "north-2", "1.75", "s"]
    )
    assert recovery_words(DONE) == (
        "south-1 and south-2 killed: 2 subscribers, all served again after 0.50 s; declared lost after 1.50 s, "
        "stood in for after 1.75 s"
    )


def test_a_failure_of_which_nobody_noticed_anything_has_no_last() -> None:
    nobody = msgspec.structs.replace(DONE, passages=())
    assert "killed: 0 subscribers; declared lost" in recovery_words(nobody)
    frozen = msgspec.structs.replace(nobody.failure, frozen=True)
    assert "frozen: 0 subscribers" in recovery_words(msgspec.structs.replace(nobody, failure=frozen))


def test_the_account_counts_deliveries_losses_repeats_and_replaced_brokers() -> None:
    found = Account(
        400, 3_439, 3_438, 1, 2, 3, 4, 47, 1_219, ("user-7 never got emergency 3 of execution 9",)
    )
    shown = lines(account_table(found, [DONE]), 200)
    assert "3,438 of 3,439 notifications committed for 400 subscribers, 1,219 of them critical" in line_of(
        "delivered", shown
    )
    assert line_of(" lost ", shown).split()[3] == "1"
    assert "2 (47 came to a client again, and not to its program)" in line_of("duplicates", shown)
    assert line_of("out of order", shown).split()[-2] == "4"
    assert line_of("never committed", shown).split()[-2] == "3"
    assert "2 subscribers, all served again after 0.50 s" in line_of("south-1 and south-2 killed", shown)
    assert line_of("user-7", shown)


def test_what_did_not_happen_is_not_in_the_account() -> None:
    shown = lines(account_table(Account(4, 10, 10, 0, 0, 0, 0, 0, 3), []), 200)
    assert not any("never committed" in line or "again" in line for line in shown)


def test_without_a_terminal_one_line_says_how_it_is() -> None:
    assert plain(LOOK) == (
        "north-1 stands in for south-1 100+90, north-2 serves 100, south-1 lost 0, south-2 killed 0, "
        "110 connected to nobody; 1,569 notifications, 42/s; 30 emergencies"
    )
    back = msgspec.structs.replace(BROKERS[2], down=False)
    assert plain(msgspec.structs.replace(LOOK, brokers=(back,), away=0)).startswith(
        "south-1 comes back 0; 1,569"
    )


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(each) for each in (-1.0, 0.0, 59.9, 60.0, 3_661.0)] == [
        "0:00",
        "0:00",
        "0:59",
        "1:00",
        "61:01",
    ]
