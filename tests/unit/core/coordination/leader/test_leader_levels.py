"""Levels of the protocol: who can join, who can lead, and when the network goes on to the next."""

from __future__ import annotations

import pytest

from tests.unit.core.coordination.desk import OPTIONS, Desk, of, sent
from tests.unit.core.coordination.one_broker import Broker
from tocsin.core.coordination.leader import snapshot_writer as archivist
from tocsin.core.coordination.leader.snapshot_writer import Manifest
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import Member, State
from tocsin.core.machine import Append, DeleteKey, Followed, ReadLog, Say, SetTimer, Started, Stored
from tocsin.errors import LevelUnspoken
from tocsin.model import versions
from tocsin.model.network import BrokerInfo, Role
from tocsin.model.versions import Levels, fits
from tocsin.ports import Entry, Page
from tocsin.wire.internal.commands import Elected, Joined, Limits, Raised, Said
from tocsin.wire.internal.control import Unspoken

NORTH = BrokerInfo("north", "n", Role.EDGE, "127.0.0.1", 1)
SOUTH = BrokerInfo("south", "s", Role.EDGE, "127.0.0.1", 1)


def test_a_broker_outside_the_supported_levels_is_refused_and_changes_nothing() -> None:
    desk = Desk()
    desk.lead()
    for speaks in (Levels(2, 3), Levels(7, 9)):
        effects = desk.submit(Joined(NORTH, speaks))
        (answer,) = sent(Unspoken, effects)
        assert answer.levels == Levels(1, 1) and not of(Append, effects)
    assert not desk.machine.replica.members
    desk.take(desk.submit(Joined(NORTH, Levels(1, 2))))
    assert desk.machine.replica.members["north"].speaks == Levels(1, 2)


def test_a_broker_that_is_turned_away_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SPEAKS", Levels(2, 3))
    broker = Broker()
    broker.start()
    message = Unspoken(1, broker.machine.incarnation, Levels(1, 1))
    with pytest.raises(LevelUnspoken, match="Upgrade the other processes"):
        broker.hear(message)


def test_the_level_rises_after_every_broker_has_spoken_a_higher_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "SPEAKS", Levels(1, 2))
    desk = Desk(OPTIONS)
    desk.lead()
    desk.take(desk.submit(Joined(NORTH, Levels(1, 2))))
    desk.take(desk.submit(Joined(SOUTH, Levels(1, 1)), broker="south"))
    state = desk.machine.replica
    assert state.level == 1
    leader = desk.machine.leader
    assert leader is not None
    leader._raise(0)
    leader._raise(OPTIONS.raise_after_us)
    assert Raised(2) not in leader._waiting, "one speaks the old level only"
    state.enter(Member(SOUTH, state.members["south"].incarnation, Levels(1, 2)))
    leader._raise(OPTIONS.raise_after_us + 1)
    assert Raised(2) not in leader._waiting, "not for long enough"
    leader._raise(2 * OPTIONS.raise_after_us + 1)
    assert Raised(2) in leader._waiting
    state.apply(0, (Raised(2),))
    assert state.level == 2 and not fits(Levels(1, 1), state.spoken("west"))


def test_a_level_never_falls_and_is_in_snapshots() -> None:
    state = State()
    state.apply(0, (Elected("c1", Limits(), 2, Levels(1, 2)), Raised(1)))
    state.apply(0, (Said("north", 7, 1, (Joined(NORTH, Levels(2, 3)),)),))
    assert state.level == 2
    again = snapshot.restore(snapshot.take(state))
    assert (again.level, again.led, again.members["north"].speaks) == (2, Levels(1, 2), Levels(2, 3))


def test_a_join_that_does_not_fit_is_not_applied_by_any_replica() -> None:
    state = State()
    state.apply(0, (Elected("c1", Limits(), 2, Levels(1, 2)),))
    state.apply(0, (Said("north", 7, 1, (Joined(NORTH, Levels(1, 1)),)),))
    assert not state.members


# ── what is newer than the coordinator ──────────────────────────────────────────────────────────────────────


def _told(effects: list[object]) -> str:
    return " ".join(f"{each.text} {each.facts}" for each in effects if isinstance(each, Say))


def _patience_us(effects: list[object]) -> int:
    return max(each.delay_us for each in effects if isinstance(each, SetTimer) and each.name == "again")


def test_a_batch_of_a_newer_format_stops_a_follower_with_a_reason() -> None:
    desk = Desk()
    desk.start()
    effects = desk.handle(Followed(log="net-commands", entry=Entry(1, "net.c", b"\x02\x90", "x", 0)))
    assert "Upgrade this process" in _told([*effects]) and _patience_us([*effects]) >= 10_000_000
    assert desk.machine.state == "restoring" and desk.machine.position == 0
    assert "version 2" in desk.machine.problem


def test_a_candidate_that_meets_a_newer_batch_gives_the_lease_back() -> None:
    desk = Desk()
    desk.start()
    (asked,) = of(ReadLog, desk.claim())
    page = Page((Entry(1, "net.c", b"\x02\x90", "x", 0),), 2, 1)
    effects = desk.handle(Stored(request=asked.request, value=page))
    assert of(DeleteKey, effects) and not of(Append, effects)
    assert desk.machine.state == "restoring"


def test_a_snapshot_of_a_newer_format_is_reported_and_retried_slowly() -> None:
    desk = Desk()
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", 1, 3)))
    page = Page((Entry(3, "net.s.x", b"\x02\x90", "0", 0),), 4, 3)
    effects = desk.handle(Stored(request=asked.request, value=page))
    assert "Upgrade this process" in _told([*effects]) and _patience_us([*effects]) >= 10_000_000
    assert not of(Append, effects) and "version 2" in desk.machine.problem


def test_a_manifest_of_a_newer_format_does_not_mean_an_empty_state() -> None:
    desk = Desk()
    desk.handle(Started(incarnation=5))
    desk.watch("reset")
    desk.watch("put", archivist.KEY, b'{"v":2,"position":40}', 3)
    effects = desk.watch("ready")
    assert desk.machine.state == "restoring" and "version 2" in desk.machine.problem
    assert "Upgrade this process" in _told([*effects])
    pieces = snapshot.take(State())
    good = archivist.MANIFEST.write(Manifest(40, 9, "net.s.x", len(pieces), 3))
    desk.watch("put", archivist.KEY, good, 4)
    assert of(ReadLog, desk.fire("again")), "a manifest that can be read is read"


def test_a_coordinator_that_speaks_no_level_of_the_network_does_not_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "SPEAKS", Levels(3, 4))
    desk = Desk()
    desk.start()
    desk.machine.replica.apply(0, (Elected("c0", Limits(), 1, Levels(1, 1)),))
    desk.machine.replica.apply(0, (Said("north", 7, 1, (Joined(NORTH, Levels(1, 1)),)),))
    (asked,) = of(ReadLog, desk.claim())
    effects = desk.handle(Stored(request=asked.request, value=Page((), 1, 0)))
    assert of(DeleteKey, effects) and not of(Append, effects)
    assert "Upgrade the other processes" in desk.machine.problem
