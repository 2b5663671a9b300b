"""The kinds of filters: the text of a subscription, read once.

| type | as a client writes it | what the client gets |
| --- | --- | --- |
| ``TopicFilter`` | ``building/+/smoke`` | the messages of matching topics |
| ``SharedFilter`` | ``$share/group/filter`` | the same, each message to one member of the group |
| | ``$share/group/$channel/Name/values`` | the results of a channel, each to one member of the group |
| ``QueryFilter`` | ``$query/predicate`` | the messages of the streams that satisfy the query |
| ``ListingFilter`` | ``$streams/predicate`` | the set of these streams, and each change of it |
| ``ChannelFilter`` | ``$channel/Name/values`` | the results of a channel |
| ``RequestFilter`` | ``$qos/policies/filter`` | those messages of matching topics that meet a request |
| ``WantedFilter`` | ``$wanted/filter`` | whether anybody else wants topics of the filter, and each change of that |

``read_filter`` reads a client's text and refuses a wrong one with a reason. ``stored_filter`` reads what a broker has
stored: the text was accepted once, perhaps by another version, so it never fails. ``filter_type`` tells the type alone,
for those who keep names (the formats in the store, the copies at backups) and need no more than that.

A predicate is written as ``tocsin.query.query`` has it: a plain ``+`` or ``#`` would be a wildcard, so that it is
refused with a word about how to write it.

Every filter has its ``name``: the text as the client wrote it, which is what stores, backups and SUBACKs refer to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tocsin.core.channels.channel_filter import ChannelFilter, read_channel_filter
from tocsin.core.quality.texts import QualityInvalid, read_request, request_text
from tocsin.errors import QueryInvalid
from tocsin.model.stream import DEMAND, LISTING
from tocsin.query import Query, decode_filter, parse
from tocsin.wire.mqtt.topics import (
    CHANNEL_PREFIX,
    LEVELS_MAX,
    QUALITY_NEWS,
    QUALITY_PREFIX,
    QUERY_PREFIX,
    SHARE_PREFIX,
    STREAMS_PREFIX,
    TOPIC_MAX_BYTES,
    WANTED_PREFIX,
    FilterInvalid,
    split_filter,
)

_MEMO: Final = 4_096  # filters that are remembered: sessions of one kind have the same ones
_MEMO_NAME_MAX: Final = 256  # characters of one of them; so the memo takes 4 MB at most
_SHOWN: Final = 30  # characters that are repeated before the one at which a query is wrong, and behind it
_NEWS: Final = frozenset((*QUALITY_NEWS, "+", "#"))
_QUERY_MEMO: Final = 1_024  # queries that are remembered, at most 4 MB of text


class TopicFilter(msgspec.Struct, frozen=True):
    """A plain filter of topics."""

    name: str

    @property
    def pattern(self) -> str:
        """The topic filter to match with."""
        return self.name


class SharedFilter(msgspec.Struct, frozen=True):
    """A filter whose messages a group shares."""

    name: str
    group: str
    pattern: str  # what topics are matched with, or a channel with values

    @property
    def of_results(self) -> bool:
        """Whether its group shares the results of a channel."""
        return self.pattern.startswith(CHANNEL_PREFIX)


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


class RequestFilter(msgspec.Struct, frozen=True):
    """A filter of topics with a request of quality (``core.quality``)."""

    name: str  # as the client wrote it
    request: str  # in canonical form
    pattern: str  # what topics are matched with


class WantedFilter(msgspec.Struct, frozen=True):
    """A subscription to the answer whether anybody else subscribes to topics of a filter."""

    name: str  # as the client wrote it
    pattern: str  # the filter that it is about

    @property
    def id(self) -> str:
        """The coordinator's name for it."""
        return DEMAND + self.pattern

    @staticmethod
    def about(pattern: str) -> str:
        """The name of the subscription that asks about a filter."""
        return WANTED_PREFIX + pattern


def topic_for(name: str) -> str:
    """The topic of messages under the name of a subscription: the filter matches it, as it has no wildcards."""
    return name.replace("+", "%2B").replace("#", "%23")


class UnreadableFilter(msgspec.Struct, frozen=True):
    """A stored subscription that this version cannot read. The session keeps it; nothing is delivered for it."""

    name: str
    problem: str


Filter = (
    TopicFilter | SharedFilter | QueryFilter | ListingFilter | ChannelFilter | RequestFilter | WantedFilter
)
StoredFilter = Filter | UnreadableFilter


