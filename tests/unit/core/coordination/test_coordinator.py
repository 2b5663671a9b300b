"""A coordinator: it restores, follows, and leads only while its lease holds and the log believes it."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.core.coordination.desk import (
    CONFLICT,
    LEASE_US,
    OPTIONS,
    UNKNOWN,
    Desk,
    failed,
    of,
)
from tests.unit.core.coordination.histories import NORTH
from tocsin.core.coordination.coordinator import Resigning
from tocsin.core.coordination.leader import lease
from tocsin.core.coordination.leader import snapshot_writer as archivist
from tocsin.core.coordination.leader.snapshot_writer import Manifest
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import (
    Append,
    CancelTimer,
    DeleteKey,
    Effect,
    FollowLog,
    GetKey,
    Listen,
    PutKey,
    ReadLog,
    Say,
    SetTimer,
    Stop,
    StopListening,
    Stored,
    StoreFailed,
    TrimLog,
)
from tocsin.errors import StoreFull
from tocsin.model.network import COORDINATOR
from tocsin.model.versions import speaks
from tocsin.ports import Cell, Entry, Page
from tocsin.wire.internal.commands import (
    Batch,
    Elected,
    Interests,
    Joined,
    Limits,
    Lost,
    Refreshed,
    Said,
    Streams,
    decode_batch,
    encode_batch,
)

# ── restoring and following ─────────────────────────────────────────────────────────────────────────────────


def test_without_a_snapshot_the_log_is_followed_from_its_beginning() -> None:
    desk = Desk()
    (follow,) = of(FollowLog, desk.start())
    assert (follow.log, follow.subject, follow.start) == ("net-commands", "net.c", 1)
    desk.follow(
        Batch(1, 0, 0, (Elected("c2", Limits()), Said("north", 7, 1, (Joined(NORTH),))), (("north", 4),))
    )
    assert desk.machine.replica.members["north"].noticed == 4
    assert (desk.machine.epoch, desk.machine.position) == (1, 1)


def test_a_snapshot_is_read_and_the_log_followed_from_there() -> None:
    taken = State()
    taken.apply(0, (Said("north", 7, 1, (Joined(NORTH),)),))
    pieces = snapshot.take(taken)
    desk = Desk()
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", len(pieces), 3)))
    assert (asked.log, asked.subject, asked.start) == ("net-snapshots", "net.s.x", 3)
    entries = tuple(Entry(3 + i, "net.s.x", piece, str(i), 0) for i, piece in enumerate(pieces))
    (follow,) = of(FollowLog, desk.handle(Stored(request=asked.request, value=Page(entries, 4, 3))))
    assert follow.start == 41 and set(desk.machine.replica.members) == {"north"}


def test_a_snapshot_is_read_over_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 10)
    taken = State()
    taken.apply(0, (Said("north", 7, 1, (Joined(NORTH),)),))
    first, *rest = snapshot.take(taken)
    desk = Desk()
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", 1 + len(rest), 3)))
    page = Page((Entry(3, "net.s.x", first, "0", 0),), 4, 99)
    (asked,) = of(ReadLog, desk.handle(Stored(request=asked.request, value=page)))
    assert asked.start == 4
    entries = tuple(Entry(4 + i, "net.s.x", piece, str(i), 0) for i, piece in enumerate(rest))
    desk.handle(Stored(request=asked.request, value=Page(entries, 100, 99)))
    assert set(desk.machine.replica.members) == {"north"}


def test_a_snapshot_replaced_during_its_read_is_not_mixed_with_its_successor() -> None:
    pieces = snapshot.take(State())
    desk = Desk()
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", 1, 3)))
    newer = Manifest(90, 19, "net.s.y", 1, 4)
    desk.watch("put", archivist.KEY, msgspec.json.encode(newer), 3)
    entries = (Entry(3, "net.s.x", pieces[0], "0", 0),)
    (follow,) = of(FollowLog, desk.handle(Stored(request=asked.request, value=Page(entries, 4, 3))))
    assert follow.start == 41


def test_a_snapshot_that_is_gone_or_broken_is_looked_for_again() -> None:
    desk = Desk()
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", 1, 3)))
    gone = desk.handle(Stored(request=asked.request, value=Page((), 9, 8)))
    assert [each.name for each in of(SetTimer, gone)] == ["again"]
    (again,) = of(ReadLog, desk.fire("again"))
    broken = (Entry(3, "net.s.x", b"\xff", "0", 0),)
    effects = desk.handle(Stored(request=again.request, value=Page(broken, 4, 3)))
    assert [each.name for each in of(SetTimer, effects)] == ["again"]


def many() -> State:
    state = State()
    streams = tuple(Streams(f"client-{n}", 60, ((f"lamps/{n}", {"n": n}),)) for n in range(50))
    state.apply(0, (Said("north", 7, 1, (Joined(NORTH), *streams)),))
    return state


def begin_rebuilding(desk: Desk, pieces: list[bytes]) -> list[Effect]:
    """Start with a large snapshot, and hand it over."""
    (asked,) = of(ReadLog, desk.start(Manifest(40, 9, "net.s.x", len(pieces), 3)))
    entries = tuple(Entry(3 + i, "net.s.x", piece, str(i), 0) for i, piece in enumerate(pieces))
    return desk.handle(Stored(request=asked.request, value=Page(entries, 4, 3)))


def slices_until_it_follows(desk: Desk, effects: list[Effect]) -> int:
    count = 0
    while not of(FollowLog, effects):
        assert [each.name for each in of(SetTimer, effects)] == [CoordinatorTimer.REBUILD]
        assert desk.machine.state == "restoring"
        effects = desk.fire(CoordinatorTimer.REBUILD)
        count += 1
    return count


def test_a_large_state_is_decoded_in_slices_that_let_others_run() -> None:
    desk = Desk(msgspec.structs.replace(OPTIONS, slice_size=5))
    pieces = snapshot.take(many())
    effects = begin_rebuilding(desk, pieces)
    assert [each.name for each in of(CancelTimer, effects)] == ["again"], "it may take longer than an answer"
    newer = Manifest(90, 19, "net.s.y", 1, 4)
    assert desk.watch("put", archivist.KEY, msgspec.json.encode(newer), 3) == []
    assert desk.watch("reset") == desk.watch("ready") == []
    assert desk.follow(Batch(1, 0, 0, ())) == []
    assert slices_until_it_follows(desk, effects) >= 100 // 5, "clients and streams"
    assert snapshot.take(desk.machine.replica) == pieces
    assert desk.machine.position == 40
    assert desk.fire(CoordinatorTimer.REBUILD) == [], "that is over"


def test_a_large_state_that_proves_broken_is_fetched_again() -> None:
    desk = Desk(msgspec.structs.replace(OPTIONS, slice_size=5))
    *pieces, last = snapshot.take(many())
    effects = begin_rebuilding(desk, [*pieces, last, b"\xff"])
    while [each.name for each in of(SetTimer, effects)] == [CoordinatorTimer.REBUILD]:
        effects = desk.fire(CoordinatorTimer.REBUILD)
    assert [each.name for each in of(SetTimer, effects)] == ["again"]
    assert [each.level for each in of(Say, effects)] == ["error"]
    assert of(ReadLog, desk.fire("again"))


def test_a_gap_means_to_restore() -> None:
    desk = Desk()
    desk.start()
    desk.follow(Batch(1, 0, 7, ()))
    assert desk.machine.state == "restoring"
    assert of(FollowLog, desk.fire("again"))


# ── becoming the leader ─────────────────────────────────────────────────────────────────────────────────────


def test_a_coordinator_leads_once_the_log_has_its_election() -> None:
    desk = Desk()
    effects = desk.lead()
    (batch,) = desk.batches
    assert (batch.epoch, batch.previous, batch.commands) == (1, 0, (Elected("c1", Limits(), 1, speaks()),))
    assert [each.name for each in of(SetTimer, effects)] == [CoordinatorTimer.CHECK, CoordinatorTimer.PLAN]


def test_the_new_leader_reads_the_last_leaders_writes_before_it_tries_again() -> None:
    desk = Desk()
    desk.start()
    opening = desk.read(desk.claim())
    first = decode_batch(of(Append, opening)[0].records[0].payload)
    (again,) = of(ReadLog, desk.handle(failed(opening, CONFLICT)))
    data = encode_batch(epoch=4, at_us=9, previous=0, commands=(), notices=())
    desk.last = 2
    page = Page((Entry(1, "net.c", data, "x-9", 0),), 3, 2)
    (append,) = of(Append, desk.handle(Stored(request=again.request, value=page)))
    assert append.expected == 2
    batch = decode_batch(append.records[0].payload)
    assert (first.epoch, batch.epoch, batch.previous) == (1, 5, 1)


def test_an_election_with_an_unknown_outcome_is_retried_with_its_record() -> None:
    desk = Desk()
    desk.start()
    opening = desk.read(desk.claim())
    desk.handle(failed(opening, UNKNOWN))
    again = desk.fire("again")
    assert of(Append, again)[0].records == of(Append, opening)[0].records
    desk.take(again)
    assert desk.machine.state == "leading"


def test_brokers_are_listened_to_while_it_holds_the_lease_and_no_longer() -> None:
    desk = Desk()
    assert not of(Listen, desk.start())
    effects = desk.claim()
    assert [each.address for each in of(Listen, effects)] == [COORDINATOR], (
        "before it leads: they may be quick"
    )
    desk.take(desk.read(effects))
    effects = desk.follow(Batch(2, 0, 1, ()), record_id="c2-5-1")
    assert [each.address for each in of(StopListening, effects)] == [COORDINATOR]


def test_a_claim_that_is_refused_leaves_it_following() -> None:
    desk = Desk()
    desk.start()
    (put,) = of(PutKey, desk.watch("delete", lease.KEY, revision=5))
    desk.handle(StoreFailed(request=put.request, error=CONFLICT))
    assert desk.machine.state == "following"


# ── stepping down ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_that_was_frozen_past_its_lease_wakes_up_as_none() -> None:
    desk = Desk()
    desk.lead()
    desk.now_us = LEASE_US
    assert of(Append, desk.submit(Joined(NORTH))) == []
    assert desk.machine.leader is None and desk.machine.state == "following"


def test_a_leader_whose_append_is_refused_throws_its_state_away() -> None:
    desk = Desk()
    desk.lead()
    effects = desk.submit(Joined(NORTH))
    assert set(desk.machine.replica.members) == {"north"}, "the state is ahead of the log"
    desk.handle(failed(effects, CONFLICT))
    assert desk.machine.state == "following" and not desk.machine.replica.members


def test_somebody_elses_batch_deposes_a_leader_and_its_own_does_not() -> None:
    desk = Desk()
    desk.lead()
    desk.follow(Batch(1, 0, 1, ()), record_id="c1-5-99")
    assert desk.machine.state == "leading"
    desk.follow(Batch(2, 0, 1, ()), record_id="c2-5-1")
    assert desk.machine.leader is None


def test_a_renewed_lease_holds_and_a_stolen_one_does_not() -> None:
    desk = Desk()
    desk.lead()
    desk.wait(3 * LEASE_US)
    assert desk.machine.state == "leading"
    (put,) = of(PutKey, desk.fire("renew"))
    desk.handle(StoreFailed(request=put.request, error=CONFLICT))
    assert desk.machine.leader is None


def test_asked_to_stop_it_gives_the_lease_back() -> None:
    desk = Desk()
    desk.lead()
    (delete,) = of(DeleteKey, desk.handle(Resigning()))
    assert (delete.key, delete.revision) == (lease.KEY, 6)
    assert of(Stop, desk.handle(Stored(request=delete.request)))
    follower = Desk()
    follower.start()
    assert of(Stop, follower.handle(Resigning()))


# ── snapshots ───────────────────────────────────────────────────────────────────────────────────────────────


def full(desk: Desk) -> list[Effect]:
    """Follow until a snapshot is due."""
    effects: list[Effect] = []
    for number in range(OPTIONS.snapshot_every):
        effects = desk.follow(Batch(1, 0, number, (Lost("nobody", 1),)))
    return effects


def test_a_follower_writes_a_snapshot_records_it_and_trims_behind_it() -> None:
    desk = Desk()
    desk.start()
    assert [each.name for each in of(SetTimer, full(desk))] == [CoordinatorTimer.SNAPSHOT]
    (write,) = of(Append, desk.fire(CoordinatorTimer.SNAPSHOT))
    assert write.log == "net-snapshots" and write.expected is None
    (record,) = of(PutKey, desk.handle(Stored(request=write.request, value=(5,))))
    manifest = archivist.decode_manifest(record.value)
    assert (manifest.position, manifest.commands, manifest.pieces, manifest.first) == (10, 10, 1, 5)
    assert record.revision == 0 and manifest.subject == write.records[0].subject
    (trim,) = of(TrimLog, desk.handle(Stored(request=record.request, value=9)))
    assert (trim.log, trim.before) == ("net-commands", 10 - OPTIONS.margin)
    (trim,) = of(TrimLog, desk.handle(Stored(request=trim.request, value=7)))
    assert (trim.log, trim.before) == ("net-snapshots", 5)
    assert desk.handle(Stored(request=trim.request, value=0)) == []


def recording(desk: Desk) -> PutKey:
    """Write a snapshot, up to its manifest."""
    desk.start()
    full(desk)
    (write,) = of(Append, desk.fire(CoordinatorTimer.SNAPSHOT))
    (record,) = of(PutKey, desk.handle(Stored(request=write.request, value=(5,))))
    return record


def refused(desk: Desk, record: PutKey, found: Cell | None) -> list[Effect]:
    """The manifest is refused after a try without an answer, and this one is there."""
    desk.handle(StoreFailed(request=record.request, error=UNKNOWN))
    (again,) = of(PutKey, desk.fire(CoordinatorTimer.ARCHIVE))
    assert (again.value, again.revision) == (record.value, record.revision)
    (look,) = of(GetKey, desk.handle(StoreFailed(request=again.request, error=CONFLICT)))
    assert look.key == archivist.KEY and look.fresh
    return desk.handle(Stored(request=look.request, value=found))


def test_pieces_of_a_snapshot_are_forgotten_when_another_was_recorded() -> None:
    desk = Desk()
    record = recording(desk)
    theirs = msgspec.json.encode(Manifest(9, 9, "net.s.y", 1, 1))
    (trim,) = of(TrimLog, refused(desk, record, Cell(archivist.KEY, theirs, 4)))
    subject = archivist.decode_manifest(record.value).subject
    assert (trim.log, trim.before, trim.subject) == ("net-snapshots", None, subject)
    assert desk.fire(CoordinatorTimer.ARCHIVE) == []


def test_a_recorded_snapshot_whose_answer_was_lost_keeps_its_pieces() -> None:
    """Else its manifest would lead nowhere, and nobody could ever lead again."""
    desk = Desk()
    record = recording(desk)
    (trim,) = of(TrimLog, refused(desk, record, Cell(archivist.KEY, record.value, 4)))
    assert (trim.log, trim.before) == ("net-commands", 10 - OPTIONS.margin)


def test_a_manifest_that_nobody_has_written_yet_is_tried_again() -> None:
    """Its pieces stay: the earlier try may be applied late."""
    desk = Desk()
    record = recording(desk)
    assert of(TrimLog, refused(desk, record, None)) == []
    assert len(of(PutKey, desk.fire(CoordinatorTimer.ARCHIVE))) == 1


def test_nobody_writes_a_snapshot_that_somebody_else_has_written_meanwhile() -> None:
    desk = Desk()
    desk.start()
    full(desk)
    desk.watch("put", archivist.KEY, msgspec.json.encode(Manifest(9, 9, "net.s.y", 1, 1)), 4)
    assert desk.fire(CoordinatorTimer.SNAPSHOT) == []


def test_a_snapshot_is_also_due_after_a_number_of_bytes() -> None:
    options = msgspec.structs.replace(OPTIONS, snapshot_every=1_000, snapshot_every_bytes=2_000, margin=100)
    desk = Desk(options)
    desk.start()
    desk.follow(Batch(1, 0, 0, (Said("north", 7, 1, (Joined(NORTH),)),)))
    effects: list[Effect] = []
    number = 1
    while not of(SetTimer, effects):
        effects = desk.follow(Batch(1, 0, number, (Refreshed("north", 7),)))
        number += 1
    assert desk.machine.replica.told >= 2_000
    (write,) = of(Append, desk.fire(CoordinatorTimer.SNAPSHOT))
    (record,) = of(PutKey, desk.handle(Stored(request=write.request, value=(5,))))
    assert archivist.decode_manifest(record.value).told == desk.machine.replica.told


def test_what_a_full_log_of_snapshots_has_of_a_snapshot_is_forgotten() -> None:
    desk = Desk()
    desk.start()
    full(desk)
    (write,) = of(Append, desk.fire(CoordinatorTimer.SNAPSHOT))
    effects = desk.handle(StoreFailed(request=write.request, error=StoreFull("append", "no room")))
    (trim,) = of(TrimLog, effects)
    assert (trim.log, trim.before, trim.subject) == ("net-snapshots", None, write.records[0].subject)
    assert desk.handle(Stored(request=trim.request, value=1)) == []


def test_brokers_wait_until_the_leader_has_a_snapshot_that_covers_the_log() -> None:
    desk = Desk(msgspec.structs.replace(OPTIONS, snapshot_every=1_000, snapshot_every_bytes=1, wait_bytes=1))
    desk.lead()
    desk.take(desk.submit(Joined(NORTH)))
    assert desk.machine.replica.told > 1
    assert desk.submit(Interests(("a",)), first=2) == [], "it is sent again"
    desk.now_us += 1_000
    assert of(Append, desk.fire(CoordinatorTimer.SNAPSHOT))
    told = desk.machine.replica.told
    value = msgspec.json.encode(Manifest(2, 2, "net.s.y", 1, 1, told))
    desk.watch("put", archivist.KEY, value, 9)
    desk.take(desk.submit(Interests(("a",)), first=2))
    assert desk.batches[-1].commands == (Said("north", 7, 2, (Interests(("a",)),)),)
