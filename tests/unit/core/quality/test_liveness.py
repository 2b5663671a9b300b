"""Subscribers' brokers know which publishers are alive, also when brokers are lost and words with them."""

from __future__ import annotations

import pytest

from tocsin.core.quality import liveness
from tocsin.core.quality.liveness import ASKS_MISSED, Liveness
from tocsin.model.quality import Life, LifeState

S = 1_000_000
ALIVE, LOST, LEFT = LifeState.ALIVE, LifeState.LOST, LifeState.LEFT


def life(client: str, state: LifeState = ALIVE, epoch: int = 1, topic: str = "t") -> Life:
    return Life(topic, client, epoch, S, state)


def test_counts_follow_what_brokers_say() -> None:
    known = Liveness()
    assert known.know("x", life("a")) and known.know("y", life("b"))
    assert not known.know("x", life("a")), "the same again is no news"
    assert known.counts("t") == (2, 0) and known.counts("other") == (0, 0)
    assert known.know("x", life("a", LOST)) and known.is_lost("t", "a")
    assert known.counts("t") == (1, 1)
    assert known.know("x", life("a", LEFT)) and known.counts("t") == (1, 0)
    assert not known.know("x", life("a", LEFT))


def test_an_earlier_broker_does_not_count_against_a_later_one() -> None:
    known = Liveness()
    known.know("y", life("a", epoch=2))
    assert not known.know("x", life("a", LOST, epoch=1)) and known.counts("t") == (1, 0)
    assert not known.know("x", life("a", LOST, epoch=2)) and known.counts("t") == (1, 0)


def test_publishers_of_a_lost_broker_have_one_lease_to_come_back() -> None:
    known = Liveness()
    known.know("x", life("a"))
    known.know("x", life("b"))
    known.gone({"x"}, 5 * S)
    assert not known.know("y", life("a", epoch=2)), "it is alive as before"
    assert known.due(6 * S - 1) == []
    assert [each.client for each in known.due(6 * S)] == ["b"]
    assert known.counts("t") == (1, 1)


def test_who_is_not_in_an_answer_has_to_come_back() -> None:
    known = Liveness()
    known.know("x", life("a"))
    known.know("x", life("b"))
    ask = known.ask()
    known.know("x", life("b"), ask)
    known.answered("x", ask, 0)
    assert [each.client for each in known.due(S)] == ["a"]


def test_news_after_a_question_is_not_swept_by_its_answer() -> None:
    known = Liveness()
    ask = known.ask()
    known.know("x", life("a"))
    known.answered("x", ask, 0)
    assert known.due(9 * S) == []


def test_a_broker_that_answers_no_more_counts_as_lost() -> None:
    known = Liveness()
    known.know("x", life("a"), known.ask())
    known.answered("x", 1, 0)
    for number in range(ASKS_MISSED):
        known.gone((), number)
        assert known.next_us is None
        known.ask()
    known.gone((), 10 * S)
    assert [each.client for each in known.due(11 * S)] == ["a"]


def test_the_oldest_lost_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Liveness()
    monkeypatch.setattr(liveness, "ROWS_MAX", 2)
    known.know("x", life("a"))
    known.know("x", life("b", LOST))
    assert known.know("x", life("c")) and known.counts("t") == (2, 0)
    assert not known.know("x", life("d")) and known.left_out == 1


def test_topics_that_nobody_wants_are_forgotten() -> None:
    known = Liveness()
    known.know("x", life("a"))
    known.know("x", life("a", topic="u"))
    known.gone({"x"}, 0)
    known.keep(lambda topic: topic == "u")
    assert len(known) == 1 and known.topics == ("u",)
    assert [each.topic for each in known.due(9 * S)] == ["u"]
