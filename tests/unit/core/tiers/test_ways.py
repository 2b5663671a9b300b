"""The ways of a broker over a tier: deputies at once, planned moves with a pause, and everything in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.machine import Effect, SetTimer, TimerFired
from tocsin.core.tiers.slots import SLOTS, Slots, is_gate, slot_of
from tocsin.core.tiers.ways import (
    FENCE_US,
    LOST_US,
    PAUSE_US,
    STEADY_US,
    Fence,
    LinkSeen,
    Passed,
    TiersKnown,
    TierTimer,
    TierWays,
    WaysChanged,
    held_name,
)

GATE = "@cloud"
TOPIC = "a"
SLOT = slot_of(TOPIC)


def all_over(carrier: str, deputy: str = "") -> Slots:
    return Slots((carrier,) * SLOTS, (deputy,) * SLOTS)


class Broker:
    """A machine, its time, and what it wanted."""

    def __init__(self, slots: Slots) -> None:
        self.machine = TierWays("own")
        self.now_us = 0
        self.effects: list[Effect] = []
        self.know(slots)

    def know(self, slots: Slots) -> None:
        self.take(TiersKnown(tiers={GATE: slots}))

    def take(self, event: object) -> list[Effect]:
        effects = self.machine.handle(event, self.now_us)  # type: ignore[arg-type]
        self.effects += effects
        return effects

    def wait(self, us: int, timer: TierTimer = TierTimer.RELEASE) -> list[Effect]:
        self.now_us += us
        return self.take(TimerFired(name=timer))

    @property
    def way(self) -> str:
        return self.machine.way(GATE, TOPIC)

    def fences(self) -> list[Fence]:
        return [each for each in self.effects if isinstance(each, Fence)]


def test_a_message_goes_to_its_slots_carrier() -> None:
    broker = Broker(Slots().after({SLOT: ("b", "a")}))
    assert broker.way == broker.machine.carrier(GATE, TOPIC) == "b"
    assert broker.machine.way("@elsewhere", TOPIC) == ""


def test_where_the_link_breaks_the_deputy_takes_over_at_once() -> None:
    broker = Broker(all_over("a", "b"))
    (changed,) = broker.take(LinkSeen(peer="a", up=False))
    assert changed == WaysChanged(left=("a",)) and broker.way == "b"
    assert broker.machine.failovers == SLOTS and not broker.fences()


def test_without_a_deputy_messages_wait_for_the_carrier() -> None:
    broker = Broker(all_over("a", "b"))
    broker.take(LinkSeen(peer="b", up=False))
    broker.take(LinkSeen(peer="a", up=False))
    assert broker.way == "a"


def test_a_link_that_is_back_is_used_once_it_is_steady() -> None:
    broker = Broker(all_over("a", "b"))
    broker.take(LinkSeen(peer="a", up=False))
    assert broker.take(LinkSeen(peer="a", up=True)) == [SetTimer(name=TierTimer.STEADY, delay_us=STEADY_US)]
    assert broker.way == "b"
    broker.wait(STEADY_US, TierTimer.STEADY)
    assert broker.way == held_name((GATE, SLOT)) and broker.fences() == [Fence(peer="b", ticket=1)]


def test_a_planned_move_waits_for_the_old_carrier_and_a_pause() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    assert is_gate(broker.way) and broker.fences() == [Fence(peer="a", ticket=1)]
    broker.take(Passed(ticket=1))
    broker.wait(PAUSE_US - 1)
    assert is_gate(broker.way)
    released = broker.wait(1)
    assert isinstance(released[0], WaysChanged) and (GATE, SLOT) in released[0].released
    assert broker.way == "b" and broker.machine.held == 0


def test_a_carrier_that_does_not_answer_holds_nobody_up_for_long() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    broker.wait(FENCE_US - 1)
    assert is_gate(broker.way)
    broker.wait(1)
    assert broker.way == "b"


def test_a_frozen_carrier_that_is_declared_lost_holds_nobody_up() -> None:
    broker = Broker(all_over("a", "b"))
    broker.take(TiersKnown(tiers={GATE: all_over("b")}, lost=("a",)))
    broker.wait(LOST_US - 1)
    assert broker.way == held_name((GATE, SLOT))
    broker.wait(1)
    assert broker.way == "b"


def test_a_carrier_that_is_lost_while_it_is_asked_has_less_time() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    broker.now_us += LOST_US
    broker.take(TiersKnown(tiers={GATE: all_over("b")}, lost=("a",)))
    broker.wait(LOST_US)
    assert broker.way == "b"


def test_a_carrier_that_is_lost_meanwhile_ends_the_fence() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    broker.take(LinkSeen(peer="a", up=False))
    broker.wait(PAUSE_US)
    assert broker.way == "b" and broker.take(Passed(ticket=1)) == []


def test_a_slot_that_moves_again_while_held_goes_to_the_last() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    broker.know(all_over("c", "b"))
    assert len(broker.fences()) == 1, "nothing was sent to b"
    broker.take(Passed(ticket=1))
    broker.wait(PAUSE_US)
    assert broker.way == "c"


def test_a_slot_that_comes_back_while_it_is_held_stays() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    broker.know(all_over("a", "b"))
    broker.take(Passed(ticket=1))
    broker.wait(PAUSE_US)
    assert broker.way == "a" and len(broker.fences()) == 1


def test_a_tier_that_is_gone_releases_what_it_held() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(all_over("b", "a"))
    (changed, *_) = broker.take(TiersKnown(tiers={}))
    assert isinstance(changed, WaysChanged) and len(changed.released) == SLOTS
    assert broker.way == "" and broker.machine.held == 0


def test_nothing_is_carried_over_the_broker_itself() -> None:
    assert Broker(all_over("own", "b")).way == ""


class Network:
    """Carriers that a broker sends to over links that keep order, and one end that is as far from each of them."""

    def __init__(self) -> None:
        self.broker = Broker(all_over("a", "b"))
        self.sent = 0
        self.links: dict[str, list[int | Fence]] = {each: [] for each in "abc"}
        self.held: dict[str, list[int]] = {}
        self.got: list[int] = []
        self.under_way: list[tuple[int, int]] = []  # when it arrives, and what

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Fence):
                self.links[effect.peer].append(effect)
            elif isinstance(effect, WaysChanged):
                for tier, what in effect.released:
                    waiting = self.held.pop(held_name((tier, what)), [])
                    if waiting:
                        self.links[self.broker.machine.place(tier, what)[0]].extend(waiting)

    def publish(self) -> None:
        self.sent += 1
        way = self.broker.way
        (self.held.setdefault(way, []) if is_gate(way) else self.links[way]).append(self.sent)

    def read(self, carrier: str) -> None:
        """A carrier reads one thing, and passes it on: it takes at most PAUSE_US to arrive."""
        if not self.links[carrier]:
            return
        first = self.links[carrier].pop(0)
        if isinstance(first, Fence):
            self.run(self.broker.take(Passed(ticket=first.ticket)))
        else:
            self.under_way.append((self.broker.now_us + (PAUSE_US - 1 if carrier == "a" else 1), first))

    def wait(self, us: int) -> None:
        timers = [each for each in self.broker.effects if isinstance(each, SetTimer)]
        self.broker.effects.clear()
        self.broker.now_us += us
        self.arrive()
        if timers or self.broker.machine.held:
            self.run(self.broker.take(TimerFired(name=TierTimer.RELEASE)))

    def arrive(self) -> None:
        due = sorted(each for each in self.under_way if each[0] <= self.broker.now_us)
        self.under_way = [each for each in self.under_way if each[0] > self.broker.now_us]
        self.got += [number for _, number in due]


moves = st.lists(
    st.one_of(
        st.just(("publish",)),
        st.tuples(st.just("move"), st.sampled_from("abc")),
        st.tuples(st.just("part"), st.sampled_from(["", "a", "b", "c", "bc"])),
        st.tuples(st.just("read"), st.sampled_from("abc")),
        st.tuples(st.just("wait"), st.sampled_from([1, 1_000, PAUSE_US])),
    ),
    max_size=60,
)


def played(story: list[tuple[object, ...]]) -> list[int]:
    network = Network()
    slots = all_over("a", "b")
    for step in story:
        match step:
            case ("publish",):
                network.publish()
            case ("move", str(to)):
                other = next(each for each in "abc" if each != to)
                slots = all_over(to, other).after({}, slots.apart)
                network.run(network.broker.take(TiersKnown(tiers={GATE: slots})))
            case ("part", str(members)):
                slots = slots.after({}, {TOPIC: tuple(members)} if members else {})
                network.run(network.broker.take(TiersKnown(tiers={GATE: slots})))
            case ("read", str(carrier)):
                network.read(carrier)
            case ("wait", int(us)):
                network.wait(us if not any(network.links.values()) else min(us, 1_000))
    for _ in range(20):
        for carrier in "abc":
            while network.links[carrier]:
                network.read(carrier)
        network.wait(PAUSE_US)
    assert sorted(network.got) == list(range(1, network.sent + 1)), "each once"
    return network.got


@settings(max_examples=300, deadline=None)
@given(moves)
def test_planned_moves_keep_every_message_and_their_order(story: list[tuple[object, ...]]) -> None:
    got = played(story)
    assert got == sorted(got)


def test_without_the_pause_a_message_overtakes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    story: list[tuple[object, ...]] = [
        ("publish",),
        ("move", "b"),
        ("publish",),
        ("read", "a"),
        ("read", "a"),
    ]
    story += [("wait", 0), ("read", "b"), ("wait", 1)]
    assert played(story) == [1, 2]
    monkeypatch.setattr(TierWays, "_pause_us", lambda self: 0)
    assert played(story) == [2, 1]


# ── topics apart from their slots ───────────────────────────────────────────────────────────────────────────


def apart(slots: Slots, **topics: tuple[str, ...]) -> Slots:
    return slots.after({}, topics)


def let_pass(broker: Broker) -> None:
    """Let the last fence end."""
    broker.take(Passed(ticket=broker.fences()[-1].ticket))
    broker.wait(PAUSE_US)


def test_a_topic_leaves_its_slot_by_a_planned_move_of_its_own() -> None:
    broker = Broker(all_over("a", "b"))
    broker.know(apart(all_over("a", "b"), a=("c",)))
    assert broker.way == held_name((GATE, TOPIC)) and broker.machine.held == 1
    assert broker.machine.place(GATE, SLOT) == ("a", False)
    let_pass(broker)
    assert broker.way == broker.machine.carrier(GATE, TOPIC) == "c"
    assert WaysChanged(released=((GATE, TOPIC),)) in broker.effects


def test_a_topic_rejoins_its_slot_by_another() -> None:
    broker = Broker(apart(all_over("a"), a=("c",)))
    let_pass(broker)
    broker.know(all_over("a"))
    assert broker.way == held_name((GATE, TOPIC)) and broker.fences()[-1].peer == "c"
    let_pass(broker)
    assert broker.way == "a" and broker.machine.place(GATE, TOPIC) == ("a", False)


def test_a_topic_that_rejoins_waits_for_what_its_slot_holds() -> None:
    broker = Broker(apart(all_over("a"), a=("c",)))
    let_pass(broker)
    broker.know(all_over("a"))
    topics = broker.fences()[-1]
    broker.now_us += 50_000
    broker.know(all_over("b"))  # meanwhile the slot moves as well
    slots = broker.fences()[-1]
    broker.take(Passed(ticket=topics.ticket))
    broker.wait(PAUSE_US)
    assert broker.way == held_name((GATE, TOPIC))
    broker.take(Passed(ticket=slots.ticket))
    broker.wait(PAUSE_US)
    assert broker.way == "b" and broker.machine.held == 0
    released = [each.released for each in broker.effects if isinstance(each, WaysChanged) and each.released]
    assert released[-1][-1] == (GATE, TOPIC) and (GATE, SLOT) in released[-1]


def test_a_topic_leaves_a_slot_that_moves_after_that() -> None:
    broker = Broker(all_over("a"))
    broker.know(all_over("b"))
    broker.know(apart(all_over("b"), a=("c",)))
    assert broker.way == held_name((GATE, SLOT))
    let_pass(broker)
    assert broker.way == held_name((GATE, TOPIC)) and broker.fences()[-1].peer == "b"
    let_pass(broker)
    assert broker.way == "c"


def test_where_a_member_of_a_topic_fails_another_takes_it() -> None:
    broker = Broker(apart(all_over("a"), a=("c", "d")))
    let_pass(broker)
    first = broker.way
    (other,) = {"c", "d"} - {first}
    broker.take(LinkSeen(peer=first, up=False))
    assert broker.way == other
    broker.take(LinkSeen(peer=other, up=False))
    assert broker.way == "a"


def test_brokers_share_the_members_of_a_topic_that_is_spread() -> None:
    slots = apart(all_over("a"), a=("a", "b", "c"))
    found = [slots.order(TOPIC, f"edge-{number}")[0] for number in range(300)]
    assert all(found.count(each) > 70 for each in "abc")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "a", "bc", "abcd"])),
            st.tuples(st.sampled_from("abcd"), st.booleans()),
            st.integers(0, 400_000),
        ),
        max_size=40,
    )
)
@settings(deadline=None, max_examples=150)
def test_in_the_end_a_topic_goes_where_the_coordinator_says(steps: list[object]) -> None:
    broker, carrier, members = Broker(all_over("a")), "a", ""
    for step in steps:
        match step:
            case (str(at), str(spread)):
                carrier, members = at, spread
                broker.know(all_over(at).after({}, {TOPIC: tuple(spread)} if spread else {}))
            case (str(peer), bool(up)):
                broker.take(LinkSeen(peer=peer, up=up))
            case int(us):
                broker.wait(us)
    for peer in "abcd":
        broker.take(LinkSeen(peer=peer, up=True))
    for _ in range(6):
        broker.wait(FENCE_US)
        broker.wait(STEADY_US, TierTimer.STEADY)
        broker.wait(FENCE_US)
    assert broker.machine.held == 0
    expected = Slots().after({}, {TOPIC: tuple(members)}).order(TOPIC, "own")[0] if members else carrier
    assert broker.way == expected
