"""Rules as they are written, and every way in which they are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.access.rule_tables import user_name_problem
from tocsin.core.access.rules import FILTERS_MAX, Rule, parse_rules
from tocsin.errors import OperatorError


def test_rules_are_read_in_order() -> None:
    text = """
    [[rules]]
    deny = "both"
    topics = ["private/#", "x"]

    [[rules]]
    allow = "publish"
    topics = ["sensors/%u/#"]
    users = ["gateway", "*", "anonymous"]
    clients = ["lab-*"]

    [[rules]]
    allow = "subscribe"
    topics = ["#"]
    """
    assert parse_rules(text, "acl.toml") == (
        Rule(allow=False, publish=True, subscribe=True, topics=("private/#", "x")),
        Rule(
            allow=True,
            publish=True,
            subscribe=False,
            topics=("sensors/%u/#",),
            users=("gateway", "*", "anonymous"),
            clients=("lab-*",),
        ),
        Rule(allow=True, publish=False, subscribe=True, topics=("#",)),
    )
    assert parse_rules("", "acl.toml") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[rules]", "not TOML"),
        ("rules = 3", "is no list of tables"),
        ("rules = [1]", "is no list of tables"),
        ("[other]", "more in it than"),
        ("[[rules]]", "either allow or deny"),
        ('[[rules]]\nallow = "both"\ndeny = "both"', "either allow or deny"),
        ('[[rules]]\nallow = "read"', "'read' is not known"),
        ("[[rules]]\nallow = [1]", "is not known"),
        ('[[rules]]\nallow = "both"', "no topics"),
        ('[[rules]]\nallow = "both"\ntopics = []', "not a list of texts"),
        ('[[rules]]\nallow = "both"\ntopics = "a"', "not a list of texts"),
        ('[[rules]]\nallow = "both"\ntopics = [""]', "not a list of texts"),
        ('[[rules]]\nallow = "both"\ntopics = ["a#"]', "must be a whole level"),
        ('[[rules]]\nallow = "both"\ntopics = ["$share/"]', "names no group"),
        ('[[rules]]\nallow = "both"\ntopics = ["$share/g/"]', "names no group"),
        ('[[rules]]\nallow = "both"\ntopics = ["$share/g+/a"]', "names no group"),
        ('[[rules]]\nallow = "both"\ntopics = ["$share/g/a#"]', "must be a whole level"),
        ('[[rules]]\nallow = "both"\ntopics = ["a"]\nuser = "x"', "a key 'user'"),
        ('[[rules]]\nallow = "both"\ntopics = ["a"]\nusers = []', "users is not a list"),
        ('[[rules]]\nallow = "both"\ntopics = ["a"]\nusers = ["a/b"]', "nobody can be called"),
        ('[[rules]]\nallow = "both"\ntopics = ["a"]\nclients = [1]', "clients is not a list"),
        (f'[[rules]]\nallow = "both"\ntopics = {["a"] * (FILTERS_MAX + 1)}', "at most 4096"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(text: str, problem: str) -> None:
    with pytest.raises(OperatorError) as caught:
        parse_rules(text, "acl.toml")
    assert problem in caught.value.problem and "acl.toml" in caught.value.problem
    assert caught.value.remedy


def test_a_refusal_names_the_rule() -> None:
    good = '[[rules]]\nallow = "both"\ntopics = ["a"]\n'
    with pytest.raises(OperatorError, match=r"rule 3 of acl\.toml"):
        parse_rules(good + good + "[[rules]]", "acl.toml")


@given(st.text(max_size=200))
def test_any_text_is_rules_or_a_refusal(text: str) -> None:
    with contextlib.suppress(OperatorError):
        parse_rules(text, "f")


@pytest.mark.parametrize("name", ["alice", "Press 1".replace(" ", "-"), "ünï", "a.b@c", "x" * 128])
def test_ordinary_names_are_good(name: str) -> None:
    assert user_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "*", "anonymous", "$link", "a:b", "a/b", "a+", "#", "a b", "a\n", "\0"]
)
def test_names_that_would_be_misread_are_refused(name: str) -> None:
    assert user_name_problem(name)
