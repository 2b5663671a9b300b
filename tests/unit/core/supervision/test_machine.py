"""Supervision: start in stages, restart with patience, stop in order; then any sequence of happenings."""

from __future__ import annotations

import pytest

from tests.unit.core.supervision.parents import CHILDREN, Parent
from tocsin.core.machine import (
    Effect,
    IllegalEvent,
    Stop,
)
from tocsin.core.supervision.machine import (
    BACKOFF_FIRST_US,
    BACKOFF_MAX_US,
    GRACE_US,
    HEALTHY_AFTER_US,
    SILENT_AFTER_US,
    SLOW_AFTER_US,
    START_ATTEMPTS,
    Child,
    describe_exit,
)
from tocsin.core.supervision.signals import (
    AllReady,
    ChildEnded,
    ChildReported,
    ChildStarted,
    ChildWanted,
    SignalChild,
    StartChild,
    StopAsked,
)


@pytest.fixture
def parent() -> Parent:
    return Parent()


@pytest.fixture
def running(parent: Parent) -> Parent:
    parent.start()
    for child in CHILDREN:
        parent.exist(child.name)
        parent.report(child.name)
    assert parent.machine.state == "running"
    return parent


def started(effects: list[Effect]) -> list[str]:
    return [effect.child for effect in effects if isinstance(effect, StartChild)]


def signalled(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(effect.child, effect.signal) for effect in effects if isinstance(effect, SignalChild)]


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stage_is_started_when_the_one_before_is_ready(parent: Parent) -> None:
    assert started(parent.start()) == ["nats"]
    assert parent.row("coordinator").health == "waiting"
    assert started(parent.report("nats")) == ["coordinator"]
    assert started(parent.report("coordinator", "starting")) == []
    assert started(parent.report("coordinator")) == ["north", "south"]


def test_everything_ready_is_announced_once(parent: Parent) -> None:
    parent.start()
    parent.report("nats")
    parent.report("coordinator")
    assert AllReady() not in parent.report("north")
    assert AllReady() in parent.report("south")
    parent.report("south", "degraded")
    assert AllReady() not in parent.report("south")


def test_a_network_without_embedded_servers_starts_with_the_coordinator() -> None:
    parent = Parent(CHILDREN[1:])
    assert started(parent.start()) == ["coordinator"]


def test_the_next_stage_waits_for_an_earlier_child_that_ended(parent: Parent) -> None:
    parent.start()
    parent.report("nats")
    parent.end("nats")
    assert started(parent.report("coordinator")) == []
    assert started(parent.fire("restart/nats")) == ["nats"]
    assert started(parent.report("nats")) == ["north", "south"]


def test_a_child_that_never_starts_stops_the_others(parent: Parent) -> None:
    parent.start()
    parent.report("nats")
    for _ in range(START_ATTEMPTS - 1):
        assert signalled(parent.end("coordinator", 2, "no room")) == []
        parent.fire("restart/coordinator")
    assert signalled(parent.end("coordinator", 2, "no room")) == [("nats", "terminate")]
    failure = parent.machine.failure
    assert failure is not None
    assert (failure.child, failure.code, failure.words) == ("coordinator", 2, "no room")
    assert Stop(reason="coordinator does not start") in parent.end("nats", 0)


def test_a_slow_start_is_said_and_waited_for(parent: Parent) -> None:
    parent.start()
    assert parent.timers["slow/nats"] == SLOW_AFTER_US
    parent.fire("slow/nats")
    assert parent.row("nats").problem == "not ready after 30 s"
    assert started(parent.report("nats")) == ["coordinator"]
    assert parent.row("nats").problem == ""


WITH_PIPELINE = (*CHILDREN, Child("pipeline", 3, awaited=False))


