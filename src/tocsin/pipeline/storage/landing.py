"""Lands fitted records: rows in their dataset, rejected ones in its quarantine.

The quarantine of a dataset is a dataset of its own, under the same name, in another directory: when a record came,
from where, at which position, why it does not fit, and its text. It is written first, with the same transactions as
the rows, so that each record is in one of the two, once, whatever is repeated.

**Replay** fits what is in quarantine again, and moves what fits now. Rows are appended under the transaction
(``replay``, number), with a note of what they were, and only then taken out of quarantine, under the same; if that
was cut short, the next replay begins by finishing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage.datasets import ROWS, DatasetStore, time_of
from tocsin.pipeline.storage.rows.fitting import Fitted, Fitter, Rejected
from tocsin.pipeline.storage.rows.schema import VERSION, Schema
from tocsin.pipeline.storage.tables.delta import OVERTAKEN_MAX, Overtaken
from tocsin.pipeline.storage.tables.files import read_parquet
from tocsin.pipeline.storage.tables.upkeep import Done, Rewrite, Upkeep

REPLAY: Final = "replay"
QUARANTINE_KEEP_S: Final = 30 * 86_400.0
RECORD_KEPT_BYTES: Final = 1 << 20  # of a record in quarantine; what is beyond is cut off
REPLAY_ROWS: Final = 50_000  # of one replay; the rest is for the next
_COLUMNS: Final = (
    Column("at", "TIMESTAMP", nullable=False),
    Column("feed", "STRING", nullable=False),
    Column("position", "BIGINT"),
    Column("reason", "STRING", nullable=False),
    Column("record", "STRING", nullable=False),
)


class Landed(msgspec.Struct, frozen=True):
    """The outcome of a batch."""

    version: int  # of the dataset, now
    rows: int
    quarantined: int


class Landing:
    """Datasets under ``root/data`` and their quarantines under ``root/quarantine``, with their upkeep."""

    def __init__(self, root: Path) -> None:
        self.data = DatasetStore(root / "data")
        self.quarantine = DatasetStore(root / "quarantine", recent_bytes=0)
        self._upkeep = Upkeep(self.data)
        self._quarantine_upkeep = Upkeep(self.quarantine)
        self._fitters: dict[str, Fitter] = {}

    def create(self, dataset: Dataset) -> Schema:
        """Make a dataset, or open it. Its quarantine stays when it is dropped: what it has may fit the next one."""
        schema = self.data.create(dataset)
        self.quarantine.create(Dataset(dataset.name, _COLUMNS, event_time="at", keep_s=QUARANTINE_KEEP_S))
        self._fitters[dataset.name.lower()] = Fitter(schema)
        return schema

    def drop(self, name: str) -> None:
        self.data.drop(name)
        self._fitters.pop(name.lower(), None)

    def fitter(self, name: str) -> Fitter:
        self.data.schema(name)  # DatasetMissing
        return self._fitters[name.lower()]

    def land(
        self,
        name: str,
        fitted: Fitted,
        *,
        feed: str,
        now_us: int,
        positions: Sequence[int] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> Landed:
        """Store a batch, once by its transactions. ``positions`` are those of its records, where they have any.

        After a failure the caller's batches must not go beyond the transaction that the quarantine has and the dataset
        lacks: rejected records up to there are in quarantine already.
        """
        if fitted.rejected:
            rejected = _rejected(fitted.rejected, feed, positions, now_us)
            self.quarantine.append(name, rejected, now_us=now_us, transactions=transactions)
        version = self.data.append(name, fitted.rows, now_us=now_us, transactions=transactions)
        if fitted.rows.num_rows:
            self._upkeep.tidy(name, now_us)
        return Landed(version, fitted.rows.num_rows, len(fitted.rejected))

    def upkeep(self, name: str, now_us: int) -> list[Done]:
        """The due upkeep of a dataset and its quarantine."""
        return [*self._upkeep.run(name, now_us), *self._quarantine_upkeep.run(name, now_us)]

    def quarantined(self, name: str) -> int:
        """How many records are in a dataset's quarantine."""
        return sum(file.rows for file in self.quarantine.snapshot(name).files)

    def rejected(self, name: str, limit: int) -> pa.Table:
        """The newest records of a dataset's quarantine, the newest first."""
        snapshot = self.quarantine.snapshot(name)
        names = [each.name for each in _COLUMNS]
        found = [snapshot.schema.stored.empty_table().select([*names, VERSION])]
        for file in sorted(snapshot.files, key=lambda each: -each.greatest.get(VERSION, 0)):
            if sum(each.num_rows for each in found) >= limit:
                break
            found.append(
                read_parquet(snapshot.root, [file.path], snapshot.schema.stored).select([*names, VERSION])
            )
        newest = pa.concat_tables(found).sort_by([(VERSION, "descending"), ("position", "descending")])
        return newest.slice(0, limit).select(names)

    def replay(self, name: str, now_us: int) -> Landed:
        """Fit again what is in quarantine, the oldest first; ``quarantined`` counts what still does not fit."""
        fitter = self.fitter(name)
        self._finish(name, fitter, now_us)
        moved = left = after = 0
        while chunk := self._chunk(name, after):
            records, upto = chunk
            fitted = fitter.fit(records)
            if fitted.rows.num_rows:
                number = (self.quarantine.transaction(name, REPLAY) or 0) + 1
                self.data.append(
                    name,
                    fitted.rows,
                    now_us=now_us,
                    transactions={REPLAY: number},
                    metadata={REPLAY: [number, after, upto]},
                )
                self._take_out(name, fitter, number, after, upto, now_us)
            moved += fitted.rows.num_rows
            left += len(fitted.rejected)
            after = upto
        return Landed(self.data.version(name), moved, left)

    def _finish(self, name: str, fitter: Fitter, now_us: int) -> None:
        """Take out what a replay that was cut short has appended."""
        self.data.snapshot(name)
        said = self.data.table(name).metadata().get(REPLAY)
        if said and said[0] > (self.quarantine.transaction(name, REPLAY) or 0):
            number, after, upto = said
            self._take_out(name, fitter, number, after, upto, now_us)

    def _chunk(self, name: str, after: int) -> tuple[list[bytes], int] | None:
        """Records in quarantine that came after a version, and the version up to which they go."""
        snapshot = self.quarantine.snapshot(name)
        found: list[pa.Table] = []
        count = upto = 0
        for file in sorted(snapshot.since(after), key=lambda each: each.least.get(VERSION, 0)):
            if count >= REPLAY_ROWS and file.least.get(VERSION, 0) > upto:
                break
            rows = read_parquet(snapshot.root, [file.path], snapshot.schema.stored)
            found.append(rows.filter(pc.greater(rows[VERSION], after)))
            count += found[-1].num_rows
            upto = max(upto, file.greatest.get(VERSION, snapshot.version))
        if not count:
            return None
        rows = pa.concat_tables(found).sort_by(VERSION)
        return _records(rows), rows[VERSION][-1].as_py()

    def _take_out(self, name: str, fitter: Fitter, number: int, after: int, upto: int, now_us: int) -> None:
        """Remove from quarantine the records of some versions that fit."""
        table = self.quarantine.table(name)
        for _ in range(OVERTAKEN_MAX):
            snapshot = self.quarantine.snapshot(name)
            rewrite = Rewrite(table, snapshot, time_of(now_us))
            removes, adds = [], []
            for file in snapshot.since(after):
                if file.least.get(VERSION, 0) > upto:
                    continue
                rows = read_parquet(snapshot.root, [file.path], snapshot.schema.stored)
                removes.append(file)
                adds += rewrite.write(ROWS, [rows.filter(_staying(rows, fitter, after, upto))])
            try:
                rewrite.commit(adds, removes, data_change=True, transactions={REPLAY: number})
                return
            except Overtaken:
                if (self.quarantine.transaction(name, REPLAY) or 0) >= number:
                    return


