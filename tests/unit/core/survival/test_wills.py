"""Wills that wait: their time comes, unless somebody knows better by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, TimerFired
from tocsin.core.survival.wills import (
    ASK_AGAIN_US,
    ASKS_MAX,
    AliveKnown,
    AskAlive,
    ClientLives,
    InquireWill,
    PublishWill,
    ReleaseRoom,
    ReserveRoom,
    RoomReserved,
    WaitingWills,
    WillDue,
    WillInquired,
    WillLeft,
    WillPublished,
    WillsSettled,
    came_since,
)
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import Bequest

WILL = Bequest(Publication("gone", b"x", 1, "c"), 7, "b.1.will", "uid", 4)


def session(uid: str, epoch: int, left: int = 0) -> StoredSession:
    return StoredSession("c", uid=uid, expiry_s=60, broker="b", progress=Progress(1), epoch=epoch, left=left)


class Waits:
    """The shell of the machine, with a clock of its own."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room  # bytes for each user
        self.reserved: Counter[str] = Counter()
        self.now_s = 0
        self.published: list[Bequest] = []
        self.slow = False  # whoever publishes says later that it is done
        self.under_way: list[int] = []
        self.settled: list[str] = []
        self.asked: list[tuple[str, int]] = []  # whose wills are inquired about
        self.alive: Callable[[], bool | None] = lambda: False  # what the copies say
        self.machine = WaitingWills()
        self._rooms: dict[int, tuple[str, int]] = {}
        self._alarms: dict[str, int] = {}

    def delay(self, client: str, will: Bequest, delay_s: int, *, of: str = "", aloud: bool = False) -> None:
        self.post(WillLeft(client=client, will=will, delay_s=delay_s, of=of, aloud=aloud))

    def give_out(self, client: str, will: Bequest) -> None:
        self.post(WillDue(client=client, will=will))

    def came(self, client: str, owner: str = "", *, back: bool) -> None:
        self.post(ClientLives(client=client, owner=owner, back=back))

    def answer(self, settled: bool) -> None:
        """What came of the first inquiry."""
        self.post(WillInquired(number=self.asked[0][1], settled=settled))

    def logged(self) -> None:
        """What was published last is in the log."""
        self.post(WillPublished(number=self.under_way.pop()))

    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        for name, at_s in sorted(self._alarms.items(), key=lambda item: item[1]):
            if at_s <= self.now_s and self._alarms.pop(name, None) is not None:
                self.post(TimerFired(name=name))

    def post(self, event: Event) -> None:
        events = [event]
        while events:
            for effect in self.machine.handle(events.pop(0), self.now_s * 1_000_000):
                events += self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> list[Event]:
        match effect:
            case SetTimer(name=name, delay_us=delay_us):
                self._alarms[name] = self.now_s + delay_us // 1_000_000
            case CancelTimer(name=name):
                self._alarms.pop(name, None)
            case ReserveRoom(number=number, user=user, size=size):
                fits = self.reserved[user] + size <= self.room
                if fits:
                    self.reserved[user] += size
                    self._rooms[number] = user, size
                return [RoomReserved(number=number, fits=fits)]
            case ReleaseRoom(number=number):
                user, size = self._rooms.pop(number, ("", 0))
                self.reserved[user] -= size
            case AskAlive(number=number):
                return [AliveKnown(number=number, alive=self.alive())]
            case InquireWill(number=number, client=client, will=will):
                assert will == Bequest(WILL.publication, 10, WILL.record_id, WILL.session, WILL.epoch)
                self.asked.append((client, number))
            case PublishWill(number=number, will=will):
                self.published.append(will)
                if not self.slow:
                    return [WillPublished(number=number)]
                self.under_way.append(number)
            case WillsSettled(client=client):
                self.settled.append(client)
            case _:
                raise AssertionError(effect)
        return []


@pytest.mark.parametrize("alive", [True, False])
def test_a_due_will_is_checked_by_an_inquiry_whose_answer_counts(alive: bool) -> None:
    waits = Waits()
    waits.delay("c", WILL, 10, of="north-1")
    waits.wait(9)
    assert waits.asked == []
    waits.wait(1)
    [(client, _)] = waits.asked
    assert client == "c" and waits.published == [] and len(waits.machine) == 1
    waits.answer(alive)
    assert len(waits.published) == (not alive) and waits.settled == ["c"] and len(waits.machine) == 0
    waits.answer(False)
    assert len(waits.published) == (not alive), "once"


def test_nobody_is_asked_of_a_client_that_is_known_to_live() -> None:
    waits = Waits()
    waits.alive = lambda: True
    waits.delay("c", WILL, 10, of="north-1")
    waits.wait(10)
    assert waits.asked == [] and waits.published == [] and waits.settled == ["c"]