def test_a_child_that_is_not_awaited_starts_last_and_delays_nobody() -> None:
    parent = Parent(WITH_PIPELINE)
    parent.start()
    for child in ("nats", "coordinator", "north"):
        parent.report(child)
    assert parent.report("south") == [StartChild(child="pipeline", run=1), AllReady()]
    assert parent.machine.state == "running"
    assert AllReady() not in parent.report("pipeline")
    assert signalled(parent.do(StopAsked())) == [("pipeline", "terminate")]
    assert signalled(parent.end("pipeline", 0)) == [("north", "terminate"), ("south", "terminate")]


def test_a_child_that_is_not_awaited_is_never_given_up() -> None:
    parent = Parent((Child("pipeline", 0, awaited=False), *CHILDREN[1:]))
    assert started(parent.start()) == ["pipeline", "coordinator"]
    for _ in range(START_ATTEMPTS + 1):
        assert signalled(parent.end("pipeline", 2, "no Java")) == []
        assert started(parent.fire("restart/pipeline")) == ["pipeline"]
    assert parent.machine.state == "starting" and parent.machine.failure is None


# ── running ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_child_that_ends_is_restarted_after_a_pause(running: Parent) -> None:
    assert running.end("north", -9) == []
    row = running.row("north")
    assert (row.health, row.problem, row.pid) == ("backing off", "ended by signal 9", None)
    assert row.retry_at_us == running.now_us + BACKOFF_FIRST_US == running.timers["restart/north"]
    assert running.fire("restart/north") == [StartChild(child="north", run=2)]
    running.exist("north", 8)
    running.report("north")
    row = running.row("north")
    assert (row.health, row.pid, row.restarts) == ("ready", 8, 1)


def test_the_pause_doubles_to_its_bound_and_restarts_never_end(running: Parent) -> None:
    pauses = []
    for _ in range(10):
        running.end("north")
        pauses.append(running.timers["restart/north"] - running.now_us)
        assert started(running.fire("restart/north")) == ["north"]
    assert pauses[:7] == [min(BACKOFF_FIRST_US << n, BACKOFF_MAX_US) for n in range(7)]
    assert pauses[-1] == BACKOFF_MAX_US
    assert running.machine.state == "running"


def test_a_healthy_while_makes_the_next_end_a_first_one(running: Parent) -> None:
    running.end("north")
    running.fire("restart/north")
    running.report("north")
    assert running.timers["healthy/north"] == running.now_us + HEALTHY_AFTER_US
    running.fire("healthy/north")
    running.end("north")
    assert running.timers["restart/north"] == running.now_us + BACKOFF_FIRST_US


def test_silence_is_degraded_until_the_next_report(running: Parent) -> None:
    assert running.timers["silent/north"] == SILENT_AFTER_US
    running.fire("silent/north")
    assert (running.row("north").health, running.row("north").problem) == ("degraded", "no report for 10 s")
    running.report("north")
    assert (running.row("north").health, running.row("north").problem) == ("ready", "")


def test_a_child_that_does_not_report_is_never_silent(running: Parent) -> None:
    assert "silent/nats" not in running.timers


def test_a_report_carries_problem_and_facts(running: Parent) -> None:
    report = ChildReported(child="north", run=1, state="degraded", problem="no link", facts={"clients": 3})
    running.do(report)
    row = running.row("north")
    assert (row.health, row.problem, row.facts) == ("degraded", "no link", {"clients": 3})


def test_words_about_an_older_run_are_ignored(running: Parent) -> None:
    running.end("north")
    running.fire("restart/north")
    for late in (
        ChildReported(child="north", run=1, state="ready"),
        ChildEnded(child="north", run=1, code=0),
        ChildStarted(child="north", run=1, pid=99),
    ):
        assert running.do(late) == []
    assert (running.row("north").health, running.row("north").pid) == ("starting", None)


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_stages_are_stopped_in_reverse_each_after_the_one_above(running: Parent) -> None:
    assert signalled(running.do(StopAsked())) == [("north", "terminate"), ("south", "terminate")]
    assert signalled(running.end("south", 0)) == []
    assert signalled(running.end("north", 0)) == [("coordinator", "terminate")]
    assert signalled(running.end("coordinator", 0)) == [("nats", "terminate")]
    assert running.end("nats", 0) == [Stop(reason="stopped as asked")]
    assert running.machine.state == "stopped"
    assert running.timers == {}


