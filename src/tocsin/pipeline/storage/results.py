"""The results dataset: what ticks committed, and the notices that tell brokers of it.

One Delta table for all channels, partitioned by broker. A tick's results are one commit, whose transaction is
(``tick``, number): a tick that is run again is not committed again. The commit's metadata says all that has to be
known to tell of it; every later commit of upkeep carries it on, so that ``committed`` finds it also after the log
was shortened.

Files of the newest tick are never moved. Those of older ones are put together after ``SETTLED_S``; rows go when
they are older than is kept *and* their tick is below the floor, which is the oldest that somebody may still need.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import StorageUnusable
from tocsin.model.results import ORDINALS, Execution, Notice, ResultFile
from tocsin.pipeline.storage.datasets import time_of
from tocsin.pipeline.storage.parts import FILE, FRESH, Part
from tocsin.pipeline.storage.tables import planning
from tocsin.pipeline.storage.tables.delta import REWRITE, Overtaken, Table
from tocsin.pipeline.storage.tables.files import DataFile, read_parquet, write_parquet
from tocsin.pipeline.storage.tables.upkeep import GRACE_S, Done, Sweep

TICK: Final = "tick"
FORGOTTEN: Final = "forgotten"  # in the metadata: the newest tick of which rows were forgotten
MOVED: Final = "old/"
SETTLED_S: Final = 600.0  # after which a tick's files are put together with others
RESULTS_DDL: Final = (
    "tick BIGINT, channel STRING, execution BIGINT, k STRING, part INT, row INT, at TIMESTAMP, "
    "priority INT, payload STRING, parameters STRING"
)
_STORED: Final = pa.schema([*FILE, pa.field("broker", pa.string())])


class Committed(msgspec.Struct, frozen=True):
    """A tick that is committed."""

    tick: int
    at_us: int
    executions: tuple[Execution, ...]
    files: tuple[ResultFile, ...]
    rows: int
    metadata: dict[str, Any]  # what the tick's author added

    def notices(self) -> list[Notice]:
        """The notices for brokers: one, several if there are very many results, none if there are none."""
        ends: dict[int, int] = {}  # where a part begins → where the next one does
        below = self.rows
        for offset in sorted({file.offset for file in self.files}, reverse=True):
            ends[offset], below = below, offset
        notices = []
        for first in range(0, self.rows, ORDINALS):
            rows = min(self.rows - first, ORDINALS)
            files = [file for file in self.files if file.offset < first + rows and ends[file.offset] > first]
            notices.append(Notice(self.tick, self.at_us, self.executions, tuple(files), first, rows))
        return notices


class Results(msgspec.Struct, frozen=True):
    """The results dataset at one moment."""

    root: Path
    tick: int  # the newest that is committed
    files: tuple[DataFile, ...]
    forgotten: int = 0  # of this tick, and of those before it, rows may be gone

    def since(self, tick: int) -> list[DataFile]:
        """Files that have rows of later ticks."""
        return [file for file in self.files if file.greatest[TICK] > tick]


class ResultsStore:
    """The results dataset of a pipeline. Threads may share it."""

    def __init__(self, root: Path, *, grace_s: float = GRACE_S) -> None:
        self.root = root
        self._table = Table.create(
            root, _STORED, partition_by=["broker"], description="Tocsin: results of channels"
        )
        self._table.widen(_STORED)
        self._sweep = Sweep(self._table, grace_s)

    def commit(
        self,
        tick: int,
        parts: Sequence[Part],
        *,
        at_us: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> Committed:
        """Commit what the tasks of a tick wrote; if the tick is the newest that is committed, what was committed then.

        ``StorageUnusable`` if a later one is: ticks are committed in their order.
        """
        self._table.refresh()
        offsets, rows = _offsets(parts)
        executions = _executions(parts)
        said = {
            "tick": tick,
            "at_us": at_us,
            "executions": executions,
            "offsets": {str(part): offset for part, offset in offsets.items()},
            "rows": rows,
            "more": dict(metadata or {}),
        }
        try:
            self._table.commit(
                _adds(tick, parts, at_us), transactions={TICK: tick}, metadata=said, now_us=at_us
            )
        except Overtaken:
            return self._repeated(tick)
        files = [
            ResultFile(file.broker, file.path, file.rows, part.part, offsets[part.part])
            for part in parts
            for file in part.files
        ]
        return _committed(said, files)

    def _repeated(self, tick: int) -> Committed:
        """The commit of an earlier run of the same tick."""
        found = self.committed()
        if found is not None and found.tick == tick:
            return found
        newest = None if found is None else found.tick
        raise StorageUnusable(f"commit tick {tick} to {self.root}", f"tick {newest} is committed already")

    def committed(self) -> Committed | None:
        """The newest tick that is committed, with all that its notices need."""
        (tick,), active = self._table.seen(TICK)
        said = self._table.metadata()
        if not tick:
            return None
        if said.get("tick") != tick:
            raise StorageUnusable(
                f"read the log of {self.root}", f"its newest entry says nothing of tick {tick}"
            )
        offsets = said["offsets"]
        files = []
        for file in active:
            if file.path.startswith(f"{FRESH}{tick:012}-"):
                part = int(file.path[len(FRESH) :].split("-")[1])
                broker = file.partition["broker"] or ""
                files.append(ResultFile(broker, file.path, file.rows, part, offsets[str(part)]))
        return _committed(said, files)

    def snapshot(self) -> Results:
        """What is committed, for a reader that goes through it."""
        (tick,), files = self._table.seen(TICK)
        return Results(self.root, tick, files, self._table.metadata().get(FORGOTTEN, 0))

    def upkeep(self, now_us: int, *, keep_s: float | None, floor: int) -> list[Done]:
        """Put settled files together, forget rows below tick ``floor`` that are older than ``keep_s``, and sweep."""
        done: list[Done] = []
        try:
            for step in (self._forget(now_us, keep_s, floor), self._compact(now_us)):
                done += [step] if step else []
        except Overtaken:
            pass  # the next time
        newest = self._table.transaction(TICK) or 0
        removed = self._sweep.run(now_us, spared=lambda path: _tick_of(path) > newest)
        return [*done, Done("sweep", removed)] if removed else done

    def _compact(self, now_us: int) -> Done | None:
        (newest, number), files = self._table.seen(TICK, REWRITE)
        settled = planning.before(time_of(now_us), SETTLED_S)
        old = [file for file in files if file.greatest[TICK] < newest and file.greatest["at"] < settled]
        groups = planning.to_compact(old, TICK)
        adds = [self._merged(group, None) for group in groups]
        removes = [file for group in groups for file in group]
        return self._rewrite("compact", number, [each for each in adds if each], removes, now_us, False)

    def _forget(self, now_us: int, keep_s: float | None, floor: int) -> Done | None:
        if keep_s is None:
            return None
        (newest, number), files = self._table.seen(TICK, REWRITE)
        floor = min(floor, newest)
        free = [file for file in files if file.greatest[TICK] < floor]
        horizon = planning.before(time_of(now_us), keep_s)
        plan = planning.to_forget(free, "at", keep_s, time_of(now_us))
        adds = [self._merged([file], horizon) for file in plan.parts]
        removes = [*plan.whole, *plan.parts]
        forgotten = max((file.greatest[TICK] for file in removes), default=0)
        said = {FORGOTTEN: max(forgotten, self._table.metadata().get(FORGOTTEN, 0))}
        return self._rewrite("forget", number, [each for each in adds if each], removes, now_us, True, said)

    def _merged(self, files: Sequence[DataFile], horizon: datetime.datetime | None) -> DataFile | None:
        """One file of several of one partition, without rows that are older than ``horizon``."""
        rows = read_parquet(self.root, [file.path for file in files], FILE)
        if horizon is not None:
            rows = rows.filter(pc.greater_equal(rows["at"], pa.scalar(horizon, FILE.field("at").type)))
        if not rows.num_rows:
            return None
        path = f"{MOVED}{uuid.uuid4().hex}.parquet"
        return write_parquet(self.root, path, rows, measured=[TICK, "at"], partition=files[0].partition)

    def _rewrite(
        self,
        step: str,
        number: int,
        adds: Sequence[DataFile],
        removes: Sequence[DataFile],
        now_us: int,
        data_change: bool,
        said: Mapping[str, Any] | None = None,
    ) -> Done | None:
        if not removes:
            return None
        self._table.commit(
            adds,
            removes=removes,
            transactions={REWRITE: number + 1},
            metadata=said,
            data_change=data_change,
            now_us=now_us,
        )
        return Done(step, len(removes), len(adds))


def _committed(said: Mapping[str, Any], files: Iterable[ResultFile]) -> Committed:
    """From a commit's metadata, and the files that it added."""
    return Committed(
        said["tick"],
        said["at_us"],
        msgspec.convert(said["executions"], tuple[Execution, ...]),
        tuple(sorted(files, key=lambda each: (each.offset, each.part, each.broker))),
        said["rows"],
        said["more"],
    )


