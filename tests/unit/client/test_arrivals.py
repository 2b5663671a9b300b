"""Messages that come: whom they are for, when they are acknowledged, what is a repeat."""

from __future__ import annotations

import pytest
from mqtt5 import Packet, PubAckPacket, PublishPacket, PubRecPacket

from tests.unit.client.broker import QOS
from tocsin.client import arrivals
from tocsin.client.arrivals import Arrivals, Arrived
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
        made.want(name)
    return made


def takers(effects: list[Packet | Arrived]) -> list[tuple[str, ...]]:
    return [each.takers for each in effects if isinstance(each, Arrived)]


def test_a_message_goes_to_the_filters_that_match_its_topic() -> None:
    made = begun("a/#", "a/+", "b", "$share/g/a/b")
    assert takers(made.arrive(packet(None, "a/b", qos=0))) == [("a/#", "a/+", "$share/g/a/b")]
    assert takers(made.arrive(packet(None, "a/b/c", qos=0))) == [("a/#",)]
    assert made.arrive(packet(None, "c", qos=0)) == []
    made.forget("a/#")
    assert takers(made.arrive(packet(None, "a/b", qos=0))) == [("a/+", "$share/g/a/b")]


def test_a_query_gets_what_carries_its_identifier_and_nothing_else() -> None:
    made = begun("a/#")
    one, _ = made.want("$query/x = 1")
    two, _ = made.want("$query/x = 2")
    assert one is not None and two is not None and one != two
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
    assert {made.want(f"$query/x = {number}")[0] for number in range(3)} == {1, 2, 3}


def test_the_memory_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "TOPICS_MAX", 2)
    made = begun("+")
    for topic in "abcab":
        assert takers(made.arrive(packet(None, topic, qos=0))) == [("+",)]
        assert len(made._takers) <= 2


def test_a_message_is_acknowledged_when_all_have_settled_it() -> None:
    made = begun("a", "#")
    message = packet(5, "a")
    assert takers(made.arrive(message)) == [("a", "#")]
    assert made.settle([message]) == []
    assert made.settle([message]) == [PubAckPacket(5)]
    assert made.settle([message]) == []


def test_a_message_that_waits_does_not_hold_back_the_acknowledgements_of_others() -> None:
    made = begun("#")
    messages = [packet(number, qos=1 + number % 2) for number in (3, 4, 5)]
    for each in messages:
        made.arrive(each)
    assert made.settle(messages[1:]) == [PubAckPacket(4), PubRecPacket(5)]
    assert made.settle(messages[:1]) == [PubRecPacket(3)]


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
    identifier, _ = begun().want("$query/x = 1")
    made = begun(resumed=True)
    plain, queried = packet(1, "a"), packet(2, "b", identifiers=[identifier or 0])
    assert made.arrive(plain) == made.arrive(queried) == []
    _, waited = made.want("$query/x = 1")
    assert [(each.packet, each.takers) for each in waited] == [(queried, ("$query/x = 1",))]
    assert made.settle([queried]) == [PubAckPacket(2)]
    _, waited = made.want("a")
    assert [(each.packet, each.takers) for each in waited] == [(plain, ("a",))]
    assert made.settle([plain]) == [PubAckPacket(1)]


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
        made.settle([message])
    made.begin(True)
    assert made.arrive(packet(1, payload=b"1")) == [PubAckPacket(1)]
    assert made.arrive(packet(2, payload=b"2", duplicate=True)) == [PubAckPacket(2)]
    assert made.repeated == 2
    assert takers(made.arrive(packet(2, payload=b"2", duplicate=True))) == [("#",)], "once each"


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_settled_between_a_break_and_its_repeat_is_acknowledged_with_that(qos: int) -> None:
    made = begun("#")
    message = packet(1, qos=qos)
    made.arrive(message)
    made.begin(True)
    assert made.settle([message]) == []
    answer = PubAckPacket(1) if qos == 1 else PubRecPacket(1)
    assert made.arrive(packet(1, qos=qos, duplicate=True)) == [answer]


def test_another_message_with_a_number_that_was_used_is_new() -> None:
    made = begun("#")
    for qos in (1, 2):
        message = packet(qos, payload=b"old", qos=qos)
        made.arrive(message)
        made.settle([message])
    made.begin(True)
    for qos in (1, 2):
        assert takers(made.arrive(packet(qos, payload=b"new", qos=qos, duplicate=True))) == [("#",)]


def test_after_the_first_new_message_equal_ones_are_new_too() -> None:
    made = begun("#")
    message = packet(1, payload=b"on")
    made.arrive(message)
    made.settle([message])
    made.begin(True)
    made.arrive(packet(2))
    assert takers(made.arrive(packet(1, payload=b"on"))) == [("#",)]


def test_a_settled_message_of_a_lost_session_is_not_acknowledged_to_the_next() -> None:
    made = begun("#")
    old = packet(1, payload=b"old")
    made.arrive(old)
    made.begin(False)
    assert takers(made.arrive(packet(1, payload=b"new"))) == [("#",)]
    assert made.settle([old]) == []


def test_the_memory_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "REMEMBERED", 2)
    made = begun("#", receive_max=2)
    for number in range(1, 10):
        message = packet(number, qos=1 + number % 2)
        made.arrive(message)
        made.settle([message])
    assert (len(made._remembered), len(made._received)) == (2, 2)
