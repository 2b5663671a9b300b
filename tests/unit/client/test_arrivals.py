"""Messages that come: whom they are for, when they are acknowledged, what is a repeat."""

from __future__ import annotations

import pytest
from mqtt5 import PubAckPacket, PubCompPacket, PublishPacket, PubRecPacket

from tests.unit.client.broker import QOS
from tocsin.client import arrivals
from tocsin.client.arrivals import Arrivals
from tocsin.client.message import filter_of
from tocsin.client.values import Arrived, Effect
from tocsin.core.delivery import repeats
from tocsin.errors import ProtocolViolation


def packet(
    number: int | None,
    topic: str = "t",
    payload: bytes = b"",
    *,
    qos: int = 1,
    duplicate: bool = False,
    identifiers: list[int] | None = None,
) -> PublishPacket:
    return PublishPacket(
        topic,
        payload,
        qos=QOS[qos],
        packet_id=number,
        duplicate=duplicate,
        subscription_ids=identifiers or [],
    )


def begun(*filters: str, resumed: bool = False, receive_max: int = 10) -> Arrivals:
    made = Arrivals(receive_max)
    made.begin(resumed)
    for name in filters:
        want(made, name)
    return made


def want(made: Arrivals, name: str) -> list[tuple[PublishPacket, tuple[str, ...]]]:
    """Make a subscription: what has waited for it."""
    waited = made.want(filter_of(name, 2))
    return [(each.packet, each.takers) for each in waited if isinstance(each, Arrived)]


def identifier_of(made: Arrivals, name: str) -> int:
    identifier = made.wanted[name].identifier
    assert identifier is not None
    return identifier


def settle(made: Arrivals, *packets: PublishPacket) -> list[Effect]:
    return [answer for packet in packets for answer in made.settle(packet)]


def takers(effects: list[Effect]) -> list[tuple[str, ...]]:
    return [each.takers for each in effects if isinstance(each, Arrived)]


def test_a_message_goes_to_the_filters_that_match_its_topic() -> None:
    made = begun("a/#", "a/+", "b", "$share/g/a/b")
    assert takers(made.arrive(packet(None, "a/b", qos=0))) == [("a/#", "a/+", "$share/g/a/b")]
    assert takers(made.arrive(packet(None, "a/b/c", qos=0))) == [("a/#",)]
    assert made.arrive(packet(None, "c", qos=0)) == []
    made.forget("a/#")
    assert takers(made.arrive(packet(None, "a/b", qos=0))) == [("a/+", "$share/g/a/b")]


def test_what_nobody_asked_for_is_counted_once_and_acknowledged() -> None:
    made = begun("a", resumed=True)
    assert made.arrive(packet(1, "a")) and made.unasked == 0
    assert made.arrive(packet(2, "left")) == [] and made.unasked == 1, "a subscription may still be made"
    given, answers = made.abandon()
    assert (given, made.unasked) == (1, 1)
    assert [each.packet_id for each in answers if isinstance(each, PubAckPacket)] == [2]
    assert isinstance(made.arrive(packet(3, "left"))[0], PubAckPacket) and made.unasked == 2
    assert made.arrive(packet(None, "left", qos=0)) == [] and made.unasked == 3
    assert made.arrive(packet(None, "$servers", qos=0)) == [] and made.unasked == 3, "a word of the broker's"


def test_what_is_claimed_late_was_asked_for() -> None:
    made = begun(resumed=True)
    made.arrive(packet(1, "a"))
    assert made.unasked == 1
    want(made, "a")
    assert made.unasked == 0


def test_a_query_gets_what_carries_its_identifier_and_nothing_else() -> None:
    made = begun("a/#")
    for name in ("$query/x = 2", "$query/x = 1"):
        want(made, name)
    one, two = identifier_of(made, "$query/x = 1"), identifier_of(made, "$query/x = 2")
    assert one != two
    assert takers(made.arrive(packet(None, "a/b", qos=0, identifiers=[two, one]))) == [
        ("a/#", "$query/x = 2", "$query/x = 1")
    ]
    assert takers(made.arrive(packet(None, "z", qos=0, identifiers=[one]))) == [("$query/x = 1",)]
    made.forget("$query/x = 1")
    assert made.arrive(packet(None, "z", qos=0, identifiers=[one, 7])) == []


