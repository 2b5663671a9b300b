"""The machine of an inward rule, in examples and against a model of both sides."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tocsin.bridge.inward import AGAIN, ATTACH, PAUSE, Inward
from tocsin.bridge.limits import Limits, delay_us
from tocsin.bridge.mapping import BRIDGED
from tocsin.bridge.rules import InRule
from tocsin.bridge.signals import (
    Attach,
    Came,
    CameTooLarge,
    Connected,
    Disconnected,
    Grant,
    LinkDown,
    LinkUp,
    Note,
    Publish,
    Published,
    PublishFailed,
    Settle,
)
from tocsin.core.machine import Effect, SetTimer, TimerFired
from tocsin.wire.amqp.message import AmqpMessage, Body, write_message
from tocsin.wire.amqp.performatives import Accepted, Modified, Rejected

RULE = InRule("orders", "plant/orders")
LIMITS = Limits(window=4, window_bytes=4_096, message_max_bytes=1_024, tries=3)
DEAD = "bridge/here/dead"
ORDER = write_message(AmqpMessage(body=b"an order", message_id="m-1"))
SEQUENCE = write_message(AmqpMessage(kind=Body.SEQUENCE, body=[[1]]))


def attached(limits: Limits = LIMITS) -> Inward:
    machine = Inward(RULE, "here", DEAD, limits)
    assert machine.handle(Connected(), 0) == [Attach()]
    assert machine.handle(LinkUp(), 0) == [Grant(credit=4)]
    return machine


def of(effects: list[Effect], kind: type) -> list[Any]:
    return [each for each in effects if isinstance(each, kind)]


def only(effects: list[Effect]) -> Any:
    (effect,) = effects
    return effect


def test_a_message_is_accepted_only_after_the_network_has_it() -> None:
    machine = attached()
    publish = only(machine.handle(Came(delivery=9, payload=ORDER), 0))
    assert isinstance(publish, Publish) and publish.publication.payload == b"an order"
    effects = machine.handle(Published(token=publish.token), 0)
    assert of(effects, Settle) == [Settle(delivery=9, outcome=Accepted())]
    assert (machine.figures.passed, machine.in_flight) == (1, 0)


def test_what_the_network_refuses_is_tried_again_then_dead() -> None:
    machine = attached()
    publish = only(machine.handle(Came(delivery=9, payload=ORDER), 0))
    waits = []
    for _ in range(2):
        (timer,) = machine.handle(PublishFailed(token=publish.token, reason="quota"), 0)
        assert isinstance(timer, SetTimer)
        waits.append(timer.delay_us)
        again = only(machine.handle(TimerFired(name=timer.name), 0))
        assert again == publish
    assert waits == [delay_us(1), delay_us(2)]
    dead = only(machine.handle(PublishFailed(token=publish.token, reason="quota"), 0))
    assert isinstance(dead, Publish) and dead.publication.topic == DEAD
    assert dead.publication.payload == ORDER
    effects = machine.handle(Published(token=publish.token), 0)
    (settle,) = of(effects, Settle)
    assert isinstance(settle.outcome, Rejected) and settle.outcome.error is not None
    assert "quota" in (settle.outcome.error.description or "")
    assert (machine.figures.dead, machine.figures.retried, len(of(effects, Note))) == (1, 2, 1)


def test_what_cannot_be_carried_is_dead_at_once() -> None:
    for payload, words in ((SEQUENCE, "sequence"), (b"\x01", "not a message")):
        machine = attached()
        dead = only(machine.handle(Came(delivery=1, payload=payload), 0))
        assert isinstance(dead, Publish) and dead.publication.topic == DEAD
        (settle,) = of(machine.handle(Published(token=dead.token), 0), Settle)
        assert words in str(settle.outcome.error)


def test_a_final_refusal_is_not_tried_again() -> None:
    machine = attached()
    publish = only(machine.handle(Came(delivery=1, payload=ORDER), 0))
    dead = only(machine.handle(PublishFailed(token=publish.token, reason="too large", final=True), 0))
    assert isinstance(dead, Publish) and dead.publication.topic == DEAD


def test_a_message_that_nobody_takes_goes_back_and_credit_pauses() -> None:
    machine = attached()
    dead = only(machine.handle(Came(delivery=1, payload=SEQUENCE), 0))
    assert isinstance(dead, Publish)
    effects = machine.handle(PublishFailed(token=dead.token, reason="the store is full"), 0)
    assert of(effects, Settle) == [Settle(delivery=1, outcome=Modified(delivery_failed=True))]
    assert of(effects, SetTimer) == [SetTimer(name=PAUSE, delay_us=delay_us(1))]
    for delivery in (2, 3, 4):
        machine.handle(CameTooLarge(delivery=delivery, size=9_999), 0)
    assert not of(machine.handle(LinkUp(), 0), Grant)
    assert machine.handle(TimerFired(name=PAUSE), 0) == [Grant(credit=4)]


def test_a_message_that_was_here_before_goes_nowhere() -> None:
    machine = attached()
    mine = write_message(AmqpMessage(body=b"x", application={BRIDGED: "there here"}))
    assert machine.handle(Came(delivery=1, payload=mine), 0) == [Settle(delivery=1, outcome=Accepted())]
    assert machine.figures.looped == 1


def test_a_message_that_is_too_large_is_rejected_with_the_limit() -> None:
    machine = attached()
    effects = machine.handle(CameTooLarge(delivery=1, size=5_000), 0)
    (settle,) = of(effects, Settle)
    assert "1024" in str(settle.outcome.error)
    assert machine.figures.refused == 1


def test_a_message_that_came_settled_is_tried_until_somebody_has_it() -> None:
    machine = attached()
    publish = only(machine.handle(Came(delivery=1, payload=SEQUENCE, settled=True), 0))
    assert isinstance(publish, Publish)
    effects = machine.handle(PublishFailed(token=publish.token, reason="full"), 0)
    assert not of(effects, Settle)
    (timer,) = of(effects, SetTimer)
    machine.handle(Disconnected(), 0)
    again = only(machine.handle(TimerFired(name=timer.name), 0))
    assert again == publish
    assert not of(machine.handle(Published(token=publish.token), 0), Settle)


def test_a_link_that_is_refused_is_asked_for_again_later_and_later() -> None:
    machine = Inward(RULE, "here", DEAD, LIMITS)
    machine.handle(Connected(), 0)
    for tries in (1, 2, 3):
        effects = machine.handle(LinkDown(reason="no such queue"), 0)
        assert of(effects, SetTimer) == [SetTimer(name=ATTACH, delay_us=delay_us(tries))]
        assert machine.figures.problem == "no such queue"
        assert machine.handle(TimerFired(name=ATTACH), 0) == [Attach()]
    machine.handle(Disconnected(), 0)
    assert machine.handle(TimerFired(name=ATTACH), 0) == []


def test_waits_grow_up_to_half_a_minute() -> None:
    assert [delay_us(tries) // 1_000 for tries in (0, 1, 2, 3, 6, 7, 100, 10**9)] == [
        500, 500, 1_000, 2_000, 16_000, 30_000, 30_000, 30_000,
    ]  # fmt: skip


class Both(RuleBasedStateMachine):
    """An AMQP queue, the bridge's rule, and a network: whatever happens in between, no message is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Inward(RULE, "here", DEAD, LIMITS)
        self.queue: list[int] = []  # numbers of messages at the AMQP broker
        self.unsettled: dict[int, int] = {}  # by delivery, on this connection
        self.publishing: dict[int, tuple[int, bool]] = {}  # by token: a number, and whether it is to be dead
        self.network: set[int] = set()
        self.dead: set[int] = set()
        self.timers: set[str] = set()
        self.credit = 0
        self.sent = 0
        self.delivery = 0
        self.connected = self.up = False
        self.the_connection_is_there()
        self.the_link_is_answered(granted=True)

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Grant(credit=credit):
                    assert self.up
                    self.credit = credit
                case Publish(token=token, publication=publication):
                    dead = publication.topic == DEAD
                    body = publication.payload
                    number = int.from_bytes(body[-4:])
                    self.publishing[token] = (number, dead)
                case Settle(delivery=delivery, outcome=outcome):
                    number = self.unsettled.pop(delivery)
                    if isinstance(outcome, Accepted):
                        assert number in self.network  # never before PUBACK
                    elif isinstance(outcome, Rejected):
                        assert number in self.dead
                    else:
                        self.queue.append(number)
                case SetTimer(name=name):
                    self.timers.add(name)

    @rule(good=st.booleans())
    def a_sender_sends(self, good: bool) -> None:
        self.sent += 1
        self.queue.append(self.sent * 2 + good)

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

    @precondition(lambda self: self.connected)
    @rule(all_of_it=st.booleans())
    def a_break(self, all_of_it: bool) -> None:
        self.connected, self.up, self.credit = self.connected and not all_of_it, False, 0
        self.queue += self.unsettled.values()
        self.unsettled.clear()
        self.perform(self.machine.handle(Disconnected() if all_of_it else LinkDown(reason="gone"), 0))

    @precondition(lambda self: self.up and self.credit > 0 and self.queue)
    @rule(size=st.integers(0, 900))
    def a_message_comes(self, size: int) -> None:
        number = self.queue.pop(0)
        self.delivery += 1
        self.credit -= 1
        self.unsettled[self.delivery] = number
        body = b"x" * size + number.to_bytes(4)
        if number % 2:
            payload = write_message(AmqpMessage(body=body))
        else:
            payload = write_message(AmqpMessage(kind=Body.SEQUENCE, body=[[body]]))
        self.perform(self.machine.handle(Came(delivery=self.delivery, payload=payload), 0))

    @precondition(lambda self: self.publishing)
    @rule(data=st.data(), taken=st.booleans(), final=st.booleans())
    def the_network_answers(self, data: st.DataObject, taken: bool, final: bool) -> None:
        token = data.draw(st.sampled_from(sorted(self.publishing)))
        number, dead = self.publishing.pop(token)
        if taken:
            (self.dead if dead else self.network).add(number)
            self.perform(self.machine.handle(Published(token=token), 0))
        else:
            self.perform(self.machine.handle(PublishFailed(token=token, reason="full", final=final), 0))

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def a_timer_fires(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.timers)))
        self.timers.discard(name)
        self.perform(self.machine.handle(TimerFired(name=name), 0))

    @invariant()
    def no_message_is_lost(self) -> None:
        somewhere = {*self.queue, *self.unsettled.values(), *self.network, *self.dead}
        assert {number // 2 for number in somewhere} == set(range(1, self.sent + 1))

    @invariant()
    def what_is_held_and_may_come_is_within_the_window(self) -> None:
        assert self.machine.committed <= LIMITS.window
        assert self.machine.committed_bytes <= LIMITS.window_bytes
        assert self.machine.committed == self.machine.in_flight + self.credit

    @invariant()
    def every_message_that_is_held_is_under_way_or_waits_for_a_timer(self) -> None:
        waiting = sum(name.startswith(AGAIN) for name in self.timers)
        assert self.machine.in_flight <= len(self.publishing) + waiting

    @invariant()
    def an_idle_rule_has_credit(self) -> None:
        if self.up and not self.machine.in_flight and PAUSE not in self.timers:
            assert self.credit > 0


TestBoth = Both.TestCase
