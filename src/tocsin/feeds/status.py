"""The figures of a feed, for people and for metrics."""

from __future__ import annotations

import msgspec

from tocsin.model.catalogue import (
    Feed,
    FolderSource,
    HttpSource,
    KafkaSource,
    StreamSource,
    TopicSource,
)


class FeedCounts(msgspec.Struct):
    """The counters of one feed, since the feeder started."""

    records: int = 0  # appended to the log of feeds
    bytes: int = 0
    live: int = 0  # of the records, those of QoS 0 messages
    dropped: int = 0  # QoS 0 messages that found no room
    missed: int = 0  # times that the source no longer had what was to be read next
    files: int = 0  # that were read to their ends
    failed_files: int = 0
    failures: int = 0  # in a row
    error: str = ""  # of the agent, as long as it lasts
    live_error: str = ""  # why QoS 0 messages are not heard, as long as it lasts

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self.error = ""
        self.failures = 0


class FeedStatus(msgspec.Struct, frozen=True):
    """One feed, as the feeder's status shows it."""

    name: str
    source: str
    state: str  # running, waiting (to be tried again)
    records: int
    bytes: int
    live: int
    dropped: int
    missed: int
    files: int
    failed_files: int
    position: int  # the highest of its marks
    lag: int  # what its source has beyond that, at most; -1: not known
    failures: int
    error: str


class Status(msgspec.Struct, frozen=True):
    """The feeder."""

    feeds: tuple[FeedStatus, ...]
    http: str  # the address of its HTTP endpoint; empty: none


def source_words(feed: Feed) -> str:
    """Where a feed's records come from, in a few words."""
    match feed.source:
        case StreamSource(query=query):
            return f"streams where {query}"
        case TopicSource(topic_filter=topic_filter):
            return f"topic {topic_filter}"
        case HttpSource():
            return "http"
        case FolderSource(path=path):
            return f"folder {path}"
        case KafkaSource(servers=servers, topic=topic):
            return f"kafka {servers} topic {topic}"
