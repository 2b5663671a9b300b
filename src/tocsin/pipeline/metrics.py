"""The pipeline's figures for Prometheus: its status as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from tocsin.pipeline.status import Status
from tocsin.runtime import metrics
from tocsin.runtime.metrics import Metric, families

MS: Final = 1_000

CHANNEL: Final = (
    Metric(
        "executions_total", "counter", "Executions since the channel was made.", lambda row: row.executions
    ),
    Metric(
        "last_duration_seconds", "gauge", "How long the last execution took.", lambda row: row.last_ms / MS
    ),
    Metric("last_time_seconds", "gauge", "When it was executed last.", lambda row: row.last_at_us / MS / MS),
    Metric("subscriptions", "gauge", "Backend subscriptions.", lambda row: row.subscriptions),
    Metric("matched", "gauge", "Subscriptions with results, the last time.", lambda row: row.matched),
    Metric("results_total", "counter", "Results since the pipeline started.", lambda row: row.results_total),
    Metric(
        "overruns_total", "counter", "Intervals skipped since the pipeline started.", lambda row: row.overruns
    ),
    Metric("failures", "gauge", "Failed executions in a row.", lambda row: row.failures),
    Metric("paused", "gauge", "1 if it is paused.", lambda row: int(row.paused)),
)
DATASET: Final = (
    Metric("rows", "gauge", "Rows.", lambda row: row.rows),
    Metric("files", "gauge", "Files.", lambda row: row.files),
    Metric("bytes", "gauge", "Bytes of its files.", lambda row: row.bytes),
    Metric("quarantined", "gauge", "Records in its quarantine.", lambda row: row.quarantined),
)
FEED: Final = (
    Metric("records_total", "counter", "Records since the pipeline started.", lambda row: row.records),
    Metric(
        "quarantined_total",
        "counter",
        "Records that did not fit, since the pipeline started.",
        lambda row: row.quarantined,
    ),
    Metric("lag", "gauge", "Entries of the log of feeds that wait.", lambda row: row.lag),
)
PIPELINE: Final = (
    Metric("tick", "gauge", "The newest tick.", lambda status: status.tick),
    Metric("subscriptions", "gauge", "Backend subscriptions of all channels.", lambda row: row.subscriptions),
)


def render(status: Status) -> str:
    """The figures as text."""
    return "".join(
        (
            *families("tocsin_pipeline", "", PIPELINE, (status,)),
            *families("tocsin_channel", "channel", CHANNEL, status.channels),
            *families("tocsin_dataset", "dataset", DATASET, status.datasets),
            *families("tocsin_feed", "feed", FEED, status.feeds),
        )
    )


def served(host: str, port: int, status: Callable[[], Awaitable[Status]]) -> AbstractAsyncContextManager[str]:
    """Answer collectors while the context lasts; the address."""

    async def tell() -> str:
        return render(await status())

    return metrics.served(host, port, tell, whose="the pipeline", setting="pipeline.metrics_port")
