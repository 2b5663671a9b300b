"""Random expressions and metadata, over few keys and values, so that they meet: missing keys, mixed types, casts."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Or,
    Xor,
)
from tocsin.query.functions import FUNCTIONS
from tocsin.query.values import INTEGER_MAX, INTEGER_MIN, Metadata, Value

NAMES = ["a", "b", "Location/Room", "has", "in"]
STRINGS = [
    "",
    "a",
    "b",
    "ab",
    "A",
    "5",
    "05",
    "5.0",
    "-1",
    "true",
    "TRUE",
    "false",
    "1e+16",
    "2.5",
    'it\'s \\ "x"',
    "a\\",
]
NUMBERS: list[int | float] = [0, 1, 5, -1, 2, 5.0, 2.5, -0.0, 1e16, 10**16, 2**53, 2.0**53, 1e300]
NUMBERS += [INTEGER_MAX, INTEGER_MIN]
PATTERNS = [
    "",
    "a",
    "%",
    "a%",
    "%a",
    "a%b",
    "_",
    "_%",
    "%_",
    "5%",
    "\\%",
    "a\\_",
    "\\\\%",
    "%a%b%",
    "tr_e",
    "a\\",
]
REGEXES = ["a", "^a", "^[0-9]+$", "", "b|5", "\\."]

values: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from(STRINGS),
    st.sampled_from(NUMBERS),
    st.booleans(),
    st.integers(-3, 7),
    st.text("ab5%_'\\", max_size=3),
)
metadata: st.SearchStrategy[Metadata] = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
literals = st.builds(Literal, values)
keys = st.builds(Key, st.sampled_from(NAMES))
leaves: st.SearchStrategy[Expression] = st.one_of(
    literals, keys, keys, st.builds(Has, st.sampled_from(NAMES))
)


def _joined(kind: type[And | Or | Xor], parts: Iterable[Expression]) -> Expression:
    """As the parser does it: without parts of its own kind."""
    flat: list[Expression] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return kind(tuple(flat))


@st.composite
def _calls(draw: st.DrawFn, inner: st.SearchStrategy[Expression]) -> Expression:
    name = draw(st.sampled_from(sorted(FUNCTIONS)))
    count = draw(st.sampled_from([count for count in range(5) if FUNCTIONS[name].takes(count)]))
    return Call(name, tuple(draw(inner) for _ in range(count)))


def _grown(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    parts = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Compare, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Compare, st.sampled_from(["=", "!="]), keys, literals),
        st.builds(Like, inner, st.sampled_from(PATTERNS)),
        st.builds(Match, inner, st.sampled_from(REGEXES)),
        st.builds(In, inner, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(In, keys, st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.builds(Not, inner),
        st.builds(_joined, st.sampled_from([And, Or, Xor]), parts),
        st.builds(_joined, st.sampled_from([And, Or]), parts),
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/", "%"]), inner, inner),
        st.builds(Negate, inner),
        _calls(inner),
    )


expressions = st.recursive(leaves, _grown, max_leaves=10)