def test_what_becomes_known_while_somebody_is_asked_counts_too() -> None:
    waits, known = Waits(), list[bool]()
    waits.alive = lambda: bool(known)
    waits.delay("c", WILL, 10, of="north-1")
    waits.wait(10)
    known.append(True)
    waits.answer(False)
    assert waits.published == [] and waits.settled == ["c"]


def test_a_client_that_comes_while_somebody_is_asked_lives_whatever_the_answer() -> None:
    waits = Waits()
    waits.delay("c", WILL, 10, of="north-1")
    waits.wait(10)
    waits.came("c", back=True)
    waits.delay("c", WILL, 10)
    waits.answer(False)
    assert waits.published == [] and len(waits.machine) == 1, "the answer is of the will before"
    waits.wait(10)
    assert len(waits.published) == 1


@pytest.mark.parametrize(
    ("stored", "came"),
    [
        (None, False),
        (session("uid", 4), False),
        (session("uid", 5), True),
        (session("another", 1), True),
        (session("uid", 4, left=3), False),
        (session("uid", 4, left=4), True),
    ],
)
def test_a_taken_or_cleanly_ended_session_shows_its_client_returned(
    stored: StoredSession | None, came: bool
) -> None:
    assert came_since(WILL, stored) is came
    assert came_since(Bequest(WILL.publication), stored) is False, "nothing is known of its session"


def test_another_users_session_under_the_same_id_says_nothing_of_a_client() -> None:
    hers = msgspec.structs.replace(WILL, owner="alice")
    his = msgspec.structs.replace(session("another", 1), owner="mallory")
    assert not came_since(hers, his)
    assert came_since(hers, msgspec.structs.replace(his, owner="alice"))


def test_another_user_that_comes_under_the_same_id_leaves_a_will_waiting() -> None:
    waits = Waits()
    waits.delay("c", msgspec.structs.replace(WILL, owner="alice"), 10)
    for back in (True, False):
        waits.came("c", "mallory", back=back)
        waits.came("c", back=back)
    assert len(waits.machine) == 1 and waits.published == []
    waits.came("c", "alice", back=True)
    assert len(waits.machine) == 0 and waits.published == []


def test_wills_of_a_copy_wait_however_many_they_are() -> None:
    waits = Waits(room=1)
    for client in "abc":
        waits.delay(client, WILL, 10, of="north-1")
    assert len(waits.machine) == 3 and waits.published == []


def owned(user: str, payload: bytes = b"x") -> Bequest:
    return msgspec.structs.replace(WILL, owner=user, publication=Publication("gone", payload, 1, "c"))


def test_wills_that_find_no_room_are_published_at_once_and_others_wait() -> None:
    waits = Waits(room=100_000)
    waits.delay("a", owned("alice", bytes(60_000)), 10)
    waits.delay("b", owned("alice", bytes(60_000)), 10)
    waits.delay("m", owned("mallory"), 10)
    assert [will.owner for will in waits.published] == ["alice"] and len(waits.machine) == 2
    assert waits.reserved["alice"] > 60_000 > waits.reserved["mallory"] > 0


def test_a_wills_reservation_is_released_when_the_log_has_it() -> None:
    waits = Waits(room=100_000)
    waits.slow = True
    waits.delay("c", owned("alice"), 10)
    before = waits.reserved["alice"]
    waits.wait(10)
    assert waits.reserved["alice"] == before > 0
    waits.logged()
    assert waits.reserved["alice"] == 0


def test_a_will_without_delay_is_counted_until_it_is_in_the_log() -> None:
    waits = Waits(room=100_000)
    waits.slow = True
    waits.give_out("c", owned("alice"))
    assert waits.reserved["alice"] > 0
    waits.logged()
    assert waits.reserved["alice"] == 0


def test_what_a_will_reserved_is_given_back_when_its_client_comes() -> None:
    waits = Waits(room=100_000)
    waits.delay("c", owned("alice"), 10)
    waits.came("c", "alice", back=True)
    assert waits.reserved["alice"] == 0 and waits.published == []


def test_a_delayed_will_is_settled_when_the_log_has_it() -> None:
    waits = Waits()
    waits.slow = True
    waits.delay("c", WILL, 10)
    waits.wait(10)
    assert len(waits.published) == 1 and waits.settled == []
    assert waits.machine.unsettled("c") == waits.published[0], "backups go on knowing it"
    waits.came("c", back=True)
    assert waits.settled == [], "nothing stops it any more"
    waits.logged()
    assert waits.settled == ["c"] and waits.machine.unsettled("c") is None


def test_an_undelayed_will_is_settled_when_the_log_has_it() -> None:
    waits = Waits()
    waits.slow = True
    waits.give_out("c", WILL)
    assert waits.machine.unsettled("c") == WILL and waits.published == [WILL] and len(waits.machine) == 0
    waits.logged()
    assert waits.settled == ["c"] and waits.machine.unsettled("c") is None


