"""What the streams offer in the scope of a request, and who was told of what does not match."""

from __future__ import annotations

import pytest

from tocsin.core.quality.matching import Mismatch
from tocsin.core.quality.offers import TOLD_MAX, Offers, needs_offers, query_for
from tocsin.core.quality.texts import read_request
from tocsin.errors import QueryInvalid


@pytest.mark.parametrize(
    ("scope", "topic", "offered"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/b/d", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a", True),
        ("it's/50%_", "it's/50%_", True),
        ("it's/50%_/+", "it's/50%x/1", False),
        ("$query/kind = 'lamp'", "a", True),
        ("$query/kind = 'fan'", "a", False),
    ],
)
def test_the_coordinator_is_asked_for_the_streams_of_a_scope(scope: str, topic: str, offered: bool) -> None:
    said = {"topic": topic, "kind": "lamp", "$offer": "deadline=1s"}
    query = query_for(scope)
    assert query.matches(said) is offered
    assert not query.matches({"topic": topic, "kind": "lamp"})  # it offers nothing


def test_a_query_without_room_for_a_condition_is_refused() -> None:
    with pytest.raises(QueryInvalid):
        query_for("$query/" + " OR ".join(f"a{number} = 'xxxxxx'" for number in range(250)))


def test_a_filter_is_held_against_topics_that_look_alike() -> None:
    offers: Offers[int] = Offers()
    assert offers.ask("a/+", 1) and not offers.ask("a/+", 2)
    offers.know("a/+", {"a/b": {"$offer": "deadline=1s"}, "a/b/c": {"$offer": "deadline=2s"}})
    offers.say("a/+", "a/d/e", {"$offer": "deadline=3s"})
    assert offers.of("a/b") == "deadline=1s" and offers.of("a/b/c") == offers.of("a/d/e") == ""
    offers.say("a/+", "a/b", {"$offer": "deadline=4s"})
    assert offers.of("a/b") == "deadline=4s"
    offers.leave("a/+", "a/b")
    assert offers.of("a/b") == "" and offers.is_known("a/+")


def test_a_scope_is_forgotten_with_its_last_request() -> None:
    offers: Offers[int] = Offers()
    offers.ask("a", 1)
    offers.ask("a", 2)
    offers.know("a", {"a": {"$offer": "deadline=1s"}})
    assert not offers.withdraw("a", 1) and offers.of("a")
    assert offers.withdraw("a", 2) and not offers.withdraw("a", 2)
    assert offers.of("a") == "" and len(offers) == 0
    offers.know("a", {"a": {"$offer": "deadline=1s"}})  # an answer that comes late
    assert offers.of("a") == ""


def test_streams_that_offer_too_little_are_named() -> None:
    offers: Offers[int] = Offers()
    offers.ask("#", 1)
    said = {"a": "deadline=1s", "b": "deadline=10ms", "c": "deadline=1s,partition=x", "d": "not to be read"}
    offers.know("#", {topic: {"$offer": offer} for topic, offer in said.items()})
    found = dict(offers.compared("#", "deadline=100ms", offers.topics("#")))
    assert found.pop("b") is None
    assert set(found) == {"a", "c", "d"} and found["a"] == Mismatch("deadline", "1s", "100ms")
    assert dict(offers.compared("#", "deadline=100ms,partition=x", "abcd")) == {"c": found["c"]}


def test_only_the_streams_that_are_asked_about_are_compared() -> None:
    offers: Offers[int] = Offers()
    offers.ask("#", 1)
    offers.know("#", {topic: {"$offer": "deadline=1s"} for topic in "abc"})
    assert [topic for topic, _ in offers.compared("#", "deadline=100ms", ("b", "x"))] == ["b"]


def test_what_does_not_match_is_news_once() -> None:
    offers: Offers[int] = Offers()
    found = Mismatch("deadline", "1s", "100ms")
    assert offers.is_news("c", "deadline=100ms", "a", found)
    assert not offers.is_news("c", "deadline=100ms", "a", found)
    assert offers.is_news("other", "deadline=100ms", "a", found)
    offers.forget(("c",))
    assert offers.is_news("c", "deadline=100ms", "a", found)
    for number in range(TOLD_MAX):
        offers.is_news("many", "deadline=100ms", str(number), found)
    assert offers.is_news("other", "deadline=100ms", "a", found)


@pytest.mark.parametrize(
    ("request_said", "needed"),
    [("separation=1s", False), ("where=a = 1", False), ("deadline=1s", True), ("partition=a", True)],
)
def test_only_what_is_compared_needs_offers(request_said: str, needed: bool) -> None:
    assert needs_offers(read_request(request_said)) is needed
