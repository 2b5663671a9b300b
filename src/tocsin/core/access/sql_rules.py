"""Access rules for SQL: how they are written in the rules file, and what they decide.

    [[sql]]
    allow = "query"                  # or deny; "define", "drop", "query" or "all"
    names = ["Reports", "Alarm*"]    # datasets, feeds and channels, or how they begin; case does not count
    users = ["ann", "*"]             # "*": every user; left out: every user

The first rule that fits decides; if none does, the answer is no. Without a file of rules everything is allowed. The
rules do not bind the operator: that key may empty the store anyway.

    define    CREATE, ALTER, PAUSE, RESUME, RUN; a feed also needs it of its dataset, a channel *query* of what it reads
    drop      DROP
    query     SELECT from a dataset or a channel's results, DESCRIBE, EXPLAIN; SHOW lists what one may query
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tocsin.core.access.rule_tables import EVERY_USER, Table, read_tables, read_texts, read_users, read_verb
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
    """One rule for SQL."""

    allow: bool
    actions: frozenset[str]
    names: tuple[str, ...]  # in lower case; a name that ends with * is a prefix
    users: tuple[str, ...] | None = None


class SqlAccess:
    """Decides what users may do in SQL. ``None`` as rules allows everything."""

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
    tables = read_tables(text, path, "sql")
    rules = tuple(
        _rule(table, f"[[sql]] rule {number} of {path}") for number, table in enumerate(tables, start=1)
    )
    if sum(len(rule.names) for rule in rules) > NAMES_MAX:
        raise OperatorError(
            f"the rules about SQL in {path} have over {NAMES_MAX} names", "Use * at their ends"
        )
    return rules


def _rule(table: Table, where: str) -> SqlRule:
    allow, action = read_verb(table, where, _KEYS, _ACTIONS)
    names = read_texts(table, "names", where)
    if names is None:
        raise OperatorError(f"{where} has no names", 'Add names = ["*"] if it is about all of them')
    return SqlRule(
        allow=allow,
        actions=_ACTIONS[action],
        names=tuple(name.lower() for name in names),
        users=read_users(table, where),
    )
