"""The subscriptions of all channels of one template, as the table that Spark joins with.

A row for each k: ``_channel``, ``_k``, the parameters' values ``p0 …`` and the channel's constants ``c0 …``. Most rows
are in the **base**: Parquet, cached by Spark. Rows that came since are in the **overlay**, a small file beside it. Rows
that *went* since are still in the base: a k is a channel with its values, so that its row cannot be wrong, only
unwanted; the writer of results drops results that nobody holds (``Holders``). So a change costs a row of the overlay,
and nothing is compiled or cached again. Now and then the overlay is **folded** into a new base, behind the back of the
ticks.

What has to be known of a k is written behind it: ``_k`` is ``k.n.values``, n the number of a set of brokers that hold
it, and values a JSON object of the parameters. It comes out at the other end of any query, and no second join is
needed. Where the holders have changed since, ``Holders.changed`` overrules.

``_channel`` stands for the constants too, so that rows of an older definition are never taken for those of the new
one.
"""

from __future__ import annotations

import datetime
import hashlib
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet

from tocsin.model.catalogue import ParameterType
from tocsin.model.results import Value
from tocsin.pipeline.execution.subscriptions import HeldSubscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLD_MIN: Final = 5_000  # changes below which a fold is not worth its job
FOLD_SHARE: Final = 20  # the overlay may be a twentieth of the base
FILE_ROWS: Final = 2_000_000

_Row = tuple[str, str, tuple[Any, ...]]  # the member's key, k with what is behind it, values and constants

_ARROW: Final[dict[ParameterType, pa.DataType]] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


class Member(msgspec.Struct, frozen=True):
    """A channel as a template's table has it: with the constants of its query, as their columns have them."""

    channel: str
    constants: tuple[Any, ...] = ()
    parameters: tuple[str, ...] = ()  # their names, in small letters

    @property
    def key(self) -> str:
        """The ``_channel`` of its rows: another one if the constants, or names of parameters, differ."""
        differs = repr((self.constants, self.parameters)).encode()
        return f"{self.channel.lower()}:{hashlib.blake2b(differs, digest_size=6).hexdigest()}"


class Holders(msgspec.Struct, frozen=True):
    """The holders of the ks that come out of a query; small enough to travel with each task."""

    sets: tuple[tuple[str, ...], ...]  # by the number behind a k
    changed: dict[str, tuple[str, ...]]  # k → those who hold it now; none: nobody does any more


class _Overlay:
    """The changes since a base was made."""

    def __init__(self) -> None:
        self.added: dict[str, _Row] = {}
        self.changed: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return max(len(self.added), len(self.changed))


class _Base:
    def __init__(self, frame: DataFrame | None, path: Path, keys: frozenset[str], ks: set[str]) -> None:
        self.frame = frame  # None: it has no rows
        self.path = path
        self.keys = keys  # of the members that it has rows of
        self.ks = ks

    def drop(self) -> None:
        if self.frame is not None:
            self.frame.unpersist()
        shutil.rmtree(self.path, ignore_errors=True)