def test_queries_whose_identifiers_would_be_the_same_have_different_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "SUBSCRIPTION_IDS", 3)
    made = begun()
    names = [f"$query/x = {number}" for number in range(3)]
    for name in names:
        want(made, name)
    assert {identifier_of(made, name) for name in names} == {1, 2, 3}


def test_the_memory_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "TOPICS_MAX", 2)
    made = begun("+")
    for topic in "abcab":
        assert takers(made.arrive(packet(None, topic, qos=0))) == [("+",)]
        assert made._takers.cache_info().currsize <= 2


def test_a_message_is_acknowledged_when_all_have_settled_it() -> None:
    made = begun("a", "#")
    message = packet(5, "a")
    assert takers(made.arrive(message)) == [("a", "#")]
    assert settle(made, message) == []
    assert settle(made, message) == [PubAckPacket(5)]
    assert settle(made, message) == []


def test_a_message_that_waits_does_not_hold_back_the_acknowledgements_of_others() -> None:
    made = begun("#")
    messages = [packet(number, qos=1 + number % 2) for number in (3, 4, 5)]
    for each in messages:
        made.arrive(each)
    assert settle(made, *messages[1:]) == [PubAckPacket(4), PubRecPacket(5)]
    assert settle(made, *messages[:1]) == [PubRecPacket(3)]


def test_what_is_for_nobody_is_acknowledged_at_once() -> None:
    assert begun("a").arrive(packet(1, "b")) == [PubAckPacket(1)]


def test_more_than_we_take_is_a_violation() -> None:
    made = begun("#", receive_max=2)
    made.arrive(packet(1))
    made.arrive(packet(2))
    with pytest.raises(ProtocolViolation, match="more than 2 unacknowledged") as broken:
        made.arrive(packet(3))
    assert broken.value.reason_code == 0x93


# ── a resumed session ───────────────────────────────────────────────────────────────────────────────────────


def test_messages_wait_for_the_subscription_that_they_are_for() -> None:
    identifier = identifier_of(begun("$query/x = 1"), "$query/x = 1")
    made = begun(resumed=True)
    plain, queried = packet(1, "a"), packet(2, "b", identifiers=[identifier])
    assert made.arrive(plain) == made.arrive(queried) == []
    assert want(made, "$query/x = 1") == [(queried, ("$query/x = 1",))]
    assert settle(made, queried) == [PubAckPacket(2)]
    assert want(made, "a") == [(plain, ("a",))]
    assert settle(made, plain) == [PubAckPacket(1)]


def test_messages_of_a_filter_that_was_given_up_do_not_wait() -> None:
    made = begun("a/+")
    made.forget("a/+")
    made.begin(resumed=True)
    assert made.arrive(packet(1, "a/b")) == [PubAckPacket(1)]
    other = packet(2, "b")
    assert made.arrive(other) == []
    want(made, "a/+")
    made.forget("b")  # it never was ours
    assert want(made, "b") == [(other, ("b",))]


def test_what_nobody_claims_is_acknowledged_in_the_end() -> None:
    made = begun(resumed=True)
    made.arrive(packet(1))
    assert made.abandon() == (1, [PubAckPacket(1)])
    assert made.arrive(packet(2)) == [PubAckPacket(2)]
    assert made.abandon() == (0, [])


