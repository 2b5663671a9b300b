"""A client's filters against a list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import QoS, SubscribePacket, TopicFilter, UnsubscribePacket

from tocsin.core.filters import SharedFilter
from tocsin.core.session.limits import SessionLimits
from tocsin.core.session.signals import Unsubscribe
from tocsin.core.session.subscribe import REQUESTS_MAX, STORED_BYTES, Subscriptions

LIMIT = 3
patterns = st.sampled_from(["a", "b", "a/#", "+", "$share/g/a", "$share/h/a", "$share/g", "", "x" * 2_000])
BAD = ("", "$share/g", "x" * 2_000)
steps = st.lists(st.tuples(st.booleans(), st.lists(patterns, min_size=1, max_size=4)), max_size=8)


@settings(deadline=None)
@given(st.lists(patterns.filter(lambda name: name not in BAD), max_size=2, unique=True), steps)
def test_any_history_is_answered_as_a_list_would(
    restored: list[str], history: list[tuple[bool, list[str]]]
) -> None:
    subscriptions = Subscriptions(SessionLimits(subscriptions_max=LIMIT))
    subscriptions.restore(restored, {})
    held = list(restored)
    for wants, names in history:
        expected = []
        if wants:
            packet = SubscribePacket(1, [TopicFilter(name) for name in names])
            granted, codes, reason = subscriptions.add(packet)
            for name in names:
                expected.append(judgement(name, held))
                if expected[-1] == 2 and name not in held:
                    held.append(name)
            assert [int(code) for code in codes] == expected
            assert [each.filter.name for each in granted] == [
                name for name, code in zip(names, expected, strict=True) if code == 2
            ]
            assert bool(reason) is (max(expected) > 2)
        else:
            gone, answers = subscriptions.remove(UnsubscribePacket(1, names))
            for name in names:
                expected.append(0 if name in held else 0x8F if name in BAD[:2] else 0x11)
                if name in held:
                    held.remove(name)
            assert [int(code) for code in answers] == expected
            assert [each.filter.name for each in gone] == [
                name for name, code in zip(names, expected, strict=True) if code == 0
            ]
        assert len(subscriptions) == len(held) <= LIMIT


def judgement(name: str, held: list[str]) -> int:
    if name in BAD:
        return 0x8F
    return 0x97 if name not in held and len(held) >= LIMIT else 2


def test_the_options_of_a_filter_are_handed_on() -> None:
    wanted = TopicFilter("a", no_local=True, retain_as_published=True)
    (effect,), _, _ = Subscriptions(SessionLimits()).add(SubscribePacket(1, [wanted], subscription_id=9))
    assert (effect.no_local, effect.retain_as_published, effect.subscription_id) == (True, True, 9)
    assert (effect.retain_handling, effect.qos) == (wanted.retain_handling, QoS.EXACTLY_ONCE)


def test_more_than_the_bound_can_be_restored_but_none_added() -> None:
    subscriptions = Subscriptions(SessionLimits(subscriptions_max=1))
    subscriptions.restore(["a", "$share/g/b"], {})
    wanted = [TopicFilter("a"), TopicFilter("b")]
    granted, codes, _ = subscriptions.add(SubscribePacket(1, wanted))
    assert [int(code) for code in codes] == [2, 0x97]
    assert granted[0].existed
    gone, _ = subscriptions.remove(UnsubscribePacket(1, ["$share/g/b"]))
    assert gone == [Unsubscribe(filter=SharedFilter("$share/g/b", "g", "b"))]


def test_shared_subscriptions_that_are_not_offered_are_refused_one_by_one() -> None:
    subscriptions = Subscriptions(SessionLimits(shared=False))
    granted, codes, reason = subscriptions.add(
        SubscribePacket(1, [TopicFilter("a"), TopicFilter("$share/g/a")])
    )
    assert [each.filter.name for each in granted] == ["a"]
    assert [int(code) for code in codes] == [2, 0x9E]
    assert reason == "shared subscriptions are not offered"


def test_the_bytes_of_a_clients_filters_are_bounded() -> None:
    subscriptions = Subscriptions(SessionLimits(subscriptions_max_bytes=10 * (100 + STORED_BYTES)))
    names = [f"{number:0100}" for number in range(12)]

    def codes(*wanted: str) -> list[int]:
        packet = SubscribePacket(1, [TopicFilter(name) for name in wanted])
        return [int(code) for code in subscriptions.add(packet)[1]]

    assert codes(*names) == [2] * 10 + [0x97] * 2
    assert codes(names[0]) == [2], "one that is held already"
    subscriptions.remove(UnsubscribePacket(1, [names[0], "never/held"]))
    subscriptions.withdraw(names[1])
    subscriptions.withdraw(names[1])
    assert codes(*names[9:]) == [2, 2, 2]
    assert codes(names[0]) == [0x97]
    restored = Subscriptions(SessionLimits(subscriptions_max_bytes=200))
    restored.restore(names[:2], {})
    assert int(restored.add(SubscribePacket(1, [TopicFilter("a")]))[1][0]) == 0x97


def test_the_requests_of_a_client_are_bounded() -> None:
    subscriptions = Subscriptions(SessionLimits())
    subscriptions.restore(
        ["$qos/deadline=1s/a", "b"], {"$qos/deadline=1s/a": "deadline=1s", "b": "deadline=1s"}
    )

    def codes(*wanted: str, said: str = "") -> list[int]:
        properties = [("request.deadline", said)] if said else []
        filters = [TopicFilter(name) for name in wanted]
        packet = SubscribePacket(1, filters, user_properties=properties)
        return [int(code) for code in subscriptions.add(packet)[1]]

    names = [f"$qos/deadline=1s/{number}" for number in range(REQUESTS_MAX)]
    assert codes(*names) == [2] * (REQUESTS_MAX - 2) + [0x97] * 2
    assert codes("c", said="2s") == [0x97]
    assert codes("c", "b", names[0]) == [2, 2, 2], "no request, and one that is held already"
    assert codes("c", said="2s") == [2], "b has none any more"
