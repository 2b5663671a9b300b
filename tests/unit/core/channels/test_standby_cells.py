"""What a broker holds as a standby, beside what it holds in earnest: S1 and S2 of the paper, whatever the order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.core.channels.test_machine import (
    AS_TEXT,
    FIVE,
    FIVE_TOO,
    K5,
    K6,
    KEY5,
    NEAR,
    SIX,
    UNKNOWN,
    Held5,
    of,
)
from tocsin.core.channels.cells import LATER_MAX, LATER_PAUSE_US, SubscriptionCells
from tocsin.core.channels.channel_filter import bind, read_channel_filter
from tocsin.core.channels.coming import SLICE, SLICE_PAUSE_US, SOON_MOST_US, SOON_US
from tocsin.core.channels.signals import (
    CellFound,
    Defined,
    Held,
    HoldingsTimer,
    Left,
    Prepared,
    Scanned,
    Undefined,
    Unprepared,
    Wanted,
)
from tocsin.core.machine import DeleteKey, Effect, Event, PutKey, SetTimer, StoreFailed, TimerFired
from tocsin.model.results import decode_subscription, k_of

STANDBY5 = f"{KEY5}._standby"
LATER = TimerFired(name=HoldingsTimer.LATER)


class Backing(Held5):
    """With a store that does what it is asked, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[str, int] = {}
        self.asked: list[PutKey | DeleteKey] = []
        self.revision = 0

    def prepare(self, *names: str, primary: str = "p", ticket: int = 0) -> None:
        self.do(Prepared(primary=primary, names=names, ticket=ticket))

    def unprepare(self, *names: str, primary: str = "p") -> None:
        self.do(Unprepared(primary=primary, names=names))

    def do(self, event: Event, now_us: int = 0) -> list[Effect]:
        effects = self.tell(event, now_us)
        self.asked += [each for each in effects if isinstance(each, PutKey | DeleteKey)]
        return list(effects)

    def answer(self, at: int = 0) -> list[Effect]:
        from tocsin.core.machine import Stored

        asked = self.asked.pop(at)
        if isinstance(asked, PutKey):
            assert decode_subscription(asked.value).key == asked.key
            self.revision += 1
            self.table[asked.key] = self.revision
            return self.do(Stored(request=asked.request, value=self.revision))
        assert self.table.pop(asked.key) == asked.revision
        return self.do(Stored(request=asked.request))

    def settle(self) -> None:
        self.do(LATER)
        while self.asked:
            self.answer()


def test_the_primarys_subscriptions_are_put_as_standby_cells_and_then_reported() -> None:
    backing = Backing()
    backing.prepare(FIVE, ticket=9)
    assert [each.key for each in backing.asked] == [STANDBY5]
    assert backing.answer() == [Held(tickets=(9,))]
    assert backing.machine.statistics()["channel_standbys"] == 1
    assert backing.machine.statistics()["channel_subscriptions"] == 0
    assert list(backing.machine.names(K5)) == []


def test_an_active_cell_needs_no_standby_and_replaces_it_without_a_gap() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    backing.settle()
    backing.want()
    backing.do(LATER)
    assert [each.key for each in backing.asked] == [KEY5]
    backing.answer()
    assert [(type(each), each.key) for each in backing.asked] == [(DeleteKey, STANDBY5)]
    backing.settle()
    assert list(backing.table) == [KEY5]
    backing.prepare(FIVE_TOO, primary="q")
    assert backing.asked == []
    effects = backing.unwant()
    assert [(type(each), each.key) for each in of(effects, PutKey)] == [(PutKey, STANDBY5)]


SOON = TimerFired(name=HoldingsTimer.SOON)


def prepared(*names: str) -> Backing:
    """A backup whose standby cells for these are stored."""
    backing = Backing()
    backing.prepare(*names)
    backing.settle()
    return backing


def come(*names: str, session: str = "s1", ticket: int = 7) -> Wanted:
    """A session comes with all its subscriptions."""
    return Wanted(session=session, client="c1", names=names, all=True, ticket=ticket)


