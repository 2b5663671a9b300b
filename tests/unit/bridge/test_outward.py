"""The machine of an outward rule, in examples and against a model of both sides."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tocsin.bridge.limits import Limits, delay_us
from tocsin.bridge.outward import ATTACH, Outward, receive_max
from tocsin.bridge.rules import OutRule
from tocsin.bridge.signals import (
    Acknowledge,
    Attach,
    Connected,
    Credit,
    Disconnected,
    Heard,
    LinkDown,
    LinkUp,
    Note,
    Publish,
    Published,
    PublishFailed,
    Settled,
    Transmit,
)
from tocsin.client.message import Message
from tocsin.core.machine import Effect, SetTimer, TimerFired
from tocsin.wire.amqp.message import read_message
from tocsin.wire.amqp.performatives import Accepted, Error, Modified, Outcome, Rejected, Released

RULE = OutRule("plant/#", "alarms")
LIMITS = Limits(window=4, tries=3)
DEAD = "bridge/here/dead"


def made(limits: Limits = LIMITS) -> Outward:
    return Outward(RULE, "here", "session", DEAD, limits)


def attached(credit: int = 10, max_bytes: int | None = None) -> Outward:
    machine = made()
    assert machine.handle(Connected(), 0) == [Attach()]
    assert machine.handle(LinkUp(max_bytes=max_bytes), 0) == []
    assert machine.handle(Credit(credit=credit), 0) == []
    return machine


def heard(token: int, *, qos: int = 1, **fields: Any) -> Heard:
    message = Message("plant/alarms", str(token).encode(), qos, **fields)
    return Heard(token=token, message=message, packet_id=token if qos else None)


def of(effects: list[Effect], kind: type) -> list[Any]:
    return [each for each in effects if isinstance(each, kind)]


def test_a_message_is_acknowledged_only_after_the_peer_accepted_it() -> None:
    machine = attached()
    (transmit,) = machine.handle(heard(1), 0)
    assert isinstance(transmit, Transmit) and not transmit.settled
    message = read_message(transmit.payload)
    assert (message.body, message.durable, message.subject) == (b"1", True, "plant/alarms")
    assert machine.under_way
    assert machine.handle(Settled(token=1, outcome=Accepted()), 0) == [Acknowledge(token=1)]
    assert machine.in_flight == 0 and not machine.under_way


def test_messages_wait_for_credit_in_their_order() -> None:
    machine = attached(credit=1)
    assert len(machine.handle(heard(1), 0)) == 1
    assert machine.handle(heard(2), 0) == machine.handle(heard(3), 0) == []
    effects = machine.handle(Credit(credit=2), 0)
    assert [each.token for each in of(effects, Transmit)] == [2, 3]


def test_what_was_sent_and_not_settled_is_sent_again_after_a_break() -> None:
    machine = attached(credit=2)
    first = [machine.handle(heard(token), 0) for token in (1, 2, 3)]
    machine.handle(Disconnected(), 0)
    assert machine.handle(Settled(token=1, outcome=Accepted()), 0) == []  # of the connection that is gone
    machine.handle(Connected(), 0)
    machine.handle(LinkUp(), 0)
    again = machine.handle(Credit(credit=9), 0)
    assert [each.token for each in of(again, Transmit)] == [1, 2, 3]
    assert again[:2] == [first[0][0], first[1][0]]  # the same ids


def test_what_the_peer_gives_back_is_tried_again_then_dead() -> None:
    machine = attached()
    machine.handle(heard(1), 0)
    no = Rejected(error=Error(condition="amqp:resource-limit-exceeded", description="full"))
    given_back: list[Outcome] = [Released(), Modified(delivery_failed=True)]
    for tries, outcome in enumerate(given_back, 1):
        effects = machine.handle(Settled(token=1, outcome=outcome), 0)
        (timer,) = of(effects, SetTimer)
        assert timer.delay_us == delay_us(tries)
        (transmit,) = machine.handle(TimerFired(name=timer.name), 0)
        assert isinstance(transmit, Transmit)
    (publish,) = machine.handle(Settled(token=1, outcome=no), 0)
    assert isinstance(publish, Publish) and publish.publication.topic == DEAD
    properties = dict(publish.publication.user_properties)
    assert "full" in properties["dead-reason"] and properties["topic"] == "plant/alarms"
    effects = machine.handle(Published(token=1), 0)
    assert of(effects, Acknowledge) == [Acknowledge(token=1)] and of(effects, Note)
    assert (machine.figures.dead, machine.figures.retried) == (1, 2)


def test_a_message_of_no_use_there_is_dead_at_once() -> None:
    machine = attached()
    machine.handle(heard(1), 0)
    (publish,) = machine.handle(Settled(token=1, outcome=Modified(undeliverable_here=True)), 0)
    assert isinstance(publish, Publish)


def test_a_message_larger_than_the_peer_takes_is_dead_at_once() -> None:
    machine = attached(max_bytes=10)
    (publish,) = machine.handle(heard(1), 0)
    assert isinstance(publish, Publish)
    assert "takes 10" in dict(publish.publication.user_properties)["dead-reason"]


def test_a_dead_message_stays_until_its_place_takes_it() -> None:
    machine = attached(max_bytes=10)
    machine.handle(heard(1), 0)
    effects = machine.handle(PublishFailed(token=1, reason="full"), 0)
    assert not of(effects, Acknowledge)
    (timer,) = of(effects, SetTimer)
    (publish,) = machine.handle(TimerFired(name=timer.name), 0)
    assert isinstance(publish, Publish)
    assert of(machine.handle(Published(token=1), 0), Acknowledge)


def test_a_message_that_came_in_by_the_bridge_is_not_sent_out() -> None:
    machine = attached()
    looped = heard(1, user_properties=(("tocsin-bridge", "there here"),))
    assert machine.handle(looped, 0) == [Acknowledge(token=1)]
    assert machine.figures.looped == 1


def test_a_message_expires_while_it_waits() -> None:
    machine = attached(credit=0)
    for token in (1, 2):
        machine.handle(heard(token, expiry_s=token * 10), 0)
    effects = machine.handle(Credit(credit=9), 12_000_000)
    assert of(effects, Acknowledge) == [Acknowledge(token=1)]
    (transmit,) = of(effects, Transmit)
    assert read_message(transmit.payload).ttl_ms == 8_000
    assert machine.figures.expired == 1


def test_messages_of_qos_0_are_sent_once_and_bounded() -> None:
    machine = attached(credit=0)
    for token in range(1, 7):
        assert machine.handle(heard(token, qos=0), 0) == []
    assert (machine.in_flight, machine.figures.dropped) == (4, 2)
    effects = machine.handle(Credit(credit=9), 0)
    assert [(each.token, each.settled) for each in of(effects, Transmit)] == [
        (1, True), (2, True), (3, True), (4, True),
    ]  # fmt: skip
    assert not of(effects, Acknowledge) and machine.in_flight == 0


def test_messages_of_qos_0_are_bounded_in_bytes() -> None:
    machine = made(Limits(window=4, window_bytes=1_024))
    large = Message("a", bytes(600), 0)
    for token in (1, 2):
        machine.handle(Heard(token=token, message=large, packet_id=None), 0)
    assert (machine.in_flight, machine.figures.dropped) == (1, 1)
    for event in (Connected(), LinkUp(max_bytes=None), Credit(credit=1)):
        machine.handle(event, 0)
    machine.handle(Heard(token=3, message=large, packet_id=None), 0)
    assert (machine.in_flight, machine.figures.dropped) == (1, 1), "the first has gone, and made room"


def test_a_link_that_is_refused_is_asked_for_again() -> None:
    machine = made()
    machine.handle(Connected(), 0)
    effects = machine.handle(LinkDown(reason="no such queue"), 0)
    assert of(effects, SetTimer) == [SetTimer(name=ATTACH, delay_us=delay_us(1))]
    assert machine.handle(TimerFired(name=ATTACH), 0) == [Attach()]


def test_the_receive_maximum_keeps_within_the_bytes_of_the_window() -> None:
    assert receive_max(Limits(window=100, window_bytes=64 << 20)) == 64
    assert receive_max(Limits(window=10, window_bytes=64 << 20)) == 10
    assert receive_max(Limits(window=10, window_bytes=1 << 20)) == 1


class Both(RuleBasedStateMachine):
    """A broker of the network, the bridge's rule, and an AMQP queue: no message is lost in between."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = made()
        self.sent = 0
        self.kept: set[int] = set()  # what the network's broker keeps for the session
        self.queue: list[int] = []  # at the AMQP broker
        self.dead: set[int] = set()
        self.under_way: dict[int, int] = {}  # transfers on this connection, by token
        self.burying: set[int] = set()
        self.timers: set[str] = set()
        self.credit = 0
        self.connected = self.up = False
        # Breaks are worth more when there is something to break.
        self.the_connection_is_there()
        self.the_link_is_answered(granted=True)
        self.credit_comes(credit=3)

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(token=token, payload=payload):
                    assert self.up and self.credit > 0
                    self.credit -= 1
                    self.under_way[token] = int(read_message(payload).body)
                case Acknowledge(token=token):
                    assert token in self.queue or token in self.dead  # never before
                    self.kept.remove(token)
                case Publish(token=token):
                    self.burying.add(token)
                case SetTimer(name=name):
                    self.timers.add(name)

    @rule()
    def a_message_comes(self) -> None:
        self.sent += 1
        self.kept.add(self.sent)
        self.perform(self.machine.handle(heard(self.sent), 0))

    @precondition(lambda self: not self.connected)
    @rule()
    def the_connection_is_there(self) -> None:
        self.connected = True
        self.perform(self.machine.handle(Connected(), 0))

    @precondition(lambda self: self.connected and not self.up)
    @rule(granted=st.booleans())
    def the_link_is_answered(self, granted: bool) -> None:
        self.up = granted
        self.perform(self.machine.handle(LinkUp() if granted else LinkDown(reason="no"), 0))

    @precondition(lambda self: self.up)
    @rule(credit=st.integers(0, 5))
    def credit_comes(self, credit: int) -> None:
        self.credit = credit
        self.perform(self.machine.handle(Credit(credit=credit), 0))

    @precondition(lambda self: self.connected)
    @rule(all_of_it=st.booleans(), data=st.data())
    def a_break(self, all_of_it: bool, data: st.DataObject) -> None:
        if self.under_way:  # some of it arrived, and its outcome is never heard
            self.queue += data.draw(st.lists(st.sampled_from(sorted(self.under_way.values())), unique=True))
        self.under_way.clear()
        self.connected, self.up, self.credit = self.connected and not all_of_it, False, 0
        self.perform(self.machine.handle(Disconnected() if all_of_it else LinkDown(reason="gone"), 0))

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(
            [Accepted(), Released(), Rejected(), Modified(), Modified(undeliverable_here=True), None]
        ),
    )
    def the_peer_settles(self, data: st.DataObject, outcome: Any) -> None:
        token = data.draw(st.sampled_from(sorted(self.under_way)))
        number = self.under_way.pop(token)
        if isinstance(outcome, Accepted):
            self.queue.append(number)
        self.perform(self.machine.handle(Settled(token=token, outcome=outcome), 0))

    @precondition(lambda self: self.burying)
    @rule(data=st.data(), taken=st.booleans())
    def the_network_answers(self, data: st.DataObject, taken: bool) -> None:
        token = data.draw(st.sampled_from(sorted(self.burying)))
        self.burying.discard(token)
        if taken:
            self.dead.add(token)
            self.perform(self.machine.handle(Published(token=token), 0))
        else:
            self.perform(self.machine.handle(PublishFailed(token=token, reason="full"), 0))

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def a_timer_fires(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.timers)))
        self.timers.discard(name)
        self.perform(self.machine.handle(TimerFired(name=name), 0))

    @invariant()
    def no_message_is_lost(self) -> None:
        assert {*self.kept, *self.queue, *self.dead} == set(range(1, self.sent + 1))

    @invariant()
    def every_message_is_with_somebody(self) -> None:
        assert self.machine.in_flight == len(self.kept)

    @invariant()
    def nothing_waits_while_there_is_credit(self) -> None:
        if self.up and self.credit > 0:
            waiting = sum(name != ATTACH for name in self.timers)
            assert self.machine.in_flight <= len(self.under_way) + len(self.burying) + waiting


TestBoth = Both.TestCase
