"""Access rules for topics, as they are written in the rules file.

    [[rules]] allow = "publish"                # or deny; "publish", "subscribe" or "both" topics = ["sensors/%u/#"]
    # topic filters; %u is the user's name, %c the client's id users = ["gateway", "*"]         # "*": every user,
    "anonymous": clients that have proven no name; left out: everybody clients = ["press-1", "lab-*"]   # client ids, or
    how they begin; left out: every client

A topic ``$share/group`` or ``$share/group/filter`` is about joining that group, whosever it is (``+``: any group).

``core.access.rights`` decides with them. The file is TOML; errors in it name the number of the rule.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.access.rule_tables import ANONYMOUS, Table, read_tables, read_texts, read_users, read_verb
from tocsin.errors import OperatorError
from tocsin.wire.mqtt.topics import SHARE_PREFIX, FilterInvalid, check_filter

# Filters of all rules together: a decision that is not remembered looks at each of them, which takes under 2 ms.
FILTERS_MAX: Final = 4_096
FILE_MAX_BYTES: Final = 1 << 20  # FILTERS_MAX filters of 256 bytes
USER_PLACEHOLDER: Final = "%u"
CLIENT_PLACEHOLDER: Final = "%c"
_ACTIONS: Final = {"publish": (True, False), "subscribe": (False, True), "both": (True, True)}
_KEYS: Final = ("allow", "deny", "topics", "users", "clients")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. It speaks about a message if user, client, action and topic all fit."""

    allow: bool
    publish: bool
    subscribe: bool
    topics: tuple[str, ...]
    users: tuple[str, ...] | None = None  # None: everybody, with a name or without
    clients: tuple[str, ...] | None = None


def parse_rules(text: str, path: str) -> tuple[Rule, ...]:
    """The rules of a file, or ``OperatorError``."""
    tables = read_tables(text, path, "rules")
    rules = tuple(_rule(table, f"rule {number} of {path}") for number, table in enumerate(tables, start=1))
    filters = sum(len(rule.topics) for rule in rules)
    if filters > FILTERS_MAX:
        raise OperatorError(
            f"the rules in {path} have {filters} topics; at most {FILTERS_MAX} are allowed",
            "Use wildcards and the placeholders %u and %c",
        )
    return rules


def _rule(table: Table, where: str) -> Rule:
    allow, action = read_verb(table, where, _KEYS, _ACTIONS)
    topics = read_texts(table, "topics", where)
    if not topics:
        raise OperatorError(f"{where} has no topics", 'Add topics = ["#"] if it is about all of them')
    for topic in topics:
        _check_topic(topic, where)
    publish, subscribe = _ACTIONS[action]
    return Rule(
        allow=allow,
        publish=publish,
        subscribe=subscribe,
        topics=topics,
        users=read_users(table, where, ANONYMOUS),
        clients=read_texts(table, "clients", where),
    )


def _check_topic(topic: str, where: str) -> None:
    if topic.startswith(SHARE_PREFIX):
        group, slash, inner = topic[len(SHARE_PREFIX) :].partition("/")
        if not group or (set("+#") & set(group) and group != "+") or (slash and not inner):
            raise OperatorError(
                f"{where}: {topic!r} names no group", "Write $share/group, $share/group/filter or $share/+"
            )
        topic = inner if slash else "#"
    try:
        check_filter(topic)
    except FilterInvalid as error:
        raise OperatorError(f"{where}: {error.problem}", "Correct the topic filter") from None
