"""Random queries and metadata in which much is equal after a cast, much is missing, and much is alike.

One grammar, two sources of chance: Hypothesis, which makes small what fails, and ``random``, which makes a lot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from hypothesis import strategies as st

from tocsin.query import Metadata, Query, Value, parse

Option = TypeVar("Option")

KEYS = ("a", "b", "c", "Room/Nr")
VALUES: tuple[Value, ...] = (
    *("1", "01", "410", "41", "4", "x", "xy", "", "true", "TRUE", "false", "1.0", "-0", "2e1"),
    *(True, False, 0, 1, -1, 2, 3, 5, 20, 21, 410, 1.0, 0.5, 1.5, 20.0, -2.5),
    *(2**53, 2**53 + 1, float(2**53), 2**53 - 1, -(2**62)),
)
ORDERS = ("<", "<=", ">", ">=")
PATTERNS = ("4%", "x%", "4_0", "%1", "410", "t%e", "%")
REGEXES = ("^4", "^41?", "^x*", "1$", "^tr|^x", r"^4\\.0", "^(x)", "^1+")


class Choice(Protocol):
    """A source of chance."""

    def __call__(self, options: Sequence[Option], /) -> Option: ...


def literal(value: Value) -> str:
    """A value as it is written in a query."""
    if isinstance(value, str):
        return f"'{value}'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def condition(choose: Choice) -> str:
    key = choose(KEYS)
    value = literal(choose(VALUES))
    match choose(
        ("equal", "equal", "unequal", "order", "order", "turned", "between", "in", "like", "regex", "rest")
    ):
        case "equal":
            return f"{key} = {value}"
        case "unequal":
            return f"{key} != {value}"
        case "order":
            return f"{key} {choose(ORDERS)} {value}"
        case "turned":
            return f"{value} {choose(('=', '!=', *ORDERS))} {key}"
        case "between":
            low = choose(range(-3, 22))
            return f"({key} > {low} AND {key} <= {low + choose(range(-1, 9))})"
        case "in":
            return f"{key} IN ({', '.join(literal(choose(VALUES)) for _ in range(choose((1, 2, 4))))})"
        case "like":
            return f"{key} LIKE '{choose(PATTERNS)}'"
        case "regex":
            return f"{key} =~ '{choose(REGEXES)}'"
        case _:
            return choose((f"EXISTS {key}", f"NOT EXISTS {key}", key, f"{key} + 1 > 2", f"{key} = b"))


def text(choose: Choice, depth: int = 2) -> str:
    """A query."""
    kind = choose(("one", "AND", "AND", "OR", "XOR", "NOT")) if depth else "one"
    if kind == "one":
        return condition(choose)
    if kind == "NOT":
        return f"NOT ({text(choose, depth - 1)})"
    count = choose((2, 3)) if kind != "XOR" else 2
    return f" {kind} ".join(f"({text(choose, depth - 1)})" for _ in range(count))


def metadata(choose: Choice) -> Metadata:
    return {key: choose(VALUES) for key in KEYS if choose((True, True, False))}


def changed(choose: Choice, before: Metadata) -> Metadata:
    """The metadata with some keys set anew, and perhaps one gone."""
    after = dict(before)
    for _ in range(choose((1, 1, 2))):
        after[choose(KEYS)] = choose(VALUES)
    if choose((True, False, False)):
        after.pop(choose(KEYS), None)
    return after


@st.composite
def _texts(draw: st.DrawFn) -> str:
    return text(lambda options: draw(st.sampled_from(options)))


@st.composite
def _metadata(draw: st.DrawFn) -> Metadata:
    return metadata(lambda options: draw(st.sampled_from(options)))


QUERIES: st.SearchStrategy[Query] = _texts().map(parse)
METADATA: st.SearchStrategy[Metadata] = _metadata()


class Asked:
    """How often queries were asked."""

    def __init__(self) -> None:
        self.count = 0

    def counting(self, query: Query) -> Query:
        """The query, counted here whenever it is asked."""

        def matches(metadata: Metadata) -> bool:
            self.count += 1
            return query.matches(metadata)

        return msgspec.structs.replace(query, matches=matches)
