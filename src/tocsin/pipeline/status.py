"""The status of a pipeline, for people and for metrics: Spark, channels, datasets, feeds."""

from __future__ import annotations

import contextlib

import msgspec

from tocsin.errors import DatasetMissing
from tocsin.model.catalogue import Channel, Dataset, Feed
from tocsin.pipeline.definitions.definitions import Definitions, source_words
from tocsin.pipeline.execution.runs import Done
from tocsin.pipeline.ingest.ingest import FeedFigures, Ingest
from tocsin.pipeline.ingest.progress import ChannelProgress


class SparkStatus(msgspec.Struct, frozen=True):
    version: str = ""
    master: str = ""
    ui: str | None = None
    state: str = "starting"


class ChannelStatus(msgspec.Struct, frozen=True):
    """A channel. Counts but ``executions`` are since the pipeline started."""

    name: str
    version: int
    every_s: float | None
    paused: bool
    subscriptions: int
    invalid: int  # subscriptions whose values do not fit the channel's parameters any more
    executions: int
    last_at_us: int
    last_ms: float
    matched: int  # subscriptions with results, the last time
    results: int
    results_total: int
    overruns: int
    failures: int  # in a row
    error: str
    next_at_us: int | None


class DatasetStatus(msgspec.Struct, frozen=True):
    name: str
    rows: int
    files: int
    bytes: int
    version: int
    key: tuple[str, ...]
    quarantined: int
    lag_records: int  # that wait in the log of feeds, for whichever dataset


class FeedStatus(msgspec.Struct, frozen=True):
    name: str
    dataset: str
    source: str
    position: int
    lag: int
    records: int
    quarantined: int
    ignored: tuple[str, ...]
    error: str


class Status(msgspec.Struct, frozen=True):
    spark: SparkStatus
    channels: tuple[ChannelStatus, ...]
    datasets: tuple[DatasetStatus, ...]
    feeds: tuple[FeedStatus, ...]
    tick: int
    subscriptions: int
    told_us: int = 0  # when the newest tick was


class Figures:
    """The counters of executions."""

    def __init__(self) -> None:
        self.last: dict[str, Done] = {}
        self.results: dict[str, int] = {}

    def note(self, done: Done) -> None:
        name = done.channel.lower()
        self.last[name] = done
        self.results[name] = self.results.get(name, 0) + done.results


def channel_status(
    definitions: Definitions, figures: Figures, channel: Channel, now_us: int
) -> ChannelStatus:
    name = channel.name.lower()
    planned = definitions.schedule.figures(name, now_us)
    last = figures.last.get(name)
    known = definitions.progress.channel(name) or ChannelProgress()
    return ChannelStatus(
        name=channel.name,
        version=channel.version,
        every_s=channel.every_s,
        paused=channel.paused,
        subscriptions=len(definitions.subscriptions.of(name)),
        invalid=definitions.engine.invalid(name),
        executions=known.execution,
        last_at_us=known.at_us,
        last_ms=last.took_us / 1_000 if last else 0.0,
        matched=last.matched if last else 0,
        results=last.results if last else 0,
        results_total=figures.results.get(name, 0),
        overruns=planned.overruns if planned else 0,
        failures=planned.failures if planned else 0,
        error=definitions.broken.get(name, planned.error if planned else ""),
        next_at_us=planned.next_us if planned else None,
    )


def dataset_statuses(definitions: Definitions, lag: int) -> tuple[DatasetStatus, ...]:
    """All of them, except those that are being dropped. In a thread."""
    found: list[DatasetStatus] = []
    for dataset in list(definitions.catalogue.datasets.values()):
        with contextlib.suppress(DatasetMissing):
            found.append(dataset_status(definitions, dataset, lag))
    return tuple(found)


def dataset_status(definitions: Definitions, dataset: Dataset, lag: int) -> DatasetStatus:
    """In a thread: looks at the dataset's log."""
    snapshot = definitions.landing.data.snapshot(dataset.name)
    return DatasetStatus(
        name=dataset.name,
        rows=sum(file.rows for file in snapshot.files),
        files=len(snapshot.files),
        bytes=sum(file.size for file in snapshot.files),
        version=snapshot.version,
        key=dataset.key,
        quarantined=definitions.landing.quarantined(dataset.name),
        lag_records=lag,
    )


def feed_status(feed: Feed, ingest: Ingest, newest: int) -> FeedStatus:
    figures = ingest.figures.get(feed.name.lower(), FeedFigures())
    return FeedStatus(
        name=feed.name,
        dataset=feed.dataset,
        source=source_words(feed),
        position=figures.position,
        lag=max(newest - ingest.position, 0),
        records=figures.records,
        quarantined=figures.quarantined,
        ignored=figures.ignored,
        error=figures.error or ingest.error,
    )