def test_a_client_is_settled_when_the_last_of_its_wills_is() -> None:
    waits = Waits()
    waits.slow = True
    waits.give_out("c", WILL)
    second = Bequest(WILL.publication, 3, "b.2.will")
    waits.delay("c", second, 3)
    assert waits.machine.unsettled("c") == second
    waits.logged()
    assert waits.settled == [], "the second one waits"
    waits.wait(3)
    waits.logged()
    assert waits.settled == ["c"]


def test_a_client_is_unsettled_while_its_second_will_waits() -> None:
    waits = Waits()
    waits.delay("c", WILL, 10)
    waits.delay("c", Bequest(WILL.publication, 3, "b.2.will"), 10)
    assert len(waits.published) == 1 and waits.settled == []
    waits.wait(10)
    assert len(waits.published) == 2 and waits.settled == ["c"]


@pytest.mark.parametrize("answer", [True, False])
def test_who_does_not_know_yet_is_asked_again(answer: bool) -> None:
    waits, answers = Waits(), [answer, None, None]
    waits.alive = answers.pop
    waits.delay("c", WILL, 10, of="north-1", aloud=True)
    waits.wait(10)
    waits.wait(ASK_AGAIN_US // 1_000_000)
    assert waits.published == [] and waits.settled == [] and len(waits.machine) == 1
    waits.wait(ASK_AGAIN_US // 1_000_000)
    assert answers == [] and len(waits.published) == (not answer) and waits.settled == ["c"]


def test_who_never_knows_is_not_asked_for_ever_but_the_store_is() -> None:
    waits = Waits()
    waits.alive = lambda: None
    waits.delay("c", WILL, 10, of="north-1")
    waits.wait(10)
    for _ in range(ASKS_MAX):
        assert waits.asked == []
        waits.wait(ASK_AGAIN_US // 1_000_000)
    assert len(waits.asked) == 1 and waits.published == []


def test_a_client_that_comes_while_nobody_knows_lives() -> None:
    waits = Waits()
    waits.alive = lambda: None
    waits.delay("c", WILL, 10, of="north-1", aloud=True)
    waits.wait(10)
    waits.came("c", back=True)
    waits.wait(ASK_AGAIN_US // 1_000_000 * (ASKS_MAX + 1))
    assert waits.published == [] and waits.settled == ["c"]


steps = st.one_of(
    st.tuples(st.just("delay"), st.sampled_from("ab"), st.integers(0, 5)),
    st.tuples(st.just("came"), st.sampled_from("ab"), st.booleans()),
    st.tuples(st.just("wait"), st.just(""), st.integers(1, 4)),
)


@given(st.lists(steps, max_size=30))
def test_each_will_is_published_or_dropped_as_a_list_of_them_says(script: list[tuple[str, str, int]]) -> None:
    waits, model, published = Waits(), dict[str, tuple[int, bytes]](), list[bytes]()
    for number, (what, client, value) in enumerate(script):
        if what == "wait":
            waits.wait(value)
            due = sorted((at_s, each) for each, (at_s, _) in model.items() if at_s <= waits.now_s)
            published += [model.pop(each)[1] for _, each in due]
        elif what == "came":
            waits.came(client, back=bool(value))
            if client in model:
                payload = model.pop(client)[1]
                published += [] if value else [payload]
        else:
            payload = b"%d" % number
            waits.delay(client, Bequest(Publication("gone", payload, 1, client)), value)
            if client in model:
                published.append(model.pop(client)[1])
            model[client] = (waits.now_s + value, payload)
    assert sorted(each.publication.payload for each in waits.published) == sorted(published)
    assert len(waits.machine) == len(model)


def test_of_two_wills_of_one_session_the_older_is_void() -> None:
    newer = msgspec.structs.replace(WILL, epoch=WILL.epoch + 1, record_id="b.2.will")
    for order in ((WILL, newer), (newer, WILL)):
        waits = Waits()
        for will, broker in zip(order, ("north", "south"), strict=True):
            waits.delay("c", will, 10, of=broker, aloud=True)
        assert waits.published == []
        waits.wait(10)
        assert [each.record_id for each in waits.published] == ["b.2.will"]


def test_of_two_wills_of_unknown_age_both_are_published() -> None:
    other = msgspec.structs.replace(WILL, session="", record_id="b.2.will")
    waits = Waits()
    waits.delay("c", WILL, 10, of="north", aloud=True)
    waits.delay("c", other, 10, of="south", aloud=True)
    waits.wait(10)
    assert [each.record_id for each in waits.published] == ["b.1.will", "b.2.will"]
