"""A client's filters against a list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import SubscribePacket, TopicFilter, UnsubscribePacket

from tocsin.core.handshake import SessionLimits
from tocsin.core.subscriptions import Subscriptions

LIMIT = 3
patterns = st.sampled_from(["a", "b", "a/#", "+", "$share/g/a", "", "x" * 2_000])
steps = st.lists(st.tuples(st.booleans(), st.lists(patterns, min_size=1, max_size=4)), max_size=8)


@settings(deadline=None)
@given(steps)
def test_any_history_is_answered_as_a_list_would(history: list[tuple[bool, list[str]]]) -> None:
    subscriptions = Subscriptions(SessionLimits(subscriptions_max=LIMIT))
    held: list[str] = []
    for wants, names in history:
        expected = []
        if wants:
            packet = SubscribePacket(1, [TopicFilter(name) for name in names])
            granted, codes, reason = subscriptions.add(packet)
            for name in names:
                expected.append(judgement(name, held))
                if expected[-1] == 0 and name not in held:
                    held.append(name)
            assert [int(code) for code in codes] == expected
            assert [each.pattern for each in granted] == [
                name for name, code in zip(names, expected, strict=True) if code == 0
            ]
            assert bool(reason) is any(expected)
        else:
            gone, answers = subscriptions.remove(UnsubscribePacket(1, names))
            for name in names:
                expected.append(0 if name in held else 0x11 if name else 0x8F)
                if name in held:
                    held.remove(name)
            assert [int(code) for code in answers] == expected
            assert len(gone) == expected.count(0)
        assert len(subscriptions) == len(held) <= LIMIT


def judgement(name: str, held: list[str]) -> int:
    if not name or len(name) > 1_024:
        return 0x8F
    if name.startswith("$share/"):
        return 0x9E
    return 0x97 if name not in held and len(held) >= LIMIT else 0


def test_the_options_of_a_filter_are_handed_on() -> None:
    wanted = TopicFilter("a", no_local=True, retain_as_published=True)
    (effect,), _, _ = Subscriptions(SessionLimits()).add(SubscribePacket(1, [wanted], subscription_id=9))
    assert (effect.no_local, effect.retain_as_published, effect.subscription_id) == (True, True, 9)
    assert effect.retain_handling == wanted.retain_handling
