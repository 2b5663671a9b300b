"""Packet ids of messages that come in, against a model with one word for each id."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.core.session.publish import Inbound
from tocsin.errors import ProtocolViolation

RECEIVE_MAX, HELD_MAX = 3, 4
ids = st.integers(1, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), ids, st.integers(1, 2), st.booleans()),
        st.tuples(st.sampled_from(["committed", "failed", "release", "released"]), ids),
    ),
    max_size=40,
)


class Model:
    """For each id, what is under way (1 or 2) and what is held ("received" or "releasing")."""

    def __init__(self, counts: bool, restored: list[int]) -> None:
        self.counts = counts
        self.under_way: dict[int, int] = {}
        self.held = dict.fromkeys(restored, "received")
        self.strays: set[int] = set()
        self.unanswered: list[int] = []

    def publish(self, number: int, qos: int, duplicate: bool) -> str:
        if number in self.under_way:
            same = self.under_way[number] == qos
            return "under way" if same and (qos == 2 or duplicate) else "violation"
        if qos == 2 and (number in self.strays or self.held.get(number) == "releasing"):
            return "violation"
        repeat = qos == 2 and number in self.held
        if qos == 2 and not repeat and len(self.held) + len(self.under_way) >= HELD_MAX:
            return "full"
        if self.counts and number not in self.unanswered:
            if len(self.unanswered) - len(self.under_way) >= RECEIVE_MAX:
                return "violation"
            self.unanswered.append(number)
        if repeat:
            return "received"
        self.under_way[number] = qos
        return "commit"

    def answer(self, number: int) -> None:
        if number in self.unanswered:
            self.unanswered.remove(number)

    def other(self, step: str, number: int) -> str | int | None:
        if step == "release":
            if self.under_way.get(number) == 2:
                return "violation"
            before = "releasing" if number in self.strays else self.held.get(number)
            if before == "received":
                self.held[number] = "releasing"
            elif before is None:
                self.strays.add(number)
            return "under way" if before == "releasing" else "release"
        if step == "released":
            if number in self.strays:
                self.strays.remove(number)
                return "stray"
            known = self.held.get(number) == "releasing"
            if known:
                del self.held[number]
                self.answer(number)
            return "held" if known else None
        qos = self.under_way.pop(number, None)
        if step == "committed" and qos == 2:
            self.held[number] = "received"
        elif qos:
            self.answer(number)
        return qos


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(ids, max_size=3, unique=True), steps)
def test_any_history_is_judged_as_the_model_does(
    counts: bool, restored: list[int], history: list[tuple[str, int] | tuple[str, int, int, bool]]
) -> None:
    inbound, model = Inbound(RECEIVE_MAX if counts else None, HELD_MAX), Model(counts, restored)
    inbound.restore(restored)
    for step in history:
        if len(step) == 4:
            _, number, qos, duplicate = step
            published = model.publish(number, qos, duplicate)
            if published == "violation":
                with pytest.raises(ProtocolViolation):
                    inbound.publish(number, qos, duplicate)
            else:
                assert inbound.publish(number, qos, duplicate) == published
        else:
            name, number = step
            expected = model.other(name, number)
            if expected == "violation":
                with pytest.raises(ProtocolViolation):
                    inbound.release(number)
            else:
                assert getattr(inbound, name)(number) == expected
        assert inbound.held() == tuple(sorted(model.held))
        assert len(inbound) == len(model.under_way)
        assert inbound.knows(number) is (number in model.under_way or number in model.held)


def test_the_receive_maximum_is_named_when_it_is_exceeded() -> None:
    inbound = Inbound(1, 10)
    for packet_id in (1, 2):
        assert inbound.publish(packet_id, 2, False) == "commit", "they are on their way to the log"
    inbound.committed(1)
    with pytest.raises(ProtocolViolation) as caught:
        inbound.publish(3, 1, False)
    assert caught.value.reason_code == 0x93
