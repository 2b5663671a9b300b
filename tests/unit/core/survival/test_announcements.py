"""Who is told of whom, and which old sessions are forgotten before a new one is taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.ownership import Claim
from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, TimerFired
from tocsin.core.survival.announcements import (
    FORGET_US,
    TELL_US,
    Announcements,
    AnnouncementTimer,
    Arrival,
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
from tocsin.core.survival.arrival_times import ArrivalClock


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
    assert broker.machine.is_waiting("a") and broker.machine.lot_of("a") is None
    assert broker.fires(AnnouncementTimer.FORGET) == [
        ForgetLot(number=1, owners={"a": "ann", "b": ""}, after=())
    ]
    assert not broker.machine.is_waiting("a") and broker.machine.lot_of("a") == 1
    broker.post(LotForgotten(number=1))
    assert broker.machine.lot_of("a") is None


def test_a_second_clean_start_of_a_client_settles_with_the_later_lot() -> None:
    broker = Broker()
    broker.post(BeganAnew(client="a", owner=""))
    assert broker.post(ForgetNow()) == [
        CancelTimer(name=AnnouncementTimer.FORGET),
        ForgetLot(number=1, owners={"a": ""}, after=()),
    ]
    broker.post(BeganAnew(client="a", owner=""))
    _, second = broker.post(ForgetNow())
    assert second == ForgetLot(number=2, owners={"a": ""}, after=(1,))
    broker.post(LotForgotten(number=1))
    assert broker.machine.lot_of("a") == 2, "the first one is not enough"
    broker.post(LotForgotten(number=2))
    assert broker.machine.lot_of("a") is None
    assert broker.post(ForgetNow()) == [CancelTimer(name=AnnouncementTimer.FORGET)], "nothing is left"


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
