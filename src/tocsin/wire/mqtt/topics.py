"""Topic names and topic filters: what is valid, how they are read, and when one matches the other.

    check_topic(topic, max_bytes=…, max_levels=…)       raises TopicInvalid (reason 0x90)
    check_filter(pattern, max_bytes=…, max_levels=…)    raises FilterInvalid (reason 0x8F)
    split_filter(pattern, …) -> (pattern, group)        the same, and reads ``$share/group/pattern``
    matches(pattern, topic) -> bool                     the plain definition, for tests and cold paths

A topic is levels joined by ``/``; levels may be empty, so ``/a`` has two, and ``a`` is not ``a/``. In a filter ``+``
stands for exactly one level and ``#``, which is last, for the level before it and everything below. A filter that
begins with a wildcard does not match a topic that begins with ``$``: those belong to the server. (MQTT 5 and 3.1.1,
section 4.7.)
"""

from __future__ import annotations

from functools import lru_cache

from tocsin.errors import ProtocolViolation

TOPIC_MAX_BYTES = 65_535  # a string's length is two bytes on the wire
LEVELS_MAX = TOPIC_MAX_BYTES + 1  # as many as a topic of slashes has
SHARE_PREFIX = "$share/"
META_PREFIX = "$meta/"  # messages there are metadata of a stream, and go to nobody

# Messages between brokers over links. No client may publish there.
NEAR_PREFIX = "$near/"  # words of a cluster that hears no leader (broker.neighbourhood)
ONE_PREFIX = "$one/"  # a client's topic follows: for one member of a group (broker.shares)
HERE_PREFIX = "$here/"  # another topic follows: for clients of that broker only (broker.forwarding.exchange)
COPY_PREFIX = (
    "$copy/"  # another topic follows: a copy of its message over a second way (broker.quality.copies)
)
CARRIED_TOPIC = "$carried"  # for another broker (wire.relayed)
PROBE_TOPIC = "$probe"  # bytes that go nowhere, over a connection that measures (core.links.prober)
QUERY_PREFIX = "$query/"  # the messages of the streams that satisfy a query
STREAMS_PREFIX = "$streams/"  # the set of these streams
WANTED_PREFIX = "$wanted/"  # whether anybody subscribes to topics of the filter that follows
CHANNEL_PREFIX = "$channel/"  # the results of a channel, with values for its parameters
QUALITY_PREFIX = "$qos/"  # a request and a topic filter, or news (core.quality)
QUALITY_NEWS = (
    "admission",
    "history",
    "incompatible",
    "late",
    "liveliness",
    "offered-deadline",
    "requested-deadline",
)  # the level behind it
ASSERT_PREFIX = "$assert/"  # a message there says that its publisher is alive on a topic, and goes to nobody
RESULTS_PREFIX = "$results/"  # a question for results that are there already (core.channels.pull)

_QUOTED_MAX = 80  # characters of a bad topic that an error repeats
_MEMO = 4_096  # topics that are remembered: they repeat, message after message
_MEMO_TOPIC_MAX = 256  # characters of one of them; so a memo takes 4 MB at most


class TopicInvalid(ProtocolViolation):
    """A topic name that cannot be published to."""

    def __init__(self, topic: str, problem: str) -> None:
        self.topic = topic
        super().__init__(f"topic {_quoted(topic)}: {problem}", 0x90)


class FilterInvalid(ProtocolViolation):
    """A topic filter that cannot be subscribed to."""

    def __init__(self, pattern: str, problem: str) -> None:
        self.pattern = pattern
        super().__init__(f"filter {_quoted(pattern)}: {problem}", 0x8F)


def check_topic(topic: str, *, max_bytes: int = TOPIC_MAX_BYTES, max_levels: int = LEVELS_MAX) -> None:
    """Raise ``TopicInvalid`` unless a message may be published to this topic."""
    find = _topic_problem if len(topic) > _MEMO_TOPIC_MAX else _remembered_problem
    problem = find(topic, max_bytes, max_levels)
    if problem:
        raise TopicInvalid(topic, problem)


