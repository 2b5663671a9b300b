"""What is seen of a scene, and where it is shown."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from rich.console import Console

from tocsin_demo import screen as shown
from tocsin_demo.scene import Course, Failure, Ledger, Passage, Result, Scene, Script, homes
from tocsin_demo.scenery import look
from tocsin_demo.screen import LINE_S, Screen
from tocsin_demo.traces import Emergency

NORTH = Failure(("north-1",), 10.0, (0,), {})
SOUTH = Failure(("south-1",), 20.0, (1,), {})
COURSES = {
    NORTH.at_s: Course(
        NORTH,
        {"north-1": 11.0},
        {"north-1": "north-2"},
        {"north-1": 11.5},
        (Passage(0, "north-1", 10.1, 10.5, "north-2", None),),
    ),
    SOUTH.at_s: Course(
        SOUTH,
        {"south-1": None},
        {"south-1": None},
        {"south-1": None},
        (Passage(1, "south-1", 20.1, None, None, None),),
    ),
}


class Stage:
    """A scene as far as it is looked at: four brokers, and a subscriber at home at each."""

    def __init__(self) -> None:
        self.script = Script(homes=homes(4, exactly={"north-1": 1, "north-2": 1, "south-1": 1, "south-2": 1}))
        servers = {f"h:{number}": home.broker for number, home in enumerate(self.script.homes)}
        self.ledger = Ledger([home.broker for home in self.script.homes], servers)
        for subscriber in range(4):
            self.ledger.moved(subscriber, 1.0, f"h:{subscriber}")
        self.failures: list[Failure] = []
        self.courses = dict(COURSES)
        self.down: tuple[str, ...] = ()
        self.begun_s = 0.5
        self.happened = 0
        self.publisher = SimpleNamespace(told=[])
        self.brokers = {home.broker: SimpleNamespace(health="ready") for home in self.script.homes}

    def course(self, failure: Failure) -> Course:
        return self.courses[failure.at_s]


def scene(stage: Stage) -> Scene:
    return cast(Scene, stage)


def test_a_look_has_brokers_subscribers_and_what_came() -> None:
    stage = Stage()
    stage.ledger.moved(0, 10.1, None)
    stage.ledger.moved(2, 10.1, "h:1")
    stage.ledger.got(1, 9.5, Result(1, 1, 9))
    stage.publisher.told.append((9.0, 1, Emergency(0.0, "fire-1", "fire", 0.0, 0.0, 500.0)))
    stage.happened = 1
    seen = look(scene(stage), 12.0, 60.0, {})
    assert {each.name: (each.homes, each.at_home, each.guests) for each in seen.brokers} == {
        "north-1": (1, 0, 0),
        "north-2": (1, 1, 1),
        "south-1": (1, 0, 0),
        "south-2": (1, 1, 0),
    }
    assert (seen.at_s, seen.seconds, seen.subscribers, seen.away, seen.received) == (11.5, 60.0, 4, 1, 1)
    assert (seen.rate, sum(seen.history), len(seen.history)) == (0.2, 1, 12)
    assert (seen.published, seen.latest) == (1, "fire-1")


def test_who_stands_in_is_seen_while_the_other_is_down() -> None:
    stage = Stage()
    stage.failures, stage.down = [NORTH], ("north-1",)
    states = {each.name: each.state().plain for each in look(scene(stage), 12.0, 60.0, {}).brokers}
    assert states == {
        "north-1": "lost",
        "north-2": "stands in for north-1",
        "south-1": "serves",
        "south-2": "serves",
    }
    stage.down = ()
    assert {each.state().plain for each in look(scene(stage), 12.0, 60.0, {}).brokers} == {"serves"}


def test_a_broker_killed_twice_is_not_shown_lost_before_it_is_declared() -> None:
    stage = Stage()
    again = msgspec.structs.replace(NORTH, at_s=30.0)
    stage.failures, stage.down = [NORTH, again], ("north-1",)
    stage.courses[30.0] = Course(again, {"north-1": None}, {"north-1": None}, {"north-1": None}, ())
    states = [each.state().plain for each in look(scene(stage), 31.0, 60.0, {}).brokers]
    assert states == ["killed", "serves", "serves", "serves"]


def test_without_a_terminal_lines_come_now_and_then_and_each_recovery_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(shown, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stage, screen = Stage(), Screen(60.0)

    def lines() -> list[str]:
        return capsys.readouterr().out.splitlines()

    with screen.live():
        screen.tell("people walk")
        screen.show(scene(stage))
        now[0] += LINE_S / 2
        screen.show(scene(stage))
        told = lines()
        assert told[0] == "  0:00  people walk"
        assert told[1].startswith("  0:00  north-1 serves 1, north-2 serves 1,")
        assert len(told) == 2
        stage.failures, stage.down = [SOUTH, NORTH], ("south-1", "north-1")
        screen.show(scene(stage))
        screen.show(scene(stage))
        assert lines() == [
            "  0:05  north-1 killed: 1 subscribers, all served again after 0.50 s; declared lost after 1.00 s, "
            "stood in for after 1.50 s"
        ]
        now[0] += LINE_S / 2
        screen.show(scene(stage))
        assert [line[:30] for line in lines()] == ["  0:10  north-1 lost 1, north-"]


def test_on_a_terminal_the_view_refreshes_and_the_last_one_stays() -> None:
    file = io.StringIO()
    console = Console(file=file, width=118, height=40, force_terminal=True, color_system=None)
    stage, screen = Stage(), Screen(60.0, console)
    screen.tell("the network starts")
    with screen.live():
        screen.tell("people walk")
        screen.show(scene(stage))
        stage.failures = [NORTH]
        screen.channel = {"executions": 3, "subscriptions": 4, "last_ms": 100.0, "overruns": 0}
        screen.show(scene(stage))
    assert file.getvalue().count("the network starts") == 1
    last: Any = file.getvalue().rpartition("Emergencies near me")[2]
    assert "people walk" in last
    assert "3 executions for 4 subscriptions, the last in 0.1 s" in last
    assert "north-2" in last.splitlines()[-2] or "north-2" in last.splitlines()[-1]


def test_what_can_be_copied_is_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    screen = Screen(60.0, Console(file=file, width=20, force_terminal=True, color_system=None))
    screen.print("a command of many words that is wider than the terminal", wrap=False)
    assert file.getvalue().splitlines() == ["a command of many words that is wider than the terminal"]