def test_a_stage_that_does_not_stop_is_killed_after_its_grace(running: Parent) -> None:
    running.do(StopAsked())
    running.end("south", 0)
    assert running.timers == {"grace": GRACE_US}
    assert signalled(running.fire("grace")) == [("north", "kill")]
    assert signalled(running.end("north", -9)) == [("coordinator", "terminate")]


def test_asked_again_everything_is_killed_at_once(running: Parent) -> None:
    running.do(StopAsked())
    assert signalled(running.do(StopAsked())) == [(child.name, "kill") for child in CHILDREN]


def test_a_child_that_waits_for_its_restart_is_not_waited_for(running: Parent) -> None:
    running.end("north")
    assert signalled(running.do(StopAsked())) == [("south", "terminate")]
    assert "restart/north" not in running.timers
    assert running.row("north").health == "stopped"


def test_a_stop_while_starting_ends_what_was_begun(parent: Parent) -> None:
    parent.start()
    assert signalled(parent.do(StopAsked())) == [("nats", "terminate")]
    parent.exist("nats")
    assert parent.end("nats", 0) == [Stop(reason="stopped as asked")]


def test_a_stop_before_the_start_stops_at_once(parent: Parent) -> None:
    assert parent.do(StopAsked()) == [Stop(reason="stopped as asked")]


def test_a_second_start_is_illegal_and_changes_nothing(running: Parent) -> None:
    before = running.machine.rows()
    with pytest.raises(IllegalEvent):
        running.start()
    assert running.machine.rows() == before


@pytest.mark.parametrize(("code", "words"), [(-9, "ended by signal 9"), (3, "ended with exit code 3")])
def test_exit_codes_have_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


# ── children in reserve ─────────────────────────────────────────────────────────────────────────────────────


def wanted(parent: Parent, wanted: bool) -> list[Effect]:
    return parent.do(ChildWanted(child="spare", wanted=wanted, cause="test"))


@pytest.fixture
def reserved() -> Parent:
    parent = Parent((*CHILDREN, Child("spare", 2, reserve=True)))
    parent.start()
    for child in CHILDREN:
        parent.exist(child.name)
        parent.report(child.name)
    return parent


def test_a_child_in_reserve_is_started_when_it_is_wanted(reserved: Parent) -> None:
    assert reserved.machine.state == "running" and reserved.row("spare").health == "reserve"
    assert started(wanted(reserved, True)) == ["spare"] and started(wanted(reserved, True)) == []
    reserved.exist("spare")
    reserved.report("spare")
    assert reserved.row("spare").health == "ready"


def test_a_child_that_is_not_needed_ends_and_is_not_restarted(reserved: Parent) -> None:
    wanted(reserved, True)
    reserved.exist("spare")
    reserved.report("spare")
    assert signalled(wanted(reserved, False)) == [("spare", "terminate")]
    reserved.report("spare", "degraded")
    assert reserved.row("spare").health == "leaving" and wanted(reserved, True) == []
    assert signalled(reserved.fire("leave/spare")) == [("spare", "kill")]
    assert started(reserved.end("spare")) == [] and reserved.row("spare").health == "reserve"
    assert started(wanted(reserved, True)) == ["spare"]


def test_a_child_that_backs_off_is_not_restarted_without_need(reserved: Parent) -> None:
    wanted(reserved, True)
    reserved.exist("spare")
    reserved.end("spare")
    assert reserved.row("spare").health == "backing off"
    wanted(reserved, False)
    assert "restart/spare" not in reserved.timers


def test_while_everything_stops_nobody_is_wanted(reserved: Parent) -> None:
    reserved.do(StopAsked(cause="test"))
    assert wanted(reserved, True) == [] and reserved.row("spare").health == "stopped"