def test_a_session_that_is_prepared_is_answered_before_it_is_taken_up() -> None:
    backing = prepared(FIVE, SIX)
    effects = backing.do(come(FIVE, SIX))
    assert effects == [
        Held(tickets=(7,)),
        SetTimer(name=HoldingsTimer.SOON, delay_us=SOON_US),
    ]
    machine = backing.machine
    assert machine.sessions == {}
    assert list(machine.names(K5)) == [FIVE] and list(machine.names(K6)) == [SIX]
    assert machine.unseen(0) == {K5, K6}
    found = machine.meaning(FIVE)
    assert found is not None and found.k == K5
    assert machine.meaning(FIVE_TOO) is None  # nobody has it
    backing.do(SOON, SOON_MOST_US)
    assert list(machine.sessions) == ["s1"]
    assert list(machine.names(K5)) == [FIVE] and machine.unseen(0) == {K5, K6}
    backing.do(LATER)
    assert [each.key for each in backing.asked] == [KEY5, KEY5.replace(K5, K6)]


def test_coming_sessions_are_taken_up_before_anything_else_happens() -> None:
    backing = prepared(FIVE)
    backing.do(come(FIVE))
    backing.unprepare(FIVE)  # the cell that covers it must not go
    assert list(backing.machine.sessions) == ["s1"]
    assert backing.asked == [] and list(backing.table) == [STANDBY5]
    backing.do(LATER)
    backing.settle()
    assert list(backing.table) == [KEY5]


def test_a_session_that_leaves_at_once_leaves_nothing_behind() -> None:
    backing = prepared(FIVE)
    backing.do(Scanned(whole=True))
    backing.do(come(FIVE))
    backing.do(Left(session="s1", expiry_s=0))
    assert backing.machine.sessions == {} and not list(backing.machine.names(K5))
    backing.do(SOON, SOON_MOST_US)
    backing.settle()
    assert list(backing.table) == [STANDBY5]


@pytest.mark.parametrize(
    "event",
    [
        come(FIVE, SIX),  # one is not prepared
        come(FIVE, ticket=0),  # nobody waits
        msgspec.structs.replace(come(FIVE), all=False),  # it is here, and subscribes
    ],
)
def test_a_session_with_anything_to_wait_for_is_taken_up_now(event: Wanted) -> None:
    backing = prepared(FIVE)
    assert SOON_US not in [each.delay_us for each in of(backing.do(event), SetTimer)]
    assert list(backing.machine.sessions) == ["s1"]


def test_a_session_that_comes_again_is_taken_as_it_is_now() -> None:
    backing = prepared(FIVE, SIX)
    backing.do(come(FIVE, SIX))
    backing.do(come(SIX, ticket=8))
    assert list(backing.machine.sessions["s1"].names) == [SIX]
    backing.do(SOON, SOON_MOST_US)
    assert list(backing.machine.names(K5)) == []


