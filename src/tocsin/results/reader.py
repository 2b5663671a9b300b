"""Results as brokers read them, straight from the files that the pipeline committed.

A notice names files, the part of the tick that each is of, and the ordinal at which the part begins. A row says its
number in the part, so its ordinal is known wherever the row is found. Files are small and fresh when a broker reads
them; later they may have been put together with others, and then the dataset's own log says where the rows are now.

``pyarrow`` is imported when it is first needed: a broker without it, or without access to the storage, gets
``ResultsUnreachable``, and asks the pipeline.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tocsin.errors import ResultsUnreachable, Trimmed
from tocsin.model.results import OURS, TABLE, VERSION, Notice, ResultFile
from tocsin.results.index import ResultIndex

if TYPE_CHECKING:
    import pyarrow as pa

CACHE_BYTES: Final = (
    48 << 20
)  # in memory, over all files: two thirds for their columns, the rest for the index
CACHED_FILE_BYTES: Final = 4 << 20  # larger files are read row group by row group, and not kept
NO_CACHE: Final = {"results_cache_bytes": 0, "results_cache_hits": 0, "results_cache_misses": 0}
_COLUMNS: Final = ("tick", "part", "row", "channel", "execution", "k", "priority", "payload")


class Result(msgspec.Struct, frozen=True, gc=False):
    """One result, for one backend subscription."""

    ordinal: int  # from the notice's first, as ``model.results.result_position`` takes it
    channel: str
    execution: int
    k: str
    priority: int
    payload: bytes  # a JSON object: the result's columns


class ResultsReader:
    """Reads results by notice. Threads may share it.

    It caches the columns of small files, and the results of popular notices by subscription (``index``). The least
    recently used go first. ``cache_bytes`` 0: it caches nothing.
    """

    def __init__(self, root: Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.root = root
        self._cache_bytes = cache_bytes * 2 // 3
        self._hits = self._misses = 0  # of files
        self._cached: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._index = ResultIndex(cache_bytes - self._cache_bytes)
        self._log: Any = None  # the dataset's DeltaTable, once it was needed

    def statistics(self) -> dict[str, int]:
        """The bytes in the cache, and how often something was there, or had to be read from the disk."""
        index = self._index
        with self._lock:
            figures = (self._bytes + index.bytes, self._hits + index.hits, self._misses)
        return dict(zip(NO_CACHE, figures, strict=True))

    def read(self, notice: Notice, broker: str, *, start: int = 0) -> Iterator[Result]:
        """The results for a broker from ordinal ``start`` on, in the order of their ordinals."""
        files = [file for file in notice.files if file.broker == broker]
        for part in _parts(files):
            for rows in self._tables(notice, part):
                yield from _results(_within(rows, notice, part[0], start))

    def find(self, notice: Notice, ks: Collection[str], *, start: int = 0) -> Iterator[Result]:
        """The results of some subscriptions, whichever broker had them, in the order of their ordinals, each once."""
        if not ks:
            return
        known = self._index.find(notice, ks, start, lambda: self._each(notice, None, 0))
        yield from self._each(notice, ks, start) if known is None else known

    def _each(self, notice: Notice, ks: Collection[str] | None, start: int) -> Iterator[Result]:
        """The same; None: of all subscriptions."""
        for part in _parts(notice.files):
            found: dict[int, Result] = {}
            for rows in self._tables(notice, part):
                within = _within(rows, notice, part[0], start)
                wanted = within if ks is None else _of_ks(within, ks)
                found.update((each.ordinal, each) for each in _results(wanted))
            yield from (found[ordinal] for ordinal in sorted(found))

    def _tables(self, notice: Notice, part: list[ResultFile]) -> Iterator[pa.Table]:
        """The rows of a part's files; if they were moved, from where they are now."""
        try:
            for file in part:
                yield from self._file(file.path)
        except FileNotFoundError:
            yield from self._moved(notice, part)

    def _file(self, name: str) -> Iterator[pa.Table]:
        """A file's columns, from memory if it is there; ``FileNotFoundError`` if it is not on the disk either."""
        if (cached := self._remembered(name)) is not None:
            yield cached
            return
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ResultsUnreachable(name, "the name leads out of the dataset")
        path = self.root / name
        parquet = self._open(path)
        try:
            if path.stat().st_size > CACHED_FILE_BYTES:
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group, columns=list(_COLUMNS))
                return
            rows = parquet.read(columns=list(_COLUMNS))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise ResultsUnreachable(str(path), str(error)) from error
        finally:
            parquet.close()
        self._keep(name, rows)
        yield rows

    def _open(self, path: Path) -> Any:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ResultsUnreachable(str(path), "pyarrow is not installed (extra: spark)") from None
        if not self.root.is_dir():
            raise ResultsUnreachable(str(self.root), "there is no such directory")
        try:
            return pq.ParquetFile(path)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise ResultsUnreachable(str(path), str(error)) from error

    def _remembered(self, name: str) -> pa.Table | None:
        with self._lock:
            if name in self._cached:
                self._hits += 1
                self._cached.move_to_end(name)
            else:
                self._misses += 1
            return self._cached.get(name)

    def _keep(self, name: str, rows: pa.Table) -> None:
        with self._lock:
            if name not in self._cached:
                self._cached[name] = rows
                self._bytes += rows.nbytes
            while self._bytes > self._cache_bytes:
                self._bytes -= self._cached.popitem(last=False)[1].nbytes

    def _moved(self, notice: Notice, part: list[ResultFile]) -> Iterator[pa.Table]:
        """The rows of a part, after its files were put together with others."""
        import pyarrow.compute as pc

        brokers = {file.broker for file in part}
        found = oldest = 0
        for name, first, last, broker in self._active():
            oldest = min(first, oldest) if oldest else first
            if broker not in brokers or not first <= notice.tick <= last:
                continue
            for rows in self._file(name):
                rows = rows.filter(
                    pc.and_(pc.equal(rows["tick"], notice.tick), pc.equal(rows["part"], part[0].part))
                )
                found += rows.num_rows
                yield rows
        if not found and any(file.rows for file in part):
            raise Trimmed("results", notice.tick, oldest)

    def _active(self) -> list[tuple[str, int, int, str]]:
        """(path, first tick, last tick, broker) of the files that make up the dataset, by their first ticks."""
        try:
            import pyarrow as pa
            from deltalake import DeltaTable

            with self._lock:
                if self._log is None:
                    found = DeltaTable(self.root)
                    TABLE.check(next(iter(found.history(1)), {}).get(OURS, {}).get(VERSION))
                    self._log = found
                self._log.update_incremental()
                actions = pa.table(self._log.get_add_actions(flatten=True))
        except ImportError:
            raise ResultsUnreachable(str(self.root), "deltalake is not installed (extra: spark)") from None
        except Exception as error:  # deltalake has no one root of its errors
            raise ResultsUnreachable(str(self.root), str(error)) from error
        columns = (actions[name].to_pylist() for name in ("path", "min.tick", "max.tick", "partition.broker"))
        return sorted(zip(*columns, strict=True), key=lambda each: each[1])