class NotShared(FilterInvalid):
    """A group cannot have this."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, f"{what} cannot be shared")
        self.problem = f"{what} cannot be shared; subscribe to it without $share"


def filter_type(name: str) -> type[Filter]:
    """The type of a subscription, by how its name begins."""
    if not name.startswith("$"):
        return TopicFilter
    if name.startswith(SHARE_PREFIX):
        return SharedFilter
    if name.startswith(CHANNEL_PREFIX):
        return ChannelFilter
    if name.startswith(QUERY_PREFIX):
        return QueryFilter
    if name.startswith(WANTED_PREFIX):
        return WantedFilter
    if name.startswith(
        QUALITY_PREFIX
    ):  # news have topics of their own; whatever else stands there is a request
        return TopicFilter if name[len(QUALITY_PREFIX) :].partition("/")[0] in _NEWS else RequestFilter
    return ListingFilter if name.startswith(STREAMS_PREFIX) else TopicFilter


def read_filter(name: str, *, max_bytes: int = TOPIC_MAX_BYTES, max_levels: int = LEVELS_MAX) -> Filter:
    """Read what a client subscribes to; raises ``FilterInvalid``. The bounds are those of topics."""
    kind = filter_type(name)
    if kind is QueryFilter or kind is ListingFilter:
        return read_query(name)
    if kind is RequestFilter:
        return _read_request(name, max_bytes=max_bytes, max_levels=max_levels)
    if kind is WantedFilter:
        return _read_wanted(name, max_bytes=max_bytes, max_levels=max_levels)
    channel = read_channel_filter(name) if kind is ChannelFilter else None
    pattern, group = split_filter(name, max_bytes=max_bytes, max_levels=max_levels)
    if channel is not None:
        return channel
    if group is None:
        return TopicFilter(name)
    shared = filter_type(pattern)
    if shared is QueryFilter or shared is ListingFilter:
        raise NotShared(name, "a query")
    if shared is RequestFilter:
        raise NotShared(name, "a request of quality")
    if shared is WantedFilter:
        raise NotShared(name, "an answer about who wants a filter")
    if shared is ChannelFilter:
        read_channel_filter(pattern)
    return SharedFilter(name, group, pattern)


def _read_request(name: str, *, max_bytes: int, max_levels: int) -> RequestFilter:
    said, slash, pattern = name.removeprefix(QUALITY_PREFIX).partition("/")
    if not slash or not pattern:
        raise FilterInvalid(name, "a request is written $qos/policies/filter, as $qos/deadline=1s/a/b")
    if filter_type(pattern) is not TopicFilter or pattern.startswith("$"):
        raise FilterInvalid(name, "a request is about topics; only a plain topic filter can follow it")
    split_filter(name, max_bytes=max_bytes, max_levels=max_levels)
    try:
        return RequestFilter(name, request_text(read_request(said)), pattern)
    except QualityInvalid as error:
        raise FilterInvalid(name, error.problem) from None


def _read_wanted(name: str, *, max_bytes: int, max_levels: int) -> WantedFilter:
    pattern = name.removeprefix(WANTED_PREFIX)
    if not pattern or pattern.startswith("$"):
        raise FilterInvalid(name, "a plain topic filter follows $wanted/, as in $wanted/hall/1/temperature")
    split_filter(name, max_bytes=max_bytes, max_levels=max_levels + 1)
    return WantedFilter(name, pattern)


def stored_filter(name: str) -> StoredFilter:
    """Read the name of a subscription that is stored."""
    return _read_stored(name) if len(name) > _MEMO_NAME_MAX else _remembered(name)


def _read_stored(name: str) -> StoredFilter:
    try:
        return read_filter(name)
    except FilterInvalid as error:
        return UnreadableFilter(name, error.problem)


_remembered = lru_cache(_MEMO)(_read_stored)


def interest_of(name: str) -> TopicFilter | SharedFilter | RequestFilter:
    """Read a filter that is known to be valid: as the forwarding table, routes and groups have them."""
    if name.startswith(QUALITY_PREFIX) and filter_type(name) is RequestFilter:
        said, _, pattern = name.removeprefix(QUALITY_PREFIX).partition("/")
        return RequestFilter(name, said, pattern)
    if name.startswith(SHARE_PREFIX):
        _, group, pattern = name.split("/", 2)
        return SharedFilter(name, group, pattern)
    return TopicFilter(name)


@lru_cache(_QUERY_MEMO)
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