def check_filter(pattern: str, *, max_bytes: int = TOPIC_MAX_BYTES, max_levels: int = LEVELS_MAX) -> None:
    """Raise ``FilterInvalid`` unless this is a filter, shared or not."""
    split_filter(pattern, max_bytes=max_bytes, max_levels=max_levels)


def split_filter(
    pattern: str, *, max_bytes: int = TOPIC_MAX_BYTES, max_levels: int = LEVELS_MAX
) -> tuple[str, str | None]:
    """The topic filter, and the group that shares it, if any. ``max_levels`` bounds what is matched, without the
    share's own two levels."""
    group: str | None = None
    inner = pattern
    if pattern.startswith(SHARE_PREFIX):
        group, slash, inner = pattern[len(SHARE_PREFIX) :].partition("/")
        if not slash:
            raise FilterInvalid(pattern, "a shared subscription is written $share/group/filter")
        if not group:
            raise FilterInvalid(pattern, "the group's name is empty")
        if "+" in group or "#" in group:
            raise FilterInvalid(pattern, "the group's name must not contain wildcards")
        if not inner:
            raise FilterInvalid(pattern, "the filter after the group's name is empty")
    problem = _common_problem(pattern, max_bytes, max_levels + (2 if group else 0))
    problem = problem or _placement_problem(inner, len(pattern) - len(inner))
    if problem:
        raise FilterInvalid(pattern, problem)
    return inner, group


def matches(pattern: str, topic: str) -> bool:
    """Whether a valid, unshared filter matches a valid topic name."""
    wanted, given = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(given) or level not in ("+", given[index]):
            return False
    return len(wanted) == len(given)


@lru_cache(_MEMO)
def topic_size(topic: str) -> tuple[int, int]:
    """How many bytes and levels a topic has; remembered, as the check of every publish asks for it.

    The caller sees to it that only short topics are asked for.
    """
    return len(topic.encode()), topic.count("/") + 1


def _topic_problem(topic: str, max_bytes: int, max_levels: int) -> str | None:
    return _common_problem(topic, max_bytes, max_levels) or _wildcard_problem(topic)


_remembered_problem = lru_cache(_MEMO)(_topic_problem)


def _common_problem(text: str, max_bytes: int, max_levels: int) -> str | None:
    if not text:
        return "it is empty; at least one character is needed"
    if "\0" in text:
        return f"it holds the character U+0000 at position {text.index(chr(0))}"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"it holds a surrogate, which UTF-8 cannot say, at position {error.start}"
    if size > min(max_bytes, TOPIC_MAX_BYTES):
        return f"it has {size} bytes; at most {min(max_bytes, TOPIC_MAX_BYTES)} are allowed"
    levels = text.count("/") + 1
    if levels > max_levels:
        return f"it has {levels} levels; at most {max_levels} are allowed"
    return None


def _wildcard_problem(topic: str) -> str | None:
    for wildcard in "+#":
        if wildcard in topic:
            return f"it has the wildcard {wildcard} at position {topic.index(wildcard)}; only filters may have some"
    return None


def _placement_problem(pattern: str, offset: int) -> str | None:
    """Where a wildcard stands where it may not; ``offset`` is where the pattern begins in what the client sent."""
    position = offset
    levels = pattern.split("/")
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index + 1 < len(levels)):
            return f"# at position {position + level.index('#')} must be a whole level, and the last one"
        if "+" in level and level != "+":
            return f"+ at position {position + level.index('+')} must be a whole level"
        position += len(level) + 1
    return None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "…")


def between_brokers(topic: str) -> bool:
    """Whether brokers use a topic that begins with ``$`` among themselves."""
    if topic.startswith(HERE_PREFIX):
        topic = topic.removeprefix(HERE_PREFIX)
        return topic.startswith(ONE_PREFIX) and between_brokers(topic) if topic[:1] == "$" else topic != ""
    if topic.startswith(ONE_PREFIX):
        return len(topic) > len(ONE_PREFIX) and topic[len(ONE_PREFIX)] != "$"
    if topic.startswith(COPY_PREFIX):
        return len(topic) > len(COPY_PREFIX) and topic[len(COPY_PREFIX)] != "$"
    return topic == CARRIED_TOPIC or topic.startswith(NEAR_PREFIX)
