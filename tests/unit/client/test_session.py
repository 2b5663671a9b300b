"""What a client says to a broker, and when, over connections that break."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import (
    ConnAckPacket,
    Packet,
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PubCompReasonCode,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelPacket,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubAckPacket,
    UnsubAckReasonCode,
    UnsubscribePacket,
)

from tests.unit.client.broker import Broker
from tocsin.client.message import filter_of
from tocsin.client.session import FLUSH, PACKET_IDS, Session
from tocsin.client.values import Answered, Arrived, Effect
from tocsin.errors import BrokerUnreachable, PublishRefused, SubscriptionRefused, Unencodable
from tocsin.model.publication import Publication

GRANTED = SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE
BROKEN = BrokerUnreachable("host", 1, "it broke")


def session_up(*, receive_max: int = 10, window: int = 10) -> Session:
    session = Session(receive_max)
    assert session.connected(ConnAckPacket(receive_max=window)) == []
    return session


def message(payload: bytes, qos: int = 1) -> Publication:
    return Publication("t", payload, qos, "")


def subscribed(effects: list[Effect]) -> list[tuple[str, int]]:
    found = [each for each in effects if isinstance(each, SubscribePacket)]
    return [(each.topic_filters[0].pattern, each.packet_id) for each in found]


def published(effects: list[Effect]) -> list[tuple[bytes, int | None, bool]]:
    found = [each for each in effects if isinstance(each, PublishPacket)]
    return [(each.payload, each.packet_id, each.duplicate) for each in found]


def test_a_subscription_is_asked_for_and_answered() -> None:
    session = session_up()
    request, effects = session.subscribe(filter_of("a/#", 1))
    [(name, packet_id)] = subscribed(effects)
    assert name == "a/#"
    assert session.heard(SubAckPacket(packet_id, [GRANTED])) == [Answered(request)]


def test_a_refused_subscription_ends_and_can_be_asked_for_again() -> None:
    session = session_up()
    request, effects = session.subscribe(filter_of("a", 0))
    [(_, packet_id)] = subscribed(effects)
    refusal = SubAckPacket(packet_id, [SubAckReasonCode.NOT_AUTHORIZED], reason_str="not for you")
    [answered] = session.heard(refusal)
    assert isinstance(answered, Answered) and isinstance(answered.error, SubscriptionRefused)
    assert answered.request == request and "'a': not for you" in str(answered.error)
    assert subscribed(session.subscribe(filter_of("a", 0))[1])


def test_requests_made_while_disconnected_go_out_with_the_next_connection() -> None:
    session = Session(10)
    subscribing, effects = session.subscribe(filter_of("a", 0))
    assert effects == []
    publishing, effects = session.ask(message(b"x"))
    assert effects == []
    effects = session.connected(ConnAckPacket(receive_max=5))
    [(_, packet_id)], [(_, publish_id, again)] = subscribed(effects), published(effects)
    assert publish_id is not None and not again
    assert session.heard(SubAckPacket(packet_id, [GRANTED])) == [Answered(subscribing)]
    assert session.heard(PubAckPacket(publish_id)) == [Answered(publishing)]


def test_subscriptions_are_made_anew_only_where_the_session_is_lost() -> None:
    session = session_up()
    for name in ("a", "$query/b = 1", "$streams/b = 1"):
        [(_, packet_id)] = subscribed(session.subscribe(filter_of(name, 0))[1])
        session.heard(SubAckPacket(packet_id, [GRANTED]))
    session.interrupted(BROKEN)
    resumed = session.connected(ConnAckPacket(session_present=True))
    assert [name for name, _ in subscribed(resumed)] == ["$streams/b = 1"], "its set is told to who asks"
    session.interrupted(BROKEN)
    lost = session.connected(ConnAckPacket())
    assert sorted(name for name, _ in subscribed(lost)) == ["$query/b = 1", "$streams/b = 1", "a"]


DEGRADED_WORDS = "degraded: the store has no word of it yet"


def unsubscribed(effects: list[Effect]) -> list[tuple[str, int]]:
    found = [each for each in effects if isinstance(each, UnsubscribePacket)]
    return [(each.patterns[0], each.packet_id) for each in found]


def test_degraded_subscription_is_asked_for_again_until_it_is_stored() -> None:
    session = session_up()
    [(_, packet_id)] = subscribed(session.subscribe(filter_of("a", 1))[1])
    session.heard(SubAckPacket(packet_id, [GRANTED], reason_str=DEGRADED_WORDS))
    for words in (DEGRADED_WORDS, None):
        session.interrupted(BROKEN)
        [(name, packet_id)] = subscribed(session.connected(ConnAckPacket(session_present=True)))
        assert name == "a"
        session.heard(SubAckPacket(packet_id, [GRANTED], reason_str=words))
    session.interrupted(BROKEN)
    assert session.connected(ConnAckPacket(session_present=True)) == []


def test_degraded_unsubscription_is_asked_for_again_until_it_is_stored() -> None:
    session = session_up()
    [(_, packet_id)] = subscribed(session.subscribe(filter_of("a", 1))[1])
    session.heard(SubAckPacket(packet_id, [GRANTED]))
    [(_, packet_id)] = unsubscribed(session.unsubscribe("a")[1])
    session.heard(UnsubAckPacket(packet_id, [UnsubAckReasonCode.SUCCESS], reason_str=DEGRADED_WORDS))
    for words in (DEGRADED_WORDS, None):
        session.interrupted(BROKEN)
        [(name, packet_id)] = unsubscribed(session.connected(ConnAckPacket(session_present=True)))
        session.interrupted(BROKEN)  # before the answer: it is asked once more, not twice
        [(name, packet_id)] = unsubscribed(session.connected(ConnAckPacket(session_present=True)))
        assert name == "a"
        session.heard(UnsubAckPacket(packet_id, [UnsubAckReasonCode.SUCCESS], reason_str=words))
    session.interrupted(BROKEN)
    assert session.connected(ConnAckPacket(session_present=True)) == []


def test_degraded_unsubscription_is_over_with_its_session() -> None:
    session = session_up()
    [(_, packet_id)] = unsubscribed(session.unsubscribe("a")[1])
    session.heard(UnsubAckPacket(packet_id, [UnsubAckReasonCode.SUCCESS], reason_str=DEGRADED_WORDS))
    session.interrupted(BROKEN)
    assert session.connected(ConnAckPacket()) == []


def test_a_subscription_that_is_refused_after_a_break_ends() -> None:
    session = session_up()
    [(_, packet_id)] = subscribed(session.subscribe(filter_of("a", 0))[1])
    session.heard(SubAckPacket(packet_id, [GRANTED]))
    session.interrupted(BROKEN)
    [(_, packet_id)] = subscribed(session.connected(ConnAckPacket()))
    [answered] = session.heard(SubAckPacket(packet_id, [SubAckReasonCode.NOT_AUTHORIZED]))
    assert isinstance(answered, Answered) and isinstance(answered.error, SubscriptionRefused)
    assert answered.error.topic_filter == "a"
    session.interrupted(BROKEN)
    assert session.connected(ConnAckPacket()) == []


def test_a_query_has_an_identifier_that_follows_from_its_text() -> None:
    one, other = session_up(), session_up()
    other.subscribe(filter_of("$query/z = 1", 0))
    first, second = (each.subscribe(filter_of("$query/a = 1", 0))[1][0] for each in (one, other))
    assert isinstance(first, SubscribePacket) and isinstance(second, SubscribePacket)
    assert first.subscription_id == second.subscription_id is not None
    plain = one.subscribe(filter_of("a", 0))[1][0]
    assert isinstance(plain, SubscribePacket) and plain.subscription_id is None


def test_unsubscribing_survives_a_break() -> None:
    session = session_up()
    session.subscribe(filter_of("a", 0))
    request, _ = session.unsubscribe("a")
    session.interrupted(BROKEN)
    *_, asked = session.connected(ConnAckPacket(session_present=True))
    assert isinstance(asked, UnsubscribePacket)
    answer = UnsubAckPacket(asked.packet_id, [UnsubAckReasonCode.SUCCESS])
    assert session.heard(answer) == [Answered(request)]


def test_a_flush_fails_with_its_connection() -> None:
    session = session_up()
    request, _ = session.ask(FLUSH)
    assert session.interrupted(BROKEN) == [Answered(request, BROKEN)]
    assert session.connected(ConnAckPacket()) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_refused_frees_its_number_and_the_window(qos: int) -> None:
    session = session_up(window=1)
    request, effects = session.ask(message(b"x", qos))
    [(_, packet_id, _)] = published(effects)
    assert packet_id is not None
    assert session.ask(message(b"y", qos))[1] == []
    refusal: Packet = PubAckPacket(packet_id, reason_code=PubAckReasonCode.NOT_AUTHORIZED)
    if qos == 2:
        refusal = PubRecPacket(packet_id, reason_code=PubRecReasonCode.NOT_AUTHORIZED)
    answered, following = session.heard(refusal)
    assert isinstance(answered, Answered) and answered.request == request
    assert isinstance(answered.error, PublishRefused) and "'t': not authorized" in str(answered.error)
    assert isinstance(following, PublishPacket) and following.payload == b"y"


def test_a_message_is_marked_as_a_repeat_in_the_same_session_only() -> None:
    session = session_up()
    [(_, packet_id, _)] = published(session.ask(message(b"x"))[1])
    for resumed in (True, False, True):
        session.interrupted(BROKEN)
        effects = session.connected(ConnAckPacket(session_present=resumed))
        assert published(effects) == [(b"x", packet_id, resumed)]


def test_a_message_received_by_a_broker_that_forgot_the_session_is_answered() -> None:
    session = session_up()
    request, effects = session.ask(message(b"x", 2))
    [(_, packet_id, _)] = published(effects)
    assert packet_id is not None
    assert session.heard(PubRecPacket(packet_id)) == [PubRelPacket(packet_id)]
    session.interrupted(BROKEN)
    assert session.connected(ConnAckPacket()) == [PubRelPacket(packet_id)]
    unknown = PubCompPacket(packet_id, reason_code=PubCompReasonCode.PACKET_ID_NOT_FOUND)
    assert session.heard(unknown) == [Answered(request)]


def test_answers_to_nothing_change_nothing() -> None:
    session = session_up()
    for packet in (PubAckPacket(7), PubCompPacket(7), SubAckPacket(7, [GRANTED])):
        assert session.heard(packet) == []
    [answer] = session.heard(PubRecPacket(7))
    assert isinstance(answer, PubRelPacket) and int(answer.reason_code) == 0x92


def test_an_answer_to_what_is_not_sent_yet_breaks_nothing() -> None:
    session = session_up(window=1)
    session.ask(message(b"x"))
    waiting, _ = session.ask(message(b"y"))
    last, _ = session.ask(message(b"z"))
    session.heard(PubAckPacket(waiting))
    effects = session.heard(PubAckPacket(waiting - 1))
    assert published(effects) == [(b"z", last, False)]


def test_requests_wait_in_order_for_room_at_the_broker() -> None:
    session = session_up(window=1)
    first, _ = session.ask(message(b"x"))
    assert session.subscribe(filter_of("a", 0))[1] == []
    flushing, effects = session.ask(FLUSH)
    assert effects == []
    _, asked = session.heard(PubAckPacket(first))
    assert isinstance(asked, SubscribePacket)
    _, flush = session.heard(SubAckPacket(asked.packet_id, [GRANTED]))
    assert isinstance(flush, UnsubscribePacket)
    answer = UnsubAckPacket(flush.packet_id, [UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED])
    assert session.heard(answer) == [Answered(flushing)]


def test_subscriptions_are_made_anew_before_the_messages_that_wait() -> None:
    session = session_up()
    [(_, packet_id)] = subscribed(session.subscribe(filter_of("t", 1))[1])
    session.heard(SubAckPacket(packet_id, [GRANTED]))
    session.ask(message(b"x"))
    session.interrupted(BROKEN)
    again, waiting = session.connected(ConnAckPacket())
    assert isinstance(again, SubscribePacket) and isinstance(waiting, PublishPacket)


def test_a_filter_given_up_before_its_subscribe_is_never_requested() -> None:
    session = Session(10)
    session.subscribe(filter_of("a", 0))
    session.unsubscribe("a")
    effects = session.connected(ConnAckPacket())
    assert [type(each) for each in effects] == [UnsubscribePacket, UnsubscribePacket]


def test_there_are_so_many_numbers_and_then_an_error() -> None:
    session = Session(10)
    for _ in range(PACKET_IDS):
        session.ask(message(b""))
    with pytest.raises(Unencodable, match="wait for answers"):
        session.ask(message(b""))


class Run:
    """A session and a broker, with a wire between them that loses all that is on it when it breaks."""

    def __init__(self) -> None:
        self.session = Session(receive_max=3)
        self.broker = Broker(receive_max=2, window=3)
        self.to_broker: deque[Packet] = deque()
        self.inboxes: dict[str, deque[PublishPacket]] = {"t/0": deque(), "t/1": deque()}
        self.last: dict[str, PublishPacket] = {}
        self.read: dict[str, list[int]] = {"t/0": [], "t/1": []}
        self.acknowledged: list[int] = []  # of QoS 1, by us, in the last moments
        self.delivered: list[int] = []
        self.qos: dict[int, int] = {}
        self.asked: dict[int, bytes] = {}
        self.answered: Counter[int] = Counter()
        self.carry_out(self.session.connected(self.broker.connect(resumed=False)))
        for name in self.inboxes:
            self.carry_out(self.session.subscribe(filter_of(name, 2))[1])

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Arrived(packet=packet):
                    self.inboxes[packet.topic].append(packet)
                case Answered(request=request, error=None):
                    self.answered[request] += 1
                case Answered():
                    raise AssertionError(effect)
                case PubAckPacket(packet_id=number):
                    self.acknowledged.append(number)
                    self.to_broker.append(effect)
                case _:
                    self.to_broker.append(effect)

    def publish(self, qos: int) -> None:
        payload = b"%d at %d" % (len(self.asked), qos)
        request, effects = self.session.ask(message(payload, qos))
        self.asked[request] = payload
        self.carry_out(effects)

    def deliver(self, qos: int) -> None:
        number = self.broker.deliver(qos)
        self.delivered.append(number)
        self.qos[number] = qos

    def reads(self, name: str) -> None:
        if name in self.last:
            self.carry_out([*self.session.arrivals.settle(self.last.pop(name))])
        if inbox := self.inboxes[name]:
            self.last[name] = packet = inbox.popleft()
            self.read[name].append(int(packet.payload))

    def step_broker(self) -> None:
        if self.to_broker:
            self.broker.heard(self.to_broker.popleft())

    def step_client(self) -> None:
        if self.broker.out:
            self.carry_out(self.session.heard(self.broker.out.popleft()))

    def break_(self, *, crash: bool, reading: bool) -> None:
        self.to_broker.clear()
        self.session.interrupted(BROKEN)
        if reading:
            for name in self.inboxes:
                self.reads(name)
            assert not self.to_broker, "nothing is said while there is no connection"
        if crash:
            self.broker.forget_acknowledgements(self.acknowledged[-2:])
        answer = self.broker.connect(resumed=True)
        self.carry_out(self.session.connected(answer))
        self.broker.send()

    def drain(self) -> None:
        for _ in range(10_000):
            if not (self.to_broker or self.broker.out or any(self.inboxes.values()) or self.last):
                return
            self.step_broker()
            self.step_client()
            for name in self.inboxes:
                self.reads(name)
        raise AssertionError("it does not come to rest")


SAYING = ("publish 1", "publish 2", "deliver 1", "deliver 2", "read 0", "read 1")
STEPS = st.sampled_from((*SAYING, "client", "client", "broker", "broker", "break", "pause", "crash"))


@settings(max_examples=500, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_over_breaks_every_message_is_read_once_and_every_request_answered_once(steps: list[str]) -> None:
    run = Run()
    for step in steps:
        word, _, number = step.partition(" ")
        match word:
            case "publish":
                run.publish(int(number))
            case "deliver":
                run.deliver(int(number))
            case "read":
                run.reads(f"t/{number}")
            case "client":
                run.step_client()
            case "broker":
                run.step_broker()
            case _:
                run.break_(crash=word == "crash", reading=word == "pause")
    run.drain()
    for name, numbers in run.read.items():
        assert numbers == [each for each in run.delivered if name == f"t/{each % 2}"], "once each, in order"
    assert {request: 1 for request in run.asked} == {key: run.answered[key] for key in run.asked}
    firsts = list(dict.fromkeys(run.broker.stored))
    assert firsts == list(run.asked.values()), "all of them, and in order"
    exactly_once = [payload for payload in run.broker.stored if payload.endswith(b"2")]
    assert len(exactly_once) == len(set(exactly_once))
    assert not run.broker.sent and not run.broker.released and not run.broker.held