def _staying(rows: pa.Table, fitter: Fitter, after: int, upto: int) -> pa.Array:
    """For each row of a quarantine whether it stays."""
    concerned = [after < version <= upto for version in rows[VERSION].to_pylist()]
    records = [record for record, each in zip(_records(rows), concerned, strict=True) if each]
    still = {each.index for each in fitter.fit(records).rejected}
    staying, index = [], 0
    for each in concerned:
        staying.append(not each or index in still)
        index += each
    return pa.array(staying, pa.bool_())


def _records(rows: pa.Table) -> list[bytes]:
    return [record.encode() for record in rows["record"].to_pylist()]


def _rejected(
    rejected: Sequence[Rejected], feed: str, positions: Sequence[int] | None, now_us: int
) -> pa.Table:
    columns = {
        "at": [now_us] * len(rejected),
        "feed": [feed] * len(rejected),
        "position": [None if positions is None else positions[each.index] for each in rejected],
        "reason": [each.reason for each in rejected],
        "record": [each.record[:RECORD_KEPT_BYTES].decode(errors="backslashreplace") for each in rejected],
    }
    kinds = (pa.timestamp("us", "UTC"), pa.string(), pa.int64(), pa.string(), pa.string())
    return pa.table(
        {name: pa.array(values, kind) for (name, values), kind in zip(columns.items(), kinds, strict=True)}
    )
