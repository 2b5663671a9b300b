"""The topics that the streams of a query can have, as far as the query says so: for these the message log is read.

Whether a message satisfies a query is in the message, so that a query which says nothing of topics has the whole log
read. A stream keeps its topic. So if a query can only be true of some topics, messages of others need not be looked at,
whatever else is said of their streams:

    topic = 'hall/1/door'                      hall/1/door
    topic LIKE 'hall/%' AND kind = 'door'      hall/#
    topic IN ('a', 'b') OR topic LIKE 'c/1%'   a, b, c/#
    kind = 'door'                              #

Invariant: every stream that satisfies a query has a topic that one of the filters matches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tocsin.core.delivery.wanted import ALL_FILTERS, is_plain, simplified
from tocsin.query import Query
from tocsin.query.expression import And, Compare, Expression, In, Key, Like, Literal, Or
from tocsin.query.patterns import like_prefix

TOPIC: Final = Key("topic")
FILTERS_MAX: Final = 64  # of one query; one with more has the whole log read


@lru_cache(1_024)
def filters_of(query: Query) -> tuple[str, ...]:
    """Filters that match the topics of all streams that can satisfy a query; they do not overlap."""
    found = _filters(query.expression)
    return ALL_FILTERS if "#" in found or len(found) > FILTERS_MAX else simplified(found)


def _filters(expression: Expression) -> tuple[str, ...]:
    match expression:
        case Compare("=", left, Literal(str() as topic)) if left == TOPIC:
            return _plain((topic,))
        case In(subject, options) if subject == TOPIC and options:
            return _one_of(options)
        case Like(subject, pattern) if subject == TOPIC:
            prefix, whole = like_prefix(pattern)
            return _plain((prefix,)) if whole else _below(prefix)
        case And(parts):  # each part says enough by itself: take the one that leaves least
            return min(map(_filters, parts), key=_width)
        case Or(parts):
            return tuple(each for part in parts for each in _filters(part))
    return ALL_FILTERS


def _width(filters: tuple[str, ...]) -> tuple[bool, int, int]:
    return "#" in filters, sum(not is_plain(each) for each in filters), len(filters)


def _one_of(options: tuple[Expression, ...]) -> tuple[str, ...]:
    topics = [each.value for each in options if isinstance(each, Literal)]
    texts = tuple(each for each in topics if isinstance(each, str))
    return _plain(texts) if len(texts) == len(options) else ALL_FILTERS


def _plain(topics: tuple[str, ...]) -> tuple[str, ...]:
    """The topics themselves, unless one is none."""
    return topics if all(each and is_plain(each) for each in topics) else ALL_FILTERS


def _below(prefix: str) -> tuple[str, ...]:
    """The topics that begin so: those below its last whole level."""
    levels = prefix.rpartition("/")[0]
    return (f"{levels}/#",) if levels and is_plain(levels) else ALL_FILTERS