def _parts(files: Collection[ResultFile]) -> list[list[ResultFile]]:
    """Files by the part of the tick that they are of, in the order of ordinals."""
    parts: dict[int, list[ResultFile]] = {}
    for file in sorted(files, key=lambda each: (each.offset, each.part)):
        parts.setdefault(file.part, []).append(file)
    return list(parts.values())


def _within(rows: pa.Table, notice: Notice, file: ResultFile, start: int) -> pa.Table:
    """Rows that the notice is about, from ``start`` on, with their ordinals in place of ``row``."""
    import pyarrow.compute as pc

    ordinals = pc.add(pc.cast(rows["row"], "int64"), file.offset - notice.first)
    rows = rows.set_column(rows.column_names.index("row"), "row", ordinals)
    if not rows.num_rows:
        return rows
    bounds = pc.min_max(ordinals)
    if bounds["min"].as_py() >= start and bounds["max"].as_py() < notice.rows:
        return rows
    return rows.filter(pc.and_(pc.greater_equal(ordinals, max(start, 0)), pc.less(ordinals, notice.rows)))


def _of_ks(rows: pa.Table, ks: Collection[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.is_in(rows["k"], value_set=pa.array(list(ks), pa.string())))


def _results(rows: pa.Table) -> Iterator[Result]:
    import pyarrow.compute as pc

    return map(
        Result,
        rows["row"].to_pylist(),
        rows["channel"].to_pylist(),
        rows["execution"].to_pylist(),
        rows["k"].to_pylist(),
        rows["priority"].to_pylist(),
        pc.cast(rows["payload"], "binary").to_pylist(),
    )
