"""Rules that say who may publish and subscribe to what, as they are written.

    [[rules]]
    allow = "publish"                # or deny; "publish", "subscribe" or "both"
    topics = ["sensors/%u/#"]        # topic filters; %u is the user's name, %c the client's id
    users = ["gateway", "*"]         # "*": every user, "anonymous": whoever has proven no name; left out: everybody
    clients = ["press-1", "lab-*"]   # client ids, or how they begin; left out: every client

A topic ``$share/group`` or ``$share/group/filter`` is about joining that group, whosever it is (``+``: any group).

``core.access`` decides with them. The file is TOML; whatever is wrong with it is said with the number of the rule.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

import msgspec

from tocsin.errors import OperatorError
from tocsin.wire.topics import SHARE_PREFIX, FilterInvalid, check_filter

# Filters of all rules together: a decision that is not remembered looks at each of them, which takes under 2 ms.
FILTERS_MAX: Final = 4_096
FILE_MAX_BYTES: Final = 1 << 20  # FILTERS_MAX filters of 256 bytes
EVERY_USER: Final = "*"
ANONYMOUS: Final = "anonymous"
NAME_MAX_CHARS: Final = 128  # of a user's name
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
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError(f"the rules in {path} are not TOML: {error}", "Correct that line") from None
    tables = document.pop("rules", [])
    document.pop("sql", None)  # ``core.sql_rules`` reads those
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise OperatorError(
            f"{path} has more in it than [[rules]] and [[sql]] tables",
            "Write every rule as a table that begins [[rules]]",
        )
    rules = tuple(_rule(table, f"rule {number} of {path}") for number, table in enumerate(tables, start=1))
    filters = sum(len(rule.topics) for rule in rules)
    if filters > FILTERS_MAX:
        raise OperatorError(
            f"the rules in {path} have {filters} topics; at most {FILTERS_MAX} are allowed",
            "Use wildcards and the placeholders %u and %c",
        )
    return rules


def user_name_problem(name: str) -> str | None:
    """Why nobody may be called that; None if somebody may.

    A name stands for one level of a topic where a rule says %u, so that it has neither a slash nor a wildcard.
    """
    if not name or len(name) > NAME_MAX_CHARS:
        return f"a name has from 1 to {NAME_MAX_CHARS} characters"
    if name in (EVERY_USER, ANONYMOUS) or name.startswith("$"):
        return f"{EVERY_USER}, {ANONYMOUS} and names that begin with $ have a meaning of their own"
    bad = next((each for each in name if each in ":/+#" or each.isspace() or not each.isprintable()), None)
    return None if bad is None else f"a name must not contain {bad!r}"


def _rule(table: dict[str, Any], where: str) -> Rule:
    for key in table:
        if key not in _KEYS:
            raise OperatorError(f"{where} has a key {key!r}", f"A rule has {', '.join(_KEYS)}")
    verbs = [verb for verb in ("allow", "deny") if verb in table]
    if len(verbs) != 1:
        raise OperatorError(f"{where} must have either allow or deny", 'Write allow = "publish", for example')
    action = table[verbs[0]]
    if not isinstance(action, str) or action not in _ACTIONS:
        raise OperatorError(
            f"{where}: {verbs[0]} = {action!r} is not known", 'Give "publish", "subscribe" or "both"'
        )
    topics = _texts(table, "topics", where)
    if not topics:
        raise OperatorError(f"{where} has no topics", 'Add topics = ["#"] if it is about all of them')
    for topic in topics:
        _check_topic(topic, where)
    publish, subscribe = _ACTIONS[action]
    return Rule(
        allow=verbs[0] == "allow",
        publish=publish,
        subscribe=subscribe,
        topics=topics,
        users=_users(table, where),
        clients=_texts(table, "clients", where),
    )


def _texts(table: dict[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    if key not in table:
        return None
    texts = table[key]
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        raise OperatorError(f"{where}: {key} is not a list of texts", f'Write {key} = ["…"], or leave it out')
    return tuple(texts)


def _users(table: dict[str, Any], where: str) -> tuple[str, ...] | None:
    users = _texts(table, "users", where)
    for name in users or ():
        problem = None if name in (EVERY_USER, ANONYMOUS) else user_name_problem(name)
        if problem:
            raise OperatorError(f"{where}: nobody can be called {name!r}: {problem}", "Correct the name")
    return users


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
