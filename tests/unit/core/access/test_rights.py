"""What clients may do, against a deliberately dumb evaluator over all topics of a small world."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.rights import COMPARED_MAX, Access, Who
from tocsin.core.access.rules import Rule
from tocsin.wire.mqtt.topics import check_filter, matches

LEVELS = ("a", "b", "$s", "")


def world(levels: tuple[str, ...], depth_max: int) -> list[str]:
    every = ("/".join(parts) for depth in range(1, depth_max + 1) for parts in product(levels, repeat=depth))
    return [topic for topic in every if topic]


TOPICS = world(LEVELS, 3)
# All that filters of three levels and a rest can tell apart: a level more, and a name that no rule has.
WORLD = world((*LEVELS, "b1", "z"), 4)
USERS = ("", "a", "b")
CLIENTS = ("a", "b", "b1")


def rule(
    verb: str,
    action: str,
    *topics: str,
    users: tuple[str, ...] | None = None,
    clients: tuple[str, ...] | None = None,
) -> Rule:
    return Rule(
        allow=verb == "allow",
        publish=action != "subscribe",
        subscribe=action != "publish",
        topics=topics,
        users=users,
        clients=clients,
    )


# ── the dumb evaluator ──────────────────────────────────────────────────────────────────────────────────────


def concerns(each: Rule, who: Who) -> bool:
    named = {who.user, "*"} if who.user else {"anonymous"}
    user = each.users is None or bool(named & set(each.users))
    clients = each.clients or ("*",)
    return user and any(
        who.client_id == name or (name[-1] == "*" and who.client_id.startswith(name[:-1])) for name in clients
    )


def says(rules: list[Rule], who: Who, publish: bool, topic: str) -> bool:
    for each in rules:
        for pattern in each.topics:
            if "%u" in pattern and not who.user:
                continue
            filled = pattern.replace("%u", who.user).replace("%c", who.client_id)
            about = each.publish if publish else each.subscribe
            if about and concerns(each, who) and matches(filled, topic):
                return each.allow
    return False


def filters(levels: tuple[str, ...]) -> st.SearchStrategy[str]:
    inner = st.lists(st.sampled_from(levels), min_size=1, max_size=3)
    return st.builds(
        lambda parts, rest: "/".join([*parts, "#"] if rest else parts) or "#", inner, st.booleans()
    )


RULES = st.lists(
    st.builds(
        rule,
        st.sampled_from(["allow", "deny"]),
        st.sampled_from(["publish", "subscribe", "both"]),
        filters((*LEVELS, "+", "%u", "%c")),
        users=st.none() | st.sampled_from([("a",), ("*",), ("anonymous",), ("b", "anonymous")]),
        clients=st.none() | st.sampled_from([("a",), ("b*",), ("a", "b1")]),
    ),
    max_size=6,
)
PEOPLE = st.builds(Who, st.sampled_from(USERS), st.sampled_from(CLIENTS))


@given(RULES, PEOPLE)
def test_every_topic_is_decided_as_the_dumb_evaluator_decides_it(rules: list[Rule], who: Who) -> None:
    access = Access(tuple(rules))
    for topic in TOPICS:
        for _ in range(2):  # the second time from memory
            assert access.may_publish(who, topic) == says(rules, who, True, topic)
            assert access.may_receive(who, topic) == says(rules, who, False, topic)


@given(RULES, PEOPLE, filters((*LEVELS, "+")))
def test_a_filter_that_can_bring_something_is_granted(rules: list[Rule], who: Who, wanted: str) -> None:
    check_filter(wanted)
    brings = any(matches(wanted, topic) and says(rules, who, False, topic) for topic in TOPICS)
    granted = Access(tuple(rules)).may_subscribe(who, wanted)
    assert granted or not brings


@given(RULES, PEOPLE, filters((*LEVELS, "+")))
def test_a_filter_that_can_bring_nothing_is_refused(rules: list[Rule], who: Who, wanted: str) -> None:
    """Exactly so while at most one denial concerns it; of several, delivery takes care.

    That no topic is empty it need not know: "+" is granted to whoever may hear "/#".
    """
    denials = [each for each in rules if not each.allow and each.subscribe]
    if len(denials) > 1:
        rules = [each for each in rules if each not in denials[1:]]
    brings = any(matches(wanted, topic) and says(rules, who, False, topic) for topic in (*WORLD, ""))
    assert Access(tuple(rules)).may_subscribe(who, wanted) == brings


# ── by example ──────────────────────────────────────────────────────────────────────────────────────────────


def test_without_rules_everything_is_open() -> None:
    access = Access()
    assert access.open and access.rights(Who("", "x")).open
    assert access.may_publish(Who("", "x"), "$SYS/a") and access.may_subscribe(Who("", "x"), "#")


def test_with_rules_what_none_speaks_about_is_denied() -> None:
    access = Access(())
    assert not access.open
    assert not access.may_publish(Who("a", "x"), "t")
    assert not access.may_receive(Who("a", "x"), "t")
    assert not access.may_subscribe(Who("a", "x"), "#")


def test_the_first_rule_that_fits_decides() -> None:
    access = Access((rule("deny", "both", "private/#"), rule("allow", "both", "#")))
    who = Who("", "x")
    assert access.may_publish(who, "public") and not access.may_publish(who, "private/a")
    assert access.may_subscribe(who, "#") and access.may_subscribe(who, "+/a")
    assert not access.may_subscribe(who, "private/+/b")
    assert access.may_receive(who, "public") and not access.may_receive(who, "private")


def test_no_wildcard_reaches_the_servers_own_topics() -> None:
    access = Access((rule("allow", "both", "#", "+/a"),))
    assert not access.may_receive(Who("", "x"), "$SYS/a")
    assert not access.may_subscribe(Who("", "x"), "$SYS/#")
    assert Access((rule("allow", "subscribe", "$SYS/#"),)).may_subscribe(Who("", "x"), "$SYS/+")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "+/+", "%u", "%c"])
def test_a_name_never_becomes_a_wildcard_or_a_level(name: str) -> None:
    access = Access((rule("allow", "both", "home/%c/x"),))
    who = Who("", name)
    for topic in ("home/z/x", "home/a/b/x", "home/x", "home"):
        assert not access.may_publish(who, topic) and not access.may_receive(who, topic)


def test_a_name_that_looks_like_a_placeholder_stays_what_it_is() -> None:
    access = Access((rule("allow", "publish", "%c-%u"),))
    assert access.may_publish(Who("bob", "%u"), "%u-bob")
    assert not access.may_publish(Who("bob", "%u"), "bob-bob")


def test_clients_that_cannot_be_held_to_the_rules_are_turned_away() -> None:
    by_id = Access((rule("allow", "both", "home/%c/#"),))
    for client_id in ("+", "a#", "a/b", "$SYS"):
        assert by_id.refusal(Who("", client_id))
        assert Access((rule("allow", "both", "#"),)).refusal(Who("", client_id)) is None
        assert Access().refusal(Who("", client_id)) is None
    assert by_id.refusal(Who("", "press-1")) is None
    for user in ("+", "a/b", "anonymous", "*", "$link", "a b"):
        assert by_id.refusal(Who(user, "x"))


def test_clients_whom_the_rules_concern_alike_share_their_rights() -> None:
    access = Access((rule("allow", "both", "%u/#"), rule("deny", "both", "x", clients=("odd",))))
    one, two = access.rights(Who("a", "1")), access.rights(Who("a", "2"))
    assert one is two
    assert access.rights(Who("a", "odd")) is not one
    assert access.rights(Who("b", "1")) is not one


def test_what_is_remembered_is_bounded_for_all_together() -> None:
    access = Access((rule("allow", "both", "%c/#"),), decisions_max=10)
    rights = [access.rights(Who("", str(number))) for number in range(5)]
    for number in range(100):
        assert rights[number % 5].may_publish(f"{number % 5}/{number}")
        assert rights[number % 5].may_receive("other") is False
        assert rights[number % 5].may_subscribe(f"+/{number}")
    assert sum(each.forget() for each in rights) <= 10


def test_long_topics_are_decided_and_not_remembered() -> None:
    rights = Access((rule("allow", "both", "a/#"),)).rights(Who("", "x"))
    assert rights.may_publish("a/" + "x" * 1_000)
    assert rights.forget() == 0


def test_many_denials_are_not_compared_without_end_and_still_hold() -> None:
    numbers = range(COMPARED_MAX // 100)
    rules = [
        rule("deny", "both", *(f"a/{n}/#" for n in numbers)),
        rule("allow", "both", *(f"a/{n}/x" for n in numbers)),
    ]
    rights = Access(tuple(rules)).rights(Who("", "x"))
    assert rights.may_subscribe("a/#"), "it was not looked at to the end"
    assert not rights.may_subscribe("a/1/#")
    assert not any(rights.may_receive(f"a/{n}/x") for n in numbers)


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────


def joins(*rules: Rule) -> Callable[[str, str], bool | None]:
    access = Access(rules)
    return lambda user, name: access.rights(Who(user, "c")).may_join(name)


def about(allow: bool, *topics: str, users: tuple[str, ...] | None = None) -> Rule:
    return Rule(allow=allow, publish=False, subscribe=True, topics=topics, users=users)


def test_rules_that_name_no_group_do_not_speak_of_joining_one() -> None:
    may = joins(about(True, "#"), about(False, "secret/#"))
    assert may("alice", "$share/workers/jobs") is None
    assert Access().rights(Who("alice", "c")).may_join("$share/workers/jobs") is None


def test_a_rule_lets_into_a_group_or_keeps_out_of_it() -> None:
    may = joins(
        about(False, "$share/workers/secret/#"),
        about(True, "$share/workers", users=("bob",)),
        about(False, "$share/+"),
    )
    assert may("bob", "$share/workers/jobs") is True
    assert may("bob", "$share/workers/secret/plan") is False
    assert may("bob", "$share/others/jobs") is False
    assert may("carol", "$share/workers/jobs") is False


def test_a_group_may_bear_the_name_of_its_user() -> None:
    may = joins(about(True, "$share/%u/#"))
    assert (may("bob", "$share/bob/jobs"), may("bob", "$share/alice/jobs")) == (True, None)


def test_a_rule_about_a_group_allows_no_topic() -> None:
    access = Access((about(True, "$share/workers/jobs"),))
    assert not access.may_subscribe(Who("bob", "c"), "jobs")
    assert not access.may_receive(Who("bob", "c"), "jobs")


def test_whoever_registered_has_the_rules_for_that_and_no_others() -> None:
    registered = (about(True, "people/%u/#"),)
    for others in (None, (about(True, "#", users=("*",)), about(True, "vault", users=("~ann",)))):
        access = Access(others, registered)
        assert access.may_receive(Who("~ann", "c"), "people/~ann/x")
        assert not access.may_receive(Who("~ann", "c"), "people/bob/x")
        assert not access.may_receive(Who("~ann", "c"), "vault")
        assert access.may_receive(Who("bob", "c"), "other")


def test_an_empty_file_of_rules_leaves_those_who_registered_nothing() -> None:
    access = Access(None, ())
    assert not access.rights(Who("~ann", "c")).open
    assert not access.may_publish(Who("~ann", "c"), "a") and access.may_publish(Who("ann", "c"), "a")


def test_without_registration_a_name_is_only_a_name() -> None:
    assert Access().may_publish(Who("~ann", "c"), "a")