def test_nobody_is_taken_up_while_others_come_but_for_a_second() -> None:
    backing = prepared(FIVE)
    for number, at_us in enumerate((0, SOON_US // 2)):
        backing.do(come(FIVE, session=f"s{number}"), at_us)
    effects = backing.do(SOON, SOON_US)
    assert effects == [SetTimer(name=HoldingsTimer.SOON, delay_us=SOON_US // 2)]
    backing.do(come(FIVE, session="s2"), SOON_MOST_US - 1)
    assert backing.do(SOON, SOON_MOST_US - 1) == [SetTimer(name=HoldingsTimer.SOON, delay_us=1)]
    assert backing.machine.sessions == {}
    backing.do(SOON, SOON_MOST_US)
    assert len(backing.machine.sessions) == 3


def test_many_subscriptions_are_taken_up_some_at_a_time() -> None:
    names = tuple(f"$channel/Near/{number}" for number in range(SLICE + 3))
    backing = prepared(*names)
    backing.do(come(*names))
    backing.do(come(FIVE, session="s2", ticket=8))
    taken = []
    for _ in range(2):
        effects = backing.do(SOON, SOON_MOST_US)
        taken.append(sum(len(each.names) for each in backing.machine.sessions.values()))
        again = [each for each in of(effects, SetTimer) if each.name == HoldingsTimer.SOON]
        assert [each.delay_us for each in again] == ([SLICE_PAUSE_US] if len(taken) == 1 else [])
    assert taken == [SLICE, SLICE + 4]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("come", "leave", "unprepare", "prepare", "soon", "later", "answer")),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_it_makes_no_difference_when_a_session_is_taken_up(story: list[tuple[str, int]]) -> None:
    """Beside a machine that takes every session up as soon as it comes."""

    def play(*, at_once: bool) -> tuple[set[str], list[set[str]], set[str]]:
        backing = prepared(FIVE, SIX)
        backing.do(Scanned(whole=True))
        for what, number in story:
            name, session = (FIVE, FIVE_TOO, SIX)[number % 3], f"s{number % 2}"
            match what:
                case "come":
                    backing.do(come(*((FIVE, SIX) if number > 3 else (name,)), session=session))
                    if at_once:
                        backing.do(SOON, SOON_MOST_US)
                case "leave":
                    backing.do(Left(session=session, expiry_s=0))
                case "prepare":
                    backing.prepare(name)
                case "unprepare":
                    backing.unprepare(name)
                case "soon":
                    backing.do(SOON, SOON_MOST_US)
                case "later":
                    backing.do(LATER)
                case "answer" if backing.asked:
                    backing.answer()
        meant = [set(backing.machine.names(k)) for k in (K5, K6)]
        unseen = backing.machine.unseen(0)
        backing.do(SOON, SOON_MOST_US)
        for _ in range(4):
            backing.settle()
        return set(backing.table), meant, unseen & {k for k in (K5, K6) if any(backing.machine.names(k))}

    assert play(at_once=False) == play(at_once=True)


def test_a_takeover_of_what_is_prepared_waits_for_no_write() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    backing.settle()
    effects = backing.want(FIVE, ticket=7)
    assert Held(tickets=(7,)) in effects and not of(effects, PutKey)
    assert [each.name for each in of(effects, SetTimer)] == [HoldingsTimer.LATER]
    assert [each.key for each in of(backing.tell(LATER), PutKey)] == [KEY5], "it is written behind that"
    assert K5 in backing.machine.unseen(100), "and until a tick knows it, rows are looked for in all files"


def test_a_takeover_waits_for_a_standby_that_is_not_stored() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    effects = backing.want(FIVE, ticket=7)
    assert Held(tickets=(7,)) not in effects
    backing.asked += of(effects, PutKey)
    assert [each.key for each in backing.asked] == [STANDBY5, KEY5]
    backing.answer()
    assert Held(tickets=(7,)) in backing.answer()


def test_a_standby_cell_in_use_stays_until_the_active_cell_is_stored() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    backing.settle()
    backing.want(FIVE, ticket=7)
    backing.unprepare(FIVE)
    assert backing.asked == [] and list(backing.table) == [STANDBY5]
    backing.settle()
    assert list(backing.table) == [KEY5]


def test_cells_that_nobody_waits_for_are_written_some_at_a_time() -> None:
    backing = Backing()
    names = [f"$channel/Near/{number}" for number in range(LATER_MAX + 1)]
    backing.prepare(*names)
    backing.settle()
    for name in names:
        backing.want(name)
    effects = backing.do(LATER)
    assert len(backing.asked) == LATER_MAX
    assert [each.delay_us for each in effects if isinstance(each, SetTimer)] == [LATER_PAUSE_US]
    backing.unprepare(names[-1])
    backing.do(LATER)
    assert len(backing.asked) == LATER_MAX + 1 and backing.do(LATER) == []


def test_a_cell_that_somebody_waits_for_after_all_is_written_at_once() -> None:
    cells, bound = SubscriptionCells("b"), bind(read_channel_filter(FIVE), NEAR)
    assert not of(cells.want(FIVE, bound, later_us=0), PutKey)
    assert [each.key for each in of(cells.wait(1, [bound.k]), PutKey)] == [KEY5]
    assert cells.late() == []


def test_a_standby_that_nobody_counts_on_any_more_goes() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    backing.settle()
    backing.want(FIVE, ticket=7)
    backing.unprepare(FIVE)
    backing.asked += of(backing.unwant(FIVE), DeleteKey)
    backing.settle()
    assert backing.table == {}


NAMES = {FIVE: K5, FIVE_TOO: K5, SIX: K6}
steps = ("prepare", "unprepare", "want", "unwant", "later", "answer", "answer")


@given(
    st.lists(st.tuples(st.sampled_from(steps), st.sampled_from(tuple(NAMES)), st.integers(0, 5)), max_size=40)
)
@example([("want", FIVE, 0), ("unprepare", FIVE, 0), ("answer", FIVE, 0)])
@settings(max_examples=300, deadline=None)
def test_what_a_client_was_promised_always_has_a_cell(happened: list[tuple[str, str, int]]) -> None:
    backing, tickets, promised = Backing(), dict[int, str](), set[str]()
    prepared, wanted = {FIVE, SIX}, set[str]()
    backing.prepare(FIVE, SIX)
    backing.settle()
    for number, (what, name, chance) in enumerate(happened, 1):
        effects: list[Effect] = []
        match what:
            case "prepare" if name not in prepared:
                prepared.add(name)
                backing.prepare(name)
            case "unprepare" if name in prepared:
                prepared.discard(name)
                backing.unprepare(name)
            case "want" if name not in wanted:
                wanted.add(name)
                tickets[number] = name
                effects = list(backing.want(name, ticket=number))
                backing.asked += [each for each in effects if isinstance(each, PutKey | DeleteKey)]
            case "unwant" if name in wanted:
                wanted.discard(name)
                promised.discard(name)
                effects = list(backing.unwant(name))
                backing.asked += [each for each in effects if isinstance(each, PutKey | DeleteKey)]
            case "later":
                effects = backing.do(LATER)
            case "answer" if backing.asked:
                effects = backing.answer(chance % len(backing.asked))
        for held in (each for each in effects if isinstance(each, Held)):
            promised |= {tickets[each] for each in held.tickets if tickets[each] in wanted}
        stored = {key.split(".")[1] for key in backing.table}
        assert {NAMES[each] for each in promised} <= stored
    backing.settle()


def test_a_put_of_which_no_answer_came_is_put_again_later() -> None:
    backing = Backing()
    backing.prepare(FIVE)
    (asked,) = backing.asked
    (_, timer) = backing.tell(StoreFailed(request=asked.request, error=UNKNOWN))
    assert isinstance(timer, SetTimer)
    (again,) = backing.tell(TimerFired(name=timer.name))
    assert isinstance(again, PutKey) and again.key == STANDBY5


def test_standbys_of_an_earlier_process_are_removed_if_nobody_wants_them() -> None:
    backing = Backing()
    backing.do(CellFound(key=STANDBY5, revision=3))
    effects = backing.do(Scanned(whole=True))
    assert [(each.key, each.revision) for each in effects if isinstance(each, DeleteKey)] == [(STANDBY5, 3)]


@pytest.mark.parametrize("name", ["$channel/+", "$channel/", "$channel/Nowhere/1"])
def test_names_that_mean_nothing_hold_nothing(name: str) -> None:
    backing = Backing()
    assert backing.do(Prepared(primary="p", names=(name,), ticket=4)) == [Held(tickets=(4,))]
    backing.unprepare(name)
    assert backing.asked == []


happenings = st.lists(
    st.tuples(
        st.sampled_from(("prepare", "unprepare", "want", "unwant", "answer", "define", "undefine", "retype")),
        st.sampled_from(tuple(NAMES)),
        st.sampled_from("pq"),
    ),
    max_size=50,
)


@given(happenings)
@settings(max_examples=300, deadline=None)
def test_standbys_are_what_the_copies_have_and_this_broker_does_not_hold(
    happened: list[tuple[str, str, str]],
) -> None:
    backing = Backing()
    prepared: dict[str, set[str]] = {"p": set(), "q": set()}
    earnest: set[str] = set()
    kind: str | None = "number"
    for what, name, primary in happened:
        match what:
            case "prepare" if name not in prepared[primary]:
                prepared[primary].add(name)
                backing.prepare(name, primary=primary)
            case "unprepare" if name in prepared[primary]:
                prepared[primary].discard(name)
                backing.unprepare(name, primary=primary)
            case "want":
                earnest.add(name)
                backing.asked += [each for each in backing.want(name, ticket=0) if isinstance(each, PutKey)]
            case "unwant" if name in earnest:
                earnest.discard(name)
                found = backing.unwant(name)
                backing.asked += [each for each in found if isinstance(each, PutKey | DeleteKey)]
            case "answer" if backing.asked:
                backing.answer(len(name + primary) % len(backing.asked))
            case "define":
                kind = "number"
                backing.do(Defined(channel=NEAR))
            case "retype":
                kind = "text"
                backing.do(Defined(channel=AS_TEXT))
            case "undefine":
                kind = None
                backing.do(Undefined(name="near"))
    backing.settle()

    def meant(name: str) -> str:
        if kind == "number":
            return NAMES[name]
        return k_of("Near", ({FIVE: "5", FIVE_TOO: "5.0", SIX: "6"}[name],))

    held = {meant(name) for name in earnest} if kind else set()
    copied = {meant(name) for each in prepared.values() for name in each} if kind else set()
    assert {key.split(".")[1] for key in backing.table if not key.endswith("_standby")} == held
    assert {key.split(".")[1] for key in backing.table if key.endswith("_standby")} == copied - held
