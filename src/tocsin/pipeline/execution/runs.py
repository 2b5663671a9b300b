"""An execution: what is due, what Spark is asked for it, and how it went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tocsin.pipeline.execution.compiled import Template
from tocsin.pipeline.execution.subscription_tables import Holders
from tocsin.pipeline.execution.writer import Running, Writer
from tocsin.pipeline.language.tree.resolution import Read
from tocsin.pipeline.storage.datasets import Snapshot
from tocsin.pipeline.storage.parts import Part, TaskOutput
from tocsin.pipeline.storage.results import Results
from tocsin.pipeline.storage.tables.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Due(msgspec.Struct, frozen=True):
    """A channel that runs now: its number, and of each dataset or channel that it reads as NEW what it has read."""

    channel: str
    execution: int
    since: dict[str, int]


class Done(msgspec.Struct, frozen=True):
    """How it went. ``read``: of each dataset or channel that it read as NEW the position up to which it did."""

    channel: str
    execution: int
    read: dict[str, int]
    results: int = 0
    matched: int = 0  # subscriptions with results
    took_us: int = 0
    error: str = ""


class JobGroup(msgspec.Struct):
    """Channels of one template that read the same news."""

    template: Template
    due: list[Due]
    number: int = 0


class Asked(msgspec.Struct):
    """A group's query, and what its tasks have to know. ``read``: as in ``Done``."""

    group: JobGroup
    read: dict[str, int]
    found: DataFrame | None  # None: there is nobody to tell
    running: dict[str, tuple[str, int, int]]  # what ``_channel`` says → channel, execution, priority
    holders: Holders


class Stored(msgspec.Struct, frozen=True):
    """What queries read, at one moment."""

    datasets: Mapping[str, Snapshot]  # by ``Read.key``
    results: Results | None = None  # None: nobody reads results

    @property
    def found(self) -> Results:
        assert self.results is not None, "a query reads results that nobody has looked for"
        return self.results

    def position(self, read: Read) -> int:
        """The newest that there is."""
        return self.found.tick if read.results else self.datasets[read.key].version

    def rows(self, read: Read, since: int) -> int:
        """The rows that a query has to look at: at least those behind a position."""
        if read.results:
            files: Sequence[DataFile] = self.found.since(since)
        else:
            snapshot = self.datasets[read.key]
            files = snapshot.since(since) if read.new else snapshot.files
        return sum(file.rows for file in files)

    def bytes(self, reads: Iterable[Read]) -> int:
        """Of what is read; what is new of results is a small part of them."""
        files = [file for each in self.datasets.values() for file in each.files]
        if any(read.results and not read.new for read in reads):
            files += self.found.files
        return sum(file.size for file in files)


class Tick(msgspec.Struct, frozen=True):
    """Which one, when, and what is stored as it sees it."""

    number: int
    at_us: int
    stored: Stored


class Run(msgspec.Struct, frozen=True):
    """All of a tick."""

    done: tuple[Done, ...]
    parts: tuple[Part, ...]


def writer_of(place: TaskOutput, first_part: int, asked: Iterable[Asked]) -> Writer:
    """The function of the tasks of a job: one list of sets of brokers for all its groups."""
    running: dict[str, Running] = {}
    sets: list[tuple[str, ...]] = []
    changed: dict[str, tuple[str, ...]] = {}
    for each in asked:
        for key, (channel, execution, priority) in each.running.items():
            running[key] = Running(channel, execution, priority, first_set=len(sets))
        sets += each.holders.sets
        changed |= each.holders.changed
    return Writer(place, first_part, running, Holders(tuple(sets), changed))


def sum_of(runs: Iterable[Run]) -> Run:
    all_of = list(runs)
    return Run(
        tuple(each for run in all_of for each in run.done),
        tuple(each for run in all_of for each in run.parts),
    )


def done_of(
    due: Due, read: dict[str, int], parts: Iterable[Part], matched: Mapping[str, int], took_us: int
) -> Done:
    name = due.channel.lower()
    return Done(
        due.channel,
        due.execution,
        read,
        results=sum(
            each.results for part in parts for each in part.executions if each.channel.lower() == name
        ),
        matched=sum(count for channel, count in matched.items() if channel.lower() == name),
        took_us=took_us,
    )