class TemplateTable:
    """One template's. Used by one thread at a time; ``folder`` is where folds are done."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        parameters: Sequence[ParameterType],
        constants: Sequence[ParameterType],
        folder: Executor,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._schema = pa.schema(
            [
                ("_channel", pa.string()),
                ("_k", pa.string()),
                *((f"p{n}", _ARROW[kind]) for n, kind in enumerate(parameters)),
                *((f"c{n}", _ARROW[kind]) for n, kind in enumerate(constants)),
            ]
        )
        self._parameters = tuple(parameters)
        self._members: dict[str, Member] = {}
        self._sets: list[tuple[str, ...]] = []
        self._set_numbers: dict[tuple[str, ...], int] = {}
        self._base = _Base(None, directory / "none", frozenset(), set())
        self._overlay = _Overlay()
        self._frame: DataFrame | None = None  # of the overlay; None: to be made again
        self._folder = folder
        self._folding: Future[_Base] | None = None
        self._meanwhile: _Overlay | None = None  # what changes while a fold is under way
        self._number = 0
        self._lock = threading.Lock()  # of the sets: a fold gives them numbers too
        self.invalid: dict[str, int] = {}  # by member: subscriptions whose values do not fit its parameters
        self.folds = 0

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, member: Member, held: Mapping[str, HeldSubscription]) -> None:
        """A channel with this shape, new or in a new version, and all its subscriptions."""
        self.leave(member.channel)
        self._members[member.key] = member
        self.invalid[member.key] = 0
        self.change(member, held.keys(), held)

    def leave(self, channel: str) -> None:
        """A channel is dropped, or has another shape now."""
        for key in [key for key, each in self._members.items() if each.channel.lower() == channel.lower()]:
            del self._members[key]
            self.invalid.pop(key, None)
            for overlay in self._overlays():
                gone = [k for k, (of, _, _) in overlay.added.items() if of == key]
                for k in gone:
                    del overlay.added[k]
            self._frame = None

    def change(self, member: Member, ks: Iterable[str], held: Mapping[str, HeldSubscription]) -> None:
        """These ks of a channel came, went, or are held by others now."""
        for k in ks:
            self._change(member, k, held.get(k))

    def _change(self, member: Member, k: str, held: HeldSubscription | None) -> None:
        row = None if held is None else self._row(member, k, held)
        if held is not None and row is None:
            self.invalid[member.key] += 1
        brokers = () if held is None or row is None else held.brokers
        self._note(self._overlay, k, row, brokers, known=member.key in self._base.keys and k in self._base.ks)
        if self._meanwhile is not None:
            # Whether the base that is being made has it is seen when it is there.
            self._note(self._meanwhile, k, row, brokers, known=False)
            self._meanwhile.changed[k] = brokers

    def _note(
        self, overlay: _Overlay, k: str, row: _Row | None, brokers: tuple[str, ...], known: bool
    ) -> None:
        if row is None:
            if overlay.added.pop(k, None) is not None:
                self._frame = None
            overlay.changed[k] = ()
        elif known or k in overlay.added:
            overlay.changed[k] = brokers
        else:
            overlay.added[k] = row
            overlay.changed.pop(k, None)
            self._frame = None

    def _overlays(self) -> tuple[_Overlay, ...]:
        return (self._overlay,) if self._meanwhile is None else (self._overlay, self._meanwhile)

    def _row(self, member: Member, k: str, held: HeldSubscription) -> _Row | None:
        values = row_values(self._parameters, held.values)
        if values is None:
            return None
        said = msgspec.json.encode(dict(zip(member.parameters, held.values, strict=True))).decode()
        return member.key, f"{k}.{self._set_number(held.brokers)}.{said}", (*values, *member.constants)

    def _set_number(self, brokers: tuple[str, ...]) -> int:
        number = self._set_numbers.get(brokers)
        if number is None:
            with self._lock:
                number = self._set_numbers.setdefault(brokers, len(self._sets))
                if number == len(self._sets):
                    self._sets.append(brokers)
        return number

    # ── folding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def tend(self, of: Mapping[str, Mapping[str, HeldSubscription]], *, now: bool = False) -> None:
        """Fold if it is time, or ``now``; ``of``: member → all its subscriptions.

        It is waited for only if ``now``, or where there is nothing to run with.
        """
        self._adopt(wait=now)
        if self._folding is not None or (len(self._overlay) <= self._room() and not now):
            return
        content = [(member, list(of.get(key, {}).items())) for key, member in self._members.items()]
        self._number += 1
        self._meanwhile = _Overlay()
        self._folding = self._folder.submit(self._build, self._directory / f"{self._number}", content)
        # Beside a base of no rows a large overlay is no quicker than to wait.
        self._adopt(wait=now or self._base.frame is None)

    def _room(self) -> int:
        return max(FOLD_MIN, len(self._base.ks) // FOLD_SHARE)

    def _build(self, path: Path, content: list[tuple[Member, list[tuple[str, HeldSubscription]]]]) -> _Base:
        """In another thread: the rows as files, read again, and cached. By channel: whole batches can be skipped."""
        keys = frozenset(member.key for member, _ in content)
        found = (self._row(member, k, held) for member, of_member in content for k, held in of_member)
        rows = [row for row in found if row is not None]
        if not rows:
            return _Base(None, path, keys, set())
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        files = max(self._spark.sparkContext.defaultParallelism, -(-len(rows) // FILE_ROWS))
        size = -(-len(rows) // files)
        paths = []
        for number, start in enumerate(range(0, len(rows), size)):
            paths.append(str(path / f"{number}.parquet"))
            parquet.write_table(self._arrow(rows[start : start + size]), paths[-1], compression="lz4")
        frame = self._spark.read.schema(_spark_schema(self._schema)).parquet(*paths).cache()
        frame.count()
        return _Base(frame, path, keys, {coded.partition(".")[0] for _, coded, _ in rows})

    def _adopt(self, *, wait: bool) -> None:
        """Change over to a base that is ready."""
        if self._folding is None or not (wait or self._folding.done()):
            return
        folding, self._folding = self._folding, None
        overlay, self._meanwhile = self._meanwhile, None
        base = folding.result()
        assert overlay is not None
        overlay.added = {
            k: row for k, row in overlay.added.items() if not (row[0] in base.keys and k in base.ks)
        }
        old, self._base, self._overlay, self._frame = self._base, base, overlay, None
        self.folds += 1
        old.drop()

    def _arrow(self, rows: Sequence[_Row]) -> pa.Table:
        columns: list[Any] = [[row[0] for row in rows], [row[1] for row in rows]]
        columns += [[row[2][n] for row in rows] for n in range(len(self._schema) - 2)]
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    # ── for a tick ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def rows(self) -> int:
        return len(self._base.ks) + len(self._overlay.added)

    def frame(self, keys: Iterable[str]) -> DataFrame | None:
        """The rows of these members; None if there is none."""
        wanted = frozenset(keys)
        parts = [part for part in (self._base.frame, self._overlay_frame()) if part is not None]
        if not parts:
            return None
        frame = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
        if self._base.keys - wanted or any(row[0] not in wanted for row in self._overlay.added.values()):
            from pyspark.sql import functions

            frame = frame.where(functions.col("_channel").isin(*sorted(wanted)))
        return frame

    def _overlay_frame(self) -> DataFrame | None:
        if not self._overlay.added:
            return None
        if self._frame is None:
            self._number += 1
            path = self._directory / f"overlay-{self._number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(self._arrow(list(self._overlay.added.values())), path, compression="lz4")
            self._frame = self._spark.read.schema(_spark_schema(self._schema)).parquet(str(path))
            (self._directory / f"overlay-{self._number - 2}.parquet").unlink(missing_ok=True)
        return self._frame

    def empty(self) -> DataFrame:
        """A table of these columns without rows."""
        return self._spark.createDataFrame([], _spark_schema(self._schema))

    def holders(self) -> Holders:
        return Holders(tuple(self._sets), dict(self._overlay.changed))

    def close(self) -> None:
        if self._folding is not None:
            self._adopt(wait=True)
        self._base.drop()
        shutil.rmtree(self._directory, ignore_errors=True)


def row_values(parameters: Sequence[ParameterType], values: tuple[Value, ...]) -> tuple[Any, ...] | None:
    """Values as their columns have them; None if they do not fit, such as those of an older signature."""
    if len(values) != len(parameters):
        return None
    row = []
    for kind, value in zip(parameters, values, strict=True):
        converted = _converted(kind, value)
        if converted is None:
            return None
        row.append(converted)
    return tuple(row)


def _converted(kind: ParameterType, value: Value) -> Any:
    match kind, value:
        case "BOOLEAN", bool():
            return value
        case _, bool():
            return None
        case "STRING", str():
            return value
        case "BIGINT", int():
            return value if -(1 << 63) <= value < 1 << 63 else None
        case "DOUBLE", int() | float():
            return float(value)
        case "DATE" | "TIMESTAMP", str():
            return _time(kind, value)
    return None


def _time(kind: str, value: str) -> datetime.date | datetime.datetime | None:
    try:
        if kind == "DATE":
            return datetime.date.fromisoformat(value)
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
