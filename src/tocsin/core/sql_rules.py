"""Rules that say who may use SQL, as they are written, and what they decide. They are in the file of access rules.

    [[sql]]
    allow = "query"                  # or deny; "define", "drop", "query" or "all"
    names = ["Reports", "Alarm*"]    # datasets, feeds and channels, or how they begin; case does not count
    users = ["ann", "*"]             # "*": every user; left out: every user

The first rule that fits decides; if none does, the answer is no. Without a file of rules everything is allowed. The
operator is not asked: who holds that key may empty the store anyway.

    define    CREATE, ALTER, PAUSE, RESUME, RUN; a feed also needs it of its dataset, a channel *query* of what it reads
    drop      DROP
    query     SELECT from a dataset or a channel's results, DESCRIBE, EXPLAIN; SHOW lists what one may query
"""

from __future__ import annotations

import tomllib
from typing import Any, Final, Literal

import msgspec

from tocsin.core.access_rules import EVERY_USER, user_name_problem
from tocsin.errors import OperatorError

Action = Literal["define", "drop", "query"]
OPERATOR: Final = "operator"
NAMES_MAX: Final = 4_096  # of all rules together: a decision looks at each
_ACTIONS: Final[dict[str, frozenset[str]]] = {
    "define": frozenset({"define"}),
    "drop": frozenset({"drop"}),
    "query": frozenset({"query"}),
    "all": frozenset({"define", "drop", "query"}),
}
_KEYS: Final = ("allow", "deny", "names", "users")


class SqlRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule."""

    allow: bool
    actions: frozenset[str]
    names: tuple[str, ...]  # in lower case; one that ends with * stands for all that begin so
    users: tuple[str, ...] | None = None


class SqlAccess:
    """What users may do. ``None``: there are no rules, so everything."""

    def __init__(self, rules: tuple[SqlRule, ...] | None = None) -> None:
        self._rules = rules

    def allows(self, user: str, action: Action, name: str) -> bool:
        if user == OPERATOR or self._rules is None:
            return True
        return next(
            (
                rule.allow
                for rule in self._rules
                if action in rule.actions and _speaks(rule, user, name.lower())
            ),
            False,
        )


def _speaks(rule: SqlRule, user: str, name: str) -> bool:
    if rule.users is not None and user not in rule.users and EVERY_USER not in rule.users:
        return False
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in rule.names)


def parse_sql_rules(text: str, path: str) -> tuple[SqlRule, ...]:
    """The rules about SQL in a file, or ``OperatorError``."""
    try:
        tables = tomllib.loads(text).get("sql", [])
    except tomllib.TOMLDecodeError as error:
        raise OperatorError(f"the rules in {path} are not TOML: {error}", "Correct that line") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise OperatorError(f"sql in {path} is no list of tables", "Begin every rule about SQL with [[sql]]")
    rules = tuple(
        _rule(table, f"[[sql]] rule {number} of {path}") for number, table in enumerate(tables, start=1)
    )
    if sum(len(rule.names) for rule in rules) > NAMES_MAX:
        raise OperatorError(
            f"the rules about SQL in {path} have over {NAMES_MAX} names", "Use * at their ends"
        )
    return rules


def _rule(table: dict[str, Any], where: str) -> SqlRule:
    for key in table:
        if key not in _KEYS:
            raise OperatorError(f"{where} has a key {key!r}", f"A rule has {', '.join(_KEYS)}")
    verbs = [verb for verb in ("allow", "deny") if verb in table]
    if len(verbs) != 1:
        raise OperatorError(f"{where} must have either allow or deny", 'Write allow = "query", for example')
    action = table[verbs[0]]
    if not isinstance(action, str) or action not in _ACTIONS:
        raise OperatorError(
            f"{where}: {verbs[0]} = {action!r} is not known", f"Give one of {', '.join(map(repr, _ACTIONS))}"
        )
    names, users = _texts(table, "names", where), _texts(table, "users", where)
    if names is None:
        raise OperatorError(f"{where} has no names", 'Add names = ["*"] if it is about all of them')
    for name in users or ():
        if name != EVERY_USER and (problem := user_name_problem(name)):
            raise OperatorError(f"{where}: nobody can be called {name!r}: {problem}", "Correct the name")
    return SqlRule(
        allow=verbs[0] == "allow",
        actions=_ACTIONS[action],
        names=tuple(name.lower() for name in names),
        users=users,
    )


def _texts(table: dict[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    if key not in table:
        return None
    texts = table[key]
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        raise OperatorError(f"{where}: {key} is not a list of texts", f'Write {key} = ["…"], or leave it out')
    return tuple(texts)
