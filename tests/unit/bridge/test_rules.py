"""Rules of a bridge, as operators write them."""

from __future__ import annotations

import pytest

from tocsin.bridge.rules import InRule, check_rules, fill, read_in, read_out
from tocsin.errors import OperatorError


def test_the_last_equals_sign_separates_the_sides() -> None:
    assert read_in("orders=plant/orders") == InRule("orders", "plant/orders")
    assert read_in("a=b = plant/orders") == InRule("a=b", "plant/orders")
    rule = read_out('query: Location/Room = "410" = room-410')
    assert rule.subscription == '$query/Location/Room = "410"'
    assert rule.address == "room-410"


def test_outward_rules_name_filters_queries_and_channels() -> None:
    assert read_out("plant/#=telemetry").subscription == "plant/#"
    assert read_out("$share/g/plant/#=telemetry").subscription == "$share/g/plant/#"
    assert read_out("channel:Near/alice=alice").subscription == "$channel/Near/alice"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("orders", "ADDRESS=TOPIC"),
        ("=plant", "ADDRESS=TOPIC"),
        ("orders=", "ADDRESS=TOPIC"),
        ("orders=plant/#", "without"),
        ("orders=$SYS/x", "begin with"),
        ("orders={subject}", "Begin the topic"),
        ("orders=plant/{name}", "{subject}"),
        ("orders=plant/{property:}", "{subject}"),
        (f"{'x' * 1025}=plant", "1024 bytes"),
    ],
)
def test_an_inward_rule_that_cannot_be_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        read_in(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plant", "FILTER=ADDRESS"),
        ("plant/#/x=telemetry", "topic filter"),
        ("query:Room ===x", "query:PREDICATE"),
        ("channel:=x", "channel:NAME"),
        ("$streams/Room = 1=x", "listing"),
    ],
)
def test_an_outward_rule_that_cannot_be_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        read_out(text)
    assert words in str(refused.value)


def test_rules_have_to_differ_and_to_be_there_and_to_be_few() -> None:
    rule = read_in("a=b")
    with pytest.raises(OperatorError, match="no rules"):
        check_rules((), ())
    with pytest.raises(OperatorError, match="twice"):
        check_rules((rule, rule), ())
    with pytest.raises(OperatorError, match="several bridges"):
        check_rules(tuple(read_in(f"a{number}=b") for number in range(65)), ())
    check_rules((rule,), (read_out("b=a"),))


def test_names_of_links_follow_from_the_rule() -> None:
    assert read_in("a=b").link == read_in("a = b").link != read_in("b=a").link
    assert read_out("a=b").link != read_in("a=b").link


def test_a_message_fills_the_places_of_a_topic() -> None:
    assert fill("p/{subject}/{property:room}", "pumps", {"room": "4"}) == "p/pumps/4"
    with pytest.raises(ValueError, match="no subject"):
        fill("p/{subject}", None, {})
    with pytest.raises(ValueError, match="property room"):
        fill("p/{property:room}", "x", {"room": ""})
