"""The writer in a Spark task: gives each row its channel, its k and its brokers, and writes the files.

The rows have ``_channel``, ``_k`` (with more behind it: see ``subscription_tables``), ``_rank``,
``_priority`` and ``payload``. Rows of a k that nobody holds any more, or of a definition that is no longer run, are
dropped. Where the query has an order, ``_rank`` says it: the rows of one k, which are then all in one task, are
written in it.

This runs in Spark's Python workers, also on other machines: it needs nothing but what comes with it.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import TocsinError
from tocsin.pipeline.execution.subscription_tables import Holders
from tocsin.pipeline.execution.subscriptions import K_CHARS
from tocsin.pipeline.storage.parts import IN, SUMMARY_DDL, Part, TaskOutput, parts_of, write_part
from tocsin.runtime.faults import kill_points as points

RESULTS_MAX: Final = 10_000_000  # of one task; a query without a sensible condition gets there
RANKED_MAX: Final = 2_000_000  # of one task, if they have an order: these are held in memory

WRITTEN_DDL: Final = f"{SUMMARY_DDL}, matched STRING"


class TooManyResults(TocsinError):
    """A query gives more than anybody can be told."""

    fault = "peer"

    def __init__(self, bound: int) -> None:
        self.problem = (
            f"one task has more than {bound} results; "
            "give the query a condition on its parameters, or a LIMIT"
        )
        super().__init__(self.problem)


class Running(msgspec.Struct, frozen=True):
    """A channel, as a task has to know it."""

    channel: str
    execution: int
    priority: int  # of results whose query does not say
    first_set: int = 0  # of the sets of brokers: where those of its table begin


class Writer:
    """The function of the tasks of one job."""

    def __init__(
        self, place: TaskOutput, first_part: int, running: Mapping[str, Running], holders: Holders
    ) -> None:
        self._place = place
        self._first_part = first_part
        self._running = dict(running)  # by what ``_channel`` says
        self._holders = holders

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a task"
        _settle()
        points.reach(points.IN_TASK)
        yield self.write(batches, context.partitionId(), context.taskAttemptId())

    def write(self, batches: Iterable[pa.RecordBatch], part: int, attempt: int) -> pa.RecordBatch:
        """Write the rows; what was written (``WRITTEN_DDL``)."""
        matched: dict[str, set[str]] = {}
        rows = self._attributed(_ordered(_bounded(batches)), matched)
        summary = write_part(self._place, self._first_part + part, attempt, rows)
        counts = msgspec.json.encode({name: len(ks) for name, ks in matched.items()}).decode()
        said = [None] * (summary.num_rows - 1) + [counts]
        return summary.append_column("matched", pa.array(said, pa.string()))

    def _attributed(
        self, batches: Iterable[pa.RecordBatch], matched: dict[str, set[str]]
    ) -> Iterator[pa.RecordBatch]:
        sets = pa.array([list(each) for each in self._holders.sets], pa.list_(pa.string()))
        changed = pa.array(list(self._holders.changed), pa.string())
        for batch in batches:
            if not batch.num_rows:
                continue
            k = pc.utf8_slice_codeunits(batch["_k"], 0, K_CHARS)
            behind = pc.split_pattern(
                pc.utf8_slice_codeunits(batch["_k"], K_CHARS + 1, None), ".", max_splits=1
            )
            number = pc.cast(pc.list_element(behind, 0), pa.int32())
            parameters = pc.list_element(behind, 1)
            brokers = sets.take(
                pc.coalesce(pc.add(number, self._first_sets(batch)), pa.scalar(0, pa.int32()))
            )
            if len(changed):
                brokers = self._overruled(k, brokers, changed)
            found = self._batch(batch, k, brokers, parameters)
            for name in pc.unique(found["channel"]).to_pylist():
                ks = found["k"].filter(pc.equal(found["channel"], name))
                matched.setdefault(name, set()).update(pc.unique(ks).to_pylist())
            if found.num_rows:
                yield found

    def _first_sets(self, batch: pa.RecordBatch) -> pa.Array:
        """For each row the set from which its number counts; none for rows of what does not run."""
        names = batch["_channel"].dictionary_encode()
        running = [self._running.get(key) for key in names.dictionary.to_pylist()]
        return pa.array([each and each.first_set for each in running], pa.int32()).take(names.indices)

    def _overruled(self, k: pa.Array, brokers: pa.Array, changed: pa.Array) -> pa.Array:
        """With those who hold the ks now whose holders have changed."""
        at = pc.index_in(k, value_set=changed)
        now = pa.array([list(each) for each in self._holders.changed.values()], pa.list_(pa.string()))
        both = pa.concat_arrays([brokers, now])
        return both.take(pc.if_else(pc.is_null(at), pa.array(range(len(k)), pa.int32()), pc.add(at, len(k))))

    def _batch(
        self, batch: pa.RecordBatch, k: pa.Array, brokers: pa.Array, parameters: pa.Array
    ) -> pa.RecordBatch:
        names = batch["_channel"].dictionary_encode()
        keys = names.dictionary.to_pylist()
        running = [self._running.get(key) for key in keys]
        channel = pa.array([each and each.channel for each in running], pa.string()).take(names.indices)
        execution = pa.array([each and each.execution for each in running], pa.int64()).take(names.indices)
        usual = pa.array([each and each.priority for each in running], pa.int32()).take(names.indices)
        priority = pc.min_element_wise(
            pc.max_element_wise(pc.coalesce(batch["_priority"], usual), pa.scalar(0, pa.int32())),
            pa.scalar(9, pa.int32()),
        )
        columns = [channel, execution, k, brokers, priority, batch["payload"], parameters]
        whole = pa.record_batch(columns, schema=IN)
        wanted = pc.and_(pc.is_valid(channel), pc.greater(pc.list_value_length(brokers), 0))
        return whole if pc.all(wanted).as_py() else whole.filter(wanted)


@functools.cache
def _settle() -> None:
    """Once in a worker: what it has imported stays, and is not looked at again.

    Spark has a worker collect its garbage after every task, which takes longer than to write ten thousand results.
    """
    gc.collect()
    gc.freeze()


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if rows > RESULTS_MAX:
            raise TooManyResults(RESULTS_MAX)
        yield batch


def _ordered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches without ranks as they come; with ranks all of them, in the order of k and rank."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch["_rank"].null_count == batch.num_rows:
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows > RANKED_MAX:
            raise TooManyResults(RANKED_MAX)
    if held:
        table = pa.Table.from_batches(held)
        order = pc.sort_indices(table, [("_k", "ascending"), ("_rank", "ascending")])
        yield from table.take(order).combine_chunks().to_batches()


def written(rows: Iterable[pa.Table | pa.RecordBatch]) -> tuple[list[Part], dict[str, int]]:
    """The tasks' reports: their parts, and by channel how many subscriptions had results."""
    tables = list(rows)
    matched: dict[str, int] = {}
    for table in tables:
        for text in table["matched"].to_pylist():
            for name, count in msgspec.json.decode(text, type=dict[str, int]).items() if text else ():
                matched[name] = matched.get(name, 0) + count
    names = [name for name in (tables[0].schema.names if tables else ()) if name != "matched"]
    return parts_of(table.select(names) for table in tables), matched