def _adds(tick: int, parts: Sequence[Part], at_us: int) -> list[DataFile]:
    """The files of a tick, as the log has them; times to the millisecond."""
    at = time_of(at_us)
    floor = at.replace(microsecond=at.microsecond // 1_000 * 1_000)
    least = {TICK: tick, "at": floor}
    greatest = {TICK: tick, "at": floor + datetime.timedelta(milliseconds=1)}
    return [
        DataFile(file.path, file.bytes, file.rows, least, greatest, {"broker": file.broker})
        for part in parts
        for file in part.files
    ]


def _offsets(parts: Sequence[Part]) -> tuple[dict[int, int], int]:
    """The ordinal at which each part begins, and how many there are."""
    offsets: dict[int, int] = {}
    total = 0
    for part in sorted(parts, key=lambda each: each.part):
        assert part.part not in offsets, f"two tasks wrote part {part.part}"
        offsets[part.part] = total
        total += part.rows
    return offsets, total


def _executions(parts: Iterable[Part]) -> list[list[Any]]:
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for part in parts:
        for each in part.executions:
            results, critical = counts.get((each.channel, each.number), (0, 0))
            counts[each.channel, each.number] = (results + each.results, critical + each.critical)
    return [[*key, *count] for key, count in sorted(counts.items())]


def _tick_of(path: str) -> int:
    """The tick in the name of a part's file; 0 of others."""
    return int(path[len(FRESH) :].split("-")[0]) if path.startswith(FRESH) else 0
