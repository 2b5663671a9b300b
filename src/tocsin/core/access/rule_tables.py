"""The base of rules about topics and rules about SQL: tables in one TOML file, each of which allows or denies something
to some users. Errors name the number of the rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from typing import Any, Final

from tocsin.errors import OperatorError

SECTIONS: Final = ("rules", "sql")
EVERY_USER: Final = "*"
ANONYMOUS: Final = "anonymous"
NAME_MAX_CHARS: Final = 128  # of a user's name

Table = dict[str, Any]


def read_tables(text: str, path: str, section: str) -> list[Table]:
    """The tables of a section of a file of rules, or ``OperatorError``."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError(f"the rules in {path} are not TOML: {error}", "Correct that line") from None
    if set(document) - set(SECTIONS):
        raise OperatorError(
            f"{path} has more in it than [[rules]] and [[sql]] tables",
            "Write every rule as a table that begins [[rules]] or [[sql]]",
        )
    tables = document.get(section, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise OperatorError(
            f"{section} in {path} is no list of tables", f"Begin every such rule with [[{section}]]"
        )
    return tables


def read_verb(table: Table, where: str, keys: Collection[str], actions: Collection[str]) -> tuple[bool, str]:
    """Whether a rule allows or denies, and what; no other keys than these may be in it."""
    for key in table:
        if key not in keys:
            raise OperatorError(f"{where} has a key {key!r}", f"A rule has {', '.join(keys)}")
    verbs = [verb for verb in ("allow", "deny") if verb in table]
    known = ", ".join(f'"{each}"' for each in actions)
    if len(verbs) != 1:
        raise OperatorError(f"{where} must have either allow or deny", f"Write allow = …, one of {known}")
    action = table[verbs[0]]
    if not isinstance(action, str) or action not in actions:
        raise OperatorError(f"{where}: {verbs[0]} = {action!r} is not known", f"Give one of {known}")
    return verbs[0] == "allow", action


def read_texts(table: Table, key: str, where: str) -> tuple[str, ...] | None:
    """A list of texts; None if it is left out."""
    if key not in table:
        return None
    texts = table[key]
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        raise OperatorError(f"{where}: {key} is not a list of texts", f'Write {key} = ["…"], or leave it out')
    return tuple(texts)


def read_users(table: Table, where: str, *others: str) -> tuple[str, ...] | None:
    """The users that a rule is about; ``others``: names that are nobody's, and stand for some."""
    users = read_texts(table, "users", where)
    for name in users or ():
        problem = None if name in (EVERY_USER, *others) else user_name_problem(name)
        if problem:
            raise OperatorError(f"{where}: nobody can be called {name!r}: {problem}", "Correct the name")
    return users


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
