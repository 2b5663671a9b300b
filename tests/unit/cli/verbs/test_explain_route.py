"""What ``tocsin explain route`` says of second ways."""

from __future__ import annotations

import json

from rich.console import Console

from tocsin.cli.verbs.explain_route import Ways, as_json, show
from tocsin.core.coordination.state.explaining import Explained
from tocsin.wire.internal.quality import ShownSeen, ShownWay, ShownWays

FOUND = Explained("line/7", "east-1", "east", 5, (), (), ())
SHOWN = ShownWays(
    "line/7",
    "west-1",
    50_000,
    "hub-1",
    (
        ShownWay("base", True, 61_000, 75_500, 1.0),
        ShownWay("straight", True, 31_000, 40_000, 0.0001),
        ShownWay("hub-2", False, 90_000, 99_000, 1.0),
    ),
    expected=0.0001,
    alone=1.0,
    reason="",
    seen=ShownSeen(came=1_000, missed=2, ahead=990, repeated=998),
)


def said(ways: Ways) -> str:
    out = Console(record=True, width=200)
    show(out, FOUND, ways)
    return out.export_text()


def test_ways_are_shown_with_what_is_expected_and_what_was_seen() -> None:
    text = said((SHOWN,))
    assert "within 50 ms to west-1:" in text
    assert "the usual way, over hub-1: taken; 61 ms at least, 75.5 ms at most for 99 of 100" in text
    assert "an extra connection straight to it: taken" in text
    assert "over hub-2: not taken" in text
    assert "expected late: 0.010% of the messages; by the usual way alone 100.000%" in text
    assert "1000 messages, 2 of them missed (0.200%); of 990 a copy came first" in text


def test_a_reason_is_said() -> None:
    shown = ShownWays("t", "d", 1, "", (), 0.5, 0.5, "links_max")
    assert "(links_max)" in said((shown,))


def test_a_broker_that_does_not_answer_is_named() -> None:
    assert "east-1 does not answer" in said(None)
    assert json.loads(as_json(FOUND, None))["ways"] is None


def test_programs_get_the_same() -> None:
    found = json.loads(as_json(FOUND, (SHOWN,)))
    assert found["broker"] == "east-1"
    assert found["ways"][0]["ways"][1] == {
        "way": "straight",
        "taken": True,
        "least_us": 31_000,
        "p99_us": 40_000,
        "miss": 0.0001,
    }
    assert found["ways"][0]["seen"]["ahead"] == 990
