"""How the world runs machines: events, effects, starts, clocks and faults of nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Listen,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Stop,
    StopListening,
    TimerFired,
)
from tocsin.model.network import Message
from tocsin.sim.latency import Latency
from tocsin.sim.network import STORE, Cut, Link
from tocsin.sim.probe import Probe, React
from tocsin.sim.runs.invariants import AllRunning, InvariantBroken
from tocsin.sim.runs.transcript import Transcript
from tocsin.sim.world import MachineRaised, World

MS = 1_000


class Ping(Message, frozen=True):
    number: int = 0


class Lamp(Effect, frozen=True, kw_only=True):
    """An effect that is not of the kernel."""


class Switched(Event, frozen=True, kw_only=True):
    """An event that is not of the kernel."""


def on_start(*effects: Effect) -> React:
    return lambda event, now_us: list(effects) if isinstance(event, Started) else []


def world_of(**probes: Probe) -> World:
    world = World(1)
    world.network.link_of = lambda sender, receiver: Link(Latency.constant(1 * MS))
    for address, probe in probes.items():
        world.add(address, probe.make)
    return world


def test_a_machine_is_started_with_a_number_of_its_own() -> None:
    a, b = Probe(), Probe()
    world = world_of(a=a, b=b)
    world.run_until(0)
    incarnations = [probe.events(Started)[0].incarnation for probe in (a, b)]
    assert incarnations[0] != incarnations[1]


def test_a_message_takes_its_latency_and_keeps_its_cause() -> None:
    a, b = Probe(on_start(Send(to="b", message=Ping(7), cause="c"))), Probe()
    world_of(a=a, b=b).run_until(10 * MS)
    assert (1 * MS, Received(sender="a", message=Ping(7), cause="c")) in b.seen


def test_a_message_to_a_group_reaches_each_member_that_listens() -> None:
    listen, speak = Listen(address="all"), Send(to="all", message=Ping())
    a = Probe(lambda event, now_us: [speak] if now_us else [SetTimer(name="t", delay_us=9)])
    b, c, d = Probe(on_start(listen)), Probe(on_start(listen)), Probe()
    e = Probe(on_start(listen, StopListening(address="all")))
    world = world_of(a=a, b=b, c=c, d=d, e=e)
    world.group("all", ("b", "c", "d", "e"))
    world.at(5, lambda: world.crash("c"))
    world.at(6, lambda: world.restart("c"))  # it listens again
    world.at(7, lambda: world.crash("b"))
    world.run_until(10 * MS)
    assert [len(each.events(Received)) for each in (b, c, d, e)] == [0, 1, 0, 0]


def test_a_message_to_nobody_is_a_bug_of_the_machine() -> None:
    world = world_of(a=Probe(on_start(Send(to="nobody", message=Ping()))))
    with pytest.raises(MachineRaised, match="no address 'nobody'"):
        world.run_until(0)


def test_a_machine_that_raises_ends_the_run() -> None:
    def react(event: Event, now_us: int) -> list[Effect]:
        raise ZeroDivisionError("by nought")

    with pytest.raises(MachineRaised, match="a raised on Started: ZeroDivisionError: by nought"):
        world_of(a=Probe(react)).run_until(0)


def test_an_invariant_that_looks_at_what_a_machine_does_breaks_as_itself() -> None:
    def react(event: Event, now_us: int) -> list[Effect]:
        raise InvariantBroken("it is well", "it is not")

    for transcript in (None, Transcript()):
        world = World(1, transcript)
        world.add("a", Probe(react).make)
        with pytest.raises(InvariantBroken, match="it is well: it is not"):
            world.run_until(0)


def test_a_message_in_flight_when_a_cut_falls_is_lost() -> None:
    a, b = Probe(on_start(Send(to="b", message=Ping()))), Probe()
    world = world_of(a=a, b=b)
    world.at(500, lambda: world.network.add(Cut(frozenset({"a"}))))
    world.run_until(10 * MS)
    assert not b.events(Received)
    assert world.network.statistics.cut == 1


def test_a_reset_timer_fires_once_and_a_cancelled_one_never() -> None:
    probe = Probe(
        on_start(
            SetTimer(name="t", delay_us=5),
            SetTimer(name="t", delay_us=9),
            SetTimer(name="gone", delay_us=5),
            CancelTimer(name="gone"),
            CancelTimer(name="unknown"),
        )
    )
    world_of(a=probe).run_until(100)
    assert [(at_us, event.name) for at_us, event in probe.seen if isinstance(event, TimerFired)] == [(9, "t")]


def test_timers_without_a_cause_get_one() -> None:
    probe = Probe(on_start(SetTimer(name="t", delay_us=5), SetTimer(name="u", delay_us=5, cause="c")))
    world_of(a=probe).run_until(100)
    assert [event.cause for event in probe.events(TimerFired)] == ["t1", "c"]


def test_a_crash_loses_memory_timers_and_messages_but_not_the_disk() -> None:
    a, b = Probe(), Probe(on_start(SetTimer(name="t", delay_us=10 * MS)))
    world = world_of(a=a, b=b)
    world.run_until(1 * MS)
    b.disks[0]["kept"] = 1
    world.crash("b")
    assert world.machine("b") is None
    assert not world.post("b", Switched())
    world.run_until(20 * MS)
    world.restart("b")
    world.run_until(21 * MS)
    assert b.disks[1] == {"kept": 1}
    assert [type(event) for _, event in b.seen] == [Started, Started]
    world.run_until(40 * MS)
    assert len(b.events(TimerFired)) == 1


def test_a_crash_in_the_midst_carries_out_only_the_first_effects() -> None:
    a, b = Probe(lambda e, n: [Send(to="b", message=Ping(i)) for i in range(3)]), Probe()
    world = world_of(a=a, b=b)
    world.run_until(5 * MS)
    world.crash("a", after_effects=2)
    world.post("a", Switched())
    world.run_until(10 * MS)
    assert world.machine("a") is None
    assert sorted(e.message.number for e in b.events(Received) if isinstance(e.message, Ping)) == [
        0,
        0,
        1,
        1,
        2,
    ]


@pytest.mark.parametrize("spare", [lambda world: world.restart("a"), lambda world: world.heal()])
def test_a_crash_that_has_not_come_yet_is_spared(spare: Callable[[World], None]) -> None:
    probe = Probe()
    world = world_of(a=probe)
    world.run_until(1)
    world.crash("a", after_effects=0)
    spare(world)
    world.post("a", Switched())
    world.run_until(2)
    assert world.machine("a") is probe
    assert probe.events(Switched)


def test_what_comes_while_paused_waits_and_comes_at_once() -> None:
    a, b = Probe(on_start(Send(to="b", message=Ping()))), Probe(on_start(SetTimer(name="t", delay_us=2 * MS)))
    world = world_of(a=a, b=b)
    world.at(0, lambda: world.pause("b"))
    world.run_until(1)
    assert world.post("b", Switched())
    world.run_until(5 * MS)
    assert [type(event) for _, event in b.seen] == [Started]
    world.resume("b")
    assert sorted(type(event).__name__ for at_us, event in b.seen if at_us == 5 * MS) == [
        "Received",
        "Switched",
        "TimerFired",
    ]


def test_what_comes_while_asleep_is_lost_but_timers_fire_on_waking() -> None:
    a, b = Probe(on_start(Send(to="b", message=Ping()))), Probe(on_start(SetTimer(name="t", delay_us=2 * MS)))
    world = world_of(a=a, b=b)
    world.at(0, lambda: world.sleep("b"))
    world.run_until(5 * MS)
    assert not world.post("b", Switched())
    world.wake("b")
    assert [type(event) for _, event in b.seen] == [Started, TimerFired]


def test_a_clock_that_drifts_moves_time_and_timers() -> None:
    probe = Probe(
        lambda event, now_us: [SetTimer(name="t", delay_us=1_200)] if isinstance(event, Switched) else []
    )
    world = world_of(a=probe)
    world.run_until(0)
    world.set_clock("a", ahead_us=5_000, drift_ppm=200_000)
    world.post("a", Switched())
    world.run_until(10_000)
    assert [now_us for now_us, event in probe.seen if not isinstance(event, Started)] == [5_000, 6_200]
    world.heal()
    assert world.node("a").clock is not None
    world.post("a", Switched())
    world.run_until(10_000)
    assert probe.seen[-1][0] == 5_000 + 12_000


def test_a_stopped_machine_does_nothing_and_may_be_started_again() -> None:
    probe = Probe(on_start(Stop(reason="enough"), Say(text="never")))
    world = World(1)
    world.add("a", probe.make, restart_after_us=1_000)
    said: list[str] = []
    world.observers.on_say("never", lambda address, say: said.append(address))
    world.run_until(2_500)
    assert not said
    assert len(probe.events(Started)) == 3
    with pytest.raises(InvariantBroken, match="a did not come back"):
        AllRunning().finish(world)


def test_a_stopped_machine_is_not_started_by_a_crash_and_restart() -> None:
    probe = Probe(on_start(Stop(reason="enough")))
    world = world_of(a=probe)
    world.run_until(1)
    world.crash("a")
    world.restart("a")
    world.heal()
    assert world.machine("a") is None


def test_a_node_is_not_started_before_its_time() -> None:
    probe = Probe()
    world = World(1)
    world.add("a", probe.make, start_us=50)
    world.restart("a")
    world.heal()
    world.run_until(49)
    assert not probe.seen
    world.run_until(50)
    assert len(probe.seen) == 1


def test_effects_of_a_process_go_to_whoever_owns_them() -> None:
    lit: list[str] = []
    world = world_of(a=Probe(on_start(Lamp())))
    world.own(Lamp, lambda address, effect: lit.append(address))
    world.run_until(0)
    assert lit == ["a"]
    with pytest.raises(MachineRaised, match="nobody carries out Lamp"):
        world_of(a=Probe(on_start(Lamp()))).run_until(0)


def test_an_event_posted_while_a_machine_is_busy_comes_after_its_effects() -> None:
    probe = Probe(on_start(Lamp(), Say(text="last")))
    order: list[str] = []
    world = world_of(a=probe)
    world.own(Lamp, lambda address, effect: order.append(f"posted {world.post('a', Switched())}"))
    world.observers.on_say("last", lambda address, say: order.append("said"))
    world.run_until(0)
    assert order == ["posted True", "said"]
    assert probe.events(Switched)


def test_those_who_look_are_told() -> None:
    seen: list[object] = []
    world = world_of(a=Probe(on_start(Send(to="b", message=Ping(1)), Say(text="hello"))), b=Probe())
    world.observers.on_delivery(Ping, lambda sender, to, message: seen.append((sender, to, message.number)))
    world.observers.on_say("hello", lambda address, say: seen.append((address, say.text)))
    world.observers.on_happening(lambda address, happening: seen.append((address, happening)))
    events: list[int] = []
    world.observers.after_every_event(lambda: events.append(world.now_us))
    world.run_until(2 * MS)
    world.pause("b")
    assert seen == [("a", "started"), ("a", "hello"), ("b", "started"), ("a", "b", 1), ("b", "paused")]
    assert events == [0, 0, 1 * MS]


def test_an_address_belongs_to_one() -> None:
    world = world_of(a=Probe())
    for taken in ("a", STORE):
        with pytest.raises(ValueError, match="is taken"):
            world.add(taken, Probe().make)
    with pytest.raises(ValueError, match="is a node's"):
        world.group("a", ())


def test_a_run_with_a_transcript_is_the_same_run() -> None:
    def run(transcript: Transcript | None) -> str:
        world = World(3, transcript)
        ping = Send(to="a", message=Ping())
        world.add(
            "a", Probe(lambda event, now_us: [ping, SetTimer(name="t", delay_us=9)][: now_us // 90]).make
        )
        world.run_until(100)
        world.post("a", Switched())
        world.run_until(1_000)
        return world.fingerprint()

    transcript = Transcript()
    assert run(transcript) == run(None)
    assert len(transcript) > 0
