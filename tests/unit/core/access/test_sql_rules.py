"""Rules about SQL: what they decide, and what is no rule."""

from __future__ import annotations

import pytest

from tocsin.core.access.rules import parse_rules
from tocsin.core.access.sql_rules import OPERATOR, SqlAccess, parse_sql_rules
from tocsin.errors import OperatorError

RULES = """
[[rules]]
allow = "publish"
topics = ["#"]

[[sql]]
deny = "all"
names = ["Secret*"]

[[sql]]
allow = "all"
names = ["Ann*"]
users = ["ann"]

[[sql]]
allow = "query"
names = ["Reports"]
users = ["*"]
"""


@pytest.mark.parametrize(
    ("user", "action", "name", "allowed"),
    [
        ("ann", "define", "AnnsAlarms", True),
        ("ann", "drop", "ANNSALARMS", True),
        ("ben", "define", "AnnsAlarms", False),
        ("ben", "query", "reports", True),
        ("ben", "drop", "reports", False),
        ("ben", "query", "reports2", False),
        ("ann", "query", "SecretPlans", False),
        (OPERATOR, "drop", "SecretPlans", True),
    ],
)
def test_the_first_rule_that_fits_decides(user: str, action: str, name: str, allowed: bool) -> None:
    access = SqlAccess(parse_sql_rules(RULES, "x"))
    assert access.allows(user, action, name) == allowed  # type: ignore[arg-type]


def test_without_a_file_everything_is_allowed_and_with_an_empty_one_nothing() -> None:
    assert SqlAccess().allows("ann", "drop", "Reports")
    assert not SqlAccess(parse_sql_rules("", "x")).allows("ann", "query", "Reports")
    assert SqlAccess(()).allows(OPERATOR, "drop", "Reports")


def test_both_kinds_of_rules_live_in_one_file() -> None:
    assert len(parse_rules(RULES, "x")) == 1 and len(parse_sql_rules(RULES, "x")) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sql = 1", "no list of tables"),
        ("[[sql]]\nnames = ['a']", "either allow or deny"),
        ("[[sql]]\nallow = 'query'\ndeny = 'drop'\nnames = ['a']", "either allow or deny"),
        ("[[sql]]\nallow = 'read'\nnames = ['a']", "'read' is not known"),
        ("[[sql]]\nallow = 'query'", "has no names"),
        ("[[sql]]\nallow = 'query'\nnames = []", "not a list of texts"),
        ("[[sql]]\nallow = 'query'\nnames = ['a']\ntopics = ['#']", "has a key 'topics'"),
        ("[[sql]]\nallow = 'query'\nnames = ['a']\nusers = ['a/b']", "nobody can be called"),
        ("[[sql", "not TOML"),
        ("[[sql]]\nallow = 'query'\nnames = [" + "'a'," * 4_097 + "]", "over 4096 names"),
    ],
)
def test_what_is_no_rule_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        parse_sql_rules(text, "x")
