"""A query that has been read: canonical, comparable, ready to run.

In MQTT topic filters ``+`` and ``#`` are wildcards. So ``%2B``, ``%23``, ``%25`` and ``%2F`` stand for ``+``, ``#``,
``%`` and ``/`` there, in either case. A ``%`` before anything else is itself, so that ``LIKE 'a%'`` needs no escape; a
plain ``/`` is itself as well.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.errors import QueryInvalid
from tocsin.query.canonical import canonical
from tocsin.query.evaluate import Condition, compile_condition
from tocsin.query.expression import Expression, In, height_of, keys_of, type_of, walk
from tocsin.query.grammar import print_expression, read
from tocsin.query.limits import DEFAULT, QueryLimits

_MEANT: Final = {"%2B": "+", "%23": "#", "%25": "%", "%2F": "/"}
_WRITTEN: Final = str.maketrans({"+": "%2B", "#": "%23", "%": "%25"})
_ESCAPE: Final = re.compile("%(?:2[35BF])", re.IGNORECASE)


class Query(msgspec.Struct, frozen=True, eq=False):
    """A predicate over metadata. Two queries are equal if their canonical texts are."""

    text: str  # canonical; ``parse`` takes it, under the limits with which it was made
    expression: Expression  # canonical
    keys: frozenset[str]  # a change of any other key cannot change whether it matches
    # Whether the predicate is true for some metadata; if it is false or fails (a missing key, a bad cast), it is not.
    matches: Condition

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that follow from the text alone."""
        return blake2b(self.text.encode(), digest_size=8).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Query({self.text!r})"


def parse(text: str, limits: QueryLimits = DEFAULT) -> Query:
    """Read a query. Raises ``QueryInvalid``."""
    written = read(text, limits)
    if type_of(written) in ("string", "number"):
        raise QueryInvalid(
            text, 0, f"this is a {type_of(written)}, not a condition; compare it with something"
        )
    expression = canonical(written)
    printed = print_expression(expression)
    if beyond := _beyond(expression, printed, limits):
        raise QueryInvalid(text, 0, f"written out in canonical form the query {beyond}; make it smaller")
    return Query(printed, expression, keys_of(expression), compile_condition(expression))


def _beyond(expression: Expression, printed: str, limits: QueryLimits) -> str | None:
    """The limit that a canonical form does not keep, so that what was accepted once can be read again."""
    nodes = list(walk(expression))
    options = max((len(node.options) for node in nodes if isinstance(node, In)), default=0)
    for what, size, most in (
        ("characters", len(printed), limits.length),
        ("levels", height_of(expression), limits.depth),
        ("terms", len(nodes), limits.terms),
        ("values in a list", options, limits.options),
    ):
        if size > most:
            return f"has {size} {what}, and at most {most} are allowed"
    return None


def decode_filter(text: str) -> str:
    """The query that stands in a topic filter (after ``$query/``)."""
    return _ESCAPE.sub(lambda escape: _MEANT[escape[0].upper()], text)


def encode_filter(text: str) -> str:
    """The query as it can stand in a topic filter: no wildcards in it, and ``decode_filter`` gives it back."""
    return text.translate(_WRITTEN)
