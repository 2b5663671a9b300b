"""Executions on Spark: what due channels ask, in as few jobs as can be, and the files that come out of it.

Channels of one template that read the same news are one **group**, and one query. Groups of a tick are one job, the
union of their queries: a job costs more than most queries do. Only groups whose last execution was quick share a job; a
new, slow or failed group has a job of its own. The rows go through Python tasks that write them, as they come, into
files of the results dataset (``pipeline.execution.writer``); what comes back to the driver is the list of files.
Nothing is committed here: ``pipeline.tick`` does that.

Groups that fail together are run again group by group, and a group that fails channel by channel, so that one channel's
fault does not harm the others. A job that takes longer than its deadline is stopped and has failed; but what Java does
in a tight loop goes on until it is through, and has one of Spark's task threads until then.

All methods are called from one thread at a time, but ``execute`` runs groups side by side in threads of its own.
Spark resolves the names of views when a query is handed to it, so that only this is done under a lock.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import structlog

from tocsin.model.catalogue import ParameterType
from tocsin.pipeline.execution.compiled import Compiled, Selection, Template
from tocsin.pipeline.execution.failures import ExecutionFailed, first_words
from tocsin.pipeline.execution.runs import (
    Asked,
    Done,
    Due,
    JobGroup,
    Run,
    Stored,
    Tick,
    done_of,
    sum_of,
    writer_of,
)
from tocsin.pipeline.execution.subscription_tables import Member, TemplateTable, row_values
from tocsin.pipeline.execution.subscriptions import Subscriptions
from tocsin.pipeline.execution.views import Views
from tocsin.pipeline.execution.writer import WRITTEN_DDL, written
from tocsin.pipeline.language.tree.resolution import Read, is_results_key
from tocsin.pipeline.storage.datasets import DatasetStore
from tocsin.pipeline.storage.parts import Part, TaskOutput
from tocsin.pipeline.storage.results import ResultsStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDE_BY_SIDE: Final = 4  # jobs at a time: their fixed costs overlap, their tasks share the cores
TOGETHER: Final = 16  # groups in one job at most: to plan it takes as long as they are many
QUICK_S: Final = 5.0  # an execution after which a group may share a job with others
# Read by a tick, from which on Spark had better look at sizes while it runs, and each group has a job of its own.
ADAPTIVE_BYTES: Final = 256 << 20
ADAPTIVE: Final = "spark.sql.adaptive.enabled"
PARTS_PER_GROUP: Final = 1 << 14  # numbers for the tasks of one group, of 2³¹


class Engine:
    """Channels, compiled, with their subscriptions."""

    def __init__(
        self,
        spark: SparkSession,
        store: DatasetStore,
        subscriptions: Subscriptions,
        *,
        results: ResultsStore,
        directory: Path,
        run: str,
        deadline_s: float,
    ) -> None:
        self._spark = spark
        self._store = store
        self._subscriptions = subscriptions
        self._results = results
        self._name = run  # of this run of the pipeline: part of the names of files
        self._directory = directory  # of the tables of subscriptions
        self._deadline_s = deadline_s
        self._compiled: dict[str, Compiled] = {}
        self._tables: dict[str, TemplateTable] = {}
        self._viewing = threading.Lock()
        self._views = Views(spark, store)
        self._selects = itertools.count(1)
        self._adaptive: bool | None = None  # what Spark was told last
        self._much = False  # is read by this tick
        self._quick: set[str] = set()  # templates whose last execution was
        self._decided = spark.sparkContext.getConf().get(ADAPTIVE) is not None
        self._jobs = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="execution")
        self._folder = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._log = structlog.get_logger()
        shutil.rmtree(directory, ignore_errors=True)

    # ── what there is ───────────────────────────────────────────────────────────────────────────────────────────

    def define(self, compiled: Compiled) -> None:
        """A channel, new or changed. One whose query is the same keeps its table."""
        channel, template = compiled.channel, compiled.template
        old = self._compiled.get(channel.name.lower())
        if old is not None and old.template.id == template.id and _member(old) == _member(compiled):
            self._compiled[channel.name.lower()] = compiled
            return
        self.drop(channel.name)
        self._compiled[channel.name.lower()] = compiled
        table = self._tables.get(template.id)
        if table is None:
            table = self._tables[template.id] = TemplateTable(
                self._spark,
                self._directory / template.id,
                [parameter.type for parameter in channel.parameters],
                _constant_types(template),
                self._folder,
            )
        self._subscriptions.take_changes(channel.name)
        table.join(_member(compiled), self._subscriptions.of(channel.name))

    def drop(self, name: str) -> None:
        old = self._compiled.pop(name.lower(), None)
        if old is None:
            return
        template = old.template.id
        self._tables[template].leave(name)
        if not any(each.template.id == template for each in self._compiled.values()):
            self._tables.pop(template).close()
            with self._viewing:
                self._views.forget(old.template)

    def invalid(self, name: str) -> int:
        """Subscriptions of a channel whose values do not fit its parameters."""
        compiled = self._compiled.get(name.lower())
        table = None if compiled is None else self._tables.get(compiled.template.id)
        if compiled is None or table is None:
            return 0
        return table.invalid.get(_member(compiled).key, 0)

    def reads(self, name: str) -> Sequence[Read]:
        return self._compiled[name.lower()].template.reads

    def shape(self, name: str) -> str:
        return self._compiled[name.lower()].template.id

    def close(self) -> None:
        self._jobs.shutdown(cancel_futures=True)
        self._folder.shutdown()
        for table in self._tables.values():
            table.close()

    # ── a tick ──────────────────────────────────────────────────────────────────────────────────────────────────

    def execute(self, due: Iterable[Due], *, tick: int, at_us: int) -> Run:
        """Run the due channels; a failed one has an ``error``, and no rows."""
        groups = self._grouped(due)
        reads = {read for group in groups for read in group.template.reads}
        stored = self._look(reads)
        self._catch_up(groups)
        self._adapt(stored.bytes(reads))
        self._warn(groups, stored)
        tick_of = Tick(tick, at_us, stored)
        done: list[Done] = []
        parts: list[Part] = []
        for outcome in self._jobs.map(lambda some: self._attempt(some, tick_of), self._jobs_of(groups)):
            done += outcome.done
            parts += outcome.parts
        return Run(tuple(done), tuple(parts))

    def _jobs_of(self, groups: Sequence[JobGroup]) -> list[list[JobGroup]]:
        """Which groups are one job: as many as may be of those that were quick, if little is read."""
        shared = [] if self._much else [group for group in groups if group.template.id in self._quick]
        alone = [[group] for group in groups if group not in shared]
        return [shared[at : at + TOGETHER] for at in range(0, len(shared), TOGETHER)] + alone

    def _look(self, reads: Collection[Read]) -> Stored:
        """What is stored now of what is read."""
        datasets = {read.key: read.name for read in reads if not read.results}
        return Stored(
            {key: self._store.snapshot(name) for key, name in datasets.items()},
            self._results.snapshot() if any(read.results for read in reads) else None,
        )

    def _warn(self, groups: Iterable[JobGroup], stored: Stored) -> None:
        """Say so if results may be gone that a channel has not read: they were not kept for it."""
        if stored.results is None or not stored.results.forgotten:
            return
        for due in (due for group in groups for due in group.due):
            late = [key for key, tick in due.since.items() if is_results_key(key)]
            late = [key for key in late if due.since[key] < stored.results.forgotten]
            if late:
                self._log.warning(
                    "results were forgotten before a channel has read them", channel=due.channel, missed=late
                )

    def _adapt(self, read_bytes: int) -> None:
        """Have Spark plan as it goes where much is read. Where little is, any plan will do, and each look costs time.

        Unless the operator has decided it.
        """
        self._much = read_bytes >= ADAPTIVE_BYTES
        if self._much != self._adaptive and not self._decided:
            self._spark.conf.set(ADAPTIVE, str(self._much).lower())
            self._adaptive = self._much

    def _grouped(self, due: Iterable[Due]) -> list[JobGroup]:
        groups: dict[tuple[str, tuple[tuple[str, int], ...]], JobGroup] = {}
        for each in due:
            template = self._compiled[each.channel.lower()].template
            key = (template.id, tuple(sorted(each.since.items())))
            groups.setdefault(key, JobGroup(template, [])).due.append(each)
        for number, group in enumerate(groups.values()):
            group.number = number
        return list(groups.values())

    def fold(self) -> None:
        """Put all subscriptions into the bases of their tables, now."""
        self._catch_up([JobGroup(each.template, []) for each in self._compiled.values()], now=True)

    def _catch_up(self, groups: Iterable[JobGroup], *, now: bool = False) -> None:
        """Bring the tables of subscriptions up to date."""
        for template_id in {group.template.id for group in groups}:
            table = self._tables[template_id]
            members = [each for each in self._compiled.values() if each.template.id == template_id]
            for compiled in members:
                name = compiled.channel.name
                table.change(
                    _member(compiled), self._subscriptions.take_changes(name), self._subscriptions.of(name)
                )
            table.tend(
                {_member(each).key: self._subscriptions.of(each.channel.name) for each in members}, now=now
            )

    def _attempt(self, groups: Sequence[JobGroup], tick: Tick) -> Run:
        """Some groups as one job; if that fails, smaller and smaller ones."""
        first_part = groups[0].number * PARTS_PER_GROUP
        names = [each.channel for group in groups for each in group.due]
        templates = {group.template.id for group in groups}
        began = perf_counter()
        try:
            run = self._run(groups, tick, f"tick {tick.number}, from {names[0]} on", first_part)
        except Exception as error:
            self._quick -= templates
            if len(names) == 1:
                return Run((self._failure(groups[0].due[0], error),), ())
            self._log.warning(
                "channels failed together, and are run one by one", channels=names, problem=first_words(error)
            )
        else:
            if perf_counter() - began < QUICK_S:
                self._quick |= templates
            else:
                self._quick -= templates
            return run
        if len(groups) > 1:
            return sum_of(self._attempt([group], tick) for group in groups)
        return self._one_by_one(groups[0], tick)

    def _one_by_one(self, group: JobGroup, tick: Tick) -> Run:
        done: list[Done] = []
        parts: list[Part] = []
        for each in group.due:
            alone = JobGroup(group.template, [each], group.number)
            first_part = max((part.part + 1 for part in parts), default=group.number * PARTS_PER_GROUP)
            try:
                run = self._run([alone], tick, f"tick {tick.number}, {each.channel}", first_part)
            except Exception as error:
                done.append(self._failure(each, error))
            else:
                done += run.done
                parts += run.parts
        return Run(tuple(done), tuple(parts))

    def _failure(self, due: Due, error: Exception) -> Done:
        return Done(due.channel, due.execution, due.since, error=first_words(error))

    def _ask(self, group: JobGroup, tick: Tick) -> Asked:
        """Hand a group's query to Spark, which does nothing yet."""
        members = {_member(self._compiled[each.channel.lower()]).key: each for each in group.due}
        table = self._tables[group.template.id]
        read = {each.key: tick.stored.position(each) for each in group.template.reads if each.new}
        found = None
        with self._viewing:
            subscriptions = table.frame(members)
            if subscriptions is not None:
                self._views.show_subscriptions(group.template, subscriptions, tick.at_us)
                found = self._views.results(group.template, table.rows, tick.stored, group.due[0].since)
        running = {}
        for key, each in members.items():
            channel = self._compiled[each.channel.lower()].channel
            running[key] = (channel.name, each.execution, channel.priority)
        return Asked(group, read, found, running, table.holders())

    def _run(self, groups: Sequence[JobGroup], tick: Tick, name: str, first_part: int) -> Run:
        began = perf_counter()
        asked = [self._ask(group, tick) for group in groups]
        parts: list[Part] = []
        matched: dict[str, int] = {}
        if frames := [each.found for each in asked if each.found is not None]:
            found = functools.reduce(lambda one, other: one.unionAll(other), frames)
            if len(frames) > 1:  # else each would have tasks of its own, which cost more than what they do
                found = found.coalesce(self._spark.sparkContext.defaultParallelism)
            place = TaskOutput(str(self._results.root), tick.number, self._name, tick.at_us)
            writer = writer_of(place, first_part, asked)
            parts, matched = written([self._collect(found.mapInArrow(writer, WRITTEN_DDL), name)])
        took_us = int((perf_counter() - began) * 1e6)
        return Run(
            tuple(
                done_of(due, each.read, parts, matched, took_us) for each in asked for due in each.group.due
            ),
            tuple(parts),
        )

    # ── for people ──────────────────────────────────────────────────────────────────────────────────────────────

    def select(self, selection: Selection, limit: int) -> pa.Table:
        """The first rows of a query that is run once. From any thread."""
        with self._viewing:
            self._views.show_all(selection, self._look(selection.reads))
            found = self._spark.sql(selection.sql)
        return self._collect(found.limit(limit), f"select {next(self._selects)}")

    def explain(self, name: str) -> str:
        """Spark's own plan of a channel, over its subscriptions as they are. In the engine's thread."""
        compiled = self._compiled[name.lower()]
        template = compiled.template
        self._catch_up([JobGroup(template, [])])
        stored = self._look(template.reads)
        with self._viewing:
            table = self._tables[template.id]
            subscriptions = table.frame([_member(compiled).key]) or table.empty()
            self._views.show_subscriptions(template, subscriptions, 0)
            found = self._views.planned(template, stored)
            return str(found._jdf.queryExecution().executedPlan().toString())

    def _collect(self, frame: DataFrame, name: str) -> pa.Table:
        """The rows of a small frame, or ``ExecutionFailed`` when the deadline has passed."""
        context = self._spark.sparkContext
        context.setJobGroup(name, name, interruptOnCancel=True)
        late = threading.Event()

        def stop() -> None:
            late.set()
            context.cancelJobGroup(name)

        timer = threading.Timer(self._deadline_s, stop)
        timer.daemon = True
        timer.start()
        try:
            return frame.toArrow()
        except Exception as error:
            if late.is_set():
                raise ExecutionFailed(
                    f"it took longer than {self._deadline_s:g} s and was stopped"
                ) from error
            raise
        finally:
            timer.cancel()


def _member(compiled: Compiled) -> Member:
    constants = row_values(_constant_types(compiled.template), compiled.constants)
    assert constants is not None, f"the constants of {compiled.channel.name} are of other types than it says"
    names = tuple(each.name.lower() for each in compiled.channel.parameters)
    return Member(compiled.channel.name, constants, names)


def _constant_types(template: Template) -> list[ParameterType]:
    return [each.type for each in template.subscription_columns if each.name.startswith("c")]  # type: ignore[misc]