def test_what_was_acknowledged_is_recognised_also_if_it_is_not_marked() -> None:
    made = begun("#")
    for number in (1, 2):
        message = packet(number, payload=b"%d" % number)
        made.arrive(message)
        settle(made, message)
    made.begin(True)
    assert made.arrive(packet(1, payload=b"1")) == [PubAckPacket(1)]
    assert made.arrive(packet(2, payload=b"2", duplicate=True)) == [PubAckPacket(2)]
    assert made.repeated == 2
    assert takers(made.arrive(packet(2, payload=b"2", duplicate=True))) == [("#",)], "once each"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_settled_during_a_break_is_acknowledged_at_its_repeat(qos: int) -> None:
    made = begun("#")
    message = packet(1, qos=qos)
    made.arrive(message)
    made.begin(True)
    assert settle(made, message) == []
    answer = PubAckPacket(1) if qos == 1 else PubRecPacket(1)
    assert made.arrive(packet(1, qos=qos, duplicate=True)) == [answer]


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_acknowledged_while_there_is_no_connection(qos: int) -> None:
    made = begun("#")
    message = packet(1, qos=qos)
    made.arrive(message)
    made.interrupt()
    assert settle(made, message) == []
    made.begin(True)
    answer = PubAckPacket(1) if qos == 1 else PubRecPacket(1)
    assert made.arrive(packet(1, qos=qos, duplicate=True)) == [answer]


def test_unclaimed_messages_stay_unclaimed_while_there_is_no_connection() -> None:
    made = begun(resumed=True)
    made.arrive(packet(1, "a"))
    made.interrupt()
    assert want(made, "a") == []
    made.begin(True)
    assert takers(made.arrive(packet(1, "a", duplicate=True))) == [("a",)]


def test_another_message_with_a_number_that_was_used_is_new() -> None:
    made = begun("#")
    for qos in (1, 2):
        message = packet(qos, payload=b"old", qos=qos)
        made.arrive(message)
        settle(made, message)
    made.begin(True)
    for qos in (1, 2):
        assert takers(made.arrive(packet(qos, payload=b"new", qos=qos, duplicate=True))) == [("#",)]


def test_after_the_first_new_message_equal_ones_are_new_too() -> None:
    made = begun("#")
    message = packet(1, payload=b"on")
    made.arrive(message)
    settle(made, message)
    made.begin(True)
    made.arrive(packet(2))
    assert takers(made.arrive(packet(1, payload=b"on"))) == [("#",)]


def test_a_settled_message_of_a_lost_session_is_not_acknowledged() -> None:
    made = begun("#")
    old = packet(1, payload=b"old")
    made.arrive(old)
    made.begin(False)
    assert takers(made.arrive(packet(1, payload=b"new"))) == [("#",)]
    assert settle(made, old) == []


def test_the_memory_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "REMEMBERED", 2)
    made = begun("#")
    for number in range(1, 10):
        message = packet(number)
        made.arrive(message)
        settle(made, message)
    assert (len(made._repeats), len(made._taken)) == (2, 0)


def test_what_was_acknowledged_long_ago_is_not_a_repeat() -> None:
    made = begun("#")
    for number in (1, 2):
        message = packet(number, payload=b"on")
        made.arrive(message)
        settle(made, message)
        made.age()
    made.begin(True)
    assert made.arrive(packet(2, payload=b"on")) == [PubAckPacket(2)]
    assert takers(made.arrive(packet(1, payload=b"on"))) == [("#",)], "the same again, and another one"


def test_a_message_at_qos_2_counts_until_it_is_released() -> None:
    made = begun("#", receive_max=2)
    messages = [packet(number, qos=2) for number in (1, 2, 3)]
    for each in messages[:2]:
        made.arrive(each)
    assert settle(made, *messages[:2]) == [PubRecPacket(1), PubRecPacket(2)]
    with pytest.raises(ProtocolViolation):
        made.arrive(messages[2])
    assert made.release(1) == PubCompPacket(1)
    assert takers(made.arrive(messages[2])) == [("#",)]


def test_a_message_that_was_not_settled_cannot_be_released() -> None:
    made = begun("#")
    made.arrive(packet(1, qos=2))
    for number in (1, 7):
        assert int(made.release(number).reason_code) == 0x92


def test_what_nobody_has_claimed_counts_and_comes_again_after_a_break() -> None:
    made = begun(resumed=True, receive_max=1)
    made.arrive(packet(1))
    with pytest.raises(ProtocolViolation):
        made.arrive(packet(2))
    made.begin(True)
    again = packet(1, duplicate=True)
    assert made.arrive(again) == []
    assert want(made, "t") == [(again, ("t",))]
