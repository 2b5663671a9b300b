"""Who is told of whom, and which old sessions are forgotten before a new one is taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.ownership import Claim
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, TimerFired
from tocsin.core.survival.announcements import (
    FORGET_US,
    LATEST_US,
    NEW_US,
    STEP_US,
    TELL_US,
    Announcements,
    AnnouncementTimer,
    Arrival,
    ArrivalClock,
    ArrivalTimes,
    BeganAnew,
    ClientCame,
    ClientLetIn,
    ClientWent,
    ForgetLot,
    ForgetNow,
    LotForgotten,
    OthersTold,
    TellOthers,
)


def arrival(client: str, *, broker: str = "own", came_us: int = 7) -> Arrival:
    return Arrival(Claim(client, "ann", broker, came_us), True)


class Broker:
    def __init__(self) -> None:
        self.machine = Announcements("own", ArrivalClock())
        self.now_us = 1_000_000

    def post(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self.now_us)

    def lets_in(self, client: str) -> list[Effect]:
        return self.post(ClientLetIn(arrival=arrival(client)))

    def fires(self, name: str) -> list[Effect]:
        return self.post(TimerFired(name=name))


def test_the_first_arrival_is_announced_at_once_and_later_ones_in_batches() -> None:
    broker = Broker()
    assert broker.lets_in("a") == [SetTimer(name=AnnouncementTimer.TELL, delay_us=0)]
    assert broker.fires(AnnouncementTimer.TELL) == [TellOthers(arrivals=(arrival("a"),))]
    broker.now_us += 500
    assert broker.lets_in("b") == [SetTimer(name=AnnouncementTimer.TELL, delay_us=TELL_US - 500)]
    assert broker.lets_in("c") == [], "the timer runs"
    assert broker.fires(AnnouncementTimer.TELL) == [TellOthers(arrivals=(arrival("b"), arrival("c")))]


def test_a_client_that_was_refused_or_left_is_not_announced() -> None:
    broker = Broker()
    broker.post(ClientCame(client="knocks", at_us=5))
    broker.lets_in("goes")
    broker.post(ClientWent(client="goes"))
    assert broker.fires(AnnouncementTimer.TELL) == []


def test_a_client_without_a_session_is_announced_if_it_stays_a_turn() -> None:
    """A broker that stood still reads the CONNECTs of clients that are elsewhere by now."""
    broker = Broker()
    for client in ("stays", "is gone"):
        broker.post(ClientLetIn(arrival=arrival(client), new=True))
    again = [SetTimer(name=AnnouncementTimer.TELL, delay_us=NEW_US)]
    assert broker.fires(AnnouncementTimer.TELL) == again
    broker.post(ClientWent(client="is gone"))
    assert broker.fires(AnnouncementTimer.TELL) == [TellOthers(arrivals=(arrival("stays"),))]


def test_clients_without_a_session_follow_those_that_have_one() -> None:
    broker = Broker()
    assert broker.post(ClientLetIn(arrival=arrival("new"), new=True)) == [
        SetTimer(name=AnnouncementTimer.TELL, delay_us=NEW_US)
    ]
    assert broker.lets_in("back") == [], "the timer runs"
    assert broker.fires(AnnouncementTimer.TELL) == [
        TellOthers(arrivals=(arrival("back"),)),
        SetTimer(name=AnnouncementTimer.TELL, delay_us=TELL_US),
    ]
    assert broker.fires(AnnouncementTimer.TELL) == [TellOthers(arrivals=(arrival("new"),))]
    assert broker.fires(AnnouncementTimer.TELL) == []


def test_a_word_counts_if_its_client_came_there_after_it_came_here() -> None:
    broker = Broker()
    broker.post(ClientCame(client="c", at_us=10))
    late, later = (arrival("c", broker="south", came_us=us) for us in (9, 11))
    own = arrival("d", came_us=11)
    assert broker.machine.elsewhere((late, later, own)) == [later]
    broker.post(ClientWent(client="c"))
    assert broker.machine.elsewhere((late,)) == [late]


def test_a_client_that_comes_after_its_announcement_stays_despite_clock_skew() -> None:
    broker = Broker()
    word = arrival("c", broker="south", came_us=60_000_000)
    broker.post(OthersTold(arrivals=(word,)))
    broker.post(ClientCame(client="c", at_us=10))
    assert broker.machine.times.came_us("c") > 60_000_000
    assert broker.machine.elsewhere((word,)) == []


def test_old_sessions_of_the_same_moment_are_one_lot() -> None:
    broker = Broker()
    assert broker.post(BeganAnew(client="a", owner="ann")) == [
        SetTimer(name=AnnouncementTimer.FORGET, delay_us=FORGET_US)
    ]
    assert broker.post(BeganAnew(client="b", owner="")) == []
    assert broker.fires(AnnouncementTimer.FORGET) == [
        SetTimer(name=AnnouncementTimer.FORGET, delay_us=FORGET_US)
    ], "whoever has given up is gone by the next time"
    assert broker.machine.is_waiting("a") and broker.machine.lot_of("a") is None
    assert broker.fires(AnnouncementTimer.FORGET) == [
        ForgetLot(number=1, owners={"a": "ann", "b": ""}, doubtful=frozenset(), after=())
    ]
    assert not broker.machine.is_waiting("a") and broker.machine.lot_of("a") == 1
    broker.post(LotForgotten(number=1))
    assert broker.machine.lot_of("a") is None


def test_a_second_clean_start_of_a_client_settles_with_the_later_lot() -> None:
    broker = Broker()
    broker.post(BeganAnew(client="a", owner=""))
    assert broker.post(ForgetNow()) == [
        CancelTimer(name=AnnouncementTimer.FORGET),
        ForgetLot(number=1, owners={"a": ""}, doubtful=frozenset(), after=()),
    ]
    broker.post(BeganAnew(client="a", owner=""))
    _, second = broker.post(ForgetNow())
    assert second == ForgetLot(number=2, owners={"a": ""}, doubtful=frozenset(), after=(1,))
    broker.post(LotForgotten(number=1))
    assert broker.machine.lot_of("a") == 2, "the first one is not enough"
    broker.post(LotForgotten(number=2))
    assert broker.machine.lot_of("a") is None
    assert broker.post(ForgetNow()) == [CancelTimer(name=AnnouncementTimer.FORGET)], "nothing is left"


def test_of_clients_that_went_unheard_an_old_session_is_doubtful() -> None:
    """Their CONNECT may have been read long after they gave it up."""
    broker = Broker()
    for client in ("went", "went unheard", "came again"):
        broker.post(BeganAnew(client=client, owner=""))
    broker.post(ClientWent(client="went"))
    broker.post(ClientWent(client="went unheard", unheard=True))
    broker.fires(AnnouncementTimer.FORGET)
    broker.post(ClientWent(client="came again", unheard=True))
    broker.post(BeganAnew(client="came again", owner=""))
    (lot, _) = broker.fires(AnnouncementTimer.FORGET)
    assert isinstance(lot, ForgetLot)
    assert lot.owners.keys() == {"went", "went unheard"} and lot.doubtful == {"went unheard"}
    (lot,) = broker.fires(AnnouncementTimer.FORGET)
    assert isinstance(lot, ForgetLot)
    assert lot.owners.keys() == {"came again"} and not lot.doubtful


clients = st.sampled_from("abc")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("in"), clients),
        st.tuples(st.just("went"), clients),
        st.tuples(st.just("anew"), clients),
        st.just(("tell", "")),
        st.just(("forget", "")),
        st.just(("done", "")),
    ),
    max_size=40,
)


@given(steps)
def test_in_any_order_arrivals_are_told_once_and_overlapping_lots_are_serial(
    history: list[tuple[str, str]],
) -> None:
    broker = Broker()
    untold: list[str] = []  # the dumb model
    open_lots: dict[int, ForgetLot] = {}
    for step, client in history:
        effects: list[Effect] = []
        match step:
            case "in":
                effects = broker.lets_in(client)
                untold = [*untold, client] if client not in untold else untold
            case "went":
                effects = broker.post(ClientWent(client=client))
                untold = [each for each in untold if each != client]
            case "anew":
                effects = broker.post(BeganAnew(client=client, owner=""))
            case "tell":
                effects = broker.fires(AnnouncementTimer.TELL)
                told = [each.claim.client for one in effects for each in one.arrivals]  # type: ignore[attr-defined]
                assert told == untold
                untold = []
            case "forget":
                effects = broker.post(ForgetNow())
            case "done" if open_lots:
                effects = broker.post(LotForgotten(number=open_lots.pop(min(open_lots)).number))
        for effect in effects:
            if isinstance(effect, ForgetLot):
                common = {
                    number for number, lot in open_lots.items() if lot.owners.keys() & effect.owners.keys()
                }
                assert set(effect.after) <= common
                assert {max(common)} <= set(effect.after) if common else not effect.after
                open_lots[effect.number] = effect
    for number in sorted(open_lots):
        broker.post(LotForgotten(number=number))
    assert all(broker.machine.lot_of(each) is None for each in "abc")


def test_a_word_from_before_the_client_came_is_too_late() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    assert presence.since("me", 99)
    assert not presence.since("me", 100), "of two that came at once nobody is the later one: the word counts"
    assert not presence.since("me", 101)


def test_of_a_client_that_is_not_here_every_word_counts() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.went("me")
    presence.went("you")
    assert not presence.since("me", 1)
    assert not presence.since("you", 1)


def test_who_comes_again_has_come_later() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.came("me", 200)
    assert presence.since("me", 150)


def test_two_arrivals_never_have_the_same_or_adjacent_times() -> None:
    clock = ArrivalClock()
    assert clock.next(100) == 100
    assert clock.next(100) == 100 + STEP_US
    assert clock.next(50) == 100 + 2 * STEP_US, "also if the clock on the wall goes back"
    assert clock.next(500) == 500


def test_an_arrival_after_an_announcement_is_later_despite_clock_skew() -> None:
    clock = ArrivalClock()
    clock.heard(900)
    assert clock.next(100) > 900
    clock.heard(200)
    assert clock.next(100) > 900 + STEP_US, "a word of an earlier time changes nothing"


def test_a_time_that_no_clock_can_have_is_not_believed() -> None:
    clock = ArrivalClock()
    clock.heard(LATEST_US + 1)
    assert clock.next(100) == 100


moves = st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50)), max_size=30)


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), moves)
def test_a_client_that_moves_comes_later_each_time_whatever_the_clocks_say(
    walls: list[int], moves: list[tuple[int, int]]
) -> None:
    clocks, came_us = [ArrivalClock() for _ in walls], 0
    for broker, passed in moves:
        walls = [max(0, each + passed) for each in walls]
        before_us, came_us = came_us, clocks[broker].next(walls[broker])
        assert came_us > before_us
        for clock in clocks:
            clock.heard(came_us)
