"""The feeder's figures for Prometheus: its status as text.

The pipeline's metrics of feeds (``tocsin_feed_…``) count records that it took out of the log; these count records on
their way there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from tocsin.feeds.status import Status
from tocsin.runtime import metrics
from tocsin.runtime.metrics import Metric, families

FEEDER: Final = (
    Metric("feeds", "gauge", "Feeds that are run.", lambda status: len(status.feeds)),
    Metric(
        "failing",
        "gauge",
        "Feeds with an error.",
        lambda s: sum(bool(each.error) for each in s.feeds),
    ),
)
FEED: Final = (
    Metric("records_total", "counter", "Records appended to the log of feeds.", lambda row: row.records),
    Metric("bytes_total", "counter", "Bytes of these.", lambda row: row.bytes),
    Metric("live_total", "counter", "Records of QoS 0 messages.", lambda row: row.live),
    Metric("dropped_total", "counter", "QoS 0 messages that found no room.", lambda row: row.dropped),
    Metric(
        "missed_total",
        "counter",
        "Times that the source no longer had what was to be read next.",
        lambda row: row.missed,
    ),
    Metric("files_total", "counter", "Files that were read to their ends.", lambda row: row.files),
    Metric("failed_files_total", "counter", "Files that could not be.", lambda row: row.failed_files),
    Metric(
        "lag",
        "gauge",
        "Records that the source has and the log lacks, at most; -1: unknown.",
        lambda row: row.lag,
    ),
    Metric("failures", "gauge", "Failures in a row.", lambda row: row.failures),
    Metric(
        "running",
        "gauge",
        "1 if it runs, 0 if it waits to be tried again.",
        lambda row: int(row.state == "running"),
    ),
)


def render(status: Status) -> str:
    """The figures as text."""
    return "".join(
        (
            *families("tocsin_feeder", "", FEEDER, (status,)),
            *families("tocsin_feeder", "feed", FEED, status.feeds),
        )
    )


def served(host: str, port: int, status: Callable[[], Awaitable[Status]]) -> AbstractAsyncContextManager[str]:
    """Answer collectors while the context lasts; the address."""

    async def tell() -> str:
        return render(await status())

    return metrics.served(host, port, tell, whose="the feeder", setting="feeds.metrics_port")
