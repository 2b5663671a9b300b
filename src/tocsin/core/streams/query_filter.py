"""Queries in subscriptions: ``$query/<predicate>`` and ``$streams/<predicate>``.

The predicate is written as ``tocsin.query.query`` has it: a plain ``+`` or ``#`` would be a wildcard, so that it is
refused with a word about how to write it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tocsin.errors import QueryInvalid
from tocsin.model.stream import LISTING
from tocsin.query import Query, decode_filter, parse
from tocsin.wire.topics import QUERY_PREFIX, STREAMS_PREFIX, FilterInvalid

_SHOWN: Final = 30  # characters that are repeated before the one at which a query is wrong, and behind it
_MEMO: Final = 1_024  # at most 4 MB of text; sessions that come back bring the same ones


class QueryFilter(msgspec.Struct, frozen=True):
    """A subscription to the messages of the streams that satisfy a query."""

    name: str  # as the client wrote it
    query: Query

    @property
    def id(self) -> str:
        """The coordinator's name for it."""
        return self.query.id


class ListingFilter(msgspec.Struct, frozen=True):
    """A subscription to the set of streams that satisfy a query."""

    name: str  # as the client wrote it
    query: Query

    @property
    def id(self) -> str:
        """The coordinator's name for it."""
        return LISTING + self.query.id


@lru_cache(_MEMO)
def read_query(name: str) -> QueryFilter | ListingFilter:
    """Read a name that begins with one of the two prefixes; raises ``FilterInvalid``."""
    listing = name.startswith(STREAMS_PREFIX)
    prefix = STREAMS_PREFIX if listing else QUERY_PREFIX
    written = name.removeprefix(prefix)
    for wildcard, escape in (("+", "%2B"), ("#", "%23")):
        if wildcard in written:
            at = len(prefix) + written.index(wildcard)
            raise FilterInvalid(name, f"{wildcard} at position {at} must be written {escape} in a query")
    try:
        query = parse(decode_filter(written))
    except QueryInvalid as error:
        raise _Unread(name, error) from None
    return ListingFilter(name, query) if listing else QueryFilter(name, query)


class _Unread(FilterInvalid):
    """A query that cannot be read, shown in one line: line breaks are not welcome in the protocol's strings."""

    def __init__(self, name: str, error: QueryInvalid) -> None:
        super().__init__(name, error.problem)
        before = error.text[max(error.at - _SHOWN, 0) : error.at]
        shown = f"{before}^{error.text[error.at : error.at + _SHOWN]}"
        marked = "".join(each if each.isprintable() else " " for each in shown)
        self.problem = f"query, character {error.at + 1}: {error.problem}: {marked}"
