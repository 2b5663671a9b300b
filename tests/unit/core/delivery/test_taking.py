"""Taking a session: whom it is asked of, what is written over what, and who wins."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.core.delivery.taking import (
    ATTEMPTS,
    NO_ROOM,
    Abandoned,
    AskHandOver,
    ChannelsHeld,
    ClientGone,
    CopiedPositions,
    CountRoom,
    GiveUpChannels,
    HandOverEnded,
    HoldChannels,
    KeepChannels,
    Lost,
    NoSession,
    NotYours,
    RoomCounted,
    SessionReplaced,
    SessionsFull,
    SessionTaken,
    SessionTaking,
    TakeAsked,
    TakeFailed,
    Unreadable,
    furthest,
)
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import Effect, Event, GetKey, IllegalEvent, PutKey, Stored, StoreFailed
from tocsin.core.session.connect import REASON_MAX_CHARS
from tocsin.errors import Conflict, StoreFull, StoreUnavailable, TocsinError
from tocsin.ports import Cell
from tocsin.wire.internal.replication import Positions

KEY = session_key("me")
AWAY = StoredSession("me", uid="old", expiry_s=60, epoch=3, owner="ann", confirmed=True)
ELSEWHERE = msgspec.structs.replace(AWAY, broker="south-1")
AT_ONE = {"a": Subscription(qos=1)}
STORED = StoredSession("c", "uid", 60, subscriptions=AT_ONE, progress=Progress(10, (4, 7)))


class Take:
    """One machine, and the effects that it is at."""

    def __init__(
        self, *, owner: str = "ann", clean: bool = False, expiry_s: int = 60, broker: str = "north-1"
    ) -> None:
        self.machine = SessionTaking("me", broker)
        self.effects: list[Effect] = []
        self.post(TakeAsked(owner=owner, clean=clean, expiry_s=expiry_s, tail=7, uid="new"))

    def post(self, event: Event) -> None:
        self.effects = self.machine.handle(event, 0)

    def read(self, session: StoredSession | None, revision: int = 5) -> None:
        """The store says what the cell has."""
        asked = self.effects[-1]
        assert isinstance(asked, GetKey) and asked.key == KEY
        cell = None if session is None else Cell(KEY, encode_session(session), revision)
        self.post(Stored(request=asked.request, value=cell))

    def wrote(self, value: Any) -> None:
        """The store has written, or says why not."""
        asked = self.effects[-1]
        assert isinstance(asked, PutKey)
        if isinstance(value, TocsinError):
            self.post(StoreFailed(request=asked.request, error=value))
        else:
            self.post(Stored(request=asked.request, value=value))

    @property
    def kinds(self) -> list[type[Effect]]:
        return [type(each) for each in self.effects]

    @property
    def written(self) -> StoredSession:
        asked = self.effects[-1]
        assert isinstance(asked, PutKey)
        return decode_session(asked.value)

    @property
    def error(self) -> Exception:
        failed = self.effects[-1]
        assert isinstance(failed, TakeFailed)
        return failed.error


def test_an_unserved_session_resumes_with_the_next_epoch_and_held_channels() -> None:
    take = Take()
    take.read(AWAY)
    assert take.kinds == [HoldChannels]
    take.post(ChannelsHeld())
    assert take.written == msgspec.structs.replace(AWAY, epoch=4, broker="north-1", home="north-1")
    take.wrote(6)
    assert take.kinds == [KeepChannels, SessionTaken]
    taken = take.effects[-1]
    assert isinstance(taken, SessionTaken) and taken.resumed and not taken.made and taken.revision == 6


def test_the_serving_broker_is_asked_once_and_its_last_state_goes_on() -> None:
    take = Take()
    take.read(ELSEWHERE)
    assert take.kinds == [AskHandOver]
    take.post(HandOverEnded())
    left = msgspec.structs.replace(ELSEWHERE, epoch=4)  # it did not let go, and wrote once more
    take.read(left, revision=9)
    assert take.kinds == [HoldChannels], "nobody is waited for twice"
    take.post(ChannelsHeld())
    assert take.written.epoch == 5 and take.effects[-1].revision == 9  # type: ignore[attr-defined]


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_clean_start_and_an_unheard_session_begin_a_new_one(confirmed: bool) -> None:
    take = Take(clean=confirmed)
    before = msgspec.structs.replace(AWAY, confirmed=confirmed)
    take.read(before)
    assert take.written.uid == "new" and take.written.epoch == 4 and take.written.progress.next == 8
    take.wrote(6)
    assert take.effects[0] == SessionReplaced(session=before)
    taken = take.effects[-1]
    assert isinstance(taken, SessionTaken) and not taken.resumed


def test_that_there_is_none_is_believed_of_a_fresh_read_only() -> None:
    take = Take(expiry_s=0)
    take.read(None)
    asked = take.effects[-1]
    assert isinstance(asked, GetKey) and asked.fresh
    take.read(None)
    assert take.kinds == [NoSession]
    take = Take(expiry_s=0)
    take.read(None)
    take.read(AWAY)  # the first read was old news
    assert take.kinds == [HoldChannels]


def test_one_session_more_is_made_if_there_is_room() -> None:
    take = Take()
    take.read(None)
    assert take.kinds == [CountRoom]
    take.post(RoomCounted(problem=None))
    take.wrote(1)
    taken = take.effects[-1]
    assert isinstance(taken, SessionTaken) and taken.made and taken.session.epoch == 1
    take = Take()
    take.read(None)
    take.post(RoomCounted(problem="too many"))
    assert isinstance(take.error, SessionsFull) and "too many" in str(take.error)


def test_a_silent_broker_is_asked_again_within_two_seconds() -> None:
    take = Take()
    take.read(ELSEWHERE)
    waited_ms = 0
    while take.kinds == [AskHandOver]:
        waited_ms += take.effects[-1].patience_ms  # type: ignore[attr-defined]
        take.post(HandOverEnded(silent=True))
    assert waited_ms == 2_000 and take.kinds == [GetKey]


@pytest.mark.parametrize("ended", [HandOverEnded(), HandOverEnded(silent=True, lost=True)])
def test_nobody_waits_for_a_broker_that_is_not_there(ended: HandOverEnded) -> None:
    """The bus knows by the second question that nobody listens; or the broker counts as lost by now."""
    take = Take()
    take.read(ELSEWHERE)
    take.post(HandOverEnded(silent=True))
    assert take.kinds == [AskHandOver]
    take.post(ended)
    assert take.kinds == [GetKey]


def test_another_users_session_is_refused_even_after_the_hand_over() -> None:
    take = Take(owner="bob")
    take.read(AWAY)
    assert isinstance(take.error, NotYours)
    take = Take(owner="bob")
    take.read(msgspec.structs.replace(ELSEWHERE, owner=""))
    take.post(HandOverEnded())
    take.read(AWAY)
    assert isinstance(take.error, NotYours)


def test_a_session_that_cannot_be_read_is_not_replaced() -> None:
    take = Take(clean=True)
    take.post(Stored(request="read", value=Cell(KEY, b"\xff", 1)))
    assert isinstance(take.error, Unreadable)
    assert "tocsin sessions list --damaged" in str(take.error)


def test_what_to_do_about_a_newer_session_fits_into_a_reason_string() -> None:
    take = Take()
    take.post(Stored(request="read", value=Cell(KEY, b"\x1f\x80", 1)))
    assert "Upgrade this process" in str(take.error)[:REASON_MAX_CHARS]


def test_a_conflicting_write_retries_from_the_start_and_gives_up_channels() -> None:
    take = Take()
    for _ in range(ATTEMPTS):
        take.read(AWAY)
        take.post(ChannelsHeld())
        take.wrote(Conflict("take", 5, 6))
        assert isinstance(take.effects[0], GiveUpChannels)
    assert isinstance(take.error, Lost)


@pytest.mark.parametrize(
    ("error", "words"),
    [(StoreFull("write", "no"), NO_ROOM), (StoreUnavailable("write", "away"), "away")],
)
def test_what_was_held_is_given_up_when_the_store_refuses(error: Exception, words: str) -> None:
    take = Take()
    take.read(AWAY)
    take.post(ChannelsHeld())
    take.wrote(error)
    assert take.kinds == [GiveUpChannels, TakeFailed] and words in str(take.error)


def test_for_a_client_that_left_nobody_is_asked_and_nothing_written() -> None:
    take = Take()
    take.read(ELSEWHERE)
    take.post(ClientGone())
    assert take.kinds == [TakeFailed] and isinstance(take.error, Abandoned)
    take = Take()
    take.read(AWAY)
    take.post(ChannelsHeld())
    take.post(ClientGone())
    assert take.kinds == [GiveUpChannels, TakeFailed] and isinstance(take.error, Abandoned)
    with pytest.raises(IllegalEvent):
        take.post(ClientGone())


class OneCell:
    """A table of one cell, and brokers that take it at the same time."""

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.revision = 0
        self.taken: list[StoredSession] = []

    def step(self, take: Take) -> bool:
        """Carry out what a broker asks for; whether it is done."""
        asked = take.effects[-1]
        match asked:
            case GetKey():
                cell = None if self.value is None else Cell(KEY, self.value, self.revision)
                take.post(Stored(request=asked.request, value=cell))
            case PutKey(revision=revision, value=value):
                if revision != self.revision:
                    take.wrote(Conflict("take", revision or 0, self.revision))
                else:
                    self.value, self.revision = value, self.revision + 1
                    self.taken.append(decode_session(value))
                    take.wrote(self.revision)
            case AskHandOver():
                take.post(HandOverEnded())
            case CountRoom():
                take.post(RoomCounted(problem=None))
            case HoldChannels():
                take.post(ChannelsHeld())
            case _:
                return True
        return False


@given(st.lists(st.integers(0, 2), max_size=60), st.lists(st.booleans(), min_size=3, max_size=3))
def test_of_brokers_that_take_one_session_at_once_each_epoch_is_ones(
    order: list[int], clean: list[bool]
) -> None:
    cell = OneCell()
    takes = [Take(broker=f"b-{number}", clean=each) for number, each in enumerate(clean)]
    for number in (*order, *[0] * 30, *[1] * 30, *[2] * 30):
        cell.step(takes[number])
    epochs = [each.epoch for each in cell.taken]
    assert epochs == list(range(1, len(epochs) + 1)), "the later has the larger one"
    for number, take in enumerate(takes):
        ended = take.effects[-1]
        assert isinstance(ended, SessionTaken | TakeFailed)
        mine = [each for each in cell.taken if each.broker == f"b-{number}"]
        assert [ended.session] == mine if isinstance(ended, SessionTaken) else not mine


def copied(positions: Positions, uid: str = "uid") -> CopiedPositions:
    return CopiedPositions(uid, positions)


def settled(progress: Progress, up_to: int) -> set[int]:
    """The positions that are not sent again."""
    return {each for each in range(1, up_to) if each < progress.next and each not in progress.unsettled}


@given(st.integers(1, 20), st.sets(st.integers(1, 19)), st.integers(0, 25))
def test_what_either_has_settled_is_settled(following: int, unsettled: set[int], eta: int) -> None:
    progress = Progress(following, tuple(sorted(each for each in unsettled if each < following)))
    session = msgspec.structs.replace(STORED, progress=progress)
    after = furthest(session, copied(Positions(messages=eta))).progress
    assert settled(after, 30) == settled(progress, 30) | set(range(1, eta + 1))


@pytest.mark.parametrize(
    ("session", "known"),
    [
        (STORED, None),
        (STORED, copied(Positions(messages=20), uid="another")),
        (STORED, copied(Positions(messages=3))),
        (msgspec.structs.replace(STORED, subscriptions={"a": Subscription(qos=2)}), copied(Positions(20))),
        (msgspec.structs.replace(STORED, progress=Progress(10, (), (5,))), copied(Positions(20))),
        (STORED, copied(Positions(messages=20, critical_messages=30))),
    ],
    ids=["no copy", "another session", "older", "QoS 2", "QoS 2 before", "other tracks"],
)
def test_the_store_alone_counts(session: StoredSession, known: CopiedPositions | None) -> None:
    assert furthest(session, known) == session


def test_each_track_has_its_own_position() -> None:
    session = msgspec.structs.replace(
        STORED,
        critical_messages=Progress(3),
        results=Progress(5),
        critical=Progress(50),
    )
    after = furthest(session, copied(Positions(messages=8, results=9, critical=2, critical_messages=12)))
    assert after.progress == Progress(10) and after.critical_messages == Progress(13)
    assert after.results == Progress(10) and after.critical == Progress(50)
