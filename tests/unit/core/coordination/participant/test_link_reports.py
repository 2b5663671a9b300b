"""What a broker tells of its links, and when."""

from __future__ import annotations

from tests.unit.core.coordination.one_broker import Broker, of, sent
from tocsin.core.coordination.participant.link_reports import (
    CUT_US,
    KEEP_US,
    QUIET_US,
    RECENT_US,
    Linkage,
)
from tocsin.core.coordination.participant.signals import LinksEnded, LinksSeen, MeasureLinks
from tocsin.core.links.path import STEADY_US
from tocsin.wire.internal.control import CUTS_MAX, PEERS_MAX, Links, Measure, Pulse
from tocsin.wire.internal.notices import Bypass

SECOND_US = 1_000_000
KNOWN = Bypass((("b", ("c",)),), ())


class Looked:
    """A linkage that is looked at every second."""

    def __init__(self) -> None:
        self.linkage = Linkage("a")
        self.now_us = 0
        self.epoch = 1
        self.bypass = Bypass()

    def see(self, *down: str, asked: bool = False, **delays: int) -> Links | None:
        self.now_us += SECOND_US
        seen = LinksSeen(down=down, delays=delays, asked=asked)
        return self.linkage.see(seen, 7, self.epoch, self.bypass, self.now_us)


def test_a_link_is_cut_when_it_was_away_for_a_while() -> None:
    looked = Looked()
    looked.see("b")
    said = [looked.see("b") for _ in range(CUT_US // SECOND_US + 1)]
    assert said == [None, None, Links("a", 7, ("b",), ())]


def test_a_link_that_is_back_in_time_was_never_cut() -> None:
    looked = Looked()
    looked.see("b")
    looked.see("b")
    looked.see()
    assert [looked.see("b"), looked.see("b"), looked.linkage.cut] == [None, None, ()]


def test_a_link_that_comes_and_goes_stays_cut_until_it_is_steady() -> None:
    looked = Looked()
    for _ in range(5):
        looked.see("b")
    looked.bypass = KNOWN
    for _ in range(3):
        looked.see(b=1)
        looked.see("b")
    assert looked.linkage.cut == ("b",)
    said = [looked.see(b=1) for _ in range(STEADY_US // SECOND_US + 1)]
    assert said == [None, None, None, Links("a", 7, (), (("b", 1),))]


def test_delays_are_told_when_they_changed_much_and_not_too_often() -> None:
    looked = Looked()
    assert looked.see(b=10_000) == Links("a", 7, (), (("b", 10_000),))
    quiet = [looked.see(b=90_000) for _ in range(QUIET_US // SECOND_US)]
    assert quiet == [*[None] * (QUIET_US // SECOND_US - 1), Links("a", 7, (), (("b", 90_000),))]
    later = [looked.see(b=91_000) for _ in range(KEEP_US // SECOND_US)]
    assert later == [*[None] * (KEEP_US // SECOND_US - 1), Links("a", 7, (), (("b", 91_000),))]


def test_what_the_leader_seems_not_to_know_is_told_again() -> None:
    looked = Looked()
    for _ in range(4):
        looked.see("b")
    again = [looked.see("b") for _ in range(QUIET_US // SECOND_US)]
    assert [each is None for each in again] == [*[True] * (QUIET_US // SECOND_US - 1), False]
    looked.bypass = KNOWN
    assert all(looked.see("b") is None for _ in range(QUIET_US // SECOND_US + 1))


def test_who_asks_is_told_at_once_and_so_is_a_new_leader() -> None:
    looked = Looked()
    looked.see(b=1)
    assert looked.see(b=1) is None
    assert looked.see(b=1, asked=True) is not None
    looked.epoch += 1
    assert looked.see(b=1) is not None


def test_what_is_told_is_bounded() -> None:
    looked = Looked()
    down = [f"peer-{number}" for number in range(200)]
    for _ in range(4):
        looked.see(*down)
    looked.epoch += 1
    seen = LinksSeen(down=tuple(down), delays={f"up-{number}": 5 for number in range(400)})
    said = looked.linkage.see(seen, 7, looked.epoch, Bypass(), looked.now_us)
    assert said is not None and len(said.cut) == CUTS_MAX and len(said.delays) == PEERS_MAX


# ── the broker's machine ─────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_reports_its_links_and_measures_on_request() -> None:
    broker = Broker().led()
    incarnation = broker.machine.incarnation
    (said,) = sent(Links, broker.handle(LinksSeen(delays={"south": 7})))
    assert said == Links("north", incarnation, (), (("south", 7),))
    assert sent(Links, broker.handle(LinksSeen(delays={"south": 7}))) == []
    assert len(of(MeasureLinks, broker.hear(Measure(1, incarnation)))) == 1
    assert of(MeasureLinks, broker.hear(Measure(1, incarnation + 1))) == []
    assert len(sent(Links, broker.handle(LinksSeen(delays={"south": 7}, asked=True)))) == 1
    broker.hear(Pulse(2, incarnation, broker.number))
    assert len(sent(Links, broker.handle(LinksSeen(delays={"south": 7})))) == 1


def test_a_broker_that_has_not_joined_says_nothing() -> None:
    broker = Broker()
    assert broker.handle(LinksSeen(delays={"south": 7})) == []


def test_a_link_that_its_peer_closed_is_told_at_once() -> None:
    linkage = Linkage("north")
    said = linkage.ended(LinksEnded(closed=("south",)), 7, 1_000)
    assert said is not None and (said.closed, said.refused) == (("south",), ())
    said = linkage.ended(LinksEnded(refused=("south",)), 7, 90_000)
    assert said is not None and (said.closed, said.refused) == ((), ("south",))


def test_a_peer_that_is_refused_later_is_not_told_of() -> None:
    linkage = Linkage("north")
    assert linkage.ended(LinksEnded(refused=("south",)), 7, 1_000) is None, "it was never up"
    linkage.ended(LinksEnded(closed=("south",)), 7, 2_000)
    assert linkage.ended(LinksEnded(refused=("south",)), 7, 2_001 + RECENT_US) is None
    assert linkage.ended(LinksEnded(closed=("south",)), 0, 2_000) is None, "it is no member"
